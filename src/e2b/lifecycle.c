/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a sandbox: connect, timeout, pause, resume, kill. */

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/session/session.h"
#include "e2b/private.h"

#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_S = 300,
    RESUME_S = 15,
    REFRESH_S = 60,
    SECONDS_MAXIMUM = 366 * 24 * 3600,
};

int e2b_read_timeout(const struct request *request, const char *field, int64_t fallback_s,
                     int64_t *out_ms, struct error *err)
{
    const json_t *value = json_object_get(request->body, field);
    json_int_t seconds = json_is_integer(value) ? json_integer_value(value) : fallback_s;

    if (value && !json_is_null(value) && !json_is_integer(value))
        return error_named(err, ERR_INVALID, "invalid_field",
                           "%s must be a whole number of seconds", field);
    if (seconds <= 0)
        return error_named(err, ERR_INVALID, "invalid_field", "Timeout must be greater than 0");
    if (seconds > SECONDS_MAXIMUM)
        return error_named(err, ERR_INVALID, "invalid_field", "Timeout is too large");
    *out_ms = seconds * 1000;
    return 0;
}

/* --- changes that take time ------------------------------------------------------------------ */

struct change {
    struct request *request;
    struct session_op op;
    int64_t timeout_ms;
};

static struct change *change_new(struct request *request, int64_t timeout_ms)
{
    struct change *change = xnew(struct change);

    change->request = request;
    change->timeout_ms = timeout_ms;
    request_begin(request);
    return change;
}

/* --- connect and resume ---------------------------------------------------------------------- */

static void on_resumed(struct session_op *op)
{
    struct change *change = container_of(op, struct change, op);
    struct request *request = change->request;
    struct error err = op->err;

    if (!request_finish(request)) {
        if (err.code || session_keepalive(op->session, change->timeout_ms, true, &err) < 0)
            request_fail(request, &err);
        else
            e2b_reply_sandbox_recorded(request, 201, op->session);
    }
    free(change);
}

/* The lease comes first: a paused sandbox whose time is over must not end on its way back. */
static void resume(struct request *request, int64_t timeout_ms)
{
    struct error err = { 0 };

    if (session_keepalive(request->session, timeout_ms, true, &err) < 0)
        request_fail(request, &err);
    else
        session_resume(request->session, &change_new(request, timeout_ms)->op, on_resumed);
}

static void connect_to(struct request *request)
{
    struct error err = { 0 };
    int64_t timeout_ms;

    if (e2b_read_timeout(request, "timeout", CONNECT_S, &timeout_ms, &err) < 0 ||
        vault_open(request->core->vault, &err) < 0)
        request_fail(request, &err);
    else if (e2b_is_paused(request->session))
        resume(request, timeout_ms);
    else if (session_keepalive(request->session, timeout_ms, false, &err) < 0)
        request_fail(request, &err);
    else
        e2b_reply_sandbox_recorded(request, 200, request->session);
}

static void resume_only(struct request *request)
{
    struct error err = { 0 };
    int64_t timeout_ms;

    if (e2b_read_timeout(request, "timeout", RESUME_S, &timeout_ms, &err) < 0 ||
        vault_open(request->core->vault, &err) < 0)
        request_fail(request, &err);
    else if (e2b_is_paused(request->session))
        resume(request, timeout_ms);
    else
        e2b_fail_status(request, 409, "the sandbox is running");
}

static void post_connect(struct request *request)
{
    e2b_find(request, connect_to);
}

static void post_resume(struct request *request)
{
    e2b_find(request, resume_only);
}

/* --- pause ----------------------------------------------------------------------------------- */

/* A paused sandbox of E2B stays until it is resumed or killed: its lease ends. */
static void on_paused(struct session_op *op)
{
    struct change *change = container_of(op, struct change, op);
    struct request *request = change->request;
    struct error err = op->err;

    if (!err.code)
        (void)session_keepalive(op->session, 0, true, NULL); /* else the lease is kept */
    if (!request_finish(request)) {
        if (err.code)
            request_fail(request, &err);
        else
            e2b_reply_empty_recorded(request, 204);
    }
    free(change);
}

static void pause_it(struct request *request)
{
    const json_t *memory = json_object_get(request->body, "memory");

    if (json_is_false(memory))
        e2b_fail_status(request, 400, "memory: false is not supported by this server");
    else if (e2b_is_paused(request->session))
        e2b_fail_status(request, 409, "the sandbox is already paused");
    else
        session_pause(request->session, &change_new(request, 0)->op, on_paused);
}

static void post_pause(struct request *request)
{
    e2b_find(request, pause_it);
}

/* --- time ------------------------------------------------------------------------------------ */

static void set_timeout(struct request *request)
{
    struct error err = { 0 };
    int64_t timeout_ms;

    if (e2b_read_timeout(request, "timeout", 0, &timeout_ms, &err) < 0 ||
        session_keepalive(request->session, timeout_ms, true, &err) < 0)
        request_fail(request, &err);
    else
        e2b_reply_empty_recorded(request, 204);
}

static void refresh(struct request *request)
{
    struct error err = { 0 };
    int64_t timeout_ms;

    if (e2b_read_timeout(request, "duration", REFRESH_S, &timeout_ms, &err) < 0 ||
        session_keepalive(request->session, timeout_ms, false, &err) < 0)
        request_fail(request, &err);
    else
        e2b_reply_empty_recorded(request, 204);
}

static void post_timeout(struct request *request)
{
    e2b_find(request, set_timeout);
}

static void post_refreshes(struct request *request)
{
    e2b_find(request, refresh);
}

/* --- kill ------------------------------------------------------------------------------------ */

static void on_killed(struct session_op *op)
{
    struct change *change = container_of(op, struct change, op);
    struct request *request = change->request;

    if (!request_finish(request)) {
        if (op->err.code)
            request_fail(request, &op->err);
        else
            e2b_reply_empty(request, 204);
    }
    free(change);
}

static void kill_it(struct request *request)
{
    session_end(request->session, END_DELETED, NULL, &change_new(request, 0)->op, on_killed);
}

static void delete_sandbox(struct request *request)
{
    e2b_find(request, kill_it);
}

/* --- the table ------------------------------------------------------------------------------- */

const struct route_answer e2b_any_answers[] = { { 200, "as the API of E2B has it" }, { 0 } };

#define BODY .body = ROUTE_JSON_BODY, .answers = e2b_any_answers

const struct route e2b_lifecycle_routes[] = {
    { HTTP_POST, "/v2/sandboxes/{id}/connect", post_connect, "Connect to a sandbox", BODY },
    { HTTP_POST, "/sandboxes/{id}/connect", post_connect, "Connect to a sandbox", BODY },
    { HTTP_POST, "/sandboxes/{id}/resume", post_resume, "Resume a sandbox", BODY },
    { HTTP_POST, "/sandboxes/{id}/pause", post_pause, "Pause a sandbox", BODY },
    { HTTP_POST, "/sandboxes/{id}/timeout", post_timeout, "Set the end of a sandbox", BODY },
    { HTTP_POST, "/sandboxes/{id}/refreshes", post_refreshes, "Extend a sandbox", BODY },
    { HTTP_DELETE, "/sandboxes/{id}", delete_sandbox, "Kill a sandbox",
      .answers = e2b_any_answers },
    { 0 },
};
