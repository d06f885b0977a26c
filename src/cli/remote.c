/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/local_token.h"
#include "base/alloc.h"
#include "base/str.h"
#include "cli/cli.h"
#include "config/config.h"
#include "net/http_client.h"
#include "wire/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* --- where the daemon is --------------------------------------------------------------------- */

/* A client need not be able to read the daemon's file: the defaults do then. */
static int load_settings(struct config *config)
{
    if (config_load(config, NULL, NULL) == 0)
        return 0;
    return config_load_text(config, "", 0, "defaults", NULL);
}

static const char system_url[] = "unix:/run/sandglass/sandglass.sock";

/* connect() with errno; a URL that is no unix socket answers. */
static int try_socket(const char *url)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    scoped(fd_close) int fd = -1;

    if (!str_starts_with(url, "unix:") || strlen(url + 5) >= sizeof(address.sun_path))
        return 0;
    memcpy(address.sun_path, url + 5, strlen(url + 5));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return connect(fd, (struct sockaddr *)&address, sizeof(address));
}

static bool nobody_listens(const char *url)
{
    return try_socket(url) < 0 && (errno == ENOENT || errno == ECONNREFUSED || errno == ENOTDIR);
}

/* A user without a daemon of their own uses the system's, where the socket lets them. */
static char *own_or_system_url(const struct config *config)
{
    char *own = xasprintf("unix:%s/sandglass.sock", config->runtime_dir);

    if (geteuid() == 0 || !config_is_default(config, "runtime_dir") || !nobody_listens(own) ||
        try_socket(system_url) < 0)
        return own;
    free(own);
    return xstrdup(system_url);
}

char *cli_default_url(void)
{
    scoped(config_fini) struct config config = { 0 };

    if (load_settings(&config) < 0)
        return xstrdup(system_url);
    if (config_is_default(&config, "listen"))
        return own_or_system_url(&config);
    for (size_t i = 0; i < config.listen.count; i++)
        if (str_starts_with(config.listen.items[i], "unix:"))
            return xstrdup(config.listen.items[i]);
    if (config.listen.count)
        return xstrdup(config.listen.items[0]);
    return xasprintf("unix:%s/sandglass.sock", config.runtime_dir);
}

bool cli_nobody_listens(const struct cli *cli)
{
    return nobody_listens(cli->url);
}

/* --- the client ------------------------------------------------------------------------------ */

/* A daemon of this host without authentication: the token of its port is in its state directory. */
static char *find_local_token(const char *url)
{
    scoped(config_fini) struct config config = { 0 };

    return load_settings(&config) < 0 ? NULL : local_token_find(config.state_dir, url);
}

static void set_identity(struct http_client *client, const char *url)
{
    scoped(free) char *token = NULL;
    const char *key = getenv("SANDGLASS_API_KEY");
    const char *principal = getenv("SANDGLASS_ON_BEHALF_OF");

    http_client_set_header(client, "X-Sandglass-Surface", "cli");
    if (str_is_empty(key) && !str_starts_with(url, "unix:"))
        key = token = find_local_token(url);
    if (!str_is_empty(key)) {
        scoped(free) char *value = xasprintf("Bearer %s", key);

        http_client_set_header(client, "Authorization", value);
    }
    if (!str_is_empty(principal))
        http_client_set_header(client, "X-Sandglass-On-Behalf-Of", principal);
}

int cli_connect(struct cli *cli, struct error *err)
{
    if (cli->client)
        return 0;
    if (!cli->loop)
        cli->loop = loop_new(&clock_system);
    cli->client = http_client_new(cli->loop, cli->url, err);
    if (!cli->client)
        return -1;
    /* Work takes the time it takes; who waits can interrupt. */
    http_client_set_timeout(cli->client, 0);
    set_identity(cli->client, cli->url);
    return 0;
}

void cli_disconnect(struct cli *cli)
{
    http_client_free(cli->client);
    loop_free(cli->loop);
    cli->client = NULL;
    cli->loop = NULL;
}

static bool is_nobody_there(const struct error *err)
{
    return err->sys_errno == ENOENT || err->sys_errno == ECONNREFUSED || err->sys_errno == ENOTDIR;
}

int cli_explain_connection(const struct cli *cli, struct error *err)
{
    if (is_nobody_there(err)) {
        error_named(err, ERR_UNAVAILABLE, "daemon_not_running",
                    "no daemon at %s; start one with 'sandglass serve'", cli->url);
        if (!cli->url_was_given && geteuid() != 0 && try_socket(system_url) < 0 && errno == EACCES)
            error_hint(err,
                       "the system daemon at %s serves root and members of the socket's group "
                       "only; add a user with 'adduser NAME sandglass'",
                       system_url);
    }
    return -1;
}

