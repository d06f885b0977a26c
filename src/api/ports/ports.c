/* SPDX-License-Identifier: Apache-2.0 */
/* Ports inside of a sandbox: which ones are served, the way to them, and signed URLs. */

#include "service/ports.h"
#include "api/pages.h"
#include "api/private.h"
#include "base/alloc.h"
#include "base/str.h"
#include "face/port_access.h"

#include <string.h>

enum { VALID_DEFAULT_MS = 3600 * 1000, VALID_MAXIMUM_S = 366 * 24 * 3600 };

#define PORTS "/api/v1/sessions/{session}/ports"

/* --- what listens ---------------------------------------------------------------------------- */

struct look {
    struct request *request; /* borrowed */
    struct port_list list;
};

static void on_look_gone(struct request *request)
{
    struct look *look = request->state;

    port_list_stop(&look->list);
    free(look);
}

static void put_ports(struct json_writer *json, const struct look *look)
{
    json_begin_object(json, NULL);
    json_begin_array(json, "ports");
    for (size_t i = 0; i < look->list.count; i++) {
        scoped(free) char *path = xasprintf("/api/v1/sessions/%s/ports/%u/",
                                            look->request->session_id, look->list.ports[i]);

        json_begin_object(json, NULL);
        json_put_int(json, "port", look->list.ports[i]);
        json_put_text(json, "path", path);
        json_end_object(json);
    }
    json_end_array(json);
    json_put_bool(json, "truncated", look->list.is_cut);
    json_end_object(json);
}

static void on_looked(struct port_list *list)
{
    struct look *look = container_of(list, struct look, list);
    struct request *request = look->request;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    if (list->err.code) {
        request_fail(request, &list->err);
        return;
    }
    put_ports(&json, look);
    api_reply_page(request, &text, "ports", "port");
}

static void get_ports(struct request *request)
{
    struct look *look = xnew(struct look);

    look->request = request;
    request->state = look;
    request->on_gone = on_look_gone;
    port_list_start(&look->list, request->core, request->session, on_looked);
}

/* --- the way in ------------------------------------------------------------------------------ */

static int read_port(const struct request *request, unsigned *out_port, struct error *err)
{
    const char *text = request_path(request, "port");

    if (port_number_read(text, strlen(text), out_port))
        return 0;
    error_named(err, ERR_INVALID, "invalid_port", "\"%.40s\" is not a port", text);
    return error_hint(err, "a port is a number from 1 to 65535");
}

static int read_generation(const struct request *request, uint64_t *out_generation,
                           struct error *err)
{
    const char *text = request_header(request, "x-sandglass-generation");

    if (!text || str_to_u64(text, out_generation) == 0)
        return 0;
    return error_named(err, ERR_INVALID, "invalid_header",
                       "X-Sandglass-Generation must be a whole number");
}

static void use_port(struct request *request, const char *rest)
{
    const char *whole = http_exchange_head(request->exchange)->target;
    scoped(free) char *prefix = xstrndup(whole, strcspn(whole, "?"));
    struct port_target target = { .door = PORT_DOOR_PATH, .target = rest, .prefix = prefix };
    struct error err = { 0 };

    if (rest != NULL && request->rest)
        prefix[request->rest - whole] = '\0';
    if (read_port(request, &target.port, &err) < 0 ||
        read_generation(request, &target.generation, &err) < 0)
        request_fail(request, &err);
    else
        port_proxy_start(request, request->session, &target);
}

static void any_port(struct request *request)
{
    use_port(request, request->rest);
}

/* Relative addresses of a page need the slash. */
static void get_port(struct request *request)
{
    scoped(free) char *location = NULL;
    struct error err = { 0 };
    unsigned port;

    if (port_wants_tunnel(http_exchange_head(request->exchange))) {
        use_port(request, "/");
    } else if (read_port(request, &port, &err) < 0) {
        request_fail(request, &err);
    } else {
        location = xasprintf("%u/", port);
        http_respond_header(request->exchange, "Location", location);
        http_respond(request->exchange, 308, NULL, NULL, 0);
    }
}

/* --- signed URLs ----------------------------------------------------------------------------- */

struct wish {
    int64_t expires_ms;
    int64_t generation;
};

static const struct json_field url_fields[] = {
    { "valid_seconds", JSON_KIND_SECONDS, offsetof(struct wish, expires_ms), .minimum = 1,
      .maximum = VALID_MAXIMUM_S },
    { "generation", JSON_KIND_INT, offsetof(struct wish, generation), .maximum = 1e15 },
};

static void reply_url(struct request *request, const struct port_token *token)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(16 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    char written[PORT_TOKEN_SIZE];
    scoped(free) char *url = NULL;
    scoped(free) char *path = NULL;

    port_token_write(token, request->core->vault, written);
    url = port_url_write(request, written, token);
    path = port_path_write(written);
    json_begin_object(&json, NULL);
    json_put_text(&json, "session_id", token->session_id);
    json_put_int(&json, "port", token->port);
    json_put_text(&json, "url", url);
    json_put_text(&json, "path", path);
    json_put_time(&json, "expires_at", token->expires_wall_s * 1000000);
    json_end_object(&json);
    request_reply(request, 201, &text);
}

