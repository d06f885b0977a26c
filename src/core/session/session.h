#pragma once

/*
 * A session is what a caller owns. The sandbox behind it is an incarnation: it may crash, be
 * evicted or be torn down while the session stays, and then the generation goes up.
 *
 *     open ⇄ paused
 *       └──┬───┘
 *        ending → ended        (ending: its sandbox is being destroyed; ended: confirmed gone)
 *
 * Live sessions are in memory; ended ones only in the store, until retention. Whoever needs the
 * sandbox holds a `struct session_hold`: it waits for a ready sandbox (making one if there is none),
 * and while any use is held the idle clock stands still. Looking is never use.
 */

#include "backend/backend.h"
#include "base/buffer.h"
#include "base/id.h"
#include "core/core.h"
#include "core/end_reason.h"
#include "core/shares.h"
#include "store/store.h"

struct agent;
struct file_snapshot;
struct json_writer;
struct mask;
struct sandbox;
struct secrets;
struct session;

enum session_state { SESSION_OPEN, SESSION_PAUSED, SESSION_ENDING, SESSION_ENDED, SESSION_STATES };

const char *session_state_name(enum session_state state);
bool session_may_become(enum session_state from, enum session_state to);

/* How the flavor of a session's sandbox was chosen. */
enum session_choice {
    CHOICE_AUTOMATIC, /* not at all: it is the one that it began with */
    CHOICE_FREE,      /* asked for; nobody had to decide */
    CHOICE_CAPPED,    /* as long as it fits into the caps */
    CHOICE_ONCE,      /* approved by a person, for one sandbox */
    CHOICE_SESSION,   /* approved by a person, for all of this session */
    CHOICE_KINDS
};

const char *session_choice_name(enum session_choice choice);

struct session;

/* "none", "open", or "host" where the backend has no wall to the host's network. */
const char *session_network_name(const struct session *session);

/* The fields memory_bytes, cpus, pids and disk_bytes; null where there is no limit. */
void limits_write_json(struct json_writer *json, const struct sandbox_limits *in_force);

enum timeout_action { TIMEOUT_KILL, TIMEOUT_PAUSE };

/* What the caller asked for; texts are borrowed during the call. Unset numbers are -1 (durations)
 * or 0 and take the settings' defaults. */
struct session_request {
    const char *owner;
    const char *on_behalf_of;
    const char *key;             /* NULL without one */
    const char *idempotency_key; /* NULL without one */
    const char *labels_json;     /* object of texts, or NULL */
    const char *env_json;        /* object of texts, or NULL */
    const char *secrets_json;    /* as env_json; the values are shown to nobody */
    const char *template_name;
    const char *flavor;
    const char *backend;
    struct sandbox_limits limits;
    int network; /* enum network_mode, -1 for the default */
    int64_t timeout_ms, idle_timeout_ms, max_lifetime_ms;
    int on_timeout;   /* enum timeout_action, -1 for the default (kill) */
    int preload;      /* -1 default */
    int keep_files;   /* -1 default */
    int auto_restart; /* -1 default */
    int auto_resume;  /* -1 default (on) */
    bool is_one_shot; /* for one execution, whose caller does not get to know it */
};

/* Everything unset. */
#define SESSION_REQUEST_INIT                          \
    ((struct session_request){ .network = -1,         \
                               .timeout_ms = -1,      \
                               .idle_timeout_ms = -1, \
                               .max_lifetime_ms = -1, \
                               .on_timeout = -1,      \
                               .preload = -1,         \
                               .keep_files = -1,      \
                               .auto_restart = -1,    \
                               .auto_resume = -1 })

