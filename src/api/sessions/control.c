/* SPDX-License-Identifier: Apache-2.0 */
/* Routes that change a session: policy, lease, pause, its sandbox, and the end of many at once. */

#include "api/gather.h"
#include "api/sessions/sessions.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/money/approvals.h"
#include "core/session/flavor_change.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- policy and lease ------------------------------------------------------------------------ */

struct patch {
    json_t *labels, *secrets;
    const char *on_timeout;
    int64_t timeout_ms, idle_timeout_ms, max_lifetime_ms;
    bool auto_restart, auto_resume, has_auto_restart, has_auto_resume;
    bool keep_files, has_keep_files;
};

#define PATCH(name) offsetof(struct patch, name)

static const struct json_field patch_fields[] = {
    { "labels", JSON_KIND_TEXT_MAP, PATCH(labels), .max_length = 256 },
    { "secrets", JSON_KIND_TEXT_MAP, PATCH(secrets), .max_length = ENVIRONMENT_MAXIMUM },
    { "lease_seconds", JSON_KIND_SECONDS, PATCH(timeout_ms), .maximum = SECONDS_MAXIMUM },
    { "idle_timeout_seconds", JSON_KIND_SECONDS, PATCH(idle_timeout_ms),
      .maximum = SECONDS_MAXIMUM },
    { "max_lifetime_seconds", JSON_KIND_SECONDS, PATCH(max_lifetime_ms),
      .maximum = SECONDS_MAXIMUM },
    { "on_timeout", JSON_KIND_TEXT, PATCH(on_timeout) },
    { "auto_restart", JSON_KIND_BOOL, PATCH(auto_restart),
      .present_offset = PATCH(has_auto_restart) },
    { "auto_resume", JSON_KIND_BOOL, PATCH(auto_resume), .present_offset = PATCH(has_auto_resume) },
    { "keep_files", JSON_KIND_BOOL, PATCH(keep_files), .present_offset = PATCH(has_keep_files) },
};

