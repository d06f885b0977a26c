/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/retention.h"

#include "base/alloc.h"
#include "base/log.h"
#include "core/output/spool_files.h"
#include "core/output/spool_shares.h"
#include "core/sandbox/workspace_archive.h"
#include "core/session/session.h"
#include "core/session/storage.h"
#include "loop/worker.h"
#include "store/store.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * A round: sessions whose time is over → their executions → unlink the output (on a worker) →
 * forget the records. The output goes first: a daemon that dies in between finds the records and
 * does it again. A full round is followed by the next a moment later, so that requests come in
 * between; a store that fails is not asked without pause.
 *
 * Requests wait while the store removes the records of a round. How many sessions a round has
 * follows from how long that took for the round before: it shows in the first answer of the next.
 */

enum {
    BATCH = 32, /* at most */
    LEAST_BATCH = 4,
    LONG_US = 8 * 1000,
    EXECUTIONS_AT_ONCE = 1000,
    PAUSE_US = 100 * 1000,
    SHORT_PAUSE_US = 2 * 1000,
};

/* Where nodes share the store each one removes the records of its own sessions. Records of
 * a node that does not come back are removed by any other node, this long after their time. */
static const int64_t OTHERS_US = (int64_t)3600 * 1000 * 1000;

enum retention_state {
    RETENTION_RESTS,
    RETENTION_FINDS,      /* sessions whose time is over */
    RETENTION_READS,      /* their executions */
    RETENTION_UNLINKS,    /* their output */
    RETENTION_LOOKS_AHEAD /* for the next one */
};

/* Asks for the executions of one session. */
struct lookup {
    struct retention *retention; /* borrowed */
    struct store_query query;
};

struct ids {
    char (*items)[ID_SIZE]; /* owned */
    size_t count;
    size_t capacity;
};

struct retention {
    struct core *core; /* borrowed */
    struct timer timer;
    struct store_query query;
    struct job job;
    struct ids sessions;
    struct ids executions;
    struct lookup lookups[BATCH];
    uint32_t batch;      /* how many sessions this round asks for */
    uint32_t next_batch; /* and the next */
    int64_t asked_us;
    size_t unanswered;   /* of them */
    uint64_t kept_bytes; /* of archives that are unlinked */
    enum retention_state state;
    struct timer others;  /* where nodes share the store */
    bool is_for_others;   /* this round is for the sessions of any node */
    struct error failure; /* of this round */
};

static void enter(struct retention *retention, enum retention_state state)
{
    static const unsigned successors[] = {
        [RETENTION_RESTS] = 1 << RETENTION_FINDS | 1 << RETENTION_LOOKS_AHEAD,
        [RETENTION_FINDS] = 1 << RETENTION_READS | 1 << RETENTION_LOOKS_AHEAD,
        [RETENTION_READS] = 1 << RETENTION_UNLINKS | 1 << RETENTION_LOOKS_AHEAD,
        [RETENTION_UNLINKS] = 1 << RETENTION_RESTS | 1 << RETENTION_LOOKS_AHEAD,
        [RETENTION_LOOKS_AHEAD] = 1 << RETENTION_RESTS,
    };

    assert(successors[retention->state] & 1U << state);
    retention->state = state;
}

static void ids_add(struct ids *ids, const char *id)
{
    if (ids->count == ids->capacity) {
        ids->capacity = ids->capacity ? ids->capacity * 2 : BATCH;
        ids->items = xrealloc(ids->items, ids->capacity, sizeof(*ids->items));
    }
    memcpy(ids->items[ids->count++], id, sizeof(*ids->items));
}

static void ids_clear(struct ids *ids)
{
    free(ids->items);
    *ids = (struct ids){ 0 };
}

static void arm(struct retention *retention, int64_t until_wall_us)
{
    struct loop *loop = retention->core->loop;
    int64_t delay_us = MAX(until_wall_us - clock_wall_us(loop_clock(loop)), (int64_t)0);
    int64_t deadline_us = loop_now_us(loop) + delay_us;

    if (!timer_is_armed(&retention->timer) || retention->timer.deadline_us > deadline_us)
        timer_arm_at(&retention->timer, deadline_us);
}

