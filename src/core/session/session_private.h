#pragma once

/* The inside of a session, for the files of session/ only. */

#include "core/session/session.h"
#include "core/session/session_recover.h"
#include "core/shares.h"

/* Its archive of files, see workspace_archive.h; all zero without one. */
struct session_archive {
    uint64_t bytes;
    int64_t wall_us;
    uint64_t generation; /* of the sandbox that they are from */
};

/* What the idle clock knows of work that nobody waits for; see background.h. */
enum background_state {
    BACKGROUND_UNKNOWN, /* nobody has looked since the last use */
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
    int64_t working_since_us; /* 0: no work is seen */
    struct sandbox_process
        worker; /* with that: what worked most; without a pid where none is known */
};

struct session {
    struct core *core; /* borrowed */
    struct list node;  /* core->sessions */
    char id[ID_SIZE];
    char *owner, *key, *on_behalf_of;                      /* owned; key may be NULL */
    char *labels_json, *env_json, *template_name, *flavor; /* owned; the two JSON may be NULL */
    char *map_key;                                         /* owned; in core->sessions_by_key */
    struct share share;                                    /* of the sessions of its owner */
    struct secrets *secrets;                               /* owned; NULL without any */
    bool secrets_lost; /* it had some, and the key that they were sealed with is gone */
    struct sandbox_limits limits;
    enum session_choice choice;
    char *base_flavor;                 /* owned: what it has when nothing is chosen */
    struct sandbox_limits base_limits; /* likewise */
    int64_t spent;                     /* micro-dollars, once its account is closed */
    struct approval *approval;         /* borrowed; the one that it waits for, or NULL */
    enum network_mode network;
    bool auto_restart, auto_resume, preload, keep_files;
    struct session_archive kept;
    struct session_background background;
    enum timeout_action on_timeout;

    enum session_state state;
    struct end_reason end;
    uint64_t generation; /* of the sandbox it has or had last; 0 before the first */
    int64_t timeout_ms, idle_timeout_ms, max_lifetime_ms;
    struct stamp created, started, last_activity, expires, ended;
    int64_t retain_until_wall_us;

    struct sandbox *sandbox; /* owned; NULL when the slot is empty */
    struct list holds;       /* struct session_hold: granted ones */
    struct list waiting;     /* struct session_hold: waiting for the sandbox */
    struct list weak;        /* struct session_hold: granted, but it may be idle all the same */
    struct list contexts;    /* struct context */
    struct list executions;  /* struct execution: known in memory, oldest first */
    unsigned active_holds;   /* granted uses: idle stands still while there are any */
    uint64_t number;         /* the order of creation; whatever the clocks say */
    uint64_t next_execution_number;
    uint64_t executions_started;     /* in its whole life */
    uint64_t event_sequence;         /* of its last event */
    bool reset_pending;              /* the next execution is told that files were reset */
    struct end_reason previous_end;  /* of the sandbox that it had before; END_NONE without one */
    struct session_reset reset_told; /* the last one, and to whom */
    char
        oom_sandbox_id[ID_SIZE]; /* for executions: OOM kills that they have seen in this sandbox */
    uint32_t oom_kills;

    struct timer clock;       /* armed for the next of lease, idle, lifetime */
    struct timer teardown;    /* armed while a teardown is in its grace */
    uint64_t teardown_number; /* of the last URL for one that was given out */
    uint64_t teardown_spent;  /* 1 + the generation that URL was used in; 0 before its use */
    struct list end_waiters;  /* struct session_op waiting for the end */
    struct file_snapshot *files_before; /* owned: after the last run of code; NULL without one */
    struct error *start_error; /* owned: why the last sandbox could not be made; NULL if it could */

    /* Private to the files session*.c. */
    struct list open_waiters;    /* struct session_op waiting until its creation is durable */
    struct list control_waiters; /* struct session_op waiting for pause or resume */
    struct store_ticket ticket;  /* of its creation, later of its end */
    struct store_ticket ending;  /* of the decision that it ends */
    bool ending_running;         /* the store has not answered about that yet */
    bool ending_durable;         /* it has: a machine that fails now finds it ending */
    bool end_written;            /* its last record waits for that answer */
    struct timer retry;          /* writes the end again when the store failed */
    struct timer patience;       /* of those who wait for the end */
    struct timer overdue;        /* of those who wait for a sandbox that is made already */
    struct timer control;        /* of those who wait for pause or resume */
    struct deferred serve, save, release;
    bool durable;             /* its creation is committed */
    bool unborn;              /* its creation could not be committed: it leaves no record */
    bool wanted;              /* a sandbox is to be made as soon as the slot is empty */
    char leaving_id[ID_SIZE]; /* the sandbox that was torn down or replaced last */
    bool preloads;            /* that is not for a use only */
    bool crashed;             /* the last sandbox crashed and nothing has replaced it yet */
    bool was_in_use;          /* restored: something used it when the daemon died */
    unsigned failures;        /* starts and short lives in a row */
    int64_t retry_at_us;      /* no new start before this, for that reason */
};

/* --- session.c: memory, state, end ---------------------------------------------------------- */

struct session *session_new(struct core *core); /* blank; in no map yet */
void session_link(struct session *session);     /* into the maps, under its id and key */
void session_set_state(struct session *session, enum session_state state);
void session_finish_end(struct session *session); /* when nothing stands in its way */
void session_op_join(struct session_op *op, struct session *session, struct list *waiters,
                     session_done_fn *done);
void session_op_finish(struct session_op *op, struct session *session, const struct error *err);
void session_ops_finish(struct list *ops, struct session *session, const struct error *err);

/* Calls op->done from the loop. */
void session_op_defer(struct session_op *op, struct core *core, session_done_fn *done);

/* --- session_spec.c: what was asked for, as JSON -------------------------------------------- */

char *session_spec_text(const struct session *session); /* the caller frees it */

/* --- session_hold.c -------------------------------------------------------------------------- */

bool session_is_used(const struct session *session); /* granted or waiting holds */
void session_fail_waiting(struct session *session, const struct error *err);

/* Somebody asks for it without using it yet: the idle clock begins anew. */
void session_touch(struct session *session);

/* Whether its sandbox may be evicted follows from the rest. */
void session_update_idle(struct session *session);

void session_on_overdue(struct timer *timer);

/* Makes sure that a sandbox is on its way. */
void session_want_sandbox(struct session *session);

/* --- reports of the sandbox, see session_observer.c ------------------------------------------ */

void session_on_sandbox_ready(struct session *session);
void session_on_sandbox_failed(struct session *session, const struct error *err);

/* A member of the pool died while it became the session's: whether those who wait get another one.
 */
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

/* The sandbox went away, or is known: who waits for pause or resume may wait no longer. */
void session_control_settle(struct session *session);
