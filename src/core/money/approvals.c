/* SPDX-License-Identifier: Apache-2.0 */
#include "core/money/approvals.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/money.h"
#include "base/str.h"
#include "config/config.h"
#include "core/money/approvals_private.h"
#include "core/money/budget.h"
#include "core/money/flavor.h"
#include "core/money/observer.h"
#include "core/stamp.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of decided ones; the oldest are forgotten before their time when there are more. */
enum { KEPT_MAXIMUM = 1000 };

static const char *const states[APPROVAL_STATES] = {
    [APPROVAL_PENDING] = "pending",     [APPROVAL_APPROVED] = "approved",
    [APPROVAL_DENIED] = "denied",       [APPROVAL_EXPIRED] = "expired",
    [APPROVAL_CANCELLED] = "cancelled",
};

const char *approval_state_name(enum approval_state state)
{
    return states[state];
}

/* --- memory -------------------------------------------------------------------------------- */

static void on_timer(struct timer *timer);

struct approval *approval_new(struct approvals *approvals, const char *id)
{
    struct approval *approval = xnew(struct approval);

    approval->approvals = approvals;
    snprintf(approval->id, sizeof(approval->id), "%s", id);
    list_init(&approval->waiters);
    timer_init(&approval->timer, approvals->core->loop, on_timer);
    list_append(&approvals->all, &approval->node);
    map_put(&approvals->by_id, approval->id, approval);
    return approval;
}

void approval_free(struct approval *approval)
{
    struct approval_waiter *waiter;

    while ((waiter = list_first(&approval->waiters, struct approval_waiter, node)))
        list_remove(&waiter->node);
    if (approval->state != APPROVAL_PENDING)
        approval->approvals->decided--;
    map_remove(&approval->approvals->by_id, approval->id);
    list_remove(&approval->node);
    timer_stop(&approval->timer);
    free(approval->owner);
    free(approval->requested_by);
    free(approval->on_behalf_of);
    free(approval->flavor);
    free(approval->question);
    free(approval->decided_by);
    free(approval->reason);
    free(approval->result);
    free(approval);
}

struct approvals *approvals_new(struct core *core)
{
    struct approvals *approvals = xnew(struct approvals);

    approvals->core = core;
    list_init(&approvals->all);
    return approvals;
}

void approvals_free(struct approvals *approvals)
{
    struct approval *approval;

    if (!approvals)
        return;
    while ((approval = list_first(&approvals->all, struct approval, node)))
        approval_free(approval);
    map_fini(&approvals->by_id);
    free(approvals);
}

struct approval *approvals_find(const struct approvals *approvals, const char *id)
{
    return map_get(&approvals->by_id, id);
}

const struct approval *approvals_next(const struct approvals *approvals,
                                      const struct approval *approval)
{
    const struct list *next = approval ? approval->node.next : approvals->all.next;

    return next == &approvals->all ? NULL : list_entry(next, const struct approval, node);
}

static struct session *session_of(const struct approval *approval)
{
    return map_get(&approval->approvals->core->sessions_by_id, approval->session_id);
}

/* --- the end ------------------------------------------------------------------------------- */

static void emit(const struct approval *approval, const char *type)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(16 * 1024);
    struct json_writer json = JSON_WRITER(&data);
    struct session *session = session_of(approval);

    if (!session)
        return;
    approval_write_json(approval, &json, NULL);
    session_emit(session, type, buffer_text(&data));
}

static int64_t keep_until_wall_us(const struct approval *approval)
{
    return approval->decided_wall_us +
           approval->approvals->core->parts.config->session.retention_ms * 1000;
}

static void forget(struct approval *approval)
{
    store_forget_document(approval->approvals->core->parts.store, APPROVAL_KIND, approval->id);
    approval_free(approval);
}

static void forget_oldest(struct approvals *approvals)
{
    struct approval *approval;
    struct approval *following;

    if (approvals->decided <= KEPT_MAXIMUM)
        return;
    list_for_each_safe (approval, following, &approvals->all, node) {
        if (approval->state == APPROVAL_PENDING)
            continue;
        forget(approval);
        return;
    }
}

static void tell_waiters(struct approval *approval)
{
    struct approval_waiter *waiter;

    while ((waiter = list_first(&approval->waiters, struct approval_waiter, node))) {
        list_remove(&waiter->node);
        waiter->done(waiter, approval);
    }
}

/* A session counts as used while its approval is pending: its idle clock begins now. */
static void leave_session(struct approval *approval)
{
    struct session *session = session_of(approval);

    if (!session || session_approval(session) != approval)
        return;
    session_set_approval(session, NULL);
    if (session_is_alive(session))
        session_core(session)->money->on_decided(session);
}

