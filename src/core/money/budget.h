/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Budgets: the amounts that a session and its owner may spend, and that they have spent.
 *
 * A sandbox whose flavor has a price has a meter in the account of its session:
 *
 *     reserved   one window (an hour) is held against the caps before anything is made
 *     running    from the record on that says that it exists: used time is spent, the rest is held
 *     renewed    at 95 % of the window, for another one; a refusal ends it with reason "budget"
 *     settled    with the record that says that it goes: what it used is spent, the rest is free
 *
 * Each of these is written with the record of the sandbox that it belongs to, so both are in one
 * transaction: a daemon that is killed at any moment neither loses nor repeats a charge. Time is
 * that of the boot clock, so it counts while the daemon is down, and setting the wall clock
 * changes no charge. After a boot, and on another node, it is that of the clock of a shared store, or
 * of the wall clock where there is none. A sandbox that was dead when the next daemon came is charged up to the end of
 * its window at most.
 *
 * With several nodes the amounts of an owner are granted to each of them (core/grants.h), and spent
 * amounts are recorded by the node that was charged. budget_ask() comes before budget_reserve().
 *
 * Caps: that of the session holds for everything that no person has approved, and for all while
 * auto_approve is on; that of the owner holds always, for the owner and all below it: svc/ann and
 * svc/bob together stay under the cap of svc.
 */

#include "core/grants.h"
#include "core/session_view.h"

struct budgets;
struct config_flavor;
struct document_record;
struct json_writer;

#define BUDGET_SESSION_KIND "budget.session"
#define BUDGET_OWNER_KIND "budget.owner"

struct budgets *budgets_new(struct core *core);
void budgets_free(struct budgets *budgets); /* NULL is fine */

/* From a document of either kind, after the sessions have been restored. */
void budgets_restore(struct budgets *budgets, const struct document_record *record);

/* After recovery: meters go on, those without a sandbox are settled. The meter of a sandbox that is
 * still unknown waits for budget_resume(). */
void budgets_start(struct budgets *budgets);
void budget_resume(struct session *session);

/* The same for one session that has come from another node. Its document is put again: the stamps in
 * it were those of another machine. */
void budget_recover(struct session *session);

/* The session goes to another node, with its document. */
void budget_forget(struct session *session);

/* Writes all accounts again: the store has lost some. */
void budgets_repair(struct budgets *budgets);

/* --- what may be had ------------------------------------------------------------------------ */

enum budget_verdict {
    BUDGET_FREE,    /* without an approval */
    BUDGET_CAPPED,  /* without an approval: it fits under the caps */
    BUDGET_GRANTED, /* approved for this session before */
    BUDGET_ASK,     /* a person has to decide */
    BUDGET_REFUSED, /* no session exists yet: there is no account to charge */
};

struct budget_judgement {
    enum budget_verdict verdict;
    int64_t estimated; /* for one window; PRICE_UNKNOWN */
    char why[200];     /* with BUDGET_ASK: the reason, for the approver */
};

/* Whether the session may have the flavor; NULL stands for a session that is to be opened with it.
 * The verdict is BUDGET_REFUSED for no other. */
struct budget_judgement budget_judge(struct session *session, const struct config_flavor *flavor);

/* Whether the caps allow what a person approves: ERR_CONFLICT "cap_exceeded" otherwise. */
int budget_check_approved(struct session *session, const struct config_flavor *flavor,
                          struct error *err);

/* The flavor was approved for as long as the session lives. */
void budget_grant(struct session *session, const char *flavor);

/* --- the meter of the session's sandbox ------------------------------------------------------ */

/* Holds a window for the session's flavor, unless it is free or one is held already. ERR_LIMIT
 * "budget_exhausted" when a cap forbids it; ERR_UNAVAILABLE when the other nodes have to be asked
 * first. */
int budget_reserve(struct session *session, struct error *err);

/* Asks the other nodes for what budget_reserve() will hold: 1 when `answered` comes, 0 when nothing
 * is to be asked. */
int budget_ask(struct session *session, struct grant_wish *wish, grant_wish_fn *answered);

/* The caps do not allow another window of this flavor: asks an approver whether the session may
 * have it again. The question stays pending until it is decided. */
void budget_ask_to_continue(struct session *session, const char *name, const char *why);

/* The amount that is held is for this sandbox. */
void budget_bind(struct session *session, const char *sandbox_id);

/* It exists from now on. Does nothing without a reservation for it, as the rest below. */
void budget_run(struct session *session, const char *sandbox_id);

/* It has gone or goes, since `end`. */
void budget_settle(struct session *session, const char *sandbox_id, const struct stamp *end);

/* The amount that is held for a sandbox that is not begun yet is free again. */
void budget_release(struct session *session);

/* The session has ended: its document stays as long as its record. */
void budget_close(struct session *session);

/* --- looking and setting --------------------------------------------------------------------- */

struct budget_patch {
    int auto_approve; /* -1: unchanged */
    int64_t cap;      /* -1: unchanged */
};

void budget_patch(struct session *session, const struct budget_patch *patch);

/* Whether the patch allows more than before: then it is for an approver. */
bool budget_patch_is_wider(struct session *session, const struct budget_patch *patch);

int64_t budget_spent(const struct session *session); /* until now */

/* {auto_approve, cap_usd, spent_usd, reserved_usd, remaining_usd, …} */
void budget_write_json(struct session *session, struct json_writer *json, const char *key);

/* Of all sessions of an owner; -1 as cap is that of the settings again, 0 is none. */
void budget_set_owner_cap(struct budgets *budgets, const char *owner, int64_t cap);

/* With several nodes instead of that: the cap is the same for all of them, and `done` comes when it
 * is written. With GRANT_CAP_KEEP the amounts of all nodes are only read again. */
void budget_visit_owner(struct grant_visit *visit, struct budgets *budgets, const char *owner,
                        int64_t cap, grant_visit_fn *done);
void budget_write_owner_json(struct budgets *budgets, const char *owner, struct json_writer *json,
                             const char *key);
