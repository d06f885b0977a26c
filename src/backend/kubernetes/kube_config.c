/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/kubernetes/kube_config.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/str.h"
#include "config/config.h"
#include "wire/base64.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount/"

enum { FILE_MAXIMUM = 1024 * 1024, DEFAULT_PORT = 443 };

static void pem_fini(struct kube_pem *pem)
{
    free(pem->path);
    if (pem->text)
        explicit_bzero(pem->text, strlen(pem->text));
    free(pem->text);
}

void kube_config_fini(struct kube_config *kube)
{
    free(kube->origin);
    free(kube->url);
    free(kube->prefix);
    free(kube->namespace);
    pem_fini(&kube->ca);
    pem_fini(&kube->certificate);
    pem_fini(&kube->key);
    if (kube->token)
        explicit_bzero(kube->token, strlen(kube->token));
    free(kube->token);
    free(kube->token_path);
    *kube = (struct kube_config){ 0 };
}

/* --- a document of YAML ----------------------------------------------------------------------- */

static const char *scalar_of(const yaml_node_t *node)
{
    return node && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value : NULL;
}

/* The value of a key in a mapping; NULL without one. */
static yaml_node_t *member(yaml_document_t *document, const yaml_node_t *mapping, const char *key)
{
    if (!mapping || mapping->type != YAML_MAPPING_NODE)
        return NULL;
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++)
        if (str_equal(scalar_of(yaml_document_get_node(document, pair->key)), key))
            return yaml_document_get_node(document, pair->value);
    return NULL;
}

/* NULL when it is absent or empty. */
static const char *text_at(yaml_document_t *document, const yaml_node_t *mapping, const char *key)
{
    const char *text = scalar_of(member(document, mapping, key));

    return str_is_empty(text) ? NULL : text;
}

/* In `clusters:` and the like: the mapping `inner` of the item with this name. */
static yaml_node_t *named_item(yaml_document_t *document, const char *list, const char *name,
                               const char *inner)
{
    yaml_node_t *items = member(document, yaml_document_get_root_node(document), list);

    if (!items || items->type != YAML_SEQUENCE_NODE)
        return NULL;
    for (const yaml_node_item_t *item = items->data.sequence.items.start;
         item < items->data.sequence.items.top; item++) {
        yaml_node_t *node = yaml_document_get_node(document, *item);

        if (str_equal(text_at(document, node, "name"), name))
            return member(document, node, inner);
    }
    return NULL;
}

/* --- the parts of a kubeconfig ---------------------------------------------------------------- */

static bool is_yes(const char *text)
{
    return text && (strcasecmp(text, "true") == 0 || strcasecmp(text, "yes") == 0);
}

static int refuse(const char *what, const char *remedy, struct error *err)
{
    error_set(err, ERR_INVALID, "%s is not supported", what);
    return error_hint(err, "%s", remedy);
}

static char *path_from(const char *directory, const char *path)
{
    return *path == '/' ? xstrdup(path) : path_join(directory, path);
}

/* KEY is a path, KEY-data the content in base64. */
static int read_pem(yaml_document_t *document, const yaml_node_t *node, const char *key,
                    const char *directory, struct kube_pem *out_pem, struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(FILE_MAXIMUM);
    scoped(free) char *data_key = xasprintf("%s-data", key);
    const char *data = text_at(document, node, data_key);
    const char *path = text_at(document, node, key);

    if (data && (base64_decode(data, strlen(data), &text) < 0 ||
                 memchr(buffer_text(&text), '\0', text.length)))
        return error_set(err, ERR_INVALID, "%s is not PEM in base64", data_key);
    if (data)
        out_pem->text = buffer_steal_text(&text);
    else if (path)
        out_pem->path = path_from(directory, path);
    return 0;
}

static bool host_is_loopback_name(const char *host, size_t length)
{
    static const char *const names[] = { "127.0.0.1", "localhost", "[::1]" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (length == strlen(names[i]) && strncmp(host, names[i], length) == 0)
            return true;
    return false;
}

static bool is_port(const char *text, size_t length)
{
    unsigned port = 0;

    if (!length || length > 5 || strspn(text, "0123456789") < length)
        return false;
    for (size_t i = 0; i < length; i++)
        port = port * 10 + (unsigned)(text[i] - '0');
    return port > 0 && port <= 65535;
}

static bool is_host(const char *host, size_t length)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

    if (length > 2 && host[0] == '[' && host[length - 1] == ']')
        return strspn(host + 1, "0123456789abcdefABCDEF:.") == length - 2;
    return length && strspn(host, letters) >= length;
}

static bool is_prefix(const char *path)
{
    return !*path || (*path == '/' && !strpbrk(path, "?# \t\r\n"));
}

static int refuse_url(const char *url, struct error *err)
{
    error_set(err, ERR_INVALID, "server: \"%.200s\" is not https://HOST[:PORT][/PATH]", url);
    return error_hint(err, "http:// is allowed for a loopback address only, as of 'kubectl proxy'");
}

