/* SPDX-License-Identifier: Apache-2.0 */
/* Routes of approvals: what waits for a decision, and the decision. */

#include "core/money/approvals.h"

#include "api/gather.h"
#include "api/pages.h"
#include "api/private.h"
#include "auth/caller.h"
#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"

#include <string.h>

enum { WAIT_MAXIMUM_MS = 3600 * 1000, REASON_MAXIMUM = 2000 };

/* --- whose they are -------------------------------------------------------------------------- */

bool api_is_approver(const struct request *request, const char *owner)
{
    if (request->faces->parts.config->auth.mode != AUTH_MODE_NONE)
        return request->roles & (ROLE_APPROVER | ROLE_ADMIN);
    return str_is_empty(request->owner) || str_equal(request->owner, owner);
}

int api_check_approver(const struct request *request, const char *owner, struct error *err)
{
    if (api_is_approver(request, owner))
        return 0;
    error_named(err, ERR_FORBIDDEN, "approver_required", "this needs the role approver");
    return error_hint_known(err, HINT_APPROVER);
}

static bool may_see(const struct request *request, const struct approval *approval)
{
    return str_equal(request->owner, approval->owner) || api_is_approver(request, approval->owner);
}

/* An approval of another owner is answered as an unknown one. */
static struct approval *find(struct request *request)
{
    const char *id = request_path(request, "approval");
    struct approval *approval = approvals_find(request->core->approvals, id);
    struct error err = { 0 };

    if (approval && may_see(request, approval))
        return approval;
    error_named(&err, ERR_NOT_FOUND, "approval_not_found", "approval \"%.80s\" not found", id);
    error_hint_known(&err, HINT_APPROVALS);
    request_fail(request, &err);
    return NULL;
}

static void reply(struct request *request, const struct approval *approval)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    approval_write_json(approval, &json, NULL);
    request_reply_recorded(request, 200, &text);
}

/* --- looking --------------------------------------------------------------------------------- */

/* -1 for all. */
static int wanted_state(const struct request *request, int *out_state, struct error *err)
{
    const char *name = request_parameter(request, "state");

    *out_state = APPROVAL_PENDING;
    if (!name)
        return 0;
    *out_state = -1;
    if (str_equal(name, "all"))
        return 0;
    for (unsigned state = 0; state < APPROVAL_STATES; state++)
        if (str_equal(name, approval_state_name(state)))
            *out_state = (int)state;
    if (*out_state >= 0)
        return 0;
    return error_named(err, ERR_INVALID, "invalid_parameter",
                       "parameter state must be pending, approved, denied, expired, cancelled or "
                       "all");
}

