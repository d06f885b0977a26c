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
 * A round: sessions whose time is over → their executions → slice by slice: unlink the output (on
 * a worker) → forget the records. The output goes first: a daemon that dies in between finds the
 * records and does it again. While the store removes the records of a slice the output of the next
 * is unlinked. A full round is followed by the next one; a store that fails is not asked without
 * pause.
 *
 * Requests wait while the store removes the records of a slice. The size of a slice follows from the
 * time that this took for the slice before: a question behind the removal is answered after it.
 * No round begins while the store is behind with its files (store.h).
 */

enum {
    ROUND = 128, /* sessions, at most */
    SLICE = 64,  /* of them, at most */
    LEAST_SLICE = 4,
    LONG_US = 12 * 1000,
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
    RETENTION_REMOVES,    /* slices of them */
    RETENTION_LOOKS_AHEAD /* for the next one */
};

/* Steps of two neighbouring slices, side by side. */
enum {
    SLICE_UNLINKS = 1 << 0, /* the output of this slice */
    SLICE_FORGETS = 1 << 1, /* the records of the slice before */
};

struct ids {
    char (*items)[ID_SIZE]; /* owned */
    size_t count;
    size_t capacity;
};

/* One session of a round, and the question for its executions. */
struct expired {
    struct retention *retention; /* borrowed */
    char id[ID_SIZE];
    struct store_query query;
    struct ids executions;
};

struct retention {
    struct core *core; /* borrowed */
    struct timer timer;
    enum retention_state state;
    struct store_query query; /* of the round, or for the next session */
    struct expired sessions[ROUND];
    size_t count;      /* of them */
    size_t unanswered; /* of their questions */
    struct {
        size_t first;
        size_t count;
        size_t next_count;  /* of the slice after it */
        unsigned under_way; /* SLICE_… */
        struct job job;
        uint64_t kept_bytes;       /* of archives that are unlinked */
        struct store_query behind; /* the removal of the records of the slice before */
        int64_t asked_us;
    } slice;
    struct timer others;  /* where nodes share the store */
    bool is_for_others;   /* this round is for the sessions of any node */
    struct error failure; /* of this round */
};

static void enter(struct retention *retention, enum retention_state state)
{
    static const unsigned successors[] = {
        [RETENTION_RESTS] = 1 << RETENTION_FINDS | 1 << RETENTION_LOOKS_AHEAD,
        [RETENTION_FINDS] = 1 << RETENTION_READS | 1 << RETENTION_LOOKS_AHEAD,
        [RETENTION_READS] = 1 << RETENTION_REMOVES | 1 << RETENTION_LOOKS_AHEAD,
        [RETENTION_REMOVES] = 1 << RETENTION_RESTS | 1 << RETENTION_LOOKS_AHEAD,
        [RETENTION_LOOKS_AHEAD] = 1 << RETENTION_RESTS,
    };

    assert(successors[retention->state] & 1U << state);
    retention->state = state;
}