static void finish(struct approval *approval, enum approval_state state, const char *by,
                   const char *reason, char *result)
{
    struct approvals *approvals = approval->approvals;

    approval->state = state;
    approval->decided_wall_us = clock_wall_us(loop_clock(approvals->core->loop));
    free(approval->decided_by);
    free(approval->reason);
    free(approval->result);
    approval->decided_by = xstrdup(by ? by : "");
    approval->reason = xstrdup(reason ? reason : "");
    approval->result = result;
    approvals->decided++;
    list_remove(&approval->node);
    list_append(&approvals->all, &approval->node);
    leave_session(approval);
    approval_put(approval, keep_until_wall_us(approval));
    timer_arm_in(&approval->timer, approvals->core->parts.config->session.retention_ms * 1000);
    emit(approval, state == APPROVAL_EXPIRED ? "approval.expired" : "approval.decided");
    log_info("approval decided", kv("approval", approval->id), kv("state", states[state]),
             kv("by", approval->decided_by), kv("session", approval->session_id));
    tell_waiters(approval);
    forget_oldest(approvals);
}

static void expire(struct approval *approval)
{
    int64_t minutes = (approval->expires.boot_us - approval->created.boot_us) / 60000000;

    finish(approval, APPROVAL_EXPIRED, NULL, NULL,
           xasprintf("The sandbox %s was not approved within %lld minutes: the approval has "
                     "expired and nothing was changed. Ask again if it is still needed.",
                     approval->flavor, (long long)MAX(minutes, (int64_t)1)));
}

static void on_timer(struct timer *timer)
{
    struct approval *approval = container_of(timer, struct approval, timer);

    if (approval->state == APPROVAL_PENDING)
        expire(approval);
    else
        forget(approval);
}

void approvals_cancel(struct session *session, const char *why)
{
    struct approval *approval = session_approval(session);

    if (!approval)
        return;
    finish(approval, APPROVAL_CANCELLED, NULL, why,
           xasprintf("The approval of the sandbox %s is not needed any more: %s.", approval->flavor,
                     why));
    session_set_approval(session, NULL);
}

/* --- asking -------------------------------------------------------------------------------- */

static char *copy_requester(const struct session *session, const char *principal)
{
    return xstrdup(str_is_empty(principal) ? session_owner(session) : principal);
}

const struct approval *approvals_ask(struct session *session, const struct config_flavor *flavor,
                                     const struct budget_judgement *judgement,
                                     const struct approval_origin *origin)
{
    struct approvals *approvals = session_core(session)->approvals;
    int64_t timeout_us = session_core(session)->parts.config->approvals.timeout_ms * 1000;
    struct approval *approval = session_approval(session);
    char id[ID_SIZE];

    if (approval && str_equal(approval->flavor, flavor->name) &&
        approval->price == flavor->price_per_hour)
        return approval;
    approvals_cancel(session, "another sandbox was requested");
    id_make(id, ID_APPROVAL);
    approval = approval_new(approvals, id);
    memcpy(approval->session_id, session_id(session), sizeof(approval->session_id));
    approval->owner = xstrdup(session_owner(session));
    approval->requested_by = copy_requester(session, origin->principal);
    approval->on_behalf_of = xstrdup(origin->on_behalf_of ? origin->on_behalf_of : "");
    approval->flavor = xstrdup(flavor->name);
    approval->question = xstrdup(judgement->why);
    approval->price = flavor->price_per_hour;
    approval->estimated = judgement->estimated;
    approval->decided_by = xstrdup("");
    approval->reason = xstrdup("");
    approval->result = xstrdup("");
    approval->created = approval->expires = stamp_now(session_core(session));
    approval->expires.boot_us += timeout_us;
    approval->expires.wall_us += timeout_us;
    session_set_approval(session, approval);
    approval_put(approval, 0);
    timer_arm_at(&approval->timer, approval->expires.boot_us);
    emit(approval, "approval.requested");
    session_core(session)->money->on_asked(session);
    return approval;
}

/* --- deciding ------------------------------------------------------------------------------ */

static int check_pending(const struct approval *approval, struct error *err)
{
    if (approval->state == APPROVAL_PENDING)
        return 0;
    error_named(err, ERR_CONFLICT, "approval_decided", "approval %s is already %s", approval->id,
                states[approval->state]);
    return error_hint(err, "a decision is final; the session can ask again");
}

