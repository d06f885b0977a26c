#include "api/request.h"
#include "auth/auth.h"
#include "base/str.h"
#include "core/metrics.h"
#include "core/sandbox/capacity.h"

#include <stdio.h>

static const int statuses[ERR_CODES] = {
    [ERR_NONE] = 500,      [ERR_INVALID] = 400,  [ERR_UNAUTHORIZED] = 401, [ERR_FORBIDDEN] = 403,
    [ERR_NOT_FOUND] = 404, [ERR_CONFLICT] = 409, [ERR_GONE] = 410,         [ERR_TOO_LARGE] = 413,
    [ERR_LIMIT] = 429,     [ERR_INTERNAL] = 500, [ERR_BACKEND] = 502,      [ERR_UNAVAILABLE] = 503,
    [ERR_TIMEOUT] = 504,   [ERR_NO_SPACE] = 507,
};

/* Where the name says more than the code. */
static const struct {
    const char *name;
    int status;
} special[] = {
    { "method_not_allowed", 405 },     { "precondition_failed", 412 },
    { "unsupported_media_type", 415 }, { "range_not_satisfiable", 416 },
    { "offset_beyond_end", 416 },
};

int api_status(enum error_code code)
{
    return statuses[code];
}

static int status_of(const struct error *err)
{
    for (size_t i = 0; i < ARRAY_LENGTH(special); i++) {
        if (str_equal(special[i].name, err->name))
            return special[i].status;
    }
    return api_status(err->code);
}

void api_write_error(struct json_writer *json, const char *key, const struct error *err)
{
    json_begin_object(json, key);
    json_put_text(json, "code", *err->name ? err->name : error_code_name(err->code));
    json_put_text(json, "message", err->message);
    json_put_text(json, "hint", err->hint);
    json_put_bool(json, "retryable", err->retryable);
}

static bool is_of_the_door(const struct error *err)
{
    return str_equal(err->name, "rate_limited") || str_equal(err->name, "too_many_failures") ||
           str_equal(err->name, "issuer_unavailable") || str_equal(err->name, "keys_unreadable");
}

static void put_retry_after(struct api_request *request, const struct error *err)
{
    char seconds[24];
    long long after = 1;

    if (err->code != ERR_LIMIT && err->code != ERR_UNAVAILABLE)
        return;
    if (str_equal(err->name, "capacity"))
        after = capacity_retry_after_s(request->core->capacity);
    else if (is_of_the_door(err))
        after = auth_retry_after_s(request->api->parts.auth);
    snprintf(seconds, sizeof(seconds), "%lld", after);
    http_respond_header(request->exchange, "Retry-After", seconds);
}

void api_fail_status(struct api_request *request, int status, const struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    if (!request->exchange)
        return;
    put_retry_after(request, err);
    json_begin_object(&json, NULL);
    api_write_error(&json, "error", err);
    json_end_object(&json);
    json_end_object(&json);
    api_reply(request, status, &text);
}

/* The session of the request while it is ending: its end has a reason already. */
static const struct session *ending_session(const struct api_request *request,
                                            const struct error *err)
{
    const struct session *session = NULL;

    if (str_equal(err->name, "session_ended") && *request->session_id)
        session = map_get(&request->core->sessions_by_id, request->session_id);
    return session && session_state(session) == SESSION_ENDING ? session : NULL;
}

static void fail_ending(struct api_request *request, const struct session *session)
{
    scoped(buffer_fini) struct buffer record = BUFFER_INIT(API_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&record);
    char reason[END_TEXT_SIZE];

    end_reason_text(session_end_reason(session), reason);
    session_write_json(session, &json, NULL);
    api_fail_ended(request, session_id(session), reason, buffer_text(&record));
}

void api_fail(struct api_request *request, const struct error *err)
{
    const struct session *ending = request->exchange ? ending_session(request, err) : NULL;

    if (ending) {
        fail_ending(request, ending);
        return;
    }
    api_fail_status(request, status_of(err), err);
}

void api_fail_ended(struct api_request *request, const char *session_id, const char *reason,
                    const char *record_json)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(API_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    struct error err = { 0 };

    error_named(&err, ERR_GONE, "session_ended", "session %s has ended: %s", session_id,
                str_is_empty(reason) ? "unknown" : reason);
    error_hint(&err, "open a new session; its executions and their output stay readable until "
                     "retention");
    json_begin_object(&json, NULL);
    api_write_error(&json, "error", &err);
    json_put_text(&json, "reason", reason);
    json_end_object(&json);
    if (record_json)
        json_put_raw(&json, "session", record_json);
    json_end_object(&json);
    api_reply(request, 410, &text);
}
