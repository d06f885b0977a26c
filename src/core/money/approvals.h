/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Approvals: decisions that a person has to make before a sandbox of a flavor is made.
 *
 *     pending → approved | denied | expired | cancelled
 *
 * A session waits for one at most; the same question gets the same approval, another one takes its
 * place. Waiting holds nothing: no slot, no money, and the sandbox that the session has may be used
 * or evicted as before. Nothing happens without a decision: an approval without a decision in time
 * has expired, and its result says so. All of it is recorded, and clocks go on over a
 * restart. Decided ones stay readable for session.retention.
 */

#include "core/session_view.h"
#include "loop/loop.h"

struct approvals;
struct budget_judgement;
struct config_flavor;
struct document_record;
struct json_writer;

#define APPROVAL_KIND "approval"

enum approval_state {
    APPROVAL_PENDING,
    APPROVAL_APPROVED,
    APPROVAL_DENIED,
    APPROVAL_EXPIRED,
    APPROVAL_CANCELLED,
    APPROVAL_STATES
};

const char *approval_state_name(enum approval_state state);

struct approval {
    struct approvals *approvals; /* borrowed */
    struct list node;            /* all that are known, by their last change */
    char id[ID_SIZE];
    char session_id[ID_SIZE];
    char *owner, *requested_by, *on_behalf_of; /* owned, as the texts below; never NULL */
    char *flavor;
    char *question;    /* why a person is asked */
    int64_t price;     /* for an hour, in micro-dollars; PRICE_UNKNOWN */
    int64_t estimated; /* cost of the first window */
    enum approval_state state;
    bool for_session; /* approved for all of the session, not for one sandbox */
    struct stamp created, expires;
    int64_t decided_wall_us;
    char *decided_by, *reason; /* "" until it is decided */
    char *result;              /* the message for the requester; "" while it is pending */
    struct timer timer;        /* its expiry; later, when it is forgotten */
    struct list waiters;       /* struct approval_waiter */
};

struct approvals *approvals_new(struct core *core);
void approvals_free(struct approvals *approvals); /* NULL is fine */
void approvals_restore(struct approvals *approvals, const struct document_record *record);

/* Of a session that has come from another node: those that name another session are left alone. */
void approvals_restore_of(struct approvals *approvals, const struct document_record *record,
                          const char *session_id);
void approvals_resume_of(struct approvals *approvals, const char *session_id);
void approvals_start(struct approvals *approvals); /* after recovery: their clocks go on */
void approvals_repair(struct approvals *approvals);

/* On whose request an approver is asked; both may be NULL. */
struct approval_origin {
    const char *principal;
    const char *on_behalf_of;
};

/* Asks for this flavor, or finds that it is asked for already. Borrowed: valid until the loop
 * turns. */
const struct approval *approvals_ask(struct session *session, const struct config_flavor *flavor,
                                     const struct budget_judgement *judgement,
                                     const struct approval_origin *origin);

/* Withdraws the question that the session waits for, if there is one. */
void approvals_cancel(struct session *session, const char *why);

struct approval *approvals_find(const struct approvals *approvals, const char *id); /* or NULL */

/* The next one, or the first after NULL; NULL at the end. */
const struct approval *approvals_next(const struct approvals *approvals,
                                      const struct approval *approval);

struct approval_decision {
    bool approve;
    bool for_session;   /* with approve */
    const char *by;     /* the approver */
    const char *reason; /* NULL without one */
};

/* ERR_CONFLICT when it is not pending, or when it cannot be done now: then it stays as it was. */
int approval_decide(struct approval *approval, const struct approval_decision *decision,
                    struct error *err);

/* Embedded by the request that waits for the decision; `done` comes once, from the loop. */
struct approval_waiter {
    void (*done)(struct approval_waiter *waiter, const struct approval *approval);
    struct list node;
};

void approval_wait(struct approval *approval, struct approval_waiter *waiter);
void approval_unwait(struct approval_waiter *waiter); /* safe on one that does not wait */

void approval_write_fields(const struct approval *approval, struct json_writer *json);
void approval_write_json(const struct approval *approval, struct json_writer *json,
                         const char *key);
