/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/kube_private.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"
#include "net/tls.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    TOKEN_MAXIMUM = 32 * 1024,
    TOKEN_FRESH_US = 60 * 1000 * 1000,
    IDLE_CONNECTIONS = 8,
    SCRATCH_BYTES = 64 * 1024,
};

/* --- the token -------------------------------------------------------------------------------- */

/* NULL when the file cannot be read or has no token. */
static char *read_token(const char *path)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char text[TOKEN_MAXIMUM];
    size_t length = 0;
    ssize_t got;

    if (fd < 0)
        return NULL;
    while (length < sizeof(text) && (got = read(fd, text + length, sizeof(text) - length)) > 0)
        length += (size_t)got;
    while (length && (text[length - 1] == '\n' || text[length - 1] == '\r'))
        length--;
    if (!length || length == sizeof(text))
        return NULL;
    for (size_t i = 0; i < length; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return NULL;
    return xstrndup(text, length);
}

/* A token that cannot be read is the old one for now: the server says when it has expired. */
bool kube_client_renew_token(struct kube_client *client)
{
    scoped(free) char *token = client->config.token_path ? read_token(client->config.token_path)
                                                         : NULL;
    scoped(free) char *header = token ? xasprintf("Bearer %s", token) : NULL;
    bool is_new = header && !str_equal(header, client->authorization);

    client->token_read_us = loop_now_us(client->loop);
    if (is_new) {
        free(client->authorization);
        client->authorization = steal_ptr(&header);
    }
    return is_new;
}

static void keep_token_fresh(struct kube_client *client)
{
    if (client->config.token_path &&
        loop_now_us(client->loop) - client->token_read_us > TOKEN_FRESH_US)
        (void)kube_client_renew_token(client);
}

/* --- certificates ----------------------------------------------------------------------------- */

/* OpenSSL reads files: what a kubeconfig has inside is one for that moment. */
struct pem_file {
    char *path;   /* owned; NULL: none */
    bool is_ours; /* and removed at the end */
};

static void pem_file_drop(struct pem_file *file)
{
    if (file->is_ours)
        (void)unlink(file->path);
    free(file->path);
}

static int pem_file_take(struct pem_file *file, const struct kube_pem *pem, const char *directory,
                         struct error *err)
{
    scoped(fd_close) int fd = -1;
    size_t length;

    if (pem->path)
        file->path = xstrdup(pem->path);
    if (!pem->text)
        return 0;
    file->path = xasprintf("%s/.kubernetes-XXXXXX", directory);
    fd = mkostemp(file->path, O_CLOEXEC);
    if (fd < 0)
        return error_sys(err, "make a file in %s", directory);
    file->is_ours = true;
    length = strlen(pem->text);
    return write(fd, pem->text, length) == (ssize_t)length ? 0
                                                           : error_sys(err, "write %s", file->path);
}

static int connect_or_reload(struct kube_client *client, const struct tls_files *files,
                             struct error *err)
{
    if (client->http)
        return http_client_reload_files(client->http, files, err);
    client->http = http_client_new_with(client->loop, client->config.url, files, err);
    return client->http ? 0 : -1;
}

static int use_certificates(struct kube_client *client, struct error *err)
{
    const struct kube_config *config = &client->config;
    struct pem_file ca = { 0 }, certificate = { 0 }, key = { 0 };
    int result = -1;

    if (pem_file_take(&ca, &config->ca, client->state_path, err) == 0 &&
        pem_file_take(&certificate, &config->certificate, client->state_path, err) == 0 &&
        pem_file_take(&key, &config->key, client->state_path, err) == 0) {
        const struct tls_files files = { .ca = ca.path,
                                         .certificate = certificate.path,
                                         .key = key.path };

        result = connect_or_reload(client, &files, err);
    }
    pem_file_drop(&ca);
    pem_file_drop(&certificate);
    pem_file_drop(&key);
    return result;
}

static struct kube_stamp stamp_of(const struct kube_pem *pem)
{
    struct stat status;

    if (!pem->path || stat(pem->path, &status) < 0)
        return (struct kube_stamp){ 0 };
    return (struct kube_stamp){ .changed_ns = status.st_mtim.tv_sec * 1000000000LL +
                                              status.st_mtim.tv_nsec,
                                .inode = status.st_ino };
}

static bool read_stamps(const struct kube_client *client, struct kube_stamp out[3])
{
    const struct kube_pem *const files[3] = { &client->config.ca, &client->config.certificate,
                                              &client->config.key };
    bool is_same = true;

    for (size_t i = 0; i < ARRAY_LENGTH(files); i++) {
        out[i] = stamp_of(files[i]);
        is_same &= out[i].inode == client->stamps[i].inode &&
                   out[i].changed_ns == client->stamps[i].changed_ns;
    }
    return is_same;
}

/* A certificate may be there before its key: the old ones go on until both fit. */
static void keep_certificates_fresh(struct kube_client *client)
{
    struct kube_stamp now[3];
    struct error ignored = { 0 };

    if (!read_stamps(client, now) && use_certificates(client, &ignored) == 0)
        memcpy(client->stamps, now, sizeof(now));
}

/* --- the client ------------------------------------------------------------------------------- */

struct kube_client *kube_client_new(const struct kube_client_options *options, struct error *err)
{
    struct kube_client *client = xnew(struct kube_client);

    client->loop = options->loop;
    client->config = *options->config;
    *options->config = (struct kube_config){ 0 };
    client->namespace = xstrdup(options->namespace);
    list_init(&client->jobs);
    list_init(&client->watches);
    list_init(&client->execs);
    client->scratch = xmalloc(SCRATCH_BYTES);
    client->state_path = xstrdup(options->state_path);
    (void)read_stamps(client, client->stamps);
    if (use_certificates(client, err) < 0) {
        error_wrap(err, "the credentials of %s", client->config.origin);
        kube_client_free(client);
        return NULL;
    }
    http_client_keep_idle(client->http, IDLE_CONNECTIONS);
    http_client_set_fresh_posts(client->http);
    if (client->config.token)
        client->authorization = xasprintf("Bearer %s", client->config.token);
    (void)kube_client_renew_token(client);
    return client;
}

void kube_client_free(struct kube_client *client)
{
    if (!client)
        return;
    kube_jobs_free(client);
    kube_watches_free(client);
    kube_execs_free(client);
    http_client_free(client->http);
    kube_config_fini(&client->config);
    if (client->authorization)
        explicit_bzero(client->authorization, strlen(client->authorization));
    free(client->authorization);
    free(client->namespace);
    free(client->state_path);
    free(client->scratch);
    free(client);
}

const char *kube_client_url(const struct kube_client *client)
{
    return client->config.url;
}

const char *kube_client_namespace(const struct kube_client *client)
{
    return client->namespace;
}

struct http_call *kube_client_call(struct kube_client *client, enum http_method method,
                                   const char *path, const char *body, const char *const *headers,
                                   const struct http_call_handler *handler, void *user)
{
    scoped(free) char *target = xasprintf("%s%s", client->config.prefix, path);
    const char *all[KUBE_HEADERS + 3] = { 0 };
    size_t count = 0;

    keep_token_fresh(client);
    keep_certificates_fresh(client);
    if (client->authorization) {
        all[count++] = "Authorization";
        all[count++] = client->authorization;
    }
    for (; headers && *headers; headers++) {
        assert(count < ARRAY_LENGTH(all) - 1);
        all[count++] = *headers;
    }
    return http_client_request(client->http, method, target, body ? "application/json" : NULL, body,
                               body ? (int64_t)strlen(body) : 0, all, handler, user);
}