static void ids_add(struct ids *ids, const char *id)
{
    if (ids->count == ids->capacity) {
        ids->capacity = MAX(ids->capacity * 2, (size_t)4);
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

/* --- slices -------------------------------------------------------------------------------- */

static void go_on(struct retention *retention);

static void end_round(struct retention *retention)
{
    bool is_full = retention->count == ROUND && retention->failure.code == ERR_NONE &&
                   !retention->core->parts.store->counts.failing;

    for (size_t i = 0; i < retention->count; i++)
        ids_clear(&retention->sessions[i].executions);
    retention->count = 0;
    if (!is_full) {
        retention->is_for_others = false;
        find_next(retention);
        return;
    }
    enter(retention, RETENTION_RESTS);
    timer_arm_in(&retention->timer, 0);
}

static void unlink_output(struct job *job)
{
    struct retention *retention = container_of(job, struct retention, slice.job);
    int state_dir = retention->core->parts.state_dir;

    for (size_t i = 0; i < retention->slice.count; i++) {
        const struct expired *expired = &retention->sessions[retention->slice.first + i];

        retention->slice.kept_bytes += workspace_archive_unlink(state_dir, expired->id);
        storage_unlink(state_dir, expired->id);
        for (size_t k = 0; k < expired->executions.count; k++)
            spool_files_unlink(state_dir, expired->executions.items[k]);
    }
}

static void on_output_gone(struct job *job)
{
    struct retention *retention = container_of(job, struct retention, slice.job);

    retention->slice.under_way &= ~(unsigned)SLICE_UNLINKS;
    go_on(retention);
}

static void unlink_slice(struct retention *retention)
{
    struct worker *worker = retention->core->parts.worker;

    retention->slice.under_way |= SLICE_UNLINKS;
    retention->slice.job = (struct job){ .run = unlink_output, .done = on_output_gone };
    if (worker) {
        worker_submit(worker, &retention->slice.job);
        return;
    }
    unlink_output(&retention->slice.job);
    on_output_gone(&retention->slice.job);
}

static void on_records_gone(struct store_query *query)
{
    struct retention *retention = container_of(query, struct retention, slice.behind);
    int64_t took_us = loop_now_us(retention->core->loop) - retention->slice.asked_us;
    size_t count = retention->slice.next_count;
    size_t next = took_us > LONG_US ? count / 2 : count + LEAST_SLICE;

    retention->slice.next_count = MIN(MAX(next, (size_t)LEAST_SLICE), (size_t)SLICE);
    if (query->err.code != ERR_NONE) {
        log_warn("records could not be removed", kv("error", query->err.message));
        retention->failure = query->err;
    }
    retention->slice.under_way &= ~(unsigned)SLICE_FORGETS;
    go_on(retention);
}

/* No session expired before 1970: only the end of the answer matters. */
static void on_no_session(struct store_query *query UNUSED,
                          const struct session_record *record UNUSED)
{
}

static void remove_records(struct retention *retention)
{
    struct core *core = retention->core;
    size_t end = retention->slice.first + retention->slice.count;

    for (size_t i = retention->slice.first; i < end; i++) {
        const struct expired *expired = &retention->sessions[i];

        storage_forget(core->storage, expired->id);
        for (size_t k = 0; k < expired->executions.count; k++)
            spool_shares_forget(core->spool_shares, expired->executions.items[k]);
        store_forget_session(core->parts.store, expired->id);
    }
    workspace_archive_forget(core->archives, retention->slice.kept_bytes);
    retention->slice.kept_bytes = 0;
    log_debug("records removed", kv("sessions", retention->slice.count));
    retention->slice.under_way |= SLICE_FORGETS;
    retention->slice.asked_us = loop_now_us(core->loop);
    retention->slice.behind =
        (struct store_query){ .on_session = on_no_session, .done = on_records_gone, .limit = 1 };
    store_query_expired(core->parts.store, 0, &retention->slice.behind);
}

/* Forgets the slice whose output is unlinked and begins with the next, once the records of the slice
 * before are gone. */
static void go_on(struct retention *retention)
{
    size_t end = retention->slice.first + retention->slice.count;

    if (retention->slice.under_way)
        return;
    if (retention->failure.code != ERR_NONE || retention->slice.first == retention->count) {
        end_round(retention);
        return;
    }
    if (retention->slice.count)
        remove_records(retention);
    retention->slice.first = end;
    retention->slice.count = MIN(retention->slice.next_count, retention->count - end);
    if (retention->slice.count)
        unlink_slice(retention);
}

static void remove_all(struct retention *retention)
{
    enter(retention, RETENTION_REMOVES);
    retention->slice.first = retention->slice.count = 0;
    go_on(retention);
}

/* --- a round ------------------------------------------------------------------------------- */

static void on_execution(struct store_query *query, const struct execution_record *record)
{
    ids_add(&container_of(query, struct expired, query)->executions, record->id);
}

static void on_executions(struct store_query *query);

static void read_executions(struct expired *expired, uint64_t behind)
{
    expired->query = (struct store_query){ .on_execution = on_execution,
                                           .done = on_executions,
                                           .session_id = expired->id,
                                           .behind = behind,
                                           .limit = EXECUTIONS_AT_ONCE };
    store_query(expired->retention->core->parts.store, STORE_EXECUTIONS, &expired->query);
}

static void on_executions(struct store_query *query)
{
    struct expired *expired = container_of(query, struct expired, query);
    struct retention *retention = expired->retention;

    if (query->err.code != ERR_NONE) {
        log_warn("records could not be read", kv("error", query->err.message));
        retention->failure = query->err;
    } else if (query->is_cut) {
        read_executions(expired, query->position);
        return;
    }
    if (--retention->unanswered > 0)
        return;
    if (retention->failure.code == ERR_NONE)
        remove_all(retention);
    else
        end_round(retention); /* what is not known would be left on the disk */
}

/* All at once: the store answers them in one visit. */
static void on_sessions(struct store_query *query)
{
    struct retention *retention = container_of(query, struct retention, query);

    retention->failure = query->err;
    if (query->err.code != ERR_NONE)
        log_warn("records could not be read", kv("error", query->err.message));
    if (retention->count == 0 || query->err.code != ERR_NONE) {
        end_round(retention);
        return;
    }
    enter(retention, RETENTION_READS);
    retention->unanswered = retention->count;
    for (size_t i = 0; i < retention->count; i++)
        read_executions(&retention->sessions[i], 0);
}

static void on_session(struct store_query *query, const struct session_record *record)
{
    struct retention *retention = container_of(query, struct retention, query);
    struct expired *expired = &retention->sessions[retention->count++];

    expired->retention = retention;
    memcpy(expired->id, record->id, sizeof(expired->id));
}

static void start_round(struct retention *retention)
{
    struct loop *loop = retention->core->loop;

    enter(retention, RETENTION_FINDS);
    retention->query =
        (struct store_query){ .on_session = on_session,
                              .done = on_sessions,
                              .node = retention->is_for_others ? NULL : retention->core->parts.node,
                              .limit = ROUND };
    store_query_expired(retention->core->parts.store,
                        clock_wall_us(loop_clock(loop)) -
                            (retention->is_for_others ? OTHERS_US : 0),
                        &retention->query);
}

/* Rounds do not overlap: the end of a round looks for the next. */
static void on_timer(struct timer *timer)
{
    struct retention *retention = container_of(timer, struct retention, timer);

    if (retention->state != RETENTION_RESTS)
        return;
    if (retention->core->parts.store->is_behind)
        timer_arm_in(timer, SHORT_PAUSE_US);
    else
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
    retention->slice.next_count = SLICE;
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
    for (size_t i = 0; i < retention->count; i++)
        ids_clear(&retention->sessions[i].executions);
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
