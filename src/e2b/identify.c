/* SPDX-License-Identifier: Apache-2.0 */
/* Access to a sandbox: the holders of its tokens, and of signed URLs. */

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/session/session.h"
#include "e2b/private.h"

#include <stdio.h>
#include <string.h>

/* --- which ----------------------------------------------------------------------------------- */

static void fail_gateway(struct request *request, int status, const char *shown_id,
                         const char *message)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    json_put_text(&json, "sandboxId", shown_id);
    json_put_text(&json, "message", message);
    json_put_int(&json, "code", status);
    json_end_object(&json);
    request_reply(request, status, &text);
}

void e2b_fail_gone(struct request *request, const char *shown_id)
{
    fail_gateway(request, 502, shown_id, "The sandbox was not found");
}

struct session *e2b_session(const struct request *request)
{
    return session_find(request->core, "", true, request->session_id);
}

/* Whether traffic reaches it: a paused one is not running, unless traffic wakes it. */
static bool takes_traffic(const struct session *session, const struct e2b_notes *notes)
{
    if (e2b_is_lost(session))
        return false;
    return session_state(session) == SESSION_OPEN ||
           (session_state(session) == SESSION_PAUSED && notes->auto_resume);
}

/* --- signed URLs ----------------------------------------------------------------------------- */

static struct e2b_signature signature_of(const struct request *request)
{
    const char *path = request_parameter(request, "path");
    const char *user = request_parameter(request, "username");
    bool writes = http_exchange_head(request->exchange)->method == HTTP_POST;

    return (
        struct e2b_signature){ .path = path ? path : "",
                               .operation = writes ? "write" : "read",
                               .user = user ? user : "",
                               .expiration = request_parameter(request, "signature_expiration") };
}

static bool is_signed_for(const struct request *request, const struct session *session)
{
    const char *given = request_parameter(request, "signature");
    struct e2b_signature facts = signature_of(request);
    char token[E2B_TOKEN_SIZE];

    e2b_token_write(request->core, session_id(session), E2B_TOKEN_ENVD, token);
    return given && e2b_signature_is(&facts, token, given);
}

/* The URL has no id when clients use one port for everything: whose token is it signed with? */
static struct session *find_signed(const struct request *request)
{
    struct session *session;

    session_for_each (session, request->core)
        if (session_is_alive(session) && is_signed_for(request, session))
            return session;
    return NULL;
}

static bool is_expired(const struct request *request)
{
    const char *expiration = request_parameter(request, "signature_expiration");
    int64_t now_s = clock_wall_us(loop_clock(request->core->loop)) / 1000000;
    uint64_t until_s;

    if (!expiration)
        return false;
    return str_to_u64(expiration, &until_s) < 0 || (uint64_t)now_s > until_s;
}

/* NULL when the request may have the file. */
static const char *refuse_signature(const struct request *request, const struct session *session)
{
    if (!request_parameter(request, "signature"))
        return "missing signature query parameter";
    if (!is_signed_for(request, session))
        return "invalid signature";
    return is_expired(request) ? "signature is already expired" : NULL;
}

/* --- may they -------------------------------------------------------------------------------- */

static const char unauthorized[] = "unauthorized access, please provide a valid access token or "
                                   "method signing if supported";

static bool has_path(const struct request *request, const char *path)
{
    return strcmp(http_exchange_head(request->exchange)->path, path) == 0;
}

/* NULL when they may; the reason otherwise. */
static const char *refuse_envd(const struct request *request, const struct session *session,
                               const struct e2b_notes *notes)
{
    const char *given = request_header(request, "x-access-token");

    if (!notes->is_secure || has_path(request, "/health"))
        return NULL;
    if (given)
        return e2b_token_is(request->core, session_id(session), E2B_TOKEN_ENVD, given)
                   ? NULL
                   : unauthorized;
    return has_path(request, "/files") ? refuse_signature(request, session) : unauthorized;
}

static bool has_traffic_token(const struct request *request, const struct session *session)
{
    return e2b_token_is(request->core, session_id(session), E2B_TOKEN_TRAFFIC,
                        request_header(request, "e2b-traffic-access-token"));
}

static const char *refuse_code(const struct request *request, const struct session *session,
                               const struct e2b_notes *notes)
{
    if (!notes->is_secure || has_path(request, "/health") || has_traffic_token(request, session) ||
        e2b_token_is(request->core, session_id(session), E2B_TOKEN_ENVD,
                     request_header(request, "x-access-token")))
        return NULL;
    return unauthorized;
}

static const char *refuse_port(const struct request *request, const struct session *session,
                               const struct e2b_notes *notes)
{
    if (notes->is_public || has_traffic_token(request, session))
        return NULL;
    return "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' "
           "is missing or wrong";
}

/* --- all of it ------------------------------------------------------------------------------- */

typedef const char *refuse_fn(const struct request *request, const struct session *session,
                              const struct e2b_notes *notes);

static void let_in(struct request *request, const struct session *session, request_fn *then)
{
    request->owner = xstrdup(session_owner(session));
    request->principal = xstrdup(session_owner(session));
    request->on_behalf_of = xstrdup(session_on_behalf_of(session));
    memcpy(request->session_id, session_id(session), ID_SIZE);
    then(request);
}

/* Answers for a request that is for no sandbox; NULL then. */
static struct session *find_target(struct request *request, const struct e2b_target *target)
{
    struct session *session;
    struct error err = { 0 };

    if (*http_exchange_peer(request->exchange)->member) {
        e2b_fail_status(request, 403, "programs in a sandbox may not use the daemon");
        return NULL;
    }
    if (target->kind == E2B_TARGET_INVALID) {
        e2b_fail_status(request, 400, target->problem);
        return NULL;
    }
    if (vault_open(request->core->vault, &err) < 0) {
        e2b_fail(request, &err);
        return NULL;
    }
    if (target->kind == E2B_TARGET_SIGNED) {
        session = find_signed(request);
        if (!session)
            e2b_fail_status(request, 401, "invalid signature");
        return session;
    }
    session = *target->session_id ? session_find(request->core, "", true, target->session_id)
                                  : NULL;
    if (!session)
        e2b_fail_gone(request, target->shown_id);
    return session;
}

static void identify(struct request *request, request_fn *then, refuse_fn *refuse, int status)
{
    const struct e2b *e2b = request->context;
    struct e2b_target target =
        e2b_target_read(http_exchange_head(request->exchange), e2b->parts.domain);
    struct session *session = find_target(request, &target);
    scoped(e2b_notes_fini) struct e2b_notes notes = { 0 };
    const char *reason;

    if (!session)
        return;
    e2b_notes_read(&notes, session);
    if (!takes_traffic(session, &notes)) {
        e2b_fail_gone(request, target.shown_id);
        return;
    }
    reason = refuse(request, session, &notes);
    if (reason)
        e2b_fail_status(request, status, reason);
    else
        let_in(request, session, then);
}

void e2b_identify_envd(struct request *request, request_fn *then)
{
    identify(request, then, refuse_envd, 401);
}

void e2b_identify_code(struct request *request, request_fn *then)
{
    identify(request, then, refuse_code, 401);
}

void e2b_identify_port(struct request *request, request_fn *then)
{
    identify(request, then, refuse_port, 403);
}
