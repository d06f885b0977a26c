/* SPDX-License-Identifier: Apache-2.0 */
/* manage_session, beside execute_python: list, create and destroy, for the caller's own. */

#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/shares.h"
#include "service/find.h"
#include "service/sessions.h"
#include "tools/work.h"

#include <string.h>

struct managing {
    struct tool_work work;
    struct tool_call *call;
    struct session_op op;
    bool is_waiting;
};

static void managing_release(struct tool_work *work)
{
    struct managing *managing = container_of(work, struct managing, work);

    if (managing->is_waiting)
        session_op_cancel(&managing->op);
    free(managing);
}

static void put_ttl(struct json_writer *json, const struct session *session)
{
    int64_t remaining_ms;
    char text[STR_UNIT_SIZE];

    if (session_next_end(session, &remaining_ms) == END_NONE) {
        json_put_null(json, "ttl_remaining");
        return;
    }
    str_format_duration(remaining_ms, text);
    json_put_text(json, "ttl_remaining", text);
}

/* As text with indents for the model, and as it is for programs. */
static void answer(struct tool_call *call, struct buffer *text)
{
    scoped(json_decref) json_t *value = json_read(text->data, text->length, NULL);
    scoped(free) char *indented = json_dumps(value, JSON_INDENT(2) | JSON_PRESERVE_ORDER);

    tool_say(call, "%s", indented ? indented : buffer_text(text));
    call->result.structured = buffer_steal_text(text);
    tool_finish(call);
}

/* Clients of the same owner keep their sessions to themselves. */
static bool is_anothers(const struct tool_call *call, const struct session *session)
{
    const char *labels = session_labels_json(session);
    scoped(json_decref) json_t *object = labels ? json_read(labels, strlen(labels), NULL) : NULL;
    const char *client = json_string_value(json_object_get(object, TOOL_CLIENT_LABEL));

    return client && !str_equal(client, call->client);
}

static void list_sessions(struct tool_call *call)
{
    struct core *core = call->tools->core;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(TOOL_RESULT_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    struct session_filter own = { .owner = call->owner,
                                  .states = 1u << SESSION_OPEN | 1u << SESSION_PAUSED };
    const struct session *session = NULL;
    int64_t total = 0;

    json_begin_object(&json, NULL);
    json_begin_array(&json, "sessions");
    while ((session = session_filter_next(&own, core, session))) {
        if (is_anothers(call, session))
            continue;
        json_begin_object(&json, NULL);
        json_put_text(&json, "session_id", session_id(session));
        json_put_time(&json, "created_at", session_created(session).wall_us);
        json_put_time(&json, "last_used", session_last_activity(session).wall_us);
        put_ttl(&json, session);
        json_end_object(&json);
        total++;
    }
    json_end_array(&json);
    json_put_int(&json, "total", total);
    json_put_int(&json, "max_sessions", shares_cap(core->shares, call->owner, SHARE_SESSIONS));
    json_end_object(&json);
    answer(call, &text);
}

static void on_created(struct session_op *op)
{
    struct managing *managing = container_of(op, struct managing, op);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    managing->is_waiting = false;
    if (op->err.code) {
        tool_fail_error(managing->call, &op->err);
        return;
    }
    json_begin_object(&json, NULL);
    json_put_text(&json, "session_id", session_id(op->session));
    put_ttl(&json, op->session);
    json_put_text(&json, "message",
                  "The session is ready. Pass its session_id in all subsequent calls.");
    json_end_object(&json);
    answer(managing->call, &text);
}

static void on_destroyed(struct session_op *op)
{
    struct managing *managing = container_of(op, struct managing, op);

    managing->is_waiting = false;
    if (op->err.code) {
        tool_fail_error(managing->call, &op->err);
        return;
    }
    tool_say(managing->call, "Session %s has been destroyed.", op->id);
    tool_finish(managing->call);
}

static struct managing *managing_new(struct tool_call *call)
{
    struct managing *managing = xnew(struct managing);

    managing->work.release = managing_release;
    managing->call = call;
    managing->is_waiting = true;
    call->work = &managing->work;
    return managing;
}

static void create_session(struct tool_call *call)
{
    struct session_request request = SESSION_REQUEST_INIT;
    struct managing *managing = managing_new(call);

    request.owner = call->owner;
    request.on_behalf_of = call->on_behalf_of;
    request.labels_json = call->labels_json;
    session_open(call->tools->core, &request, &managing->op, on_created);
}

static void destroy_session(struct tool_call *call)
{
    const char *id = tool_text(call, "session_id");
    struct caller_identity identity = tool_identity(call);
    struct session *session;
    struct error err = { 0 };

    if (str_is_empty(id)) {
        tool_fail(call, "session_id is required for destroy operation");
        return;
    }
    session = find_live_session(call->tools->core, &identity, id, &err);
    if (session)
        session_end(session, END_DELETED, NULL, &managing_new(call)->op, on_destroyed);
    else
        tool_fail_error(call, &err);
}

static void start_manage_session(struct tool_call *call)
{
    const char *operation = tool_text(call, "operation");

    if (str_equal(operation, "list"))
        list_sessions(call);
    else if (str_equal(operation, "create"))
        create_session(call);
    else
        destroy_session(call);
}

static const char *const operations[] = { "list", "create", "destroy", NULL };

static const struct tool_argument arguments[] = {
    { "operation", TOOL_TEXT, "list, create or destroy.", .required = true, .choices = operations },
    { "session_id", TOOL_TEXT, "The session to destroy.", .max_length = 300 },
    { 0 },
};

const struct tool tool_manage_session = {
    .name = "manage_session",
    .title = "Sessions",
    .description =
        "List your sessions, create one ahead of its first use, or destroy one with everything in "
        "it to free its place. execute_python makes a session by itself when none is given.",
    .arguments = arguments,
    .is_destructive = true,
    .start = start_manage_session,
};