static void post_url(struct request *request)
{
    struct wish wish = { .expires_ms = VALID_DEFAULT_MS };
    struct port_token token = { 0 };
    struct error err = { 0 };

    if (read_port(request, &token.port, &err) < 0 || request_decode(request, &wish, &err) < 0 ||
        vault_open(request->core->vault, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    memcpy(token.session_id, request->session_id, sizeof(token.session_id));
    token.expires_wall_s = clock_wall_s_after(loop_clock(request->core->loop), wish.expires_ms);
    token.generation = (uint64_t)wish.generation;
    reply_url(request, &token);
}

/* --- by a signed URL ------------------------------------------------------------------------- */

/* A page below a path has no origin, so that its browser asks before some requests. */
static bool answer_preflight(struct request *request)
{
    const char *method = request_header(request, "access-control-request-method");
    const char *headers = request_header(request, "access-control-request-headers");

    if (http_exchange_head(request->exchange)->method != HTTP_OPTIONS || !method)
        return false;
    http_respond_header(request->exchange, "Access-Control-Allow-Origin", "*");
    http_respond_header(request->exchange, "Access-Control-Allow-Methods", method);
    if (headers)
        http_respond_header(request->exchange, "Access-Control-Allow-Headers", headers);
    http_respond_header(request->exchange, "Access-Control-Max-Age", "600");
    http_respond(request->exchange, 204, NULL, NULL, 0);
    return true;
}

static void any_shared(struct request *request)
{
    const char *whole = http_exchange_head(request->exchange)->target;
    scoped(free) char *prefix = xstrndup(whole, (size_t)(request->rest - whole));
    struct port_target target = {
        .door = PORT_DOOR_PATH, .target = request->rest, .prefix = prefix, .is_shared = true
    };
    struct port_token token;
    struct error err = { 0 };

    http_respond_header(request->exchange, "Referrer-Policy", "no-referrer");
    if (port_permission_read(request, request_path(request, "token"), &token, &err) < 0)
        request_fail(request, &err);
    else if (!answer_preflight(request))
        port_permission_use(request, &token, &target);
}

/* --- tables ---------------------------------------------------------------------------------- */

static const struct route_parameter list_parameters[] = { API_PAGE_PARAMETERS, { 0 } };

static const struct route_answer ports_answers[] = {
    { 200, "{ports: [{port, path}], truncated}: the TCP ports that programs listen on; empty "
           "without a sandbox" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 409, "sandbox_not_running, sandbox_too_old or ports_unknown: the sandbox cannot tell" },
    { 410, "session_ended: with the reason and the final record" },
    { 0 },
};

static const struct route_answer port_answers[] = {
    { 101, "Upgrade: websocket, as the server inside answers; Upgrade: tcp: the bytes of one "
           "connection, both ways" },
    { 200, "the answer of the server inside, with any status" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 409, "generation_moved or paused" },
    { 502, "port_closed: nothing listens; port_unreachable, bad_answer, redirect_refused or "
           "sandbox_lost" },
    { 0 },
};

static const struct route_answer slash_answers[] = {
    { 101, "Upgrade: tcp: the bytes of one connection, both ways" },
    { 308, "the same with a slash behind it" },
    { 400, "invalid_port" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 0 },
};

static const struct route_answer url_answers[] = {
    { 201,
      "{session_id, port, url, path, expires_at}: every holder of the url may use the port until "
      "expires_at" },
    { 400, "a field is unknown, of the wrong type or out of range; invalid_port" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 0 },
};

static const struct route_answer shared_answers[] = {
    { 200, "the answer of the server inside, with any status" },
    { 403, "url_expired" },
    { 404, "url_not_found: not signed by this daemon" },
    { 410, "session_ended" },
    { 502, "port_closed: nothing listens; port_unreachable, bad_answer, redirect_refused or "
           "sandbox_lost" },
    { 0 },
};

const struct route api_port_routes[] = {
    { HTTP_GET, PORTS, get_ports, "List the TCP ports that programs in the sandbox listen on",
      .session = ROUTE_LIVE_SESSION, .parameters = list_parameters, .answers = ports_answers },
    { HTTP_GET, PORTS "/{port}", get_port, "A TCP connection to a port inside (Upgrade: tcp)",
      .session = ROUTE_LIVE_SESSION, .answers = slash_answers },
    { HTTP_POST, PORTS "/{port}/url", post_url, "Create a signed URL for a port",
      .body = ROUTE_JSON_BODY, .session = ROUTE_LIVE_SESSION, .fields = url_fields,
      .field_count = ARRAY_LENGTH(url_fields), .answers = url_answers },
    { HTTP_GET, PORTS "/{port}/{path}", any_port,
      "Proxy HTTP, in every method, and WebSocket to a server inside the sandbox",
      .session = ROUTE_LIVE_SESSION, .is_proxy = true, .answers = port_answers },
    { HTTP_GET, PORT_SHARED_PATH "{token}/{path}", any_shared,
      "The same by a signed URL, without credentials", .access = ROUTE_ANYBODY, .any_origin = true,
      .is_proxy = true, .answers = shared_answers, .home = ROUTE_OF_URL },
    { 0 },
};
