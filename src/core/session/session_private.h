/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of a session, for the files of session/ only. */

#include "core/grants.h"
#include "core/session/session.h"
#include "core/session/session_key.h"
#include "core/session/session_recover.h"
#include "core/shares.h"

/* The names of a session, and the owner that can find it. */
struct session_identity {
    char id[ID_SIZE];
    uint64_t number;                  /* the order of creation, independent of clocks */
    char *owner, *key, *on_behalf_of; /* owned; key may be NULL */
    char *labels_json;                /* owned; NULL without labels */
    char *map_key;                    /* owned; in core->sessions_by_key, NULL when it is not */
    struct session_key claim;
};

/* The setup of each of its sandboxes. */
struct session_setup {
    char *template_name; /* owned */
    char *backend;       /* owned: the one that the caller has named; NULL without */
    char *env_json;      /* owned; NULL without variables */
    char *mounts_json;   /* owned; NULL without mounts */
    char *face_json;     /* owned; NULL without any: what the face that opened it needs later */
    struct network_policy network;
    struct secrets *secrets; /* owned; NULL without any */
    bool secrets_lost;       /* it had some, and the key that they were sealed with is gone */
};

/* The kind of its next sandbox. */
struct session_flavor {
    char *name; /* owned */
    struct sandbox_limits limits;
    enum session_choice choice;
    char *base_name; /* owned: the flavor when none is chosen */
    struct sandbox_limits base_limits;
};

/* The automatic actions that the caller wants. */
struct session_policy {
    bool auto_restart, auto_resume, preload, keep_files;
    enum timeout_action on_timeout;
    int64_t timeout_ms, idle_timeout_ms, max_lifetime_ms; /* 0: off */
};

/* Work in the background, as the idle clock knows it; see background.h. */
enum background_state {
    BACKGROUND_UNKNOWN, /* not looked at since the last hold */
    BACKGROUND_LOOKING,
    BACKGROUND_SEEN,    /* `usage` is what the next look is compared with */
    BACKGROUND_JUDGING, /* the idle clock has run out and waits for a second look */
    BACKGROUND_IDLE,    /* nothing works */
};

struct session_background {
    enum background_state state;
    uint64_t number; /* of the last look */
    struct sandbox_usage usage;
    char sandbox_id[ID_SIZE]; /* whose usage that is */
    int64_t seen_us;
    int64_t working_since_us;      /* 0: no work is seen */
    struct sandbox_process worker; /* the process that worked most; number 0 where none is known */
};

struct session_clocks {
    struct stamp created, started, last_activity, expires, ended;
    int64_t retain_until_wall_us;
    struct timer timer; /* armed for the next of lease, idle, lifetime */
    struct session_background background;
};

/* The record of its creation. Successors: new → durable | refused. */
enum session_recorded {
    RECORD_NEW,     /* the store has not answered yet */
    RECORD_DURABLE, /* a machine that fails now finds it */
    RECORD_REFUSED, /* it leaves no record, and ends */
};

struct session_recording {
    enum session_recorded state;
    struct store_ticket ticket; /* of its creation */
    struct error *refusal;      /* owned: a claim of its creation was lost; NULL: none */
    struct list waiters;        /* struct session_op waiting for that */
    struct deferred save;
    uint64_t event_sequence; /* of its last event */
};

/* The steps of the end, see session_end.c; each follows the one before. */
enum end_step {
    STEP_NONE, /* it is not ending, or recovery has not come to it yet */
    STEP_DECIDE,
    STEP_STOP,
    STEP_KNOWN,
    STEP_DESTROY,
    STEP_CREATION,
    STEP_ENDED,
    STEP_RECORD,
    STEP_CONFIRM,
    STEP_REPORT,
    STEP_OVER
};

/* A record on its way to the store. Successors: none → asked → done | failed, failed → asked. */
enum end_write { END_WRITE_NONE, END_WRITE_ASKED, END_WRITE_DONE, END_WRITE_FAILED };

