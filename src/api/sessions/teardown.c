/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Teardown by a page that is being closed: the page is given a URL while it lives, and all it has
 * to do in the end is to send something there.
 */

#include "api/private.h"
#include "api/sessions/sessions.h"
#include "base/alloc.h"
#include "core/teardown_token.h"

#include <string.h>

enum {
    VALID_DEFAULT_MS = 3600 * 1000,
    VALID_MAXIMUM_S = 24 * 3600,
    GRACE_DEFAULT_MS = 500,
    GRACE_MAXIMUM_S = 60,
};

#define TEARDOWN_PATH "/api/v1/teardown/"

/* --- the permission --------------------------------------------------------------------------- */

struct wish {
    int64_t valid_ms, grace_ms;
};

static const struct json_field fields[] = {
    { "valid_seconds", JSON_KIND_SECONDS, offsetof(struct wish, valid_ms), .minimum = 1,
      .maximum = VALID_MAXIMUM_S },
    { "grace_seconds", JSON_KIND_SECONDS, offsetof(struct wish, grace_ms),
      .maximum = GRACE_MAXIMUM_S },
};

static int64_t now_wall_s(const struct request *request)
{
    return clock_wall_us(loop_clock(request->faces->parts.loop)) / 1000000;
}

static void reply_token(struct request *request, const struct teardown_token *token)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);
    char written[TEARDOWN_TOKEN_SIZE];
    scoped(free) char *url = NULL;

    teardown_token_write(token, request->core->vault, written);
    url = xasprintf(TEARDOWN_PATH "%s", written);
    json_begin_object(&json, NULL);
    json_put_text(&json, "session_id", token->session_id);
    json_put_text(&json, "url", url);
    json_put_time(&json, "expires_at", token->expires_wall_s * 1000000);
    json_put_double(&json, "grace_seconds", (double)token->grace_ms / 1000);
    json_put_double(&json, "grace", (double)token->grace_ms / 1000);
    json_end_object(&json);
    request_reply_recorded(request, 201, &text);
}

/* A server that asks for a token renders a page of the session: a teardown in its grace came from a
 * reload, and is dropped. */
static void post_token(struct request *request)
{
    struct wish wish = { .valid_ms = VALID_DEFAULT_MS, .grace_ms = GRACE_DEFAULT_MS };
    struct teardown_token token;
    struct error err = { 0 };

    if (request_decode(request, &wish, &err) < 0 || vault_open(request->core->vault, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    token.expires_wall_s =
        clock_wall_s_after(loop_clock(request->faces->parts.loop), wish.valid_ms);
    token.grace_ms = wish.grace_ms;
    token.number = session_new_teardown_number(request->session);
    memcpy(token.session_id, session_id(request->session), sizeof(token.session_id));
    session_teardown_cancel(request->session);
    reply_token(request, &token);
}

/* --- its use ---------------------------------------------------------------------------------- */

static void refuse(struct request *request)
{
    struct error err = { 0 };

    error_named(&err, ERR_NOT_FOUND, "token_not_found", "this URL is unknown or has expired");
    error_hint(&err, "POST /api/v1/sessions/ID/teardown-token gives a new URL");
    request_fail(request, &err);
}

/* The answer is the same whether there was something to tear down or not: the page is gone before
 * it comes, and another holder of the URL learns nothing. The body of the beacon is not read. */
static void post_teardown(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256);
    struct json_writer json = JSON_WRITER(&text);
    struct teardown_token token;
    struct session *session;
    struct error err = { 0 };

    if (vault_open(request->core->vault, &err) < 0 ||
        !teardown_token_read(&token, request->core->vault, request_path(request, "token"),
                             now_wall_s(request))) {
        refuse(request);
        return;
    }
    memcpy(request->session_id, token.session_id, sizeof(request->session_id));
    session = map_get(&request->core->sessions_by_id, token.session_id);
    if (session && session_spend_teardown(session, token.number))
        session_teardown_soon(session, token.grace_ms);
    json_begin_object(&json, NULL);
    json_put_text(&json, "status", "teardown_requested");
    json_end_object(&json);
    request_reply_recorded(request, 202, &text);
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct route_answer token_answers[] = {
    { 201, "{session_id, url, expires_at, grace}: a POST to the url before expires_at tears the "
           "sandbox down" },
    { 400, "a field is unknown, of the wrong type or out of range" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 410, "session_ended: with the reason and the final record" },
    { 0 },
};

static const struct route_answer teardown_answers[] = {
    { 202, "accepted: the sandbox is removed after the grace period, unless the session is used or "
           "gets a new token before that. Ignored if the session got a newer token before, or if "
           "the token was used for an earlier sandbox" },
    { 404, "token_not_found: not issued by this daemon, or expired" },
    { 0 },
};

const struct route api_teardown_routes[] = {
    { HTTP_POST, "/api/v1/sessions/{session}/teardown-token", post_token,
      "Create a URL with which a closing web page tears the sandbox down", .body = ROUTE_JSON_BODY,
      .session = ROUTE_LIVE_SESSION, .fields = fields, .field_count = ARRAY_LENGTH(fields),
      .answers = token_answers },
    { HTTP_POST, TEARDOWN_PATH "{token}", post_teardown,
      "Tear down by URL: no credentials, headers or content type needed", .access = ROUTE_ANYBODY,
      .any_origin = true, .answers = teardown_answers, .home = ROUTE_OF_URL },
    { 0 },
};
