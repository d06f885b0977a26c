/* SPDX-License-Identifier: Apache-2.0 */
#include "store/journal/journal.h"

#include "base/macros.h"

#include <assert.h>
#include <sys/resource.h>

enum {
    /* A write that takes this long is one of a disk that has too much to do: the thread waits for
     * the next ones instead of the loop. */
    SLOW_WRITE_US = 5 * 1000,
    SLOW_FOR_US = 1000 * 1000,
};

/* --- appending ----------------------------------------------------------------------------- */

static void append_run(struct job *job)
{
    struct journal *journal = container_of(job, struct journal, append.job);

    if (journal->append.changes.first)
        (void)redo_append(&journal->redo, &journal->append.changes, &journal->append.err);
}

static void append_ended(struct journal *journal, bool in_thread)
{
    struct list tickets = LIST_INIT(tickets);
    struct change_queue refused = { 0 };
    struct error err = journal->append.err;
    struct journal_result result = { &refused, &tickets, &err, false, in_thread };

    list_move_all(&journal->append.tickets, &tickets);
    if (err.code != ERR_NONE) {
        refused = change_queue_take(&journal->append.changes);
    } else if (journal->append.changes.first) {
        redo_note_appended(&journal->redo);
        journal->backlog.bytes += journal->redo.frame.length;
        change_queue_join(&journal->backlog.changes, &journal->append.changes);
        result.has_grown = true;
    }
    journal->owner->on_append_ended(journal, &result);
    assert(!refused.first && list_is_empty(&tickets));
}

static void append_done(struct job *job)
{
    struct journal *journal = container_of(job, struct journal, append.job);

    assert(journal->state == JOURNAL_APPENDING);
    journal->state = JOURNAL_IDLE;
    append_ended(journal, true);
}

/* Voluntary context switches of this thread: waits, without preemption. */
static long count_waits(void)
{
    struct rusage usage = { 0 };

    (void)getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void append_here(struct journal *journal)
{
    int64_t began_us = clock_now_us(&clock_system);
    long waits = count_waits();
    int64_t ended_us;

    append_run(&journal->append.job);
    ended_us = clock_now_us(&clock_system);
    if (ended_us - began_us > SLOW_WRITE_US && count_waits() != waits)
        journal->slow_until_us = ended_us + SLOW_FOR_US;
    append_ended(journal, false);
}

static bool disk_is_slow(const struct journal *journal)
{
    return journal->slow_until_us && clock_now_us(&clock_system) < journal->slow_until_us;
}

void journal_append(struct journal *journal, struct change_queue *changes, struct list *tickets)
{
    assert(journal->state == JOURNAL_IDLE && !journal->append.changes.first);
    journal->append.changes = change_queue_take(changes);
    journal->append.err = (struct error){ 0 };
    list_move_all(tickets, &journal->append.tickets);
    redo_will_append(&journal->redo, journal->backlog.settled);
    if (disk_is_slow(journal)) {
        journal->state = JOURNAL_APPENDING;
        worker_submit(journal->worker, &journal->append.job);
    } else {
        append_here(journal);
    }
}

/* --- flushes ------------------------------------------------------------------------------- */

static void on_synced(struct syncer *syncer, struct list *tickets, const struct error *err)
{
    struct journal *journal = container_of(syncer, struct journal, syncer);

    journal->owner->on_synced(journal, tickets, err);
}

void journal_hold_unsynced(struct journal *journal, struct list *tickets)
{
    struct list unsynced = LIST_INIT(unsynced);
    struct store_ticket *ticket, *following;

    list_for_each_safe (ticket, following, tickets, node) {
        if (ticket->grade != STORE_SYNCED)
            continue;
        list_remove(&ticket->node);
        list_append(&unsynced, &ticket->node);
    }
    syncer_add(&journal->syncer, &unsynced);
}

bool journal_has_waiting(const struct journal *journal)
{
    return !list_is_empty(&journal->syncer.waiting);
}

void journal_finish_here(struct journal *journal)
{
    syncer_finish_here(&journal->syncer);
}

/* --- the backlog --------------------------------------------------------------------------- */

struct change_queue journal_take_backlog(struct journal *journal, uint64_t *out_last)
{
    struct change_queue changes = change_queue_take(&journal->backlog.changes);

    assert(journal->state == JOURNAL_IDLE);
    journal->backlog.bytes = 0;
    *out_last = journal->redo.last;
    change_queue_fold(&changes);
    return changes;
}

/* The returned changes go to the front: later appends are newer. */
void journal_return_backlog(struct journal *journal, struct change_queue *changes)
{
    change_queue_join(changes, &journal->backlog.changes);
    journal->backlog.changes = change_queue_take(changes);
}

void journal_note_applied(struct journal *journal, uint64_t last)
{
    assert(last <= journal->redo.noted);
    journal->backlog.applied = MAX(journal->backlog.applied, last);
}

bool journal_is_long(const struct journal *journal)
{
    assert(journal->state == JOURNAL_IDLE);
    return redo_is_long(&journal->redo, journal->backlog.settled);
}

/* --- opening and closing ------------------------------------------------------------------- */

int journal_open(struct journal *journal, const struct redo_options *options, struct error *err)
{
    list_init(&journal->append.tickets);
    journal->append.job = (struct job){ .run = append_run, .done = append_done };
    journal->backlog.applied = journal->backlog.settled = options->last;
    return redo_open(&journal->redo, options, err);
}

void journal_start(struct journal *journal, const struct journal_options *options)
{
    journal->owner = options->owner;
    journal->worker = options->worker;
    journal->slow_until_us = options->never_on_the_loop ? INT64_MAX : 0;
    syncer_open(&journal->syncer, options->loop, &journal->redo, options->syncs, on_synced);
}

void journal_stop(struct journal *journal)
{
    syncer_stop(&journal->syncer);
}

void journal_close(struct journal *journal, bool remove_files)
{
    redo_close(&journal->redo, remove_files);
    change_queue_free(&journal->backlog.changes);
}