static void patch_session(struct request *request)
{
    struct patch body = { .timeout_ms = -1, .idle_timeout_ms = -1, .max_lifetime_ms = -1 };
    scoped(free) char *labels = NULL;
    scoped(free) char *secrets = NULL;
    struct session_patch patch;
    struct error err = { 0 };

    if (request_decode(request, &body, &err) < 0 ||
        check_variables("secrets", body.secrets, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    if (body.on_timeout && !str_equal(body.on_timeout, "kill") &&
        !str_equal(body.on_timeout, "pause")) {
        error_named(&err, ERR_INVALID, "invalid_field", "on_timeout must be kill or pause");
        request_fail(request, &err);
        return;
    }
    labels = json_to_text(body.labels);
    secrets = json_to_text(body.secrets);
    patch = (struct session_patch){
        .labels_json = labels,
        .secrets_json = secrets,
        .timeout_ms = body.timeout_ms,
        .idle_timeout_ms = body.idle_timeout_ms,
        .max_lifetime_ms = body.max_lifetime_ms,
        .auto_restart = body.has_auto_restart ? body.auto_restart : -1,
        .auto_resume = body.has_auto_resume ? body.auto_resume : -1,
        .keep_files = body.has_keep_files ? body.keep_files : -1,
        .on_timeout = !body.on_timeout                      ? -1
                      : str_equal(body.on_timeout, "pause") ? TIMEOUT_PAUSE
                                                            : TIMEOUT_KILL,
    };
    if (session_patch(request->session, &patch, &err) < 0)
        request_fail(request, &err);
    else
        session_reply_recorded(request, 200, request->session);
}

struct keepalive {
    int64_t timeout_ms;
    bool exact;
};

static const struct json_field keepalive_fields[] = {
    { "lease_seconds", JSON_KIND_SECONDS, offsetof(struct keepalive, timeout_ms),
      .maximum = SECONDS_MAXIMUM },
    { "exact", JSON_KIND_BOOL, offsetof(struct keepalive, exact) },
};

/* Without a timeout the lease begins anew with the one that the session has. */
static void post_keepalive(struct request *request)
{
    struct keepalive body = { .timeout_ms = session_timeout_ms(request->session) };
    struct error err = { 0 };

    if (request_decode(request, &body, &err) < 0 ||
        session_keepalive(request->session, body.timeout_ms, body.exact, &err) < 0)
        request_fail(request, &err);
    else
        session_reply_recorded(request, 200, request->session);
}

/* --- pause and sandbox ----------------------------------------------------------------------- */

static bool refuse_any_field(struct request *request)
{
    struct error err = { 0 };

    if (request_decode(request, NULL, &err) == 0)
        return false;
    request_fail(request, &err);
    return true;
}

static void post_pause(struct request *request)
{
    struct session_call *call;

    if (refuse_any_field(request))
        return;
    call = session_call_new(request);
    session_pause(request->session, &call->op, session_call_changed);
}

static void post_resume(struct request *request)
{
    struct session_call *call;

    if (refuse_any_field(request))
        return;
    call = session_call_new(request);
    session_resume(request->session, &call->op, session_call_changed);
}

static void post_teardown(struct request *request)
{
    if (refuse_any_field(request))
        return;
    session_teardown(request->session, END_TEARDOWN);
    session_reply_recorded(request, 202, request->session);
}

struct replacement {
    const char *flavor;
    uint64_t memory, disk;
    double cpus;
    int64_t pids;
};

#define REPLACEMENT(name) offsetof(struct replacement, name)

static const struct json_field replacement_fields[] = {
    { "flavor", JSON_KIND_TEXT, REPLACEMENT(flavor), .max_length = 128 },
    { "memory_bytes", JSON_KIND_SIZE, REPLACEMENT(memory), .minimum = 4 << 20, .maximum = 1e15 },
    { "disk_bytes", JSON_KIND_SIZE, REPLACEMENT(disk), .minimum = 1 << 20, .maximum = 1e15 },
    { "cpus", JSON_KIND_NUMBER, REPLACEMENT(cpus), .minimum = 0.01, .maximum = 1024 },
    { "pids", JSON_KIND_INT, REPLACEMENT(pids), .minimum = 2, .maximum = 4194304 },
};

static struct sandbox_limits asked_limits(const struct replacement *body)
{
    return (struct sandbox_limits){ .memory_bytes = body->memory,
                                    .disk_bytes = body->disk,
                                    .cpu_millis = (uint32_t)lround(body->cpus * 1000),
                                    .pids = (uint32_t)body->pids };
}

static const int choice_statuses[] = {
    [FLAVOR_CHANGE_NONE] = 200,
    [FLAVOR_CHANGE_MADE] = 202,
    [FLAVOR_CHANGE_ASKED] = 202,
};

/* The approval, or the session; each with what happened in plain words. */
static void choice_reply(struct request *request, const struct flavor_change_answer *answer)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    if (answer->outcome == FLAVOR_CHANGE_ASKED)
        approval_write_fields(answer->approval, &json);
    else
        session_write_fields(request->session, &json);
    json_put_text(&json, "message", answer->message);
    json_end_object(&json);
    request_reply_recorded(request, choice_statuses[answer->outcome], &text);
}

static void post_sandbox(struct request *request)
{
    struct replacement body = { 0 };
    struct flavor_change_answer answer;
    struct error err = { 0 };

    if (request_decode(request, &body, &err) < 0 ||
        flavor_change_make(request->session,
                           &(struct flavor_change_request){ .flavor = body.flavor,
                                                            .limits = asked_limits(&body),
                                                            .principal = request->principal,
                                                            .on_behalf_of = request->on_behalf_of },
                           &answer, &err) < 0)
        request_fail(request, &err);
    else
        choice_reply(request, &answer);
}

/* --- many at once ---------------------------------------------------------------------------- */

struct removal;

struct removal_item {
    struct session_op op;
    struct removal *removal;
};

struct removal {
    struct request *request;
    struct removal_item *items; /* owned */
    size_t count, left;
    struct buffer skipped; /* JSON objects with commas between */
    bool dry_run;
};

static void removal_free(struct removal *removal)
{
    free(removal->items);
    buffer_fini(&removal->skipped);
    free(removal);
}

static void removal_reply(struct removal *removal)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_begin_array(&json, "destroyed");
    for (size_t i = 0; i < removal->count; i++) {
        if (!removal->items[i].op.err.code)
            json_put_text(&json, NULL, removal->items[i].op.id);
    }
    json_end_array(&json);
    json_begin_array(&json, "failed");
    for (size_t i = 0; i < removal->count; i++) {
        if (!removal->items[i].op.err.code)
            continue;
        json_begin_object(&json, NULL);
        json_put_text(&json, "id", removal->items[i].op.id);
        request_write_error(removal->request, &json, "error", &removal->items[i].op.err);
        json_end_object(&json);
        json_end_object(&json);
    }
    json_end_array(&json);
    buffer_append_byte(&removal->skipped, ']');
    json_put_raw(&json, "skipped", buffer_text(&removal->skipped));
    json_put_bool(&json, "dry_run", removal->dry_run);
    json_end_object(&json);
    request_reply(removal->request, 200, &text);
}

