/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of a sandbox, for the files of sandbox/ only. */

#include "core/sandbox/builds.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/observer.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/usage_history.h"
#include "core/sandbox/workspace_archive.h"
#include "loop/workflow.h"

/* Most sandboxes are at rest, and there are thousands: the memory for asking the backend or init is
 * only there while they are asked, and until the end of the turn in which they answer. */
struct sandbox_op {
    struct backend_op base;
    struct sandbox *sandbox; /* borrowed; NULL once the backend has answered */
};

struct sandbox_request {
    struct agent_request base;
    struct sandbox *sandbox; /* borrowed; NULL once init has answered or the request is cancelled */
};

/* Whether it may be made, where the sandboxes of one owner are made one after the other. */
enum owner_turn { TURN_NONE, TURN_WAITING, TURN_HELD };

struct sandbox_build {
    enum owner_turn owner_turn;
    struct build_turn turn;
    struct timer retry;
    unsigned failures;
};

/* Its record in the store. It is written before the sandbox is made and forgotten after the sandbox
 * is confirmed gone:
 *
 *     none → intent → made → whole → destroying → none
 *              └───────────────────────┴──→ none
 */
enum sandbox_recorded {
    RECORD_NONE,
    RECORD_INTENT,     /* the next daemon destroys it */
    RECORD_MADE,       /* the next daemon adopts it, and is the first to say that it is ready */
    RECORD_WHOLE,      /* the next daemon adopts it, in any state */
    RECORD_DESTROYING, /* the next daemon goes on with that */
    RECORD_STATES
};

struct sandbox_recording {
    enum sandbox_recorded state;
    struct store_ticket ticket; /* of the step of its workflow that records */
};

/* The step of a workflow that waits for several answers. */
struct sandbox_parts {
    unsigned pending;
    struct error *err; /* owned; of the first that failed */
};

/* By whom a sandbox that is unknown was frozen, as its record says. */
enum sandbox_freezer { FREEZER_NONE, FREEZER_SESSION };

struct sandbox_connection {
    struct agent *agent;             /* owned; NULL while there is no connection */
    struct sandbox_request *request; /* owned; NULL unless init is asked */
    struct timer silence;            /* armed while it is unknown and not frozen */
    int64_t unknown_since_us;
    enum sandbox_freezer freezer;
    unsigned attempts;     /* in a row */
    struct error *foreign; /* owned; its init speaks other versions of the protocol; NULL: not so */
    struct deferred drop;
};

struct sandbox_destruction {
    enum archive_packing packing; /* decided when it begins */
    struct end_reason end;
    struct stamp since; /* when it crashed or began to go; zero until then */
    uint32_t attempts;  /* that failed */

    /* The socket of its agent, owned, or -1; kept open until the sandbox is gone, because closing
     * it earlier would wake a dying init. */
    int agent_fd;
};

struct sandbox_readings {
    struct sandbox_usage usage; /* see usage.h */
    int64_t usage_wall_us;      /* when that was; 0: never */
    char *report;               /* owned; the walls in force, as JSON; NULL until they were read */
    struct report_question *question; /* owned; while the backend is asked for them */
};

/* Where its files come from. */
enum sandbox_files { FILES_OF_TEMPLATE, FILES_RESTORED };

struct sandbox {
    struct core *core;     /* borrowed */
    struct list node;      /* core->sandboxes */
    struct list pool_node; /* in the pool; unlinked for all others */
    char id[ID_SIZE];
    struct sandbox_order order; /* texts owned */
    enum sandbox_state state;
    enum sandbox_files files;
    struct sandbox_limits limits; /* in force */
    struct backend_sandbox made;  /* the sandbox as its backend names it */
    struct backend_watch watch;   /* of its end */
    struct stamp created;
    int64_t ready_at_us;
    struct error *last_error; /* owned; of creating, connecting or destroying; or NULL */

    struct workflow workflow; /* of creating, claiming, adopting or destroying */
    struct sandbox_parts parts;
    struct timer timer;    /* start timeout; later: connect again, or destroy again */
    struct sandbox_op *op; /* owned; NULL unless the backend is asked */
    struct capacity_slot slot;
    struct sandbox_build build;
    struct sandbox_recording record;
    struct sandbox_connection connection;
    struct sandbox_destruction destruction;
    struct sandbox_readings readings;
    struct usage_history history;
    struct archive_work *archive_work;   /* owned; while its files are packed or restored */
    struct python_zygote *python_zygote; /* owned; NULL until it was asked for */
    struct deferred rest, release;
};

