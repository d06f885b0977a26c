/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the engine: its own message and a remedy. */

#include "backend/docker/engine_private.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* --- answers --------------------------------------------------------------------------------- */

static enum error_code code_from_status(int status)
{
    switch (status) {
    case 400:
        return ERR_INVALID;
    case 401:
        return ERR_UNAUTHORIZED;
    case 403:
        return ERR_FORBIDDEN;
    case 404:
        return ERR_NOT_FOUND;
    case 409:
        return ERR_CONFLICT;
    case 429:
        return ERR_LIMIT;
    default:
        return ERR_BACKEND;
    }
}

/* Failures whose status says less than their words: those of Podman are 500, as a full disk is in
 * Docker. */
static enum error_code code_from_words(const char *message, const char *cause,
                                       enum error_code fallback)
{
    if (strstr(message, "no space left on device"))
        return ERR_NO_SPACE;
    if (str_equal(cause, "no such container")) /* 500 when it goes at this moment */
        return ERR_NOT_FOUND;
    if (str_equal(cause, "that name is already in use") ||
        str_equal(cause, "container state improper"))
        return ERR_CONFLICT;
    return fallback;
}

void engine_text_clean(const char *text, char out_text[ENGINE_TEXT_SIZE])
{
    size_t length = MIN(strlen(text), (size_t)ENGINE_TEXT_SIZE - 4);
    bool is_cut = text[length];

    memcpy(out_text, text, length);
    if (is_cut)
        length -= str_utf8_unfinished((const unsigned char *)out_text, length);
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)out_text[i] < ' ' || out_text[i] == 0x7f)
            out_text[i] = ' ';
    }
    while (!is_cut && length && out_text[length - 1] == ' ')
        length--;
    snprintf(out_text + length, ENGINE_TEXT_SIZE - length, "%s", is_cut ? "..." : "");
}

/* The answer is not an engine's but, for example, a proxy's: its status says nothing about a
 * container. */
static void error_from_stranger(struct error *err, const struct engine_flight *flight)
{
    char text[ENGINE_TEXT_SIZE] = "";
    char raw[ENGINE_TEXT_SIZE] = "";

    if (flight->refusal.length)
        memcpy(raw, flight->refusal.data, MIN(flight->refusal.length, sizeof(raw) - 1));
    if (str_is_utf8(raw, strlen(raw)))
        engine_text_clean(raw, text);
    error_set(err, ERR_BACKEND, "%s answers with status %d%s%s", flight->engine->host,
              flight->status, *text ? ": " : "", text);
    if (strstr(text, "HTTPS server"))
        error_hint(err, "the engine speaks TLS: set docker.tls.ca, docker.tls.cert and "
                        "docker.tls.key");
    else
        error_hint(err, "see whether docker.host is the address of the engine itself");
}

/* A failure without a word, but with the type of one. */
static bool answer_is_mute(const struct engine_flight *flight)
{
    return flight->content == CONTENT_JSON && !flight->refusal.length;
}

void engine_error_from_answer(struct error *err, const struct engine_flight *flight)
{
    scoped(json_decref)
        json_t *document = flight->content != CONTENT_OTHER && flight->refusal.length
                               ? engine_json_read(flight->refusal.data, flight->refusal.length)
                               : NULL;
    const char *message = json_string_value(json_object_get(document, "message"));
    const char *cause = json_string_value(json_object_get(document, "cause"));
    enum error_code code = code_from_status(flight->status);
    char text[ENGINE_TEXT_SIZE];

    if (str_is_empty(message))
        message = cause;
    if (!str_is_empty(message)) {
        engine_text_clean(message, text);
        error_set(err, code_from_words(message, cause, code), "%s", text);
    } else if (answer_is_mute(flight)) {
        error_set(err, code, "the engine answers with status %d", flight->status);
    } else {
        error_from_stranger(err, flight);
    }
}

bool engine_error_says(const struct error *err, const char *words)
{
    return err->code != ERR_NONE && strcasestr(err->message, words);
}

bool engine_refused_name(const struct engine_call *call)
{
    return (call->status == 409 || call->status == 500) &&
           (engine_error_says(&call->err, "already in use") ||
            engine_error_says(&call->err, "is in use"));
}

/* The engine looks for our files on another machine, or may not read them. */
bool engine_refused_mount(const struct engine_call *call)
{
    static const char *const words[] = { "bind source path does not exist", "invalid mount config",
                                         "no such file", "permission denied" };

    for (size_t i = 0; call->status >= 400 && i < ARRAY_LENGTH(words); i++)
        if (engine_error_says(&call->err, words[i]))
            return true;
    return false;
}

bool engine_refused_profile(const struct engine_call *call)
{
    return engine_error_says(&call->err, "opening seccomp profile failed");
}

/* "error setting rlimit type 7: operation not permitted" of runc, "setrlimit `RLIMIT_NOFILE`: Operation
 * not permitted" of crun. Podman adds "OCI permission denied". */
bool engine_refused_rlimit(const struct engine_call *call)
{
    return call->status >= 400 && engine_error_says(&call->err, "rlimit") &&
           engine_error_says(&call->err, "not permitted");
}

/* --- connections ----------------------------------------------------------------------------- */

static void hint_for_connection(struct error *err, const struct engine *engine)
{
    switch (err->sys_errno) {
    case ENOENT:
        error_hint(err, "no engine listens at this socket: start it (systemctl start docker), or "
                        "set docker.host");
        return;
    case EACCES:
    case EPERM:
        error_hint(err,
                   "uid %u may not use this socket: add its user to the group of the socket "
                   "(adduser sandglass docker), then start Sandglass again",
                   (unsigned)geteuid());
        return;
    case ECONNREFUSED:
        error_hint(err, engine->is_unix
                            ? "the engine that made this socket is not running: start it "
                              "(systemctl start docker), or set docker.host"
                            : "no engine listens at this address: start it with -H tcp://..., or "
                              "set docker.host");
        return;
    default:
        error_hint(err, "see whether the engine runs, and whether docker.host is its address");
    }
}

void engine_error_from_http(struct error *err, const struct engine *engine,
                            const struct error *cause)
{
    /* The reason of a handshake that failed is the client's hint. */
    bool is_tls = cause->code == ERR_UNAVAILABLE && !cause->sys_errno && *cause->hint;
    bool is_away = cause->code == ERR_UNAVAILABLE || cause->code == ERR_TIMEOUT;

    *err = *cause;
    if (is_away) {
        err->code = ERR_UNAVAILABLE;
        err->retryable = cause->sys_errno != EACCES && cause->sys_errno != EPERM;
        snprintf(err->name, sizeof(err->name), "engine_unavailable");
    }
    if (is_tls) {
        snprintf(err->message, sizeof(err->message), "no TLS with %s: %s", engine->host,
                 cause->hint);
        error_hint(err, "see docker.tls.ca, docker.tls.cert and docker.tls.key, and whether the "
                        "certificate of the engine names the host of docker.host");
    } else if (is_away) {
        hint_for_connection(err, engine);
    }
    error_wrap(err, "container engine");
}