struct session_ending {
    struct end_reason reason;
    enum end_step step;
    enum end_write decision_state;
    struct store_ticket decision; /* the record that it ends */
    enum end_write record_state;
    struct store_ticket record; /* the record that it has ended */
    enum store_grade record_grade;
    struct list waiters;   /* struct session_op waiting for the end */
    struct timer retry;    /* records the end again when the store failed */
    struct timer patience; /* of the waiters */
    struct deferred release;
};

/* Its archive of files, see workspace_archive.h; all zero without one. */
struct session_archive {
    uint64_t bytes;
    int64_t wall_us;
    uint64_t generation; /* of the sandbox that they are from */
};

/* Whether a sandbox is to be made as soon as the slot is empty. */
enum sandbox_demand {
    DEMAND_NONE,
    DEMAND_PRELOAD_NEXT, /* no; the next one counts as preloaded */
    DEMAND_FOR_HOLDS,    /* as long as a hold waits for it */
    DEMAND_PRELOAD,      /* also without one */
};

/* The place of its sandbox, and what happened to the ones before. */
struct session_slot {
    struct sandbox *sandbox; /* owned; NULL when the slot is empty */
    uint64_t generation;     /* of that or of the last one; 0 before the first */
    enum sandbox_demand demand;
    bool crashed;              /* the last one did, and has not been replaced yet */
    unsigned failures;         /* starts and short lives in a row */
    int64_t retry_at_us;       /* no new start before this, for that reason */
    struct error *start_error; /* owned: why the last one could not be made; NULL if it could */
    struct end_reason previous_end; /* of the one before; END_NONE without one */
    char leaving_id[ID_SIZE];       /* the one that was torn down or replaced last */
    struct session_archive archive;
};

struct session_holds {
    struct list granted, waiting, weak; /* struct session_hold */
    unsigned active;                    /* granted strong ones: the idle clock stands still */
    struct timer overdue;               /* of those that wait for a sandbox that is made already */
    struct deferred serve;
};

/* Pause and resume. */
struct session_control {
    struct list waiters; /* struct session_op */
    struct timer overdue;
};

struct session_teardown {
    struct timer grace; /* armed while a teardown is in its grace */
    uint64_t number;    /* of the last token that was given out */
    uint64_t spent;     /* 1 + the generation that token was used in; 0 before its use */
};

/* Successors: none → pending → reported → pending. */
enum reset_state { RESET_NONE, RESET_PENDING, RESET_REPORTED };

struct session_resets {
    enum reset_state state;
    struct session_reset reported; /* the last one that an execution reported */
};

/* Kept with the session for core/run. */
struct session_run {
    struct list contexts;               /* struct context */
    struct list executions;             /* struct execution: known in memory, oldest first */
    uint64_t last_number;               /* of an execution */
    uint64_t started;                   /* executions in its whole life */
    struct file_snapshot *files_before; /* owned: after the last run of code; NULL without one */
    int64_t files_used_us;              /* see session_files_used_us() */
    char oom_sandbox_id[ID_SIZE];       /* the sandbox that `oom_kills` were seen in */
    uint32_t oom_kills;
};

/* The question to the other nodes for the part of the owner's caps that the next sandbox needs.
 * Successors: unasked → asked → unasked | answered → unasked. */
enum grants_state {
    GRANTS_UNASKED,
    GRANTS_ASKED,
    GRANTS_ANSWERED, /* there is not enough: the start is refused, or makes room */
};

struct session_grants {
    enum grants_state state;
    struct grant_wish wish;
};

/* Kept with the session for core/money. */
struct session_purse {
    struct approval *approval; /* borrowed; the one that it waits for, or NULL */
    int64_t spent;             /* micro-dollars, once its account is closed */
};

struct session {
    struct core *core;  /* borrowed */
    struct list node;   /* core->sessions */
    struct share share; /* of the sessions of its owner */
    enum session_state state;
    struct session_identity identity;
    struct session_setup setup;
    struct session_flavor flavor;
    struct session_policy policy;
    struct session_clocks clocks;
    struct session_recording record;
    struct session_slot slot;
    struct session_holds holds;
    struct session_control control;
    struct session_teardown teardown;
    struct session_resets reset;
    struct session_ending ending;
    struct session_run run;
    struct session_purse money;
    struct session_grants grants;
};