static inline struct sandbox *sandbox_of(struct workflow *workflow)
{
    return container_of(workflow, struct sandbox, workflow);
}

/* sandbox.c */

struct backend_op *sandbox_begin_op(struct sandbox *sandbox, backend_done_fn *done);

/* The backend has answered; the operation can be looked at until the end of the turn. */
struct sandbox *sandbox_end_op(struct backend_op *op);
bool sandbox_asks_init(const struct sandbox *sandbox); /* it has not answered yet */
void sandbox_end_request(struct sandbox *sandbox);     /* it has, or need not any more */

/* At the end of the turn, what is not under way by then is given back. */
void sandbox_rest_soon(struct sandbox *sandbox);

struct sandbox *sandbox_new(struct core *core, const struct sandbox_order *order);

/* Of the settings, for the pool. */
struct backend *sandbox_default_backend(const struct core *core);
struct sandbox_order sandbox_default_order(const struct core *core);
void sandbox_set_order(struct sandbox *sandbox, const struct sandbox_order *order);
void sandbox_set_state(struct sandbox *sandbox, enum sandbox_state state);
void sandbox_set_recorded(struct sandbox *sandbox, enum sandbox_recorded state);
void sandbox_emit(struct sandbox *sandbox, const char *type, const char *reason); /* or NULL */
enum sandbox_wish sandbox_wish(const struct sandbox *sandbox); /* of its session */
void sandbox_note_left(struct sandbox *sandbox);               /* now, unless it has left before */
void sandbox_drop_agent_soon(struct sandbox *sandbox);

/* sandbox_build.c: steps of its start */
void sandbox_take_turn(struct workflow *workflow);
void sandbox_pass_turn(struct sandbox *sandbox); /* whether it has it or not */
void sandbox_wait_to_build(struct workflow *workflow);
void sandbox_build(struct workflow *workflow);
bool sandbox_abort_build(struct sandbox *sandbox, const struct error *err); /* if it waits */

/* sandbox_start.c */
void sandbox_on_slot(struct sandbox *sandbox, const struct error *err);    /* see capacity.h */
void sandbox_abort_step(struct sandbox *sandbox, const struct error *err); /* if it can be */
/* From now on it has sandbox.start_timeout to become ready. */
void sandbox_start_timeout(struct sandbox *sandbox);

void sandbox_fail(struct sandbox *sandbox, const struct error *err); /* not made in time */
void sandbox_on_silence(struct timer *timer);
bool sandbox_stop_connecting(struct sandbox *sandbox); /* false: it does not connect */
void sandbox_stop_asking(struct sandbox *sandbox);     /* its init, which has not answered yet */
bool sandbox_has_init(const struct sandbox *sandbox);  /* a connection to it, as far as is known */

/* sandbox_watch.c */
void sandbox_watch(struct sandbox *sandbox); /* it is made or adopted: learns of its end */
bool sandbox_has_ended(const struct sandbox *sandbox); /* as the backend reports */
extern const struct agent_handler sandbox_agent_handler;
void sandbox_on_crash(struct sandbox *sandbox);
void sandbox_find_cause(struct sandbox *sandbox);
void sandbox_lose_init(struct sandbox *sandbox); /* it is unknown, and asked again soon */
void sandbox_reconnect_soon(struct sandbox *sandbox);
bool sandbox_is_frozen_by_others(const struct sandbox *sandbox); /* as the backend reports */
void sandbox_follow_motion(struct sandbox *sandbox); /* sets the state that the motion leads to */

/* sandbox_report.c: what was read or is being read does not hold any more */
void sandbox_forget_report(struct sandbox *sandbox);
void sandbox_stop_report(struct sandbox *sandbox); /* it goes: waiting requests are answered */
void sandbox_free_report(struct sandbox *sandbox); /* without answering the callers that wait */

/* sandbox_destroy.c */
void sandbox_begin_destroy(struct sandbox *sandbox); /* the workflow before it has ended */
void sandbox_destroy_again(struct sandbox *sandbox); /* after a failure and the pause behind it */
void sandbox_destroy_on_answer(struct sandbox *sandbox); /* the backend asks nothing any more */
bool sandbox_destroy_is_busy(const struct sandbox *sandbox);