static void on_removed(struct session_op *op)
{
    struct removal *removal = container_of(op, struct removal_item, op)->removal;

    if (--removal->left > 0)
        return;
    if (!request_finish(removal->request))
        removal_reply(removal);
    removal_free(removal);
}

static void skip(struct removal *removal, const struct session *session, const char *reason)
{
    if (removal->skipped.length > 1)
        buffer_append_byte(&removal->skipped, ',');
    buffer_appendf(&removal->skipped, "{\"id\":\"%s\",\"reason\":\"%s\"}", session_id(session),
                   reason);
}

/* NULL when it has been idle for long enough. */
static const char *why_not_idle(const struct session *session, int64_t idle_ms)
{
    int64_t idle_us = loop_now_us(session_core(session)->loop) -
                      session_last_activity(session).boot_us;

    if (idle_ms < 0)
        return NULL;
    if (session_active_holds(session) > 0)
        return "in use";
    return idle_us < idle_ms * 1000 ? "used too recently" : NULL;
}

static void choose_sessions(struct removal *removal, const struct session_filter *filter,
                            int64_t idle_ms)
{
    struct core *core = removal->request->core;
    const struct session *session = NULL;

    while ((session = session_filter_next(filter, core, session))) {
        const char *reason = why_not_idle(session, idle_ms);

        if (reason) {
            skip(removal, session, reason);
            continue;
        }
        removal->items = xrealloc(removal->items, removal->count + 1, sizeof(*removal->items));
        removal->items[removal->count] = (struct removal_item){ .removal = removal };
        memcpy(removal->items[removal->count].op.id, session_id(session), ID_SIZE);
        removal->count++;
    }
}

static void remove_chosen(struct removal *removal)
{
    struct core *core = removal->request->core;

    request_begin(removal->request);
    removal->left = removal->count + 1;
    for (size_t i = 0; i < removal->count; i++) {
        struct removal_item *item = &removal->items[i];
        struct session *session = map_get(&core->sessions_by_id, item->op.id);

        if (session)
            session_end(session, END_DELETED, NULL, &item->op, on_removed);
        else
            removal->left--;
    }
    removal->left--;
    if (removal->left == 0) {
        (void)request_finish(removal->request);
        removal_reply(removal);
        removal_free(removal);
    }
}

