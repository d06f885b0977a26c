/* SPDX-License-Identifier: Apache-2.0 */
#include "store/journal/syncer.h"

#include "base/macros.h"

#include <assert.h>

/* How long a write without a waiting ticket may stay in memory: long enough that a busy daemon does
 * not flush for each, short enough that a power failure takes little. */
enum { LATEST_US = 100 * 1000 };

/* From the beginning of one flush to that of the next: a request alone never meets it, and of many
 * at once each shares its flush with others. */
enum { SPACING_US = 1000 };

static void sync_run(struct job *job)
{
    struct syncer *syncer = container_of(job, struct syncer, job);

    (void)redo_flush_run(&syncer->flush, &syncer->err);
}

static void sync_start(struct syncer *syncer)
{
    if (syncer->running || !syncer->dirty || !syncer->worker)
        return;
    timer_stop(&syncer->timer);
    syncer->running = true;
    syncer->dirty = false;
    syncer->began_us = loop_now_us(syncer->loop);
    syncer->flush = redo_flush_begin(syncer->redo);
    list_move_all(&syncer->waiting, &syncer->syncing);
    worker_submit(syncer->worker, &syncer->job);
}

/* Simulated time does not pass by itself. */
static void sync_soon(struct syncer *syncer)
{
    int64_t due_us = syncer->began_us + SPACING_US;

    if (loop_clock(syncer->loop) != &clock_system || due_us <= loop_now_us(syncer->loop))
        sync_start(syncer);
    else if (!syncer->running && syncer->worker)
        timer_arm_at(&syncer->timer, due_us);
}

static void note_result(struct syncer *syncer)
{
    if (syncer->err.code != ERR_NONE && syncer->failure.code == ERR_NONE)
        error_named(&syncer->failure, ERR_INTERNAL, "store_failed",
                    "the database could not be flushed to the disk: %s", syncer->err.message);
    if (syncer->err.code == ERR_NONE)
        redo_note_flushed(syncer->redo, &syncer->flush);
}

static void sync_done(struct job *job)
{
    struct syncer *syncer = container_of(job, struct syncer, job);
    struct list done = LIST_INIT(done);

    assert(syncer->running);
    syncer->running = false;
    note_result(syncer);
    list_move_all(&syncer->syncing, &done);
    if (!list_is_empty(&syncer->waiting))
        sync_soon(syncer);
    else if (syncer->dirty)
        timer_arm_in(&syncer->timer, LATEST_US);
    if (!list_is_empty(&done) || syncer->failure.code != ERR_NONE)
        syncer->on_synced(syncer, &done, &syncer->failure);
}

static void on_latest(struct timer *timer)
{
    sync_start(container_of(timer, struct syncer, timer));
}

void syncer_open(struct syncer *syncer, struct loop *loop, struct redo *redo, bool enabled,
                 synced_fn *on_synced)
{
    *syncer = (struct syncer){
        .job = { .run = sync_run, .done = sync_done },
        .loop = loop,
        .redo = redo,
        .on_synced = on_synced,
    };
    list_init(&syncer->waiting);
    list_init(&syncer->syncing);
    timer_init(&syncer->timer, loop, on_latest);
    syncer->enabled = enabled;
    if (syncer->enabled)
        syncer->worker = worker_new(loop, 1, "store-sync");
}

void syncer_stop(struct syncer *syncer)
{
    timer_stop(&syncer->timer);
    worker_free(steal_ptr(&syncer->worker));
    timer_stop(&syncer->timer);
}

void syncer_add(struct syncer *syncer, struct list *tickets)
{
    if (!syncer->enabled) {
        if (!list_is_empty(tickets))
            syncer->on_synced(syncer, tickets, &syncer->failure);
        return;
    }
    syncer->dirty = true;
    list_move_all(tickets, &syncer->waiting);
    if (!list_is_empty(&syncer->waiting))
        sync_soon(syncer);
    else if (syncer->worker && !syncer->running && !timer_is_armed(&syncer->timer))
        timer_arm_in(&syncer->timer, LATEST_US);
}

void syncer_finish_here(struct syncer *syncer)
{
    struct list done = LIST_INIT(done);

    assert(!syncer->worker && !syncer->running);
    if (list_is_empty(&syncer->waiting))
        return;
    syncer->flush = redo_flush_begin(syncer->redo);
    sync_run(&syncer->job);
    note_result(syncer);
    list_move_all(&syncer->waiting, &done);
    syncer->on_synced(syncer, &done, &syncer->failure);
}