/* --- when is the next ---------------------------------------------------------------------- */

static void on_first_session(struct store_query *query, const struct session_record *record)
{
    struct retention *retention = container_of(query, struct retention, query);
    int64_t now_us = clock_wall_us(loop_clock(retention->core->loop));

    arm(retention, MAX(record->retain_until_wall_us, now_us + PAUSE_US));
}

static void on_first_known(struct store_query *query)
{
    enter(container_of(query, struct retention, query), RETENTION_RESTS);
}

static void find_next(struct retention *retention)
{
    enter(retention, RETENTION_LOOKS_AHEAD);
    retention->query = (struct store_query){ .on_session = on_first_session,
                                             .done = on_first_known,
                                             .node = retention->core->parts.node,
                                             .limit = 1 };
    store_query_expired(retention->core->parts.store, INT64_MAX, &retention->query);
}

/* --- a round ------------------------------------------------------------------------------- */

static void unlink_output(struct job *job)
{
    struct retention *retention = container_of(job, struct retention, job);

    for (size_t i = 0; i < retention->sessions.count; i++)
        retention->kept_bytes += workspace_archive_unlink(retention->core->parts.state_dir,
                                                          retention->sessions.items[i]);
    for (size_t i = 0; i < retention->sessions.count; i++)
        storage_unlink(retention->core->parts.state_dir, retention->sessions.items[i]);
    for (size_t i = 0; i < retention->executions.count; i++)
        spool_files_unlink(retention->core->parts.state_dir, retention->executions.items[i]);
}

static void end_round(struct retention *retention)
{
    bool is_full = retention->sessions.count == retention->batch &&
                   retention->failure.code == ERR_NONE &&
                   !retention->core->parts.store->counts.failing;

    ids_clear(&retention->sessions);
    ids_clear(&retention->executions);
    if (!is_full) {
        retention->is_for_others = false;
        find_next(retention);
        return;
    }
    enter(retention, RETENTION_RESTS);
    timer_arm_in(&retention->timer, SHORT_PAUSE_US);
}

static void on_output_gone(struct job *job)
{
    struct retention *retention = container_of(job, struct retention, job);

    for (size_t i = 0; i < retention->sessions.count; i++)
        storage_forget(retention->core->storage, retention->sessions.items[i]);
    for (size_t i = 0; i < retention->sessions.count; i++)
        store_forget_session(retention->core->parts.store, retention->sessions.items[i]);
    for (size_t i = 0; i < retention->executions.count; i++)
        spool_shares_forget(retention->core->spool_shares, retention->executions.items[i]);
    workspace_archive_forget(retention->core->archives, retention->kept_bytes);
    retention->kept_bytes = 0;
    log_debug("records removed", kv("sessions", retention->sessions.count));
    end_round(retention);
}

static void remove_output(struct retention *retention)
{
    struct worker *worker = retention->core->parts.worker;

    enter(retention, RETENTION_UNLINKS);
    retention->job = (struct job){ .run = unlink_output, .done = on_output_gone };
    if (worker) {
        worker_submit(worker, &retention->job);
        return;
    }
    unlink_output(&retention->job);
    on_output_gone(&retention->job);
}

static void on_execution(struct store_query *query, const struct execution_record *record)
{
    struct lookup *lookup = container_of(query, struct lookup, query);

    ids_add(&lookup->retention->executions, record->id);
}

static void on_executions(struct store_query *query);

static void read_executions(struct lookup *lookup, const char *session_id, uint64_t behind)
{
    lookup->query = (struct store_query){ .on_execution = on_execution,
                                          .done = on_executions,
                                          .session_id = session_id,
                                          .behind = behind,
                                          .limit = EXECUTIONS_AT_ONCE };
    store_query(lookup->retention->core->parts.store, STORE_EXECUTIONS, &lookup->query);
}