static int take_server(struct kube_config *kube, const char *url, struct error *err)
{
    bool is_secure = str_starts_with(url, "https://");
    const char *host = strstr(url, "://") ? strstr(url, "://") + 3 : url;
    size_t length = strcspn(host, "/");
    const char *path = host + length;
    const char *bracket = memchr(host, ']', length);
    const char *from = bracket ? bracket : host;
    const char *colon = memchr(from, ':', length - (size_t)(from - host));
    size_t host_length = colon ? (size_t)(colon - host) : length;

    if ((!is_secure && !str_starts_with(url, "http://")) || !is_host(host, host_length) ||
        (colon && !is_port(colon + 1, length - host_length - 1)) || !is_prefix(path) ||
        (!is_secure && !host_is_loopback_name(host, host_length)))
        return refuse_url(url, err);
    kube->url = xasprintf("http%s://%.*s%s", is_secure ? "s" : "", (int)length, host,
                          colon       ? ""
                          : is_secure ? ":443"
                                      : ":80");
    kube->prefix = xstrdup(path);
    while (str_ends_with(kube->prefix, "/"))
        kube->prefix[strlen(kube->prefix) - 1] = '\0';
    return 0;
}

static int read_cluster(struct kube_config *kube, yaml_document_t *document,
                        const yaml_node_t *cluster, const char *directory, struct error *err)
{
    const char *server = text_at(document, cluster, "server");

    if (!server)
        return error_set(err, ERR_INVALID, "the cluster of the context has no server");
    if (is_yes(text_at(document, cluster, "insecure-skip-tls-verify")))
        return refuse("insecure-skip-tls-verify",
                      "name the cluster's CA: certificate-authority or "
                      "certificate-authority-data",
                      err);
    if (text_at(document, cluster, "proxy-url"))
        return refuse("proxy-url", "run the daemon where the API server can be reached", err);
    if (text_at(document, cluster, "tls-server-name"))
        return refuse("tls-server-name", "use a name as server that its certificate has", err);
    if (take_server(kube, server, err) < 0)
        return -1;
    return read_pem(document, cluster, "certificate-authority", directory, &kube->ca, err);
}

