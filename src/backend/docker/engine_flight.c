/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/engine_private.h"
#include "base/alloc.h"
#include "base/str.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { REFUSAL_MAXIMUM = 64 * 1024 };

/* --- the request, while it waits ------------------------------------------------------------- */

static void request_keep(struct flight_request *kept, const struct flight_request *request)
{
    void *body = NULL;

    if (request->body_length) {
        body = xmalloc(request->body_length);
        memcpy(body, request->body, request->body_length);
    }
    *kept = *request;
    kept->path = request->path ? xstrdup(request->path) : NULL;
    kept->content_type = request->content_type ? xstrdup(request->content_type) : NULL;
    kept->body = body;
}

static void request_drop(struct flight_request *kept)
{
    free((void *)kept->path);
    free((void *)kept->content_type);
    free((void *)kept->body);
    *kept = (struct flight_request){ 0 };
}

/* --- the end --------------------------------------------------------------------------------- */

/* Back to idle: nothing of the exchange is left. */
static void flight_settle(struct engine_flight *flight)
{
    flight->state = FLIGHT_IDLE;
    timer_stop(&flight->timer);
    list_remove(&flight->waiting);
    request_drop(&flight->kept);
    buffer_fini(&flight->refusal);
}

static void flight_abort(struct engine_flight *flight)
{
    if (flight->http)
        http_call_cancel(steal_ptr(&flight->http));
    flight_settle(flight);
}

void engine_flight_fail(struct engine_flight *flight, const struct error *err)
{
    struct error copy = *err;

    flight_abort(flight);
    flight->ops->on_end(flight, &copy);
}

static void on_timeout(struct timer *timer)
{
    struct engine_flight *flight = container_of(timer, struct engine_flight, timer);
    char limit[STR_UNIT_SIZE];
    struct error err;

    str_format_duration(flight->timeout_ms, limit);
    error_named(&err, ERR_UNAVAILABLE, "engine_unavailable",
                "the engine at %s has not answered within %s", flight->engine->host, limit);
    error_hint(&err, "see whether the engine is overloaded or hangs: docker -H %s info",
               flight->engine->host);
    engine_flight_fail(flight, &err);
}

void engine_flight_set_timeout(struct engine_flight *flight, int64_t timeout_ms)
{
    flight->timeout_ms = timeout_ms;
    if (timeout_ms > 0)
        timer_arm_in(&flight->timer, timeout_ms * 1000);
    else
        timer_stop(&flight->timer);
}

/* --- the answer ------------------------------------------------------------------------------ */

static bool status_is_success(int status, bool upgrades)
{
    return (status >= 200 && status < 300) || status == 304 || (status == 101 && upgrades);
}

static bool head_has_type(const struct http_head *head, const char *type)
{
    const char *value = http_head_header(head, "content-type");

    return value && strncasecmp(value, type, strlen(type)) == 0;
}

static void flight_refuse_content(struct engine_flight *flight, const char *what)
{
    struct error err;

    error_set(&err, ERR_BACKEND, "%s answers with status %d and %s: it is no container engine",
              flight->engine->host, flight->status, what);
    error_hint(&err, "set docker.host to the address of the engine itself");
    engine_flight_fail(flight, &err);
}

static void on_head(struct http_call *http, const struct http_head *head)
{
    struct engine_flight *flight = http_call_user(http);

    flight->status = head->status;
    flight->content = head_has_type(head, "application/json")  ? CONTENT_JSON
                      : http_head_header(head, "content-type") ? CONTENT_OTHER
                                                               : CONTENT_UNNAMED;
    if (head_has_type(head, "text/html"))
        flight_refuse_content(flight, "an HTML page");
    else if (head->status == 101 && !flight->kept.upgrades)
        flight_refuse_content(flight, "another protocol");
    else if (!status_is_success(head->status, flight->kept.upgrades))
        flight->state = FLIGHT_REFUSED;
    else if (flight->ops->on_head)
        flight->ops->on_head(flight, head);
}