/* Its archive of files, see workspace_archive.h; all zero without one. */
struct session_kept {
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

/* That its sandbox was reset is told to one execution, whose record has to tell it too. */
struct session_reset {
    char execution_id[ID_SIZE]; /* "": to none yet */
    struct end_reason reason;
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
    struct session_kept kept;
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

/* An asynchronous operation on a session; embedded by the caller, kept until done, which comes once
 * from the loop. */
struct session_op;
typedef void session_done_fn(struct session_op *op);

struct session_op {
    session_done_fn *done;
    struct error err;
    struct session *session;             /* open: the session; NULL after an end */
    const struct session_record *record; /* end: its last record, for the duration of `done` */
    bool created;                        /* open: a new one (201) or the existing one (200) */
    char id[ID_SIZE];                    /* of the session, also after its end */
    struct list node;
    struct store_ticket ticket;
    struct core *core; /* private, here and below */
    struct deferred deferred;
    enum session_state wanted; /* pause, resume */
};

/* ERR_FORBIDDEN "sessions_disabled" where sessions.enabled says no. */
int session_check_enabled(const struct core *core, struct error *err);

/* Opens (owner, key) or makes a new session; done when it is durable. With `preload` its sandbox is
 * started meanwhile. Opening one again is activity: its idle clock begins anew, a longer timeout
 * extends its lease, and what session_patch() can change is changed; what it cannot is refused with
 * ERR_CONFLICT "parameters_differ". A repeated idempotency key gives the same session, or ERR_GONE
 * with its id when that one has ended. */
void session_open(struct core *core, const struct session_request *request, struct session_op *op,
                  session_done_fn *done);

/* By id or "key:KEY", live ones only and only the owner's; NULL otherwise. What a caller is told then,
 * and ended sessions, are the business of service/find.h. `any_owner` is for administrators. */
struct session *session_find(struct core *core, const char *owner, bool any_owner,
                             const char *reference);

/* Ends a session: executions are stopped, the sandbox is destroyed and confirmed gone, the record
 * is written; done then. Callers that come while it is ending wait for the same end and the first
 * reason stays. `op` may be NULL. What takes longer than 30 seconds is told as ERR_TIMEOUT, and
 * goes on. */
void session_end(struct session *session, enum end_kind kind, const char *detail,
                 struct session_op *op, session_done_fn *done);

/* Stops waiting: `done` will not come. The operation itself goes on. */
void session_op_cancel(struct session_op *op);

/* Lease = now + timeout; never shortens unless exact. timeout_ms 0 with exact removes the lease.
 * The idle clock begins anew. */
int session_keepalive(struct session *session, int64_t timeout_ms, bool exact, struct error *err);

struct session_patch {
    const char *labels_json;  /* NULL: unchanged */
    const char *secrets_json; /* NULL: unchanged; they are replaced for programs that start later */
    int64_t timeout_ms;       /* -1: unchanged, here and below */
    int64_t idle_timeout_ms;
    int64_t max_lifetime_ms;
    int auto_restart, auto_resume, keep_files;
    int on_timeout;
};

/* Everything unchanged. */
#define SESSION_PATCH_INIT                          \
    ((struct session_patch){ .timeout_ms = -1,      \
                             .idle_timeout_ms = -1, \
                             .max_lifetime_ms = -1, \
                             .auto_restart = -1,    \
                             .auto_resume = -1,     \
                             .keep_files = -1,      \
                             .on_timeout = -1 })

int session_patch(struct session *session, const struct session_patch *patch, struct error *err);

/* `op` may be NULL in both. Done when the sandbox is really frozen or thawed; ERR_CONFLICT for who
 * is overtaken by the opposite, ERR_TIMEOUT for what takes longer than 10 seconds, and goes on. */
void session_pause(struct session *session, struct session_op *op, session_done_fn *done);
void session_resume(struct session *session, struct session_op *op, session_done_fn *done);

/* The sandbox goes (tracked until confirmed), the session stays; the next use makes a new one.
 * Idempotent. */
void session_teardown(struct session *session, enum end_kind why);

/* The same after a grace, unless the session is used or asked for meanwhile; told twice, the first
 * grace counts. It outlives the daemon. */
void session_teardown_soon(struct session *session, int64_t grace_ms);
void session_teardown_cancel(struct session *session);

/* A sandbox of another flavor, or with other limits, takes the place of the one there is; started
 * in the background. Whether that may be is the business of flavor_change.h. */
void session_replace(struct session *session, enum session_choice choice, const char *flavor,
                     const struct sandbox_limits *limits);

/* Starts the sandbox in the background if there is none. */
void session_preload(struct session *session);

/* --- use ----------------------------------------------------------------------------------- */

struct session_hold;
typedef void session_hold_fn(struct session_hold *hold);

struct session_hold {
    session_hold_fn *
        on_ready; /* err is ERR_NONE and sandbox, agent are set; or it failed and the use is over */
    session_hold_fn
        *on_lost; /* after on_ready: the sandbox went away; `lost` says why; the use is over */
    struct error err;
    struct end_reason lost;
    struct session *session;
    struct sandbox *sandbox; /* valid between on_ready and the end of the use */
    struct agent *agent;     /* its init; NULL while the connection to it is being made again */
    struct list node;
    uint64_t generation; /* the one asked for, then the one it has */
    int64_t waits_since_us;
    bool granted;
    bool is_weak;
    bool waited; /* it had to wait: that it was refused in the end makes it no less a use */
};

/* `generation` 0: any; otherwise ERR_CONFLICT ("generation_moved") unless the sandbox has that one.
 * on_ready is never called inside. A paused session is resumed unless auto_resume is off. */
void session_hold_begin(struct session_hold *hold, struct session *session, uint64_t generation,
                        session_hold_fn *on_ready, session_hold_fn *on_lost);

/* For execution_restore(): the use of a running execution that an earlier daemon began. It counts
 * from now on; sandbox and agent are set when its sandbox has been adopted, before
 * executions_on_process(); on_lost comes when the sandbox turns out to be dead. */
void session_hold_restore(struct session_hold *hold, struct session *session,
                          session_hold_fn *on_lost);

/* A granted use of something that only waits to be used: the idle clock goes on and the sandbox may
 * be evicted, but its loss is told as before. */
void session_hold_weaken(struct session_hold *hold);

/* After on_ready, or in on_lost: nothing was done with the sandbox. The use waits for the next one,
 * or for this one to answer again, and on_ready is called again. */
void session_hold_retry(struct session_hold *hold, uint64_t generation);

/* Gives up waiting, or ends the use: the idle clock starts again when it was the last. Safe on an
 * ended use. */
void session_hold_end(struct session_hold *hold);

/* --- clocks, for showing ------------------------------------------------------------------- */

/* -1 where the clock is off. idle is the full timeout while something runs. */
int64_t session_lease_remaining_ms(const struct session *session);
int64_t session_idle_remaining_ms(const struct session *session);
int64_t session_lifetime_remaining_ms(const struct session *session);

/* Which clock ends it and when: END_NONE and -1 if none is running. */
enum end_kind session_next_end(const struct session *session, int64_t *out_remaining_ms);

/* The JSON object of API.md: fields, sandbox, clocks, usage. */
void session_write_fields(const struct session *session, struct json_writer *json);
void session_write_json(const struct session *session, struct json_writer *json, const char *key);

/* Reads back from the kernel what walls its sandbox has, once: the document tells it from then on.
 * It takes as long as handing out a sandbox does, so it is for who asks for this session alone. */
void session_read_report(const struct session *session);

/* The same shape for an ended session, from its record. */
void session_record_write_json(const struct session_record *record, struct json_writer *json,
                               const char *key);

/* The values of secrets that are for one execution alone: from now on they are masked. */
int session_learn_secrets(struct session *session, const char *json, struct error *err);

/* The values of its secrets, to be taken out of what is shown to others than the programs in it;
 * NULL without any. Borrowed for this turn of the loop: keep it with mask_ref(). */
struct mask *session_mask(const struct session *session);

/* Its state goes to the store at the end of the turn (no commit), where whatever is committed in
 * this turn has it, too. */
void session_changed(struct session *session);

/* An event of this session with its next sequence number; `data_json` is an object or NULL. */
void session_emit(struct session *session, const char *type, const char *data_json);