/* A token becomes a header: nothing else may be in it. */
static bool is_token(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

static int refuse_programs(yaml_document_t *document, const yaml_node_t *user, struct error *err)
{
    static const char remedy[] =
        "give the daemon a service account of its own, and a kubeconfig with its token: "
        "kubectl create token NAME, or tokenFile";

    if (member(document, user, "exec"))
        return refuse("an exec plugin (users[].user.exec)", remedy, err);
    if (member(document, user, "auth-provider"))
        return refuse("users[].user.auth-provider", remedy, err);
    if (text_at(document, user, "username") || text_at(document, user, "password"))
        return refuse("users[].user.username with a password", remedy, err);
    if (member(document, user, "as"))
        return refuse("impersonation (users[].user.as)", remedy, err);
    return 0;
}

static int read_user(struct kube_config *kube, yaml_document_t *document, const yaml_node_t *user,
                     const char *directory, struct error *err)
{
    const char *token = text_at(document, user, "token");
    const char *path = text_at(document, user, "tokenFile");

    if (refuse_programs(document, user, err) < 0 ||
        read_pem(document, user, "client-certificate", directory, &kube->certificate, err) < 0 ||
        read_pem(document, user, "client-key", directory, &kube->key, err) < 0)
        return -1;
    if (!(kube->certificate.path || kube->certificate.text) != !(kube->key.path || kube->key.text))
        return error_set(err, ERR_INVALID, "client-certificate and client-key belong together");
    if (token && !is_token(token))
        return error_set(err, ERR_INVALID, "the token of the user is malformed");
    if (path)
        kube->token_path = path_from(directory, path);
    else if (token)
        kube->token = xstrdup(token);
    return 0;
}

static int read_context(struct kube_config *kube, yaml_document_t *document, const char *directory,
                        const char *wanted, struct error *err)
{
    const yaml_node_t *root = yaml_document_get_root_node(document);
    const char *name = *wanted ? wanted : text_at(document, root, "current-context");
    const yaml_node_t *context = name ? named_item(document, "contexts", name, "context") : NULL;
    const char *cluster = text_at(document, context, "cluster");
    const char *user = text_at(document, context, "user");
    const char *namespace = text_at(document, context, "namespace");

    if (!name)
        return error_set(err, ERR_INVALID, "has no current-context");
    if (!context)
        return error_set(err, ERR_INVALID, "has no context \"%.100s\"", name);
    if (!cluster || !named_item(document, "clusters", cluster, "cluster"))
        return error_set(err, ERR_INVALID, "has no cluster \"%.100s\", which the context names",
                         cluster ? cluster : "");
    if (namespace)
        kube->namespace = xstrdup(namespace);
    if (read_cluster(kube, document, named_item(document, "clusters", cluster, "cluster"),
                     directory, err) < 0)
        return -1;
    return user ? read_user(kube, document, named_item(document, "users", user, "user"), directory,
                            err)
                : 0;
}

int kube_config_parse(struct kube_config *out_kube, const char *text, size_t length,
                      const char *directory, const char *context, struct error *err)
{
    scoped(kube_config_fini) struct kube_config kube = { 0 };
    yaml_document_t document;
    yaml_parser_t parser;
    int result;

    if (!yaml_parser_initialize(&parser))
        out_of_memory();
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    if (!yaml_parser_load(&parser, &document)) {
        result = error_set(err, ERR_INVALID, "line %zu: not valid YAML: %s",
                           parser.problem_mark.line + 1,
                           parser.problem ? parser.problem : "unreadable");
        yaml_parser_delete(&parser);
        return result;
    }
    result = read_context(&kube, &document, directory, context, err);
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    if (result < 0)
        return -1;
    *out_kube = kube;
    kube = (struct kube_config){ 0 };
    return 0;
}

/* --- files ------------------------------------------------------------------------------------ */

static int read_file(const char *path, struct buffer *out, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char bytes[4096];
    ssize_t length;

    if (fd < 0) {
        error_sys(err, "read %s", path);
        err->code = ERR_INVALID;
        return -1;
    }
    while ((length = read(fd, bytes, sizeof(bytes))) > 0)
        if (buffer_append(out, bytes, (size_t)length) < 0)
            return error_set(err, ERR_INVALID, "%s is larger than %d bytes", path, FILE_MAXIMUM);
    return length < 0 ? error_sys(err, "read %s", path) : 0;
}

static int load_file(struct kube_config *out_kube, const char *path, const char *context,
                     struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(FILE_MAXIMUM);
    const char *slash = strrchr(path, '/');
    scoped(free) char *directory = xstrndup(path, slash ? (size_t)(slash - path) : 0);

    if (read_file(path, &text, err) < 0)
        return error_wrap(err, "kubernetes.kubeconfig");
    if (kube_config_parse(out_kube, buffer_text(&text), text.length, directory, context, err) < 0)
        return error_wrap(err, "kubernetes.kubeconfig: %s", path);
    out_kube->origin = xstrdup(path);
    explicit_bzero(text.data, text.length);
    return 0;
}

/* The namespace of the pod itself; NULL when it cannot be read. */
static char *own_namespace(void)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1024);
    struct error ignored = { 0 };

    if (read_file(ACCOUNT "namespace", &text, &ignored) < 0 || !text.length)
        return NULL;
    return xstrndup(buffer_text(&text), strcspn(buffer_text(&text), "\r\n "));
}

static int load_account(struct kube_config *out_kube, struct error *err)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST");
    const char *port = getenv("KUBERNETES_SERVICE_PORT");
    scoped(free) char *url = NULL;

    if (str_is_empty(host) || str_is_empty(port) || access(ACCOUNT "token", R_OK) < 0) {
        error_set(
            err, ERR_INVALID,
            "the backend kubernetes has no credentials: this is no pod with a service account, "
            "and kubernetes.kubeconfig is not set");
        return error_hint(err, "set kubernetes.kubeconfig, or run the daemon in the cluster");
    }
    url = strchr(host, ':') ? xasprintf("https://[%s]:%s", host, port)
                            : xasprintf("https://%s:%s", host, port);
    if (take_server(out_kube, url, err) < 0)
        return -1;
    out_kube->origin = xstrdup("service account");
    out_kube->namespace = own_namespace();
    out_kube->ca.path = xstrdup(ACCOUNT "ca.crt");
    out_kube->token_path = xstrdup(ACCOUNT "token");
    return 0;
}

const char *kube_config_path(const struct config *config)
{
    const char *variable = getenv("KUBECONFIG");

    if (*config->kubernetes.kubeconfig)
        return config->kubernetes.kubeconfig;
    return variable ? variable : "";
}

int kube_config_load(struct kube_config *out_kube, const struct config *config, struct error *err)
{
    const char *path = kube_config_path(config);

    *out_kube = (struct kube_config){ 0 };
    if (strchr(path, ':')) {
        error_set(err, ERR_INVALID, "KUBECONFIG names several files: \"%.200s\"", path);
        return error_hint(err, "name one of them by kubernetes.kubeconfig");
    }
    if (*path)
        return load_file(out_kube, path, config->kubernetes.context, err);
    if (load_account(out_kube, err) == 0)
        return 0;
    kube_config_fini(out_kube);
    return -1;
}

unsigned kube_config_port(const struct kube_config *kube)
{
    const char *colon = strrchr(kube->url, ':');

    return colon ? (unsigned)atoi(colon + 1) : DEFAULT_PORT;
}
