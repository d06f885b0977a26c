/* SPDX-License-Identifier: Apache-2.0 */
/* Routes about the daemon itself. */

#include "api/gather.h"
#include "api/pages.h"
#include "api/private.h"
#include "auth/auth.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"
#include "config/config.h"
#include "core/metrics.h"
#include "core/money/flavor.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/templates.h"
#include "service/backend_view.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static void put_confinement(struct json_writer *json, const struct api_confinement *confinement)
{
    if (!confinement->mode)
        return;
    json_begin_object(json, "confinement");
    json_put_text(json, "mode", confinement->mode);
    json_put_bool(json, "seccomp", confinement->seccomp);
    json_put_int(json, "landlock", confinement->landlock);
    json_put_text(json, "missing", *confinement->missing ? confinement->missing : NULL);
    json_end_object(json);
}

static void get_health(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);
    int64_t now_us = clock_wall_us(loop_clock(request->core->loop));

    json_begin_object(&json, NULL);
    json_put_text(&json, "status", "ok");
    json_put_text(&json, "version", SANDGLASS_VERSION);
    json_put_text(&json, "instance", request->faces->parts.config->instance);
    json_put_double(&json, "uptime_seconds",
                    (double)(now_us - api_of(request)->parts.started_at) / 1e6);
    put_confinement(&json, &api_of(request)->parts.confinement);
    json_end_object(&json);
    request_reply(request, 200, &text);
}

static void get_ready(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);
    struct error err = { 0 };

    if (request->core->stopping)
        error_named(&err, ERR_UNAVAILABLE, "shutting_down", "the daemon is shutting down");
    else if (request->core->recovery)
        error_named(&err, ERR_UNAVAILABLE, "not_ready",
                    "the daemon is still recovering the sandboxes of an earlier one");
    else if (backend_view_check_ready(request->core, &err) == 0)
        (void)auth_check(request->faces->parts.auth, &err);
    if (err.code) {
        err.retryable = true;
        request_fail(request, &err);
        return;
    }
    json_begin_object(&json, NULL);
    json_put_text(&json, "status", "ready");
    json_end_object(&json);
    request_reply(request, 200, &text);
}

static void get_metrics(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

    metrics_write(request->core, &text);
    http_respond(request->exchange, 200, "text/plain; version=0.0.4; charset=utf-8", text.data,
                 text.length);
}

static void get_openapi(struct request *request)
{
    struct api *api = api_of(request);

    if (!api->openapi) {
        struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

        api_make_openapi(request->faces, &text);
        api->openapi = buffer_steal_text(&text);
    }
    http_respond(request->exchange, 200, "application/json", api->openapi, strlen(api->openapi));
}

static const char *auth_mode_name(int mode)
{
    return mode == AUTH_MODE_KEYS ? "keys" : mode == AUTH_MODE_JWT ? "jwt" : "none";
}

static void get_whoami(struct request *request)
{
    const struct http_peer *peer = http_exchange_peer(request->exchange);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "owner", request->owner);
    json_put_text(&json, "principal", request->principal);
    json_put_text(&json, "on_behalf_of", request->on_behalf_of);
    json_begin_array(&json, "roles");
    role_for_each(role, request->roles) json_put_text(&json, NULL, role_name(role));
    json_end_array(&json);
    json_put_bool(&json, "operator", request_may_name_owner(request));
    json_put_text(&json, "auth_mode", auth_mode_name(request->faces->parts.config->auth.mode));
    json_put_text(&json, "peer", peer->address);
    if (peer->is_unix)
        json_put_int(&json, "uid", peer->uid);
    json_end_object(&json);
    request_reply(request, 200, &text);
}

static void get_keys(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    auth_write_keys(request->faces->parts.auth, &json);
    api_reply_page(request, &text, "keys", "id");
}

/* sysinfo() does not count what caches would give back. */
static int read_available_memory(uint64_t *out_bytes)
{
    scoped(fd_close) int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    char text[1024];
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    unsigned long long kibibytes;
    const char *line;

    if (length <= 0)
        return -1;
    text[length] = '\0';
    line = strstr(text, "MemAvailable:");
    if (!line || sscanf(line, "MemAvailable: %llu", &kibibytes) != 1)
        return -1;
    *out_bytes = kibibytes * 1024;
    return 0;
}