static void on_data(struct http_call *http, const uint8_t *data, size_t length)
{
    struct engine_flight *flight = http_call_user(http);

    if (flight->state == FLIGHT_CALLING)
        flight->ops->on_data(flight, data, length);
    else
        (void)buffer_append(&flight->refusal, data,
                            MIN(length, REFUSAL_MAXIMUM - flight->refusal.length));
}

static void on_writable(struct http_call *http)
{
    struct engine_flight *flight = http_call_user(http);

    if (flight->ops->on_writable)
        flight->ops->on_writable(flight);
}

/* An engine that was replaced by another one says that it does not know the version. */
static bool answer_refuses_version(int status, const struct error *err)
{
    return status == 400 && strstr(err->message, "client version");
}

static void on_end(struct http_call *http, const struct error *cause)
{
    struct engine_flight *flight = http_call_user(http);
    struct engine *engine = flight->engine;
    struct error err = { 0 };

    if (cause)
        engine_error_from_http(&err, engine, cause);
    else if (flight->state == FLIGHT_REFUSED)
        engine_error_from_answer(&err, flight);
    if (cause || answer_refuses_version(flight->status, &err))
        engine_forget_version(engine);
    flight->http = NULL;
    flight_settle(flight);
    flight->ops->on_end(flight, err.code ? &err : NULL);
}

/* --- the way out ----------------------------------------------------------------------------- */

static char *flight_target(struct engine_flight *flight, const struct flight_request *request)
{
    scoped(free) char *made = request->path ? NULL : flight->ops->make_path(flight);
    const char *path = made ? made : request->path;

    return request->is_unversioned ? xstrdup(path)
                                   : xasprintf("/v%s%s", flight->engine->version, path);
}

static void flight_call(struct engine_flight *flight, const struct flight_request *request)
{
    static const struct http_call_handler handler = {
        .on_head = on_head,
        .on_data = on_data,
        .on_writable = on_writable,
        .on_end = on_end,
    };
    static const char *const upgrade[] = { "Connection", "Upgrade", "Upgrade", "tcp", NULL };
    struct engine *engine = flight->engine;
    scoped(free) char *target = flight_target(flight, request);

    flight->state = FLIGHT_CALLING;
    flight->http = http_client_request(engine->http, request->method, target, request->content_type,
                                       request->body, (int64_t)request->body_length,
                                       request->upgrades ? upgrade : NULL, &handler, flight);
    flight->kept.upgrades = request->upgrades;
}

void engine_flight_send(struct engine_flight *flight, const struct flight_request *request,
                        int64_t timeout_ms)
{
    struct engine *engine = flight->engine;

    assert(flight->state == FLIGHT_IDLE);
    flight->status = 0;
    flight->refusal = BUFFER_INIT(REFUSAL_MAXIMUM);
    engine_flight_set_timeout(flight, timeout_ms);
    if (request->is_unversioned || engine->version_state == VERSION_KNOWN) {
        flight_call(flight, request);
        return;
    }
    flight->state = FLIGHT_WAITING;
    request_keep(&flight->kept, request);
    list_append(&engine->waiting, &flight->waiting);
    engine_ask_version(engine);
}

void engine_flight_release(struct engine_flight *flight, const struct error *err)
{
    struct flight_request kept = flight->kept;

    assert(flight->state == FLIGHT_WAITING);
    list_remove(&flight->waiting);
    if (err) {
        engine_flight_fail(flight, err);
        return;
    }
    flight->kept = (struct flight_request){ 0 };
    flight_call(flight, &kept);
    request_drop(&kept);
}

void engine_flight_init(struct engine_flight *flight, struct engine *engine,
                        const struct engine_flight_ops *ops)
{
    *flight = (struct engine_flight){ .ops = ops, .engine = engine };
    timer_init(&flight->timer, engine->loop, on_timeout);
    list_append(&engine->flights, &flight->node);
}

void engine_flight_fini(struct engine_flight *flight)
{
    flight_abort(flight);
    list_remove(&flight->node);
}