static void delete_sessions(struct request *request)
{
    scoped(session_filter_fini) struct session_filter filter = { 0 };
    int64_t idle_ms = -1;
    bool dry_run = false;
    struct removal *removal;
    struct error err = { 0 };

    if (api_read_filter(request, &filter, &err) < 0 ||
        request_parameter_bool(request, "dry_run", &dry_run, &err) < 0 ||
        request_parameter_ms(request, "idle_longer_than_seconds", INT64_MAX / 2000, &idle_ms,
                             &err) < 0) {
        request_fail(request, &err);
        return;
    }
    removal = xnew(struct removal);
    removal->request = request;
    removal->dry_run = dry_run;
    removal->skipped = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    buffer_append_byte(&removal->skipped, '[');
    if (!session_filter_is_ended(&filter))
        choose_sessions(removal, &filter, idle_ms);
    if (!dry_run) {
        remove_chosen(removal);
        return;
    }
    removal_reply(removal);
    removal_free(removal);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct route_parameter removal_parameters[] = {
    { "label", "string", "name=value; may be repeated, all must match" },
    { "state", "string", "open, paused or ending" },
    { "idle_longer_than_seconds", "string", "sessions not used for this long only" },
    { "dry_run", "boolean", "list the matching sessions, end none" },
    { "owner", "string", "sessions of this owner; administrators only" },
    API_NODE_PARAMETER,
    { 0 },
};

static const struct route_answer removal_answers[] = {
    { 200, "{destroyed, failed, skipped}: the destroyed ones are gone" },
    { 0 },
};

static const struct route_answer changed_answers[] = {
    { 200, "the session" },
    { 400, "a field is unknown, of the wrong type or out of range" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 409, "not possible in its current state" },
    { 410, "session_ended: with the reason and the final record" },
    { 0 },
};

static const struct route_answer sandbox_answers[] = {
    { 200, "the session, with a message: nothing changes" },
    { 202, "the session, with a message: the sandbox is being created; or the approval, with kind "
           "approval: a decision is needed" },
    { 400, "a field is unknown, of the wrong type or out of range; flavor_unknown, "
           "flavor_unavailable" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 409, "sandbox_chosen: the chosen sandbox must be torn down first" },
    { 410, "session_ended: with the reason and the final record" },
    { 0 },
};

static const struct route_answer accepted_answers[] = {
    { 202, "the session; its sandbox is changing" },
    { 400, "a field is unknown, of the wrong type or out of range" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 410, "session_ended: with the reason and the final record" },
    { 0 },
};

#define SESSION "/api/v1/sessions/{session}"

const struct route api_control_routes[] = {
    { HTTP_DELETE, "/api/v1/sessions", delete_sessions,
      "End all matching sessions of the caller; answers when they are gone",
      .parameters = removal_parameters, .answers = removal_answers, .gather = api_gather_removals },
    { HTTP_PATCH, SESSION, patch_session, "Change labels, clocks and policy",
      .body = ROUTE_JSON_BODY, .session = ROUTE_LIVE_SESSION, .fields = patch_fields,
      .field_count = ARRAY_LENGTH(patch_fields), .answers = changed_answers },
    { HTTP_POST, SESSION "/keepalive", post_keepalive,
      "The lease ends at now plus lease_seconds; never earlier than before unless exact",
      .body = ROUTE_JSON_BODY, .session = ROUTE_LIVE_SESSION, .fields = keepalive_fields,
      .field_count = ARRAY_LENGTH(keepalive_fields), .answers = changed_answers },
    { HTTP_POST, SESSION "/pause", post_pause, "Freeze the sandbox of a session",
      .body = ROUTE_JSON_BODY, .session = ROUTE_LIVE_SESSION, .answers = changed_answers },
    { HTTP_POST, SESSION "/resume", post_resume, "Resume the sandbox of a session",
      .body = ROUTE_JSON_BODY, .session = ROUTE_LIVE_SESSION, .answers = changed_answers },
    { HTTP_POST, SESSION "/sandbox", post_sandbox,
      "Start the sandbox, or request one of another flavor", .body = ROUTE_JSON_BODY,
      .session = ROUTE_LIVE_SESSION, .fields = replacement_fields,
      .field_count = ARRAY_LENGTH(replacement_fields), .answers = sandbox_answers },
    { HTTP_POST, SESSION "/sandbox/teardown", post_teardown,
      "Remove the sandbox and keep the session; the next use starts a new one",
      .body = ROUTE_JSON_BODY, .session = ROUTE_LIVE_SESSION, .answers = accepted_answers },
    { 0 },
};