/* --- session.c: memory, state, record ---------------------------------------------------------- */

struct session *session_new(struct core *core); /* blank; in no map yet */
void session_link(struct session *session);     /* into the maps, under its id and key */
void session_set_state(struct session *session, enum session_state state);
void session_unlink(struct session *session);     /* out of the maps */
void session_unlink_key(struct session *session); /* its key is free for the next one */

/* A claim of the session's creation was lost: it leaves no record, and ends with this error. A
 * session that was created before ends too. */
void session_refuse(struct session *session, const struct error *err);

/* Texts are borrowed from the session, `spec` and `reason`. */
void session_fill_record(const struct session *session, const char *spec,
                         char reason[END_TEXT_SIZE], struct session_record *out_record);
void session_op_join(struct session_op *op, struct session *session, struct list *waiters,
                     session_done_fn *done);
void session_op_finish(struct session_op *op, struct session *session, const struct error *err);
void session_ops_finish(struct list *ops, struct session *session, const struct error *err);

/* Calls op->done from the loop. */
void session_op_defer(struct session_op *op, struct core *core, session_done_fn *done);

/* --- session_request.c: a request that outlives the call ---------------------------------------- */

void session_request_copy(struct session_request *copy, const struct session_request *request);
void session_request_fini(struct session_request *request); /* of a copy; its secrets are wiped */

/* --- session_end.c -------------------------------------------------------------------------- */

/* A report came that may complete a step of the end; nothing happens when none has. */
void session_end_advance(struct session *session);
void session_on_end_retry(struct timer *timer);
void session_on_end_patience(struct timer *timer);

/* --- session_spec.c: what was asked for, as JSON -------------------------------------------- */

/* The backend of its next sandbox. */
struct backend *session_next_backend(const struct session *session);

char *session_spec_text(const struct session *session); /* the caller frees it */

/* --- session_hold.c -------------------------------------------------------------------------- */

bool session_is_used(const struct session *session); /* granted or waiting holds */
void session_fail_waiting(struct session *session, const struct error *err);

/* A request names the session without holding it yet: the idle clock begins anew. */
void session_touch(struct session *session);

/* Whether its sandbox may be evicted follows from the rest. */
void session_update_idle(struct session *session);

void session_on_overdue(struct timer *timer);

/* A sandbox is to be made as soon as the slot is empty; the next one counts as preloaded. */
bool session_demands_sandbox(const struct session *session);
bool session_demands_preload(const struct session *session);

/* Makes sure that a sandbox is on its way. */
void session_want_sandbox(struct session *session);

/* --- session_grants.c: with several nodes ----------------------------------------------------- */

/* Whether its sandbox can be asked for now. False: other nodes are asked first, and the session is
 * served again when they have answered. */
bool session_may_start(struct session *session);

/* No hold waits for it any more. */
void session_stop_asking(struct session *session);

/* --- reports of the sandbox, see session_observer.c ------------------------------------------ */

void session_on_sandbox_ready(struct session *session);
void session_on_sandbox_failed(struct session *session, const struct error *err);

/* A member of the pool died while it became the session's: whether waiting holds get another. */
bool session_forgives_death(struct session *session);
void session_on_sandbox_agent(struct session *session); /* its agent is another, or gone */
void session_on_sandbox_leaving(struct session *session, const struct end_reason *reason);
void session_on_sandbox_gone(struct session *session);

/* Before that, of one that had become ready. */
void session_note_previous_end(struct session *session, const struct end_reason *end);

/* After it was unknown: it can be used, or it is frozen, or to be frozen. */
void session_on_sandbox_known(struct session *session);

/* It could not be destroyed this time. */
void session_on_sandbox_stuck(struct session *session, const struct error *err);
void session_on_frozen(struct session *session, const struct error *err); /* or thawed */

/* --- session_control.c ---------------------------------------------------------------------- */

void session_on_teardown_due(struct timer *timer);
/* The next sandbox is again what the session began with. */
void session_revert_choice(struct session *session);

void session_on_control_overdue(struct timer *timer);

/* The sandbox went away, or is known: pause and resume may be complete. */
void session_control_settle(struct session *session);