static void on_executions(struct store_query *query)
{
    struct lookup *lookup = container_of(query, struct lookup, query);
    struct retention *retention = lookup->retention;

    if (query->err.code != ERR_NONE) {
        log_warn("records could not be read", kv("error", query->err.message));
        retention->failure = query->err;
    } else if (query->is_cut) {
        read_executions(lookup, query->session_id, query->position);
        return;
    }
    if (--retention->unanswered > 0)
        return;
    if (retention->failure.code == ERR_NONE)
        remove_output(retention);
    else
        end_round(retention); /* what is not known would be left on the disk */
}

/* The answer has waited until the records of the round before were removed. */
static void adapt_batch(struct retention *retention)
{
    int64_t took_us = loop_now_us(retention->core->loop) - retention->asked_us;
    uint32_t next = took_us > LONG_US ? retention->batch / 2 : retention->batch + LEAST_BATCH;

    retention->next_batch = MIN(MAX(next, (uint32_t)LEAST_BATCH), (uint32_t)BATCH);
}

/* All at once: the store answers them in one visit. */
static void on_sessions(struct store_query *query)
{
    struct retention *retention = container_of(query, struct retention, query);
    size_t count = retention->sessions.count;

    adapt_batch(retention);
    retention->failure = query->err;
    if (query->err.code != ERR_NONE)
        log_warn("records could not be read", kv("error", query->err.message));
    if (count == 0 || query->err.code != ERR_NONE) {
        end_round(retention);
        return;
    }
    enter(retention, RETENTION_READS);
    retention->unanswered = count;
    for (size_t i = 0; i < count; i++) {
        retention->lookups[i].retention = retention;
        read_executions(&retention->lookups[i], retention->sessions.items[i], 0);
    }
}

static void on_session(struct store_query *query, const struct session_record *record)
{
    ids_add(&container_of(query, struct retention, query)->sessions, record->id);
}

static void start_round(struct retention *retention)
{
    struct loop *loop = retention->core->loop;

    enter(retention, RETENTION_FINDS);
    retention->batch = retention->next_batch;
    retention->asked_us = loop_now_us(loop);
    retention->query =
        (struct store_query){ .on_session = on_session,
                              .done = on_sessions,
                              .node = retention->is_for_others ? NULL : retention->core->parts.node,
                              .limit = retention->batch };
    store_query_expired(retention->core->parts.store,
                        clock_wall_us(loop_clock(loop)) -
                            (retention->is_for_others ? OTHERS_US : 0),
                        &retention->query);
}

/* Rounds do not overlap: the end of a round looks for the next. */
static void on_timer(struct timer *timer)
{
    struct retention *retention = container_of(timer, struct retention, timer);

    if (retention->state == RETENTION_RESTS)
        start_round(retention);
}

static void on_others(struct timer *timer)
{
    struct retention *retention = container_of(timer, struct retention, others);

    timer_arm_in(timer, OTHERS_US / 2);
    if (retention->state != RETENTION_RESTS)
        return;
    retention->is_for_others = true;
    start_round(retention);
}

/* --- interface ----------------------------------------------------------------------------- */

struct retention *retention_new(struct core *core)
{
    struct retention *retention = xnew(struct retention);

    retention->core = core;
    retention->next_batch = BATCH;
    timer_init(&retention->timer, core->loop, on_timer);
    timer_init(&retention->others, core->loop, on_others);
    return retention;
}

void retention_free(struct retention *retention)
{
    if (!retention)
        return;
    timer_stop(&retention->timer);
    timer_stop(&retention->others);
    ids_clear(&retention->sessions);
    ids_clear(&retention->executions);
    free(retention);
}

void retention_start(struct retention *retention)
{
    if (retention->core->parts.node)
        timer_arm_in(&retention->others, OTHERS_US / 2);
    find_next(retention);
}

bool retention_is_busy(const struct retention *retention)
{
    return retention->state != RETENTION_RESTS;
}

void retention_note(struct retention *retention, int64_t until_wall_us)
{
    arm(retention, until_wall_us);
}
