/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/engine.h"

#include "backend/docker/engine_private.h"
#include "base/alloc.h"
#include "base/str.h"
#include "net/tls.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { VERSION_MAJOR = 1, VERSION_MINOR = 47, SCRATCH_BYTES = 64 * 1024 };

/* --- the version ----------------------------------------------------------------------------- */

/* The smaller of the engine's and the newest that we know. */
static int version_choose(char version[ENGINE_VERSION_SIZE], const char *text)
{
    unsigned major;
    unsigned minor;
    char rest;

    if (!text || sscanf(text, "%3u.%3u%c", &major, &minor, &rest) != 2 || major < 1)
        return -1;
    if (major > VERSION_MAJOR || minor > VERSION_MINOR) {
        major = VERSION_MAJOR;
        minor = VERSION_MINOR;
    }
    snprintf(version, ENGINE_VERSION_SIZE, "%u.%u", major, minor);
    return 0;
}

/* 0 for a text that is no date, or whose date does not fit in nanoseconds. */
static int64_t date_parse(const char *text)
{
    struct tm parts = { 0 };
    const char *end = text ? strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &parts) : NULL;
    int64_t date_s = end && !*end ? (int64_t)timegm(&parts) : 0;

    return date_s > 0 && date_s < INT64_MAX / NS_PER_S ? date_s : 0;
}

static void on_ping_head(struct engine_flight *ping, const struct http_head *head)
{
    struct engine *engine = ping->engine;

    engine->date_s = date_parse(http_head_header(head, "date"));
    if (version_choose(engine->version, http_head_header(head, "api-version")) < 0)
        *engine->version = '\0';
}

static void on_ping_data(struct engine_flight *ping UNUSED, const uint8_t *data UNUSED,
                         size_t length UNUSED)
{
}

static void on_ping_end(struct engine_flight *ping, const struct error *err)
{
    struct engine *engine = ping->engine;
    struct list released;
    struct error odd;

    if (!err && !*engine->version) {
        error_set(&odd, ERR_BACKEND, "%s does not name a version of the Engine API", engine->host);
        error_hint(&odd, "set docker.host to the address of a Docker or Podman engine");
        err = &odd;
    }
    engine->version_state = err ? VERSION_UNKNOWN : VERSION_KNOWN;
    /* Flights that are sent meanwhile wait for the next answer. */
    list_init(&released);
    list_move_all(&engine->waiting, &released);
    while (!list_is_empty(&released))
        engine_flight_release(list_first(&released, struct engine_flight, waiting), err);
}

static void ping_free(struct engine_flight *ping)
{
    engine_flight_fini(ping);
}

static const struct engine_flight_ops ping_ops = {
    .on_head = on_ping_head,
    .on_data = on_ping_data,
    .on_end = on_ping_end,
    .free = ping_free,
};

void engine_ask_version(struct engine *engine)
{
    static const struct flight_request request = {
        .method = HTTP_GET,
        .path = "/_ping",
        .is_unversioned = true,
    };

    if (engine->version_state == VERSION_ASKED)
        return;
    assert(engine->version_state == VERSION_UNKNOWN);
    engine->version_state = VERSION_ASKED;
    *engine->version = '\0';
    engine_flight_send(&engine->ping, &request, ENGINE_CONNECT_TIMEOUT_MS);
}

void engine_forget_version(struct engine *engine)
{
    if (engine->version_state == VERSION_KNOWN)
        engine->version_state = VERSION_UNKNOWN;
}

/* --- the address ----------------------------------------------------------------------------- */

static bool options_have_tls(const struct engine_options *options)
{
    return !str_is_empty(options->ca) || !str_is_empty(options->certificate) ||
           !str_is_empty(options->key);
}

static bool host_has_port(const char *host)
{
    const char *bracket = strrchr(host, ']');

    return strchr(bracket ? bracket : host, ':');
}

/* The URL for the HTTP client, allocated, or NULL. */
static char *url_from_host(const char *host, bool has_tls)
{
    size_t length;

    if (str_starts_with(host, "unix:") || str_starts_with(host, "https://") ||
        (str_starts_with(host, "http://") && !has_tls))
        return xstrdup(host);
    if (!str_starts_with(host, "tcp://") && !str_starts_with(host, "http://"))
        return NULL;
    host = strstr(host, "://") + 3;
    length = strcspn(host, "/");
    if (!length || (host[length] && host[length + 1]))
        return NULL;
    return xasprintf("%s://%.*s%s", has_tls ? "https" : "http", (int)length, host,
                     host_has_port(host) ? ""
                     : has_tls           ? ":2376"
                                         : ":2375");
}

static struct http_client *client_from_options(const struct engine_options *options,
                                               struct error *err)
{
    struct tls_files files = {
        .ca = options->ca,
        .certificate = options->certificate,
        .key = options->key,
    };
    scoped(free) char *url = url_from_host(options->host, options_have_tls(options));

    if (!url) {
        error_set(err, ERR_INVALID, "docker.host \"%s\" is no address of an engine", options->host);
        error_hint(err, "it is unix:///PATH, tcp://HOST:PORT or https://HOST:PORT");
        return NULL;
    }
    return http_client_new_with(options->loop, url, &files, err);
}

/* --- the engine ------------------------------------------------------------------------------ */

struct engine *engine_new(const struct engine_options *options, struct error *err)
{
    struct http_client *http = client_from_options(options, err);
    struct engine *engine;

    if (!http)
        return NULL;
    http_client_set_fresh_posts(http);
    engine = xnew(struct engine);
    engine->loop = options->loop;
    engine->host = xstrdup(options->host);
    engine->is_unix = str_starts_with(options->host, "unix:");
    engine->http = http;
    engine->scratch = xmalloc(SCRATCH_BYTES);
    list_init(&engine->flights);
    list_init(&engine->waiting);
    engine_flight_init(&engine->ping, engine, &ping_ops);
    return engine;
}

void engine_free(struct engine *engine)
{
    struct engine_flight *flight;

    if (!engine)
        return;
    while ((flight = list_first(&engine->flights, struct engine_flight, node)))
        flight->ops->free(flight);
    http_client_free(engine->http);
    free(engine->scratch);
    free(engine->host);
    free(engine);
}

void engine_connect_anew(struct engine *engine)
{
    http_client_close_idle(engine->http);
}

const char *engine_host(const struct engine *engine)
{
    return engine->host;
}

bool engine_is_unix(const struct engine *engine)
{
    return engine->is_unix;
}

const char *engine_version(const struct engine *engine)
{
    return engine->version_state == VERSION_KNOWN ? engine->version : "";
}