static void get_approvals(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    const char *session = request_parameter(request, "session_id");
    const struct approval *approval = NULL;
    struct error err = { 0 };
    int state;

    if (wanted_state(request, &state, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    json_begin_object(&json, NULL);
    json_begin_array(&json, "approvals");
    while ((approval = approvals_next(request->core->approvals, approval))) {
        if (may_see(request, approval) && (state < 0 || approval->state == (unsigned)state) &&
            (!session || str_equal(session, approval->session_id)))
            approval_write_json(approval, &json, NULL);
    }
    json_end_array(&json);
    json_end_object(&json);
    api_reply_page(request, &text, "approvals", "id");
}

/* --- waiting for the decision ---------------------------------------------------------------- */

struct wait {
    struct approval_waiter waiter;
    struct request *request;
    struct timer timer;
    const struct approval *approval; /* borrowed: pending ones stay */
};

static void wait_release(struct wait *wait)
{
    approval_unwait(&wait->waiter);
    timer_stop(&wait->timer);
    free(wait);
}

static void on_gone(struct request *request)
{
    wait_release(request->state);
}

static void wait_answer(struct wait *wait)
{
    struct request *request = wait->request;

    reply(request, wait->approval);
    request->on_gone = NULL;
    wait_release(wait);
}

static void on_decided(struct approval_waiter *waiter, const struct approval *approval UNUSED)
{
    wait_answer(container_of(waiter, struct wait, waiter));
}

static void on_time_over(struct timer *timer)
{
    wait_answer(container_of(timer, struct wait, timer));
}

static void wait_for(struct request *request, struct approval *approval, int64_t wait_ms)
{
    struct wait *wait = xnew(struct wait);

    wait->request = request;
    wait->approval = approval;
    wait->waiter.done = on_decided;
    timer_init(&wait->timer, request->core->loop, on_time_over);
    timer_arm_in(&wait->timer, wait_ms * 1000);
    request->state = wait;
    request->on_gone = on_gone;
    approval_wait(approval, &wait->waiter);
}

static void get_approval(struct request *request)
{
    struct approval *approval;
    int64_t wait_ms = 0;
    struct error err = { 0 };

    if (request_parameter_ms(request, "wait_seconds", WAIT_MAXIMUM_MS, &wait_ms, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    approval = find(request);
    if (!approval)
        return;
    if (approval->state == APPROVAL_PENDING && wait_ms > 0)
        wait_for(request, approval, wait_ms);
    else
        reply(request, approval);
}

/* --- deciding -------------------------------------------------------------------------------- */

struct decision {
    const char *decision, *reason;
    bool once, session;
};

#define DECISION(name) offsetof(struct decision, name)

static const struct json_field decision_fields[] = {
    { "decision", JSON_KIND_TEXT, DECISION(decision), .required = true, .max_length = 16 },
    { "reason", JSON_KIND_TEXT, DECISION(reason), .max_length = REASON_MAXIMUM },
    { "once", JSON_KIND_BOOL, DECISION(once) },
    { "session", JSON_KIND_BOOL, DECISION(session) },
};

static int check_decision(const struct decision *body, struct error *err)
{
    bool approve = str_equal(body->decision, "approve");

    if (!approve && !str_equal(body->decision, "deny"))
        return error_named(err, ERR_INVALID, "invalid_field", "decision must be approve or deny");
    if (body->once && body->session)
        return error_named(err, ERR_INVALID, "invalid_field",
                           "once and session cannot both be true: choose one");
    if (!approve && body->session)
        return error_named(err, ERR_INVALID, "invalid_field",
                           "session is valid with decision approve only; a denial applies once");
    return 0;
}

static const char *who_decides(const struct request *request)
{
    if (!str_is_empty(request->principal))
        return request->principal;
    return str_is_empty(request->owner) ? "local" : request->owner;
}

static void post_approval(struct request *request)
{
    struct decision body = { 0 };
    struct approval *approval;
    struct error err = { 0 };

    if (request_decode(request, &body, &err) < 0 || check_decision(&body, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    approval = find(request);
    if (!approval)
        return;
    if (api_check_approver(request, approval->owner, &err) < 0 ||
        approval_decide(approval,
                        &(struct approval_decision){ .approve = str_equal(body.decision, "approve"),
                                                     .for_session = body.session,
                                                     .by = who_decides(request),
                                                     .reason = body.reason },
                        &err) < 0)
        request_fail(request, &err);
    else
        reply(request, approval);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct route_parameter list_parameters[] = {
    { "state", "string", "pending (default), approved, denied, expired, cancelled or all" },
    { "session_id", "string", "approvals of this session only" },
    API_PAGE_PARAMETERS,
    API_NODE_PARAMETER,
    { 0 },
};

static const struct route_parameter wait_parameters[] = {
    { "wait_seconds", "number", "wait up to this many seconds for the decision" },
    { 0 },
};

static const struct route_answer list_answers[] = {
    { 200, "{approvals}: the caller's own; all of them for an approver" },
    { 400, "invalid_parameter" },
    { 0 },
};

static const struct route_answer get_answers[] = {
    { 200, "the approval" },
    { 404, "approval_not_found: unknown, or not for the caller" },
    { 0 },
};

static const struct route_answer post_answers[] = {
    { 200, "the decided approval; if approved, its sandbox is being created" },
    { 400, "a field is unknown, missing or of the wrong type" },
    { 403, "approver_required" },
    { 404, "approval_not_found: unknown, or not for the caller" },
    { 409,
      "approval_decided, cap_exceeded, sandbox_chosen, approval_outdated; nothing has changed" },
    { 0 },
};

const struct route api_approval_routes[] = {
    { HTTP_GET, "/api/v1/approvals", get_approvals, "List approvals", .parameters = list_parameters,
      .answers = list_answers, .gather = api_gather_approvals },
    { HTTP_GET, "/api/v1/approvals/{approval}", get_approval,
      "Read an approval; can wait for the decision", .parameters = wait_parameters,
      .answers = get_answers, .home = ROUTE_OF_APPROVAL },
    { HTTP_POST, "/api/v1/approvals/{approval}", post_approval, "Approve or deny a request",
      .body = ROUTE_JSON_BODY, .fields = decision_fields,
      .field_count = ARRAY_LENGTH(decision_fields), .answers = post_answers,
      .home = ROUTE_OF_APPROVAL },
    { 0 },
};
