/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/pull/image_registry.h"

#include "base/alloc.h"
#include "base/str.h"
#include "wire/http/http.h"
#include "wire/image_manifest.h"
#include "wire/image_ref.h"
#include "wire/json.h"

#include <string.h>

enum { TOKEN_ANSWER_MAXIMUM = 256 * 1024, TOKEN_MAXIMUM = 32 * 1024 };

static const char front_page[] = "/v2/";

struct image_registry {
    struct web *web;             /* owned */
    const struct image_ref *ref; /* borrowed, as is the next */
    const struct registry_login *login;
    char *host;          /* owned: as users write it, with the port */
    char *base;          /* owned: "https://HOST" of the server that answers for it */
    char *authorization; /* owned; NULL: none yet */
};

/* Docker Hub has another name for its users than for its programs. */
static const char *api_host(const char *host)
{
    return str_equal(host, "docker.io") ? "registry-1.docker.io" : host;
}

struct image_registry *image_registry_new(const struct image_ref *ref,
                                          const struct registry_login *login, bool plain)
{
    struct image_registry *registry = xnew(struct image_registry);

    registry->web = web_new(plain);
    registry->ref = ref;
    registry->login = login;
    registry->host = xstrndup(ref->repository, ref->host_length);
    registry->base = xasprintf("%s://%s", plain ? "http" : "https", api_host(registry->host));
    return registry;
}

void image_registry_free(struct image_registry *registry)
{
    if (!registry)
        return;
    web_free(registry->web);
    free(registry->host);
    free(registry->base);
    free(registry->authorization);
    free(registry);
}

void image_registry_sleep(struct image_registry *registry, int64_t ms)
{
    web_sleep(registry->web, ms);
}

/* --- authentication ------------------------------------------------------------------------ */

static int refuse_access(const struct image_registry *registry, struct error *err)
{
    const struct registry_login *login = registry->login;

    error_named(err, ERR_UNAUTHORIZED, "registry_denied", "the registry %s denies access to %s%s",
                registry->host, image_ref_path(registry->ref),
                login->user ? ", or does not know it" : " without a login, or has no such image");
    if (login->user)
        return error_hint(err, "check the password of \"%s\"", login->user);
    if (login->helper)
        return error_hint(
            err,
            "Docker's configuration leaves the password to %s, which is not run; give "
            "--username and --password-file",
            login->helper);
    return error_hint(err, "give --username and --password-file, or run 'docker login'");
}

static char *token_url(const struct image_registry *registry, const struct challenge *challenge)
{
    scoped(free) char *own = xasprintf("repository:%s:pull", image_ref_path(registry->ref));
    struct buffer url = BUFFER_INIT(16 * CHALLENGE_TEXT_SIZE);

    buffer_appendf(&url, "%s%cscope=", challenge->realm, strchr(challenge->realm, '?') ? '&' : '?');
    (void)http_escape(&url, *challenge->scope ? challenge->scope : own);
    if (*challenge->service) {
        buffer_append_text(&url, "&service=");
        (void)http_escape(&url, challenge->service);
    }
    return buffer_steal_text(&url);
}

static bool is_token(const char *text)
{
    size_t length = 0;

    while (text[length] > ' ' && text[length] <= '~')
        length++;
    return length > 0 && length < TOKEN_MAXIMUM && !text[length];
}

static int take_token(struct image_registry *registry, const struct buffer *body, struct error *err)
{
    scoped(json_decref) json_t *document = json_read(body->data, body->length, err);
    const char *token = json_string_value(json_object_get(document, "token"));

    if (!document)
        return error_wrap(err, "token");
    if (!token)
        token = json_string_value(json_object_get(document, "access_token"));
    if (!token || !is_token(token))
        return error_set(err, ERR_BACKEND, "the token server of %s sent no token", registry->host);
    free(registry->authorization);
    registry->authorization = xasprintf("Bearer %s", token);
    return 0;
}

static int fetch_token(struct image_registry *registry, const struct challenge *challenge,
                       struct error *err)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(TOKEN_ANSWER_MAXIMUM);
    scoped(free) char *basic = registry_login_basic(registry->login);
    scoped(free) char *url = token_url(registry, challenge);
    struct web_request request = { .url = url, .authorization = basic };
    struct web_answer answer;

    if (web_get_document(registry->web, &request, &body, &answer, err) < 0)
        return error_wrap(err, "ask the token server of %s", registry->host);
    if (answer.status == 401 || answer.status == 403)
        return refuse_access(registry, err);
    if (answer.status != 200) {
        error_set(err, ERR_BACKEND, "the token server of %s answers with status %d", registry->host,
                  answer.status);
        err->retryable = answer.status >= 500 || answer.status == 429;
        return -1;
    }
    return take_token(registry, &body, err);
}

static int authenticate(struct image_registry *registry, const struct challenge *challenge,
                        struct error *err)
{
    char *basic;

