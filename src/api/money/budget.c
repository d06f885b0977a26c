/* SPDX-License-Identifier: Apache-2.0 */
/* Routes of money: what a session, or an owner, may spend and has spent. */

#include "core/money/budget.h"

#include "api/private.h"
#include "base/alloc.h"
#include "base/money.h"
#include "base/str.h"
#include "core/core.h"

#include <stdlib.h>

/* --- of a session ---------------------------------------------------------------------------- */

static void reply_session(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    budget_write_json(request->session, &json, NULL);
    request_reply_recorded(request, 200, &text);
}

struct patch {
    bool auto_approve, has_auto_approve, has_cap;
    double cap_usd;
};

#define PATCH(name) offsetof(struct patch, name)

static const struct json_field patch_fields[] = {
    { "auto_approve", JSON_KIND_BOOL, PATCH(auto_approve),
      .present_offset = PATCH(has_auto_approve) },
    { "cap_usd", JSON_KIND_NUMBER, PATCH(cap_usd), .maximum = MONEY_MAXIMUM_USD,
      .present_offset = PATCH(has_cap) },
};

/* More money is an approver's to give; less is also the owner's to take. */
static void patch_session_budget(struct request *request)
{
    struct patch body = { 0 };
    struct budget_patch patch;
    struct error err = { 0 };

    if (request_decode(request, &body, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    patch = (struct budget_patch){
        .auto_approve = body.has_auto_approve ? body.auto_approve : -1,
        .cap = body.has_cap ? money_from_usd(body.cap_usd) : -1,
    };
    if (budget_patch_is_wider(request->session, &patch) &&
        api_check_approver(request, session_owner(request->session), &err) < 0) {
        request_fail(request, &err);
        return;
    }
    budget_patch(request->session, &patch);
    reply_session(request);
}

/* --- of an owner ----------------------------------------------------------------------------- */

/* The caller, or whom an approver means. */
static int find_owner(const struct request *request, const char **out_owner, struct error *err)
{
    const char *named = request_parameter(request, "owner");

    *out_owner = named ? named : request->owner;
    if (!named || str_equal(named, request->owner))
        return 0;
    return api_check_approver(request, named, err);
}

static void reply_owner(struct request *request, const char *owner)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    budget_write_owner_json(request->core->budgets, owner, &json, NULL);
    request_reply_recorded(request, 200, &text);
}

/* With several nodes: the amounts of all of them are read, or the cap is set for all. */
struct visit {
    struct request *request;
    struct grant_visit visit;
    char *owner; /* owned */
};

static void on_visited(struct grant_visit *done)
{
    struct visit *visit = container_of(done, struct visit, visit);
    struct request *request = visit->request;

    if (done->err.code != ERR_NONE)
        request_fail(request, &done->err);
    else
        reply_owner(request, visit->owner);
}

static void on_gone(struct request *request)
{
    struct visit *visit = request->state;

    grant_visit_end(&visit->visit);
    free(visit->owner);
    free(visit);
}

static void visit_owner(struct request *request, const char *owner, int64_t cap)
{
    struct visit *visit = xnew(struct visit);

    visit->request = request;
    visit->owner = xstrdup(owner);
    request->state = visit;
    request->on_gone = on_gone;
    budget_visit_owner(&visit->visit, request->core->budgets, owner, cap, on_visited);
}

static void get_owner_budget(struct request *request)
{
    const char *owner;
    struct error err = { 0 };

    if (find_owner(request, &owner, &err) < 0)
        request_fail(request, &err);
    else if (core_is_clustered(request->core))
        visit_owner(request, owner, GRANT_CAP_KEEP);
    else
        reply_owner(request, owner);
}

static const struct json_field owner_fields[] = {
    { "cap_usd", JSON_KIND_NUMBER, 0, .required = true, .maximum = MONEY_MAXIMUM_USD },
};

static void patch_owner_budget(struct request *request)
{
    const char *owner;
    double cap_usd = 0;
    struct error err = { 0 };

    if (request_decode(request, &cap_usd, &err) < 0 || find_owner(request, &owner, &err) < 0 ||
        api_check_approver(request, owner, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    if (core_is_clustered(request->core)) {
        visit_owner(request, owner, money_from_usd(cap_usd));
        return;
    }
    budget_set_owner_cap(request->core->budgets, owner, money_from_usd(cap_usd));
    reply_owner(request, owner);
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct route_parameter owner_parameters[] = {
    { "owner", "string", "budget of this owner; approvers only" },
    { 0 },
};

static const struct route_answer session_answers[] = {
    { 200, "{auto_approve, cap_usd, spent_usd, reserved_usd, remaining_usd, approved_flavors, "
           "meter, owner}" },
    { 400, "a field is unknown, of the wrong type or out of range" },
    { 403, "approver_required: only an approver may raise a limit" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 410, "session_ended: its final record has spent_usd" },
    { 0 },
};

static const struct route_answer owner_answers[] = {
    { 200, "{owner, cap_usd, spent_usd, reserved_usd, remaining_usd}" },
    { 400, "a field is unknown, of the wrong type or out of range" },
    { 403, "approver_required" },
    { 503, "cap_unconfirmed: with several nodes, the store does not answer" },
    { 0 },
};

#define BUDGET "/api/v1/sessions/{session}/budget"

const struct route api_budget_routes[] = {
    { HTTP_GET, BUDGET, reply_session, "Read the budget of a session",
      .session = ROUTE_LIVE_SESSION, .approvers = true, .answers = session_answers },
    { HTTP_PATCH, BUDGET, patch_session_budget,
      "Change the cap and the automatic approval of a session", .body = ROUTE_JSON_BODY,
      .session = ROUTE_LIVE_SESSION, .approvers = true, .fields = patch_fields,
      .field_count = ARRAY_LENGTH(patch_fields), .answers = session_answers },
    { HTTP_GET, "/api/v1/budget", get_owner_budget, "Read the budget of an owner",
      .parameters = owner_parameters, .answers = owner_answers },
    { HTTP_PATCH, "/api/v1/budget", patch_owner_budget, "Change the cap of an owner; 0: no cap",
      .body = ROUTE_JSON_BODY, .fields = owner_fields, .field_count = ARRAY_LENGTH(owner_fields),
      .parameters = owner_parameters, .answers = owner_answers },
    { 0 },
};
