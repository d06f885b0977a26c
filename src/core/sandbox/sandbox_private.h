#pragma once

/* What the files of sandboxes share among themselves. */

#include "core/sandbox/builds.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/observer.h"
#include "core/sandbox/sandbox.h"
#include "loop/process.h"
#include "loop/workflow.h"

/* Whether it may be made, where an owner's are made one after the other. */
enum turn_state { TURN_NONE, TURN_WAITING, TURN_HELD };

/* Most sandboxes are at rest, and there are thousands: what is needed to ask the backend or init is
 * only there while they are asked. */
struct sandbox_op {
    struct backend_op base;
    struct sandbox *sandbox; /* borrowed */
};

struct sandbox_request {
    struct agent_request base;
    struct sandbox *sandbox; /* borrowed */
};

struct sandbox {
    struct core *core; /* borrowed */
    struct list node;  /* core->sandboxes */
    char id[ID_SIZE];
    struct sandbox_order order; /* texts owned */
    struct list pool_node;      /* in the pool; unlinked for all others */
    struct list idle_node;      /* in the capacity's list of idle ones, the coldest first */

    enum sandbox_state state;
    struct sandbox_limits limits; /* in force */
    struct backend_sandbox made;  /* what the backend knows it by */
    struct stamp created;
    struct stamp left; /* when it crashed or began to go; zero until then */
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

    struct capacity_slot slot;
    struct build_turn build;
    struct workflow workflow;        /* of creating, claiming or adopting */
    struct sandbox_op *op;           /* owned; NULL unless the backend is asked */
    struct sandbox_request *request; /* owned; NULL unless init is asked */
    struct store_ticket ticket;
    struct timer retry; /* of building */
    unsigned builds;    /* that failed */
    enum turn_state turn;
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

/* sandbox.c */

struct backend_op *sandbox_begin_op(struct sandbox *sandbox, backend_done_fn *done);

/* The backend has answered; the operation can be looked at until the end of the turn. */
struct sandbox *sandbox_end_op(struct backend_op *op);

/* At the end of the turn, what is not under way by then is given back. */
void sandbox_rest_soon(struct sandbox *sandbox);

struct sandbox *sandbox_new(struct core *core, const struct sandbox_order *order);

/* Of the settings, for the pool. */
struct sandbox_order sandbox_default_order(const struct core *core);
void sandbox_set_order(struct sandbox *sandbox, const struct sandbox_order *order);
void sandbox_set_state(struct sandbox *sandbox, enum sandbox_state state);
void sandbox_emit(struct sandbox *sandbox, const char *type, const char *reason); /* or NULL */
int64_t sandbox_backoff_us(unsigned attempts);
enum sandbox_wish sandbox_wish(const struct sandbox *sandbox); /* of its session */
void sandbox_note_left(struct sandbox *sandbox);               /* now, unless it has left before */
void sandbox_drop_agent_soon(struct sandbox *sandbox);

/* sandbox_build.c: steps of its start */
void sandbox_take_turn(struct workflow *workflow);
void sandbox_pass_turn(struct sandbox *sandbox); /* whether it has it or not */
void sandbox_wait_to_build(struct workflow *workflow);
void sandbox_on_build_turn(struct sandbox *sandbox); /* see builds.h */
void sandbox_build(struct workflow *workflow);
bool sandbox_abort_build(struct sandbox *sandbox, const struct error *err); /* if it waits */

/* sandbox_start.c */
void sandbox_on_slot(struct sandbox *sandbox, const struct error *err);    /* see capacity.h */
void sandbox_abort_step(struct sandbox *sandbox, const struct error *err); /* if it can be */
void sandbox_fail(struct sandbox *sandbox, const struct error *err);       /* not made in time */
void sandbox_on_silence(struct timer *timer);
void sandbox_stop_asking(struct sandbox *sandbox);    /* its init, which has not answered yet */
bool sandbox_has_init(const struct sandbox *sandbox); /* a connection to it, as far as is known */

/* sandbox_watch.c */
void sandbox_watch(struct sandbox *sandbox, int pidfd); /* takes it over; -1 is fine */
extern const struct agent_handler sandbox_agent_handler;
void sandbox_on_crash(struct sandbox *sandbox);
void sandbox_find_cause(struct sandbox *sandbox);
void sandbox_lose_init(struct sandbox *sandbox); /* it is unknown, and asked again soon */
void sandbox_reconnect_soon(struct sandbox *sandbox);

/* sandbox_destroy.c */
void sandbox_destroy_next(struct sandbox *sandbox); /* the next step, unless something still runs */