    switch (challenge->scheme) {
    case CHALLENGE_BEARER:
        return fetch_token(registry, challenge, err);
    case CHALLENGE_BASIC:
        basic = registry_login_basic(registry->login);
        if (!basic)
            return refuse_access(registry, err);
        free(registry->authorization);
        registry->authorization = basic;
        return 0;
    case CHALLENGE_NONE:
        break;
    }
    return error_set(err, ERR_UNAUTHORIZED,
                     "the registry %s wants neither a token (Bearer) nor a password (Basic)",
                     registry->host);
}

/* --- requests -------------------------------------------------------------------------------- */

static int refuse_status(const struct image_registry *registry, const struct web_answer *answer,
                         struct error *err)
{
    if (answer->status == 401 || answer->status == 403)
        return refuse_access(registry, err);
    error_set(err, answer->status == 429 ? ERR_LIMIT : ERR_BACKEND,
              answer->status == 429 ? "the registry %s allows no more requests for now (status %d)"
                                    : "the registry %s answers with status %d",
              registry->host, answer->status);
    err->retryable = answer->status >= 500 || answer->status == 429 || answer->status == 408;
    return -1;
}

static int explain(const struct image_registry *registry, struct error *err)
{
    if (!err->retryable)
        return -1;
    error_wrap(err,
               err->code == ERR_BACKEND ? "the registry %s" : "the registry %s cannot be reached",
               registry->host);
    /* The message depends on whether the server's answer or its close is seen first. */
    if (strstr(err->message, "does not speak TLS") || strstr(err->message, "wrong version number"))
        error_hint(err, "--insecure is for a registry that speaks plain HTTP");
    return -1;
}

static int ask(struct image_registry *registry, const char *target,
               const struct web_request *wanted, struct web_answer *out, struct error *err)
{
    scoped(free) char *url = xasprintf("%s%s", registry->base, target);
    bool is_about_image = !str_equal(target, front_page);

    for (bool is_second = false;; is_second = true) {
        struct web_request request = *wanted;

        request.url = url;
        request.authorization = registry->authorization;
        if (web_get(registry->web, &request, out, err) < 0)
            return explain(registry, err);
        if (out->status != 401 || out->is_from_elsewhere || is_second)
            return 0;
        /* Some registries name a scope there that is only an example. */
        if (!is_about_image)
            out->challenge.scope[0] = '\0';
        if (authenticate(registry, &out->challenge, err) < 0)
            return -1;
    }
}

static int drop(void *user, const void *data, size_t length, struct error *err)
{
    (void)user;
    (void)data;
    (void)length;
    (void)err;
    return 0;
}

int image_registry_open(struct image_registry *registry, struct error *err)
{
    struct web_request request = { .on_data = drop };
    struct web_answer answer;

    if (ask(registry, front_page, &request, &answer, err) < 0)
        return -1;
    if (answer.status == 200)
        return 0;
    if (answer.status == 404)
        return error_set(err, ERR_BACKEND, "%s is not a registry: it has no /v2/", registry->host);
    return refuse_status(registry, &answer, err);
}

static int append(void *user, const void *data, size_t length, struct error *err)
{
    if (buffer_append(user, data, length) == 0)
        return 0;
    return error_set(err, ERR_TOO_LARGE, "the manifest is larger than %d MB",
                     IMAGE_MANIFEST_MAXIMUM >> 20);
}

int image_registry_manifest(struct image_registry *registry, const char *reference,
                            struct buffer *body, struct web_answer *out, struct error *err)
{
    scoped(free) char *target =
        xasprintf("/v2/%s/manifests/%s", image_ref_path(registry->ref), reference);
    struct web_request request = { .accept = image_manifest_types,
                                   .on_data = append,
                                   .user = body };

    buffer_clear(body);
    if (ask(registry, target, &request, out, err) < 0)
        return -1;
    if (out->status == 200)
        return 0;
    if (out->status == 404)
        return error_named(err, ERR_NOT_FOUND, "image_unknown",
                           "the registry %s has no image %s%s%s", registry->host,
                           image_ref_path(registry->ref), strchr(reference, ':') ? "@" : ":",
                           reference);
    return refuse_status(registry, out, err);
}

int image_registry_blob(struct image_registry *registry, const char *digest,
                        const struct web_request *request, struct web_answer *out,
                        struct error *err)
{
    scoped(free) char *target = xasprintf("/v2/%s/blobs/%s", image_ref_path(registry->ref), digest);

    if (ask(registry, target, request, out, err) < 0)
        return -1;
    if (out->status == 200 || out->status == 206 || out->status == 416)
        return 0;
    if (out->status == 404)
        return error_set(err, ERR_NOT_FOUND, "the registry %s has no blob %s of %s", registry->host,
                         digest, image_ref_path(registry->ref));
    return refuse_status(registry, out, err);
}
