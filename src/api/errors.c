/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the REST face: a session that has ended comes with its final record. */

#include "api/private.h"
#include "base/str.h"
#include "core/core.h"

enum { USUAL_BYTES = 2000 };

/* 410 with the final record of the session as JSON; NULL without one. */
static void fail_ended(struct request *request, const char *session_id, const char *reason,
                       const char *record_json)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    struct error err = { 0 };

    error_named(&err, ERR_GONE, "session_ended", "session %s has ended: %s", session_id,
                str_is_empty(reason) ? "unknown" : reason);
    error_hint_known(&err, HINT_NEW_SESSION);
    json_begin_object(&json, NULL);
    request_write_error(request, &json, "error", &err);
    json_put_text(&json, "reason", reason);
    json_end_object(&json);
    if (record_json)
        json_put_raw(&json, "session", record_json);
    json_end_object(&json);
    request_reply(request, 410, &text);
}

/* The end of a session that is ending has a reason already. */
static const struct session *ending_session(const struct request *request, const struct error *err)
{
    const struct session *session = NULL;

    if (str_equal(err->name, "session_ended") && *request->session_id)
        session = map_get(&request->core->sessions_by_id, request->session_id);
    return session && session_state(session) == SESSION_ENDING ? session : NULL;
}

static void fail_ending(struct request *request, const struct session *session)
{
    scoped(buffer_fini) struct buffer record = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&record);
    char reason[END_TEXT_SIZE];

    end_reason_text(session_end_reason(session), reason);
    session_write_json(session, &json, NULL);
    fail_ended(request, session_id(session), reason, buffer_text(&record));
}

void api_fail(struct request *request, const struct error *err)
{
    const struct session *ending = ending_session(request, err);

    if (request->ended_json && str_equal(err->name, "session_ended"))
        fail_ended(request, request->session_id, request->end_reason, request->ended_json);
    else if (ending)
        fail_ending(request, ending);
    else
        request_fail_json(request, err);
}
