/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong, in the words of the API server, and what to do about it. */

#include "backend/kubernetes/kube_private.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void kube_text_clean(const char *text, char out_text[KUBE_TEXT_SIZE])
{
    size_t length = MIN(strlen(text), (size_t)KUBE_TEXT_SIZE - 4);
    bool is_cut = text[length];

    memcpy(out_text, text, length);
    if (is_cut)
        length -= str_utf8_unfinished((const unsigned char *)out_text, length);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)out_text[i] < ' ' || out_text[i] == 0x7f)
            out_text[i] = ' ';
    while (!is_cut && length && out_text[length - 1] == ' ')
        length--;
    snprintf(out_text + length, KUBE_TEXT_SIZE - length, "%s", is_cut ? "..." : "");
}

/* --- answers ---------------------------------------------------------------------------------- */

static void refuse_login(struct error *err, const struct kube_client *client, const char *text)
{
    error_named(err, ERR_BACKEND, "kubernetes_unauthorized",
                "the API server does not accept the credentials of the daemon: %s", text);
    error_hint(err, "see whether the token or certificate of %s has expired",
               client->config.origin);
}

/* 403 is the answer of RBAC, of quotas and of admission plugins. */
static void refuse_forbidden(struct error *err, const char *text)
{
    if (strstr(text, "exceeded quota")) {
        error_named(err, ERR_LIMIT, "quota_exceeded", "the cluster's quota is used up: %s", text);
        error_hint(err, "end other sandboxes, or raise the ResourceQuota of the namespace");
        err->retryable = true;
        return;
    }
    error_named(err, ERR_BACKEND, "kubernetes_forbidden", "the API server refuses: %s", text);
    if (strstr(text, "cannot "))
        error_hint(err, "give the daemon's account this verb on this resource: see the Role in "
                        "docs/how-to/kubernetes-backend.md");
    else if (strstr(text, "PodSecurity"))
        error_hint(err, "see the Pod Security level of the namespace");
}

static enum error_code code_from_status(int status)
{
    switch (status) {
    case 400:
    case 422:
        return ERR_INVALID;
    case 404:
        return ERR_NOT_FOUND;
    case 409:
        return ERR_CONFLICT;
    case 410:
        return ERR_GONE;
    case 429:
        return ERR_LIMIT;
    default:
        return ERR_BACKEND;
    }
}

static void refuse_plainly(struct error *err, const struct kube_client *client, int status,
                           const char *text)
{
    if (status >= 500) {
        error_named(err, ERR_UNAVAILABLE, "kubernetes_unavailable",
                    "the API server at %s fails with status %d: %s", client->config.url, status,
                    text);
        err->retryable = true;
        return;
    }
    error_set(err, code_from_status(status), "%s", text);
    err->retryable = status == 429;
}

/* Where the words are none of an API server, such as those of a proxy, no status of theirs says anything
 * about an object. */
static void refuse_stranger(struct error *err, const struct kube_client *client, int status)
{
    error_named(err, ERR_UNAVAILABLE, "kubernetes_unavailable",
                "%s answers with status %d, but not as an API server does", client->config.url,
                status);
    error_hint(err, "see whether the server of %s is the address of the API server",
               client->config.origin);
}

void kube_error_from_answer(struct error *err, const struct kube_client *client, int status,
                            const void *body, size_t length)
{
    scoped(json_decref) json_t *document = length ? json_loadb(body, length, 0, NULL) : NULL;
    const char *kind = json_string_value(json_object_get(document, "kind"));
    const char *message = json_string_value(json_object_get(document, "message"));
    char text[KUBE_TEXT_SIZE];

    if (!str_equal(kind, "Status")) {
        refuse_stranger(err, client, status);
        return;
    }
    kube_text_clean(message ? message : "no reason is given", text);
    if (status == 401)
        refuse_login(err, client, text);
    else if (status == 403)
        refuse_forbidden(err, text);
    else
        refuse_plainly(err, client, status, text);
}

/* --- connections ------------------------------------------------------------------------------ */

void kube_error_timeout(struct error *err, const struct kube_client *client, int64_t timeout_ms)
{
    char limit[STR_UNIT_SIZE];

    str_format_duration(timeout_ms, limit);
    error_named(err, ERR_UNAVAILABLE, "kubernetes_unavailable",
                "the API server at %s has not answered within %s", client->config.url, limit);
    err->retryable = true;
}

void kube_error_from_http(struct error *err, const struct kube_client *client,
                          const struct error *cause)
{
    /* The reason of a handshake that failed is the client's hint. */
    bool is_tls = cause->code == ERR_UNAVAILABLE && !cause->sys_errno && *cause->hint;

    *err = *cause;
    err->code = ERR_UNAVAILABLE;
    err->retryable = true;
    snprintf(err->name, sizeof(err->name), "kubernetes_unavailable");
    if (is_tls) {
        snprintf(err->message, sizeof(err->message), "no TLS with %s: %s", client->config.url,
                 cause->hint);
        error_hint(err, "see the certificates of %s, and whether that of the server names its host",
                   client->config.origin);
    } else {
        error_hint(err, "see whether the API server runs, and whether %s names its address",
                   client->config.origin);
    }
    error_wrap(err, "Kubernetes API server");
}