/* The resources of the machine; absent where the kernel does not tell. */
static void put_host(struct json_writer *json)
{
    struct sysinfo info;
    uint64_t available;

    if (sysinfo(&info) < 0)
        return;
    json_begin_object(json, "host");
    json_put_int(json, "cpus", sysconf(_SC_NPROCESSORS_ONLN));
    json_put_double(json, "load", (double)info.loads[0] / (1 << SI_LOAD_SHIFT));
    json_put_int(json, "memory_bytes", (int64_t)(info.totalram * info.mem_unit));
    if (read_available_memory(&available) == 0)
        json_put_int(json, "memory_available_bytes", (int64_t)available);
    json_end_object(json);
}

static void get_capacity(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    capacity_write_members(request->core->capacity, request->owner, &json);
    put_host(&json);
    json_end_object(&json);
    request_reply(request, 200, &text);
}

static void get_backends(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    backend_view_write_json(request->core, &json);
    api_reply_page(request, &text, "backends", "name");
}

static void get_templates(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const char *usual = request->faces->parts.config->sandbox.template_name;
    size_t count;
    char **names = templates_list(request->core, &count);

    json_begin_object(&json, NULL);
    json_begin_array(&json, "templates");
    for (size_t i = 0; i < count; i++) {
        json_begin_object(&json, NULL);
        json_put_text(&json, "name", names[i]);
        json_put_bool(&json, "default", str_equal(names[i], usual));
        json_end_object(&json);
    }
    json_end_array(&json);
    json_end_object(&json);
    templates_free(names, count);
    api_reply_page(request, &text, "templates", "name");
}

static void get_flavors(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    flavors_write_json(request->core, &json, "flavors");
    json_end_object(&json);
    api_reply_page(request, &text, "flavors", "name");
}

static const struct route_parameter node_parameters[] = { API_NODE_PARAMETER, { 0 } };
static const struct route_parameter page_parameters[] = { API_PAGE_PARAMETERS, { 0 } };

static const struct route_answer answers[] = { { 200, "the document" }, { 0 } };
static const struct route_answer ready_answers[] = {
    { 200, "requests are served" },
    { 503, "not_ready, shutting_down, launcher_unavailable, store_failing, keys_unreadable, "
           "issuer_unavailable, disk_full" },
    { 0 },
};

const struct route api_system_routes[] = {
    { HTTP_GET, "/healthz", get_health, "Liveness of the daemon", .answers = answers,
      .access = ROUTE_ANYBODY },
    { HTTP_GET, "/readyz", get_ready, "Readiness of the daemon", .answers = ready_answers,
      .access = ROUTE_ANYBODY },
    { HTTP_GET, "/metrics", get_metrics, "Metrics, in the text format of Prometheus",
      .answers = answers, .access = ROUTE_ADMINS, .parameters = node_parameters,
      .gather = api_gather_metrics },
    { HTTP_GET, "/openapi.json", get_openapi, "This document", .answers = answers,
      .access = ROUTE_ANYBODY },
    { HTTP_GET, "/api/v1/whoami", get_whoami, "Identity and roles of the caller",
      .answers = answers },
    { HTTP_GET, "/api/v1/keys", get_keys, "List API keys and when each was last used",
      .parameters = page_parameters, .answers = answers, .access = ROUTE_ADMINS },
    { HTTP_GET, "/api/v1/capacity", get_capacity, "Slots for sandboxes, and the caller's share",
      .answers = answers, .parameters = node_parameters, .gather = api_gather_capacity },
    { HTTP_GET, "/api/v1/backends", get_backends,
      "List the backends of this daemon: which is the default, which a session may name, "
      "whether each works, and what it can do",
      .parameters = page_parameters, .answers = answers },
    { HTTP_GET, "/api/v1/templates", get_templates, "List the templates of file systems",
      .parameters = page_parameters, .answers = answers },
    { HTTP_GET, "/api/v1/flavors", get_flavors, "List the flavors of sandboxes",
      .parameters = page_parameters, .answers = answers },
    { 0 },
};
