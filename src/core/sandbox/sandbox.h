#pragma once

/*
 * One incarnation of a session, or a member of the pool.
 *
 *     none → creating → ready → freezing → frozen → thawing → ready
 *               │         ⇅          │        │        │
 *               │      unknown ──────┴────────┴────────┴──→ crashed     (the cause is looked for)
 *               └─────────┴───────────────────────────────────┴──→ destroying → none
 *
 * Unknown: it exists, but its init has not answered yet, after a restart of the daemon or a lost
 * connection. Its session alone is concerned: a use waits for it, for a bounded time. A sandbox
 * that stays silent for `sandbox.silence_timeout` is taken for dead.
 *
 * Its record is written before it is made and forgotten only after it is confirmed gone. There is
 * one way in, sandbox_start() or sandbox_claim(), and one way out, sandbox_destroy(), whatever the
 * reason. Destroying is retried with back-off for ever; attempts and the last error are visible.
 */

#include "agent/agent.h"
#include "backend/backend.h"
#include "core/core.h"
#include "core/sandbox/builds.h"
#include "core/sandbox/capacity.h"
#include "core/session/session.h"
#include "loop/process.h"
#include "loop/workflow.h"

enum sandbox_state {
    SANDBOX_NONE,
    SANDBOX_CREATING,
    SANDBOX_READY,
    SANDBOX_UNKNOWN,
    SANDBOX_FREEZING,
    SANDBOX_FROZEN,
    SANDBOX_THAWING,
    SANDBOX_CRASHED,
    SANDBOX_DESTROYING,
    SANDBOX_STATES
};

const char *sandbox_state_name(enum sandbox_state state);
enum sandbox_state sandbox_state_parse(const char *name); /* SANDBOX_NONE for an unknown one */
bool sandbox_may_become(enum sandbox_state from, enum sandbox_state to);

/* Whether it may be made, where an owner's are made one after the other. */
enum turn_state { TURN_NONE, TURN_WAITING, TURN_HELD };

struct sandbox;
struct sandbox_op;
struct sandbox_request;

/* For executions: its id, and the connection to its init, NULL while there is none. */
const char *sandbox_id(const struct sandbox *sandbox);
struct agent *sandbox_agent(const struct sandbox *sandbox);

struct sandbox {
    struct core *core; /* borrowed */
    struct list node;  /* core->sandboxes */
    char id[ID_SIZE];
    struct session *session; /* borrowed; NULL for a pool member */
    struct list pool_node;   /* in the pool; unlinked for all others */
    struct list idle_node;   /* in the capacity's list of idle ones, the coldest first */

    enum sandbox_state state;
    uint64_t generation;
    struct sandbox_limits limits;
    struct backend_sandbox made; /* what the backend knows it by */
    struct stamp created;
    struct stamp left; /* when it crashed or began to go; zero until then */
    char *flavor;      /* owned; of its session, when it was made */
    struct end_reason end;
    uint32_t attempts;          /* of destroying */
    struct error *last_error;   /* owned; of creating, connecting or destroying; or NULL */
    char *report;               /* owned; what is in force, as JSON; NULL until it was read */
    struct sandbox_usage usage; /* as it was last measured: see usage.h */
    int64_t measured_us;        /* wall time; 0: never */

    struct keep_work *keep_work; /* owned; while its files are packed or restored */
    bool files_restored;         /* from the incarnation before it */

    struct warm *warm;   /* owned; NULL until it was asked for */
    struct agent *agent; /* owned; NULL while there is no connection */
    struct process process;
    int leaving[2]; /* owned; what is closed when it is gone: init would only wake up for it; or -1
                     */
    int64_t ready_at_us;

    /* Private to the files sandbox*.c. */
    struct capacity_slot slot;
    struct build_turn build;
    struct workflow workflow;        /* of creating, claiming or adopting */
    struct sandbox_op *op;           /* owned; NULL unless the backend is asked */
    struct sandbox_request *request; /* owned; NULL unless init is asked */
    struct store_ticket ticket;
    struct timer retry; /* of building */
    unsigned builds;    /* that failed */
    uint32_t gpus;
    enum turn_state turn;
    bool preloaded;       /* asked for by nobody's use: it stays when they give up */
    struct timer timer;   /* start timeout; later: connect again, or destroy again */
    struct timer silence; /* armed while it is unknown and not frozen */
    int64_t unknown_since_us;
    unsigned reconnects;     /* in a row */
    unsigned parts;          /* of the workflow's step that have not ended yet */
    struct error *parts_err; /* owned; of the first that failed */
    bool recorded;           /* its intent is in the store */
    bool complete;   /* its record says ready, before anybody uses it: the next daemon adopts it */
    bool op_running; /* the backend has not answered yet */
    bool request_running;  /* init has not answered yet */
    bool ticket_running;   /* the store has not answered about destroying yet */
    bool destroy_recorded; /* it has */
    bool died;             /* its pidfd said so while a workflow was running */
    struct deferred drop_agent, rest, release;
};

/* Made, and neither dead nor going: any state from ready to thawing. */
bool sandbox_is_up(const struct sandbox *sandbox);

/* It is up, or will be. */
bool sandbox_is_coming_or_up(const struct sandbox *sandbox);

/* It is of no use any more, for this cause: told as a crash, and destroyed. */
void sandbox_crash(struct sandbox *sandbox, const char *cause);

/* Looks whether its init is dead before the loop has told. Then it is crashed when this returns. */
bool sandbox_notice_death(struct sandbox *sandbox);

/* What is in force, read back from the kernel once, when it is up. */
void sandbox_read_report(struct sandbox *sandbox);

/* Starts a new one for the session, or for the pool when it is NULL. It exists when this returns;
 * session_on_sandbox_ready() or …_failed(), or those of the pool, come later. */
struct sandbox *sandbox_start(struct core *core, struct session *session);

/* A ready pool member becomes the session's; creating until that is durable. */
void sandbox_claim(struct sandbox *sandbox, struct session *session);

/* Destroys it for this reason; the first reason stays. Uses end now; session_on_sandbox_gone()
 * comes when it is confirmed gone. */
void sandbox_destroy(struct sandbox *sandbox, enum end_kind kind, const char *detail);

/* Makes frozen what its session wants: paused or open. */
void sandbox_converge(struct sandbox *sandbox);

/* Whether uses may be granted now. */
bool sandbox_is_usable(const struct sandbox *sandbox);

/* A free slot was promised or refused: see capacity.h. */
void sandbox_on_slot(struct sandbox *sandbox, const struct error *err);

/* Writes the current state to the store (no commit). */
void sandbox_save(struct sandbox *sandbox);

/* --- recovery ------------------------------------------------------------------------------ */

/* From a record, attached to its session if that is known; nothing is done with it yet. */
struct sandbox *sandbox_restore(struct core *core, struct session *session,
                                const struct sandbox_record *record);

/* One that exists without a record. */
struct sandbox *sandbox_restore_orphan(struct core *core, const char *id);

/* One that is unknown: asks the backend whether it lives and whether it is frozen, and connects to
 * its init. Nobody has to wait for that. */
void sandbox_adopt(struct sandbox *sandbox);

/* Drops it from memory without touching it. */
void sandbox_free(struct sandbox *sandbox);