/* --- one exchange ---------------------------------------------------------------------------- */

void reply_fini(struct reply *reply)
{
    buffer_fini(&reply->body);
    json_decref(reply->json);
    reply->json = NULL;
}

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
    case 410:
        return ERR_GONE;
    case 413:
        return ERR_TOO_LARGE;
    case 429:
        return ERR_LIMIT;
    case 502:
        return ERR_BACKEND;
    case 503:
        return ERR_UNAVAILABLE;
    case 504:
        return ERR_TIMEOUT;
    case 507:
        return ERR_NO_SPACE;
    default:
        return ERR_INTERNAL;
    }
}

/* Not json_read(): the output of a program may have a NUL in it. */
json_t *reply_parse(const void *body, size_t length, struct error *err)
{
    json_error_t problem;
    json_t *document = json_loadb(body ? body : "", length, JSON_ALLOW_NUL, &problem);

    if (!document)
        error_set(err, ERR_BACKEND, "the daemon sent invalid JSON: %s", problem.text);
    return document;
}

/* A message that begins with a field of the API in quotes: it names the option that fills it here. */
static void put_message(struct error *err, const char *message)
{
    static const struct {
        const char *field, *option;
    } names[] = {
        { "\"memory_bytes\"", "--memory" },
        { "\"disk_bytes\"", "--disk" },
        { "\"cpus\"", "--cpus" },
        { "\"pids\"", "--pids" },
        { "\"lease_seconds\"", "--timeout" },
        { "\"timeout_seconds\"", "--timeout" },
        { "\"idle_timeout_seconds\"", "--idle-timeout" },
        { "\"max_lifetime_seconds\"", "--max-lifetime" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (str_starts_with(message, names[i].field)) {
            snprintf(err->message, sizeof(err->message), "%s%s", names[i].option,
                     message + strlen(names[i].field));
            return;
        }
    }
    snprintf(err->message, sizeof(err->message), "%s", message);
}

int reply_error(struct error *err, int status, const void *body, size_t length)
{
    scoped(json_decref) json_t *document = reply_parse(body, length, NULL);
    const json_t *error = json_object_get(document, "error");
    const char *hint = field_text(error, "hint", "");

    if (!error)
        return error_set(err, code_from_status(status),
                         "the server answered %d %s, but not in the format of Sandglass", status,
                         http_status_text(status));
    error_named(err, code_from_status(status), field_text(error, "code", "unknown"), "%s", "");
    put_message(err, field_text(error, "message", "no reason given"));
    err->retryable = field_bool(error, "retryable");
    if (*hint)
        error_hint(err, "%s", hint);
    return -1;
}

int cli_call(struct cli *cli, enum http_method method, const char *target,
             const struct buffer *body, struct reply *out, struct error *err)
{
    *out = (struct reply){ .body = BUFFER_INIT(REPLY_MAXIMUM) };
    if (cli_connect(cli, err) < 0)
        return -1;
    out->status = http_client_fetch(cli->client, method, target, body ? "application/json" : NULL,
                                    body ? body->data : NULL, body ? body->length : 0, &out->body,
                                    err);
    if (out->status < 0)
        return cli_explain_connection(cli, err);
    if (out->status >= 400)
        return reply_error(err, out->status, out->body.data, out->body.length);
    if (out->body.length == 0)
        return 0;
    out->json = reply_parse(out->body.data, out->body.length, err);
    return out->json ? 0 : -1;
}

/* --- targets --------------------------------------------------------------------------------- */

char *url_encode(const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "-._~:";
    struct buffer encoded = BUFFER_INIT(3 * strlen(text) + 1);

    for (; *text; text++)
        if (strchr(plain, *text))
            buffer_append_byte(&encoded, (uint8_t)*text);
        else
            buffer_appendf(&encoded, "%%%02X", (unsigned char)*text);
    return buffer_steal_text(&encoded);
}

char *session_own_target(const char *session)
{
    scoped(free) char *id = url_encode(session);

    return xasprintf("/api/v1/sessions/%s", id);
}

char *session_target(const char *session, const char *format, ...)
{
    scoped(free) char *own = session_own_target(session);
    struct buffer target = BUFFER_INIT(65536);
    va_list args;

    buffer_append_text(&target, own);
    va_start(args, format);
    buffer_vappendf(&target, format, args);
    va_end(args);
    return buffer_steal_text(&target);
}
