/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shutdown.h"

#include "base/alloc.h"
#include "core/core.h"
#include "core/repair.h"
#include "core/run/execution.h"
#include "core/sandbox/pool.h"
#include "core/sandbox/sandbox.h"
#include "core/session/retention.h"
#include "core/session/session_recover.h"
#include "core/session/source_question.h"
#include "store/store.h"

#include <assert.h>
#include <stdlib.h>

enum {
    SHUTDOWN_REPEAT_US = 200 * 1000,
    SHUTDOWN_WRITES = 10, /* that fail, until what they were to write is given up */
};

enum shutdown_state {
    SHUTDOWN_RECOVERING, /* what an earlier daemon left is not known yet */
    SHUTDOWN_ENDING,     /* operations end, with `destroy` everything */
    SHUTDOWN_WRITING,    /* the store makes the last of it durable */
    SHUTDOWN_PAUSING,    /* the store failed: ending again soon */
    SHUTDOWN_DONE
};

struct core_shutdown {
    struct core *core; /* borrowed */
    core_done_fn *done;
    void *user;              /* borrowed */
    struct turn_watch turns; /* the condition is looked at after each turn of the loop */
    struct timer deadline;   /* makes sure that there is a turn then */
    struct timer pause;
    struct store_ticket ticket;
    unsigned failed_writes;
    enum shutdown_state state;
    bool destroy;
};

void shutdown_free(struct core_shutdown *shutdown)
{
    if (!shutdown)
        return;
    turn_watch_stop(&shutdown->turns);
    timer_stop(&shutdown->deadline);
    timer_stop(&shutdown->pause);
    free(shutdown);
}

/* The backend and the store have nothing left to answer. */
static bool is_quiet(const struct core *core)
{
    const struct sandbox *sandbox;
    const struct session *session;

    for (sandbox = sandbox_next(core, NULL); sandbox; sandbox = sandbox_next(core, sandbox))
        if (sandbox_is_busy(sandbox))
            return false;
    session_for_each (session, core) {
        if (!session_is_recorded(session))
            return false;
    }
    return !core->recovery && !core->orphans && !retention_is_busy(core->retention);
}

static bool is_finished(const struct core_shutdown *shutdown)
{
    const struct core *core = shutdown->core;

    if (shutdown->destroy && !list_is_empty(&core->sessions))
        return false;
    if (shutdown->destroy && !list_is_empty(&core->sandboxes))
        return false;
    return is_quiet(core);
}

static void shutdown_end(struct core_shutdown *shutdown, const struct error *err)
{
    assert(shutdown->state != SHUTDOWN_DONE);
    shutdown->state = SHUTDOWN_DONE;
    turn_watch_stop(&shutdown->turns);
    shutdown->done(shutdown->core, err, shutdown->user);
}

static void on_all_written(struct store_ticket *ticket)
{
    struct core_shutdown *shutdown = container_of(ticket, struct core_shutdown, ticket);

    if (ticket->err->code == ERR_NONE) {
        shutdown_end(shutdown, NULL);
    } else if (++shutdown->failed_writes == SHUTDOWN_WRITES) {
        shutdown_end(shutdown, ticket->err);
    } else {
        shutdown->state = SHUTDOWN_PAUSING;
        timer_arm_in(&shutdown->pause, SHUTDOWN_REPEAT_US);
    }
}

/* The last chance for writes that the store has lost lately. */
static void begin_writing(struct core_shutdown *shutdown)
{
    struct core *core = shutdown->core;

    shutdown->state = SHUTDOWN_WRITING;
    executions_save_incomplete(core);
    repair_hurry(core->repair);
    store_commit(core->parts.store, &shutdown->ticket, on_all_written);
}

/* Sessions are ended when all of them are known, with their sandboxes. */
static void begin_ending(struct core_shutdown *shutdown)
{
    struct core *core = shutdown->core;
    struct session *session;
    struct session *following;

    shutdown->state = SHUTDOWN_ENDING;
    pool_stop(core->pool); /* the next daemon makes its own */
    session_for_each_safe (session, following, core) {
        if (shutdown->destroy)
            session_end(session, END_SHUTDOWN, NULL, NULL, NULL);
        else
            session_serve_soon(session);
    }
}

static bool is_overdue(const struct core_shutdown *shutdown)
{
    return loop_now_us(shutdown->core->loop) >= shutdown->deadline.deadline_us;
}

static void give_up(struct core_shutdown *shutdown)
{
    struct error err = { 0 };

    error_set(&err, ERR_TIMEOUT, "%zu sandboxes were not gone in time",
              shutdown->core->sandboxes_by_id.count);
    shutdown_end(shutdown, &err);
}

static void on_turn(struct turn_watch *watch)
{
    struct core_shutdown *shutdown = container_of(watch, struct core_shutdown, turns);

    if (shutdown->state == SHUTDOWN_RECOVERING && !shutdown->core->recovery)
        begin_ending(shutdown);
    if (shutdown->state == SHUTDOWN_ENDING && is_finished(shutdown))
        begin_writing(shutdown);
    else if (shutdown->state <= SHUTDOWN_ENDING && is_overdue(shutdown))
        give_up(shutdown);
}

/* The timer begins a turn; on_turn() then finds that the shutdown is overdue. */
static void on_deadline(struct timer *timer UNUSED)
{
}

static void on_pause_over(struct timer *timer)
{
    container_of(timer, struct core_shutdown, pause)->state = SHUTDOWN_ENDING;
}

void core_stop(struct core *core, bool destroy, int64_t timeout_ms, core_done_fn *done, void *user)
{
    struct core_shutdown *shutdown = xnew(struct core_shutdown);

    assert(!core->shutdown);
    *shutdown =
        (struct core_shutdown){ .core = core, .done = done, .user = user, .destroy = destroy };
    core->shutdown = shutdown;
    core->stopping = true;
    source_questions_refuse(core);
    timer_init(&shutdown->pause, core->loop, on_pause_over);
    timer_init(&shutdown->deadline, core->loop, on_deadline);
    timer_arm_in(&shutdown->deadline, timeout_ms * 1000);
    turn_watch_start(&shutdown->turns, core->loop, on_turn);
}