/* The price has changed since the question: the approver has not approved the new one. */
static int check_price(const struct approval *approval, struct error *err)
{
    const struct config_flavor *flavor =
        config_flavor_find(approval->approvals->core->parts.config, approval->flavor);
    char before[MONEY_TEXT_SIZE];

    if (flavor && flavor->price_per_hour == approval->price)
        return 0;
    error_named(err, ERR_CONFLICT, "approval_outdated",
                "the price of the flavor \"%s\" is no longer $%s an hour", approval->flavor,
                approval->price < 0 ? "(unknown)" : money_text(approval->price, before));
    return error_hint(err, "deny it; the session can ask again");
}

static char *describe_decision(const struct approval_decision *decision, const char *flavor,
                               bool keeps_files)
{
    const char *reason = decision->reason ? decision->reason : "";

    if (!decision->approve)
        return xasprintf("The sandbox %s was denied%s%s. Nothing was changed; continue with the "
                         "current sandbox.",
                         flavor, *reason ? ": " : "", reason);
    return xasprintf("The sandbox %s was approved %s%s%s. It replaces the previous one%s", flavor,
                     decision->for_session ? "for this session" : "once", *reason ? ": " : "",
                     reason,
                     keeps_files ? " and gets the files of its workspace."
                                 : ", whose files are gone: set up again what you need.");
}

int approval_decide(struct approval *approval, const struct approval_decision *decision,
                    struct error *err)
{
    struct session *session = session_of(approval);

    if (check_pending(approval, err) < 0)
        return -1;
    if (decision->approve && session) {
        if (check_price(approval, err) < 0 ||
            session_core(session)->money->on_approved(
                session, approval->flavor, decision->for_session ? CHOICE_SESSION : CHOICE_ONCE,
                err) < 0)
            return -1;
        approval->for_session = decision->for_session;
    }
    finish(approval, decision->approve ? APPROVAL_APPROVED : APPROVAL_DENIED, decision->by,
           decision->reason,
           describe_decision(decision, approval->flavor, session && session_keeps_files(session)));
    return 0;
}

void approval_wait(struct approval *approval, struct approval_waiter *waiter)
{
    list_append(&approval->waiters, &waiter->node);
}

void approval_unwait(struct approval_waiter *waiter)
{
    list_remove(&waiter->node);
}

/* --- after a restart ----------------------------------------------------------------------- */

void approvals_restore(struct approvals *approvals, const struct document_record *record)
{
    struct approval *approval = approval_read(approvals, record);
    struct session *session;

    if (!approval || approval->state != APPROVAL_PENDING)
        return;
    session = session_of(approval);
    if (session && !session_approval(session))
        session_set_approval(session, approval);
}

static bool is_of(const struct document_record *record, const char *session_id)
{
    scoped(json_decref) json_t *document = json_read(record->json, strlen(record->json), NULL);

    return str_equal(json_string_value(json_object_get(document, "session")), session_id);
}

void approvals_restore_of(struct approvals *approvals, const struct document_record *record,
                          const char *session_id)
{
    if (is_of(record, session_id) && !approvals_find(approvals, record->id))
        approvals_restore(approvals, record);
}

static void resume(struct approval *approval)
{
    struct session *session = session_of(approval);
    int64_t now_us = clock_wall_us(loop_clock(approval->approvals->core->loop));

    if (approval->state != APPROVAL_PENDING)
        timer_arm_in(&approval->timer,
                     MAX(keep_until_wall_us(approval) - now_us, (int64_t)1000000));
    else if (!session || session_approval(session) != approval)
        finish(approval, APPROVAL_CANCELLED, NULL, "its session has ended",
               xstrdup("The approval is not needed any more: its session has ended."));
    else
        timer_arm_at(&approval->timer, approval->expires.boot_us);
}

void approvals_start(struct approvals *approvals)
{
    struct approval *approval;
    struct approval *following;

    list_for_each_safe (approval, following, &approvals->all, node)
        resume(approval);
}

void approvals_resume_of(struct approvals *approvals, const char *session_id)
{
    struct approval *approval;
    struct approval *following;

    list_for_each_safe (approval, following, &approvals->all, node) {
        if (!str_equal(approval->session_id, session_id))
            continue;
        approval_put(approval,
                     approval->state == APPROVAL_PENDING ? 0 : keep_until_wall_us(approval));
        resume(approval);
    }
}

void approvals_repair(struct approvals *approvals)
{
    const struct approval *approval;

    list_for_each (approval, &approvals->all, node)
        approval_put(approval,
                     approval->state == APPROVAL_PENDING ? 0 : keep_until_wall_us(approval));
}
