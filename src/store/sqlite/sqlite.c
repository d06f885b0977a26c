/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop's side of the SQLite store.
 *
 * Changes wait in a queue until the end of the turn; then all of them are one frame of the journal
 * (journal.h): they are written. A thread brings them into the database a moment later, many commits
 * together, in a *visit*; of a record that has changed several times only the last state is written
 * there. Questions are answered by a visit too, which brings the backlog into the database first.
 *
 * Claims are decided here, when the commit that they are part of is made (claims.h): the documents
 * that claims have written are known in memory.
 *
 * While the redo log or the database cannot be written, changes go directly into the database, behind
 * everything that was committed before, and later changes wait for them.
 */

#include "base/alloc.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "loop/worker.h"
#include "store/claims.h"
#include "store/journal/journal.h"
#include "store/sqlite/db.h"
#include "store/watches.h"

#include <assert.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/stat.h>

enum {
    CHECKPOINT_PAGES = 2000,
    /* Checkpoints do not keep up, so the log cannot begin anew: `is_behind` holds back retention. */
    CHECKPOINT_PAGES_LONG = 3 * CHECKPOINT_PAGES,
    /* The log is this long only if the daemon never rests; then the writer itself stops for it. */
    CHECKPOINT_PAGES_URGENT = 8 * CHECKPOINT_PAGES,
    GATHER_US = 2000,
    APPLY_US = 100 * 1000,
    APPLY_RETRY_US = 1000 * 1000,
    APPLY_BYTES = 256 * 1024,  /* of the redo log, at once */
    REST_US = 3 * 1000 * 1000, /* without a visit to the database: its cache is given back */
    SHRINK_US = 10 * 1000,     /* between two steps, for waiting requests */
    SHRINK_LATER_US = 1000 * 1000,
    BACKLOG_MAXIMUM = 32 * 1024 * 1024,
};

struct asking {
    struct asking *next;
    struct store_query *query; /* borrowed */
    struct sqlite_question question;
};

struct askings {
    struct asking *first; /* owned */
    struct asking *last;
};

/* The purpose of a visit to the database. Every visit applies the backlog and answers questions. */
enum visit_kind {
    VISIT_NONE,    /* none is under way */
    VISIT_BACKLOG, /* nothing else */
    VISIT_DIRECT, /* to write pending changes past the journal; nothing else is written meanwhile */
    VISIT_REST,   /* to give memory back: nothing has happened for a while */
    VISIT_SHRINK, /* to make the file shorter */
};

/* The one visit under way: the thread's, until it is done. */
struct visit {
    struct job job;
    enum visit_kind kind;
    int64_t now_wall_us;
    struct askings askings;
    struct {
        struct change_queue changes; /* afterwards: the changes that could not be applied */
        uint64_t last;               /* their last frame */
        struct error err;
    } backlog;
    struct {
        struct change_queue changes;
        struct list tickets;
        int flush_code;
        struct error err;
    } direct;
    struct {
        enum shrink_need shrink_need;
        int wal_pages;
    } after;
};

enum {
    CHECKPOINT_FLUSH = 1 << 0, /* the database on the disk, so that the redo log can be reused */
    CHECKPOINT_COPY = 1 << 1,  /* the write-ahead log into the database */
};

struct checkpoint {
    struct job job;
    struct worker *worker;      /* owned */
    sqlite3 *handle;            /* owned */
    const struct sqlite_db *db; /* borrowed */
    unsigned tasks;             /* under way: CHECKPOINT_…; 0: none */
    uint64_t applied;           /* the frame up to which the database is flushed */
    int flush_code;
    int code;
    int reported; /* the last code that was logged */
};

/* How pending changes will be written. */
enum pending_way {
    BY_JOURNAL,
    DIRECTLY, /* the redo log could not be written */
};

struct pending {
    struct change_queue changes;
    struct list tickets;
    enum pending_way way;
    bool urgent;            /* a ticket or a question waits, or it has gathered for long enough */
    struct timer gather;    /* until then */
    struct deferred at_end; /* of the turn, when urgent */
};

enum backlog_state { BACKLOG_FLOWS, BACKLOG_STUCK };

struct sqlite_store {
    struct store base;
    struct worker *worker; /* owned; one thread, so jobs keep their order. NULL: closing */
    struct sqlite_db db;   /* the worker's, once it runs */
    int file;              /* owned; the database, only to be looked at */
    bool flushes;          /* `sync` is not off */
    struct error broken;   /* a flush has failed */
    struct claims claims;
    struct pending pending;
    struct journal journal;
    struct {
        enum backlog_state state; /* after the last visit */
        struct log_repeat logged;
        struct timer apply;
    } backlog;
    struct askings askings;
    struct visit visit;
    struct {
        struct timer rest;
        struct timer shrink;
    } upkeep;
    int wal_pages; /* of the database, after the last visit */
    struct checkpoint checkpoint;
};

static const struct store_ops sqlite_ops;
static void flush_soon(struct sqlite_store *store);

static struct sqlite_store *sqlite_from(struct store *store)
{
    assert(store->ops == &sqlite_ops);
    return container_of(store, struct sqlite_store, base);
}

static bool is_closing(const struct sqlite_store *store)
{
    return !store->worker;
}

static bool is_visiting(const struct sqlite_store *store)
{
    return store->visit.kind != VISIT_NONE;
}

/* A visit may begin: the redo log is ours to look at, and the database too. */
static bool is_free(const struct sqlite_store *store)
{
    return !is_visiting(store) && store->journal.state == JOURNAL_IDLE;
}

/* --- checkpoints --------------------------------------------------------------------------- */

static void checkpoint_run(struct job *job)
{
    struct checkpoint *checkpoint = container_of(job, struct checkpoint, job);

    if (checkpoint->tasks & CHECKPOINT_FLUSH)
        checkpoint->flush_code = sqlite_db_flush(checkpoint->db);
    if (checkpoint->tasks & CHECKPOINT_COPY)
        checkpoint->code = sqlite3_wal_checkpoint_v2(checkpoint->handle, NULL,
                                                     SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

static void note_flush(struct sqlite_store *store, int code)
{
    if (code != SQLITE_OK && store->broken.code == ERR_NONE)
        error_named(&store->broken, ERR_INTERNAL, "store_failed",
                    "the database could not be flushed to the disk: %s", sqlite3_errstr(code));
}

/* A failed checkpoint loses nothing: the log grows until the next one succeeds. SQLITE_BUSY: the
 * writer makes an urgent one. */
static void checkpoint_done(struct job *job)
{
    struct checkpoint *checkpoint = container_of(job, struct checkpoint, job);
    struct sqlite_store *store = container_of(checkpoint, struct sqlite_store, checkpoint);

    if (checkpoint->tasks & CHECKPOINT_COPY)
        store->wal_pages = 0; /* not again before the next visit */
    if (checkpoint->tasks & CHECKPOINT_FLUSH) {
        note_flush(store, checkpoint->flush_code);
        if (checkpoint->flush_code == SQLITE_OK)
            store->journal.backlog.settled = checkpoint->applied;
    }
    checkpoint->tasks = 0;
    store->base.is_behind = false;
    if (checkpoint->code != SQLITE_OK && checkpoint->code != SQLITE_BUSY &&
        checkpoint->code != checkpoint->reported)
        log_warn("store checkpoint failed; continuing without it",
                 kv("error", sqlite3_errstr(checkpoint->code)));
    checkpoint->reported = checkpoint->code;
}

/* While the thread writes the redo log it is not to be looked at: when that is done. */
static void checkpoint_if_due(struct sqlite_store *store, bool rests)
{
    struct journal_backlog *backlog = &store->journal.backlog;
    struct checkpoint *checkpoint = &store->checkpoint;

    if (!store->flushes)
        backlog->settled = backlog->applied;
    if (checkpoint->tasks || is_closing(store) || store->journal.state == JOURNAL_APPENDING)
        return;
    if (rests || store->wal_pages >= CHECKPOINT_PAGES)
        checkpoint->tasks |= CHECKPOINT_COPY;
    if (store->flushes && journal_is_long(&store->journal))
        checkpoint->tasks |= CHECKPOINT_FLUSH;
    checkpoint->applied = backlog->applied;
    if (!checkpoint->tasks)
        return;
    store->base.is_behind = store->wal_pages >= CHECKPOINT_PAGES_LONG;
    worker_submit(checkpoint->worker, &checkpoint->job);
}

/* --- a visit to the database --------------------------------------------------------------- */

static struct sqlite_store *store_of(struct visit *visit)
{
    return container_of(visit, struct sqlite_store, visit);
}

static void run_askings(struct visit *visit)
{
    struct sqlite_db *db = &store_of(visit)->db;
    struct error err = { 0 };
    bool is_overlaid = visit->backlog.changes.first && visit->askings.first;

    /* Queries see commits even while the database cannot be written. */
    if (is_overlaid && sqlite_db_overlay(db, &visit->backlog.changes, visit->now_wall_us, &err) < 0)
        is_overlaid = false;
    for (struct asking *asking = visit->askings.first; asking; asking = asking->next) {
        if (err.code != ERR_NONE)
            asking->question.err = err;
        else
            sqlite_db_ask(db, &asking->question);
    }
    if (is_overlaid)
        sqlite_db_end_overlay(db);
}

static void write_changes(struct visit *visit)
{
    struct sqlite_store *store = store_of(visit);

    if (!visit->direct.changes.first)
        return;
    if (visit->backlog.changes.first) {
        visit->direct.err = visit->backlog.err;
        return;
    }
    if (sqlite_db_write(&store->db, &visit->direct.changes, visit->now_wall_us,
                        &visit->direct.err) < 0)
        return;
    change_queue_free(&visit->direct.changes);
    /* Frames that follow may come to the disk before it, and would be all that is left then. */
    if (store->flushes)
        visit->direct.flush_code = sqlite_db_flush(&store->db);
}

/* A burst leaves megabytes of cached pages and a fragmented heap. */
static void give_memory_back(const struct sqlite_db *db)
{
    (void)sqlite3_db_release_memory(db->handle);
    (void)malloc_trim(0);
}

static enum shrink_need look_at_size(struct visit *visit, bool has_written)
{
    struct sqlite_db *db = &store_of(visit)->db;

    if (visit->kind == VISIT_SHRINK)
        return sqlite_db_shrink(db);
    return has_written ? sqlite_db_shrink_need(db) : SHRINK_NO;
}

static void visit_run(struct job *job)
{
    struct visit *visit = container_of(job, struct visit, job);
    struct sqlite_db *db = &store_of(visit)->db;
    bool writes = visit->backlog.changes.first || visit->direct.changes.first;

    if (visit->backlog.changes.first &&
        sqlite_db_apply(db, &visit->backlog.changes, visit->backlog.last, visit->now_wall_us,
                        &visit->backlog.err) == 0)
        change_queue_free(&visit->backlog.changes);
    write_changes(visit);
    run_askings(visit);
    if (db->wal_pages > CHECKPOINT_PAGES_URGENT)
        (void)sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
    visit->after.wal_pages = db->wal_pages;
    visit->after.shrink_need = look_at_size(visit, writes);
    if (visit->kind == VISIT_REST)
        give_memory_back(db);
}

static void deliver(struct sqlite_store *store, struct asking *asking)
{
    while (asking) {
        struct asking *next = asking->next;
        struct store_query *query = asking->query;

        store->base.load.damaged += asking->question.damaged;
        for (struct found *found = asking->question.first; found; found = found->next) {
            query->position = found->position;
            record_deliver(asking->question.table, query, found->record);
        }
        query->total = asking->question.total;
        query->is_cut = asking->question.is_cut;
        found_free(asking->question.first);
        query->err = asking->question.err;
        free(asking);
        query->done(query);
        asking = next;
    }
}

/* Changes that could not be applied stay in front; they are in the redo log, and retried. */
static void take_backlog(struct sqlite_store *store, struct visit *visit)
{
    const struct error *err = &visit->backlog.err;
    uint64_t left_out;

    if (!visit->backlog.changes.first) {
        store->backlog.state = BACKLOG_FLOWS;
        journal_note_applied(&store->journal, visit->backlog.last);
        return;
    }
    store->backlog.state = BACKLOG_STUCK;
    if (log_repeat_is_due(&store->backlog.logged, clock_now_us(&clock_system), &left_out))
        log_error("store cannot be brought up to date; trying again", kv("error", err->message),
                  kv("hint", err->hint), kv("repeated", left_out));
    journal_return_backlog(&store->journal, &visit->backlog.changes);
    if (!is_closing(store))
        timer_arm_in(&store->backlog.apply, APPLY_RETRY_US);
}

/* Tickets of a direct commit are flushed already, but wait behind earlier ones. */
static void commit_ended(struct sqlite_store *store, struct list *tickets, const struct error *err,
                         struct change_queue *lost)
{
    const struct error *reported = err->code == ERR_NONE ? &store->broken : err;

    store_transaction_ended(&store->base, err, lost);
    claims_end(&store->claims, err);
    if (reported->code == ERR_NONE)
        journal_hold_unsynced(&store->journal, tickets);
    store_tickets_complete(&store->base, tickets, reported);
    store_watches_tell(&store->base, err);
}

/* The pending changes become the commit. */
static void decide_claims(struct sqlite_store *store)
{
    claims_decide(&store->claims, clock_wall_us(loop_clock(store->base.loop)),
                  &store->pending.changes);
    store_watches_note(&store->base, &store->pending.changes);
}

static void shrink_soon(struct sqlite_store *store, enum shrink_need need)
{
    struct timer *timer = &store->upkeep.shrink;

    if (need == SHRINK_NO || is_closing(store))
        return;
    if (need == SHRINK_NOW || !timer_is_armed(timer))
        timer_arm_in(timer, need == SHRINK_NOW ? SHRINK_US : SHRINK_LATER_US);
}

static void visit_done(struct job *job)
{
    struct visit *visit = container_of(job, struct visit, job);
    struct sqlite_store *store = store_of(visit);
    struct change_queue lost = change_queue_take(&visit->direct.changes);
    struct asking *asking = visit->askings.first;
    struct error err = visit->direct.err;
    enum visit_kind kind = visit->kind;
    bool was_copying = store->checkpoint.tasks; /* then the rest has to be copied later */
    struct list tickets = LIST_INIT(tickets);

    assert(kind != VISIT_NONE);
    list_move_all(&visit->direct.tickets, &tickets);
    note_flush(store, visit->direct.flush_code);
    take_backlog(store, visit);
    visit->kind = VISIT_NONE;
    store->wal_pages = visit->after.wal_pages;
    checkpoint_if_due(store, kind == VISIT_REST && store->wal_pages > 0);
    if ((kind != VISIT_REST || was_copying) && !is_closing(store))
        timer_arm_in(&store->upkeep.rest, REST_US);
    shrink_soon(store, visit->after.shrink_need);
    if (kind == VISIT_DIRECT)
        commit_ended(store, &tickets, &err, &lost);
    deliver(store, asking);
    if (store->pending.urgent)
        flush_soon(store);
}

static struct askings take_askings(struct sqlite_store *store)
{
    struct askings askings = store->askings;

    store->askings = (struct askings){ 0 };
    return askings;
}

static void put_askings_back(struct sqlite_store *store, const struct askings *askings)
{
    if (!askings->first)
        return;
    askings->last->next = store->askings.first;
    if (!store->askings.last)
        store->askings.last = askings->last;
    store->askings.first = askings->first;
}

/* Puts from before a question are committed already, or are part of this visit. */
static struct visit *visit_fill(struct sqlite_store *store, enum visit_kind kind,
                                struct askings askings)
{
    struct visit *visit = &store->visit;

    assert(is_free(store));
    timer_stop(&store->backlog.apply);
    timer_stop(&store->upkeep.rest);
    if (journal_failure(&store->journal)->code != ERR_NONE)
        store->broken = *journal_failure(&store->journal);
    if (store->broken.code != ERR_NONE)
        store->db.broken = store->broken;
    visit->kind = kind;
    visit->now_wall_us = clock_wall_us(loop_clock(store->base.loop));
    visit->askings = askings;
    visit->backlog.changes = journal_take_backlog(&store->journal, &visit->backlog.last);
    visit->backlog.err = visit->direct.err = (struct error){ 0 };
    visit->direct.flush_code = SQLITE_OK;
    if (kind != VISIT_DIRECT)
        return visit;
    timer_stop(&store->pending.gather);
    decide_claims(store);
    visit->direct.changes = change_queue_take(&store->pending.changes);
    list_move_all(&store->pending.tickets, &visit->direct.tickets);
    store->pending.way = BY_JOURNAL;
    return visit;
}

static void visit_start(struct sqlite_store *store, enum visit_kind kind, struct askings askings)
{
    worker_submit(store->worker, &visit_fill(store, kind, askings)->job);
}

static void on_rest(struct timer *timer)
{
    struct sqlite_store *store = container_of(timer, struct sqlite_store, upkeep.rest);

    if (!is_closing(store) && is_free(store)) /* else the visit under way arms the timer again */
        visit_start(store, VISIT_REST, (struct askings){ 0 });
}

static void on_shrink(struct timer *timer)
{
    struct sqlite_store *store = container_of(timer, struct sqlite_store, upkeep.shrink);

    if (is_closing(store))
        return;
    if (is_free(store))
        visit_start(store, VISIT_SHRINK, (struct askings){ 0 });
    else
        timer_arm_in(timer, SHRINK_US);
}

/* --- the journal --------------------------------------------------------------------------- */

static struct sqlite_store *journal_store(struct journal *journal)
{
    return container_of(journal, struct sqlite_store, journal);
}

static void on_synced(struct journal *journal, struct list *tickets, const struct error *err)
{
    struct store *store = &journal_store(journal)->base;

    if (err->code != ERR_NONE)
        store_note_failure(store, err);
    store_tickets_complete(store, tickets, err);
}

static void start_applying(struct sqlite_store *store)
{
    if (is_closing(store) || !store->journal.backlog.changes.first)
        return;
    if (is_free(store))
        visit_start(store, VISIT_BACKLOG, (struct askings){ 0 });
    else
        timer_arm_in(&store->backlog.apply, APPLY_US);
}

static void on_apply(struct timer *timer)
{
    start_applying(container_of(timer, struct sqlite_store, backlog.apply));
}

static void apply_soon(struct sqlite_store *store)
{
    if (store->journal.backlog.bytes >= APPLY_BYTES && !is_visiting(store))
        start_applying(store);
    else if (!timer_is_armed(&store->backlog.apply))
        timer_arm_in(&store->backlog.apply, APPLY_US);
}

/* Changes that the log refuses are written directly to the database, which succeeds or reports the
 * cause. */
static void take_refused(struct sqlite_store *store, const struct journal_result *result)
{
    struct pending *pending = &store->pending;

    log_debug("store redo log cannot be written", kv("error", result->err->message));
    pending->way = DIRECTLY;
    store_watches_tell(&store->base, result->err); /* they are noted again */
    change_queue_join(result->refused, &pending->changes);
    pending->changes = change_queue_take(result->refused);
    list_move_all(&pending->tickets, result->tickets);
    list_move_all(result->tickets, &pending->tickets);
    flush_soon(store);
}

static void on_append_ended(struct journal *journal, const struct journal_result *result)
{
    struct sqlite_store *store = journal_store(journal);
    struct change_queue none = { 0 };

    if (result->in_thread)
        checkpoint_if_due(store, false);
    if (result->has_grown)
        apply_soon(store);
    if (result->err->code != ERR_NONE)
        take_refused(store, result);
    else
        commit_ended(store, result->tickets, result->err, &none);
    if (result->in_thread && store->pending.urgent)
        flush_soon(store);
}

static const struct journal_owner journal_owner = {
    .on_append_ended = on_append_ended,
    .on_synced = on_synced,
};

/* --- handing over -------------------------------------------------------------------------- */

/* Whether the file is not unlinked. A file that was moved is noticed by the next write. */
static bool has_a_name(const struct sqlite_store *store)
{
    struct stat info;

    return fstat(store->file, &info) == 0 && info.st_nlink > 0;
}

static bool has_to_be_direct(const struct sqlite_store *store)
{
    return store->backlog.state == BACKLOG_STUCK || store->pending.way != BY_JOURNAL ||
           store->journal.backlog.bytes > BACKLOG_MAXIMUM || store->broken.code != ERR_NONE ||
           journal_failure(&store->journal)->code != ERR_NONE || !has_a_name(store);
}

static bool something_is_pending(const struct sqlite_store *store)
{
    return store->pending.changes.first || !list_is_empty(&store->pending.tickets) ||
           claims_are_waiting(&store->claims);
}

static void append_pending(struct sqlite_store *store)
{
    timer_stop(&store->pending.gather);
    decide_claims(store);
    journal_append(&store->journal, &store->pending.changes, &store->pending.tickets);
}

/* Work that has to wait for the visit under way is handed over after it. Tickets complete in here:
 * puts and questions of their callbacks are for the next time. */
static void hand_over(struct sqlite_store *store)
{
    bool direct = something_is_pending(store) && has_to_be_direct(store);
    struct askings askings;

    if (is_visiting(store) && direct)
        return;
    store->pending.urgent = false;
    askings = take_askings(store);
    if (something_is_pending(store) && !direct)
        append_pending(store);
    if (!direct && !askings.first)
        return;
    if (!is_free(store) || (store->pending.way == DIRECTLY && !direct)) {
        put_askings_back(store, &askings);
        store->pending.urgent = true;
    } else {
        visit_start(store, direct ? VISIT_DIRECT : VISIT_BACKLOG, askings);
    }
}

static void on_end_of_turn(struct deferred *deferred)
{
    struct sqlite_store *store = container_of(deferred, struct sqlite_store, pending.at_end);

    if (store->pending.urgent && !is_closing(store) && store->journal.state == JOURNAL_IDLE &&
        store->visit.kind != VISIT_DIRECT)
        hand_over(store);
}

static void flush_soon(struct sqlite_store *store)
{
    store->pending.urgent = true;
    loop_defer_last(store->base.loop, &store->pending.at_end, on_end_of_turn);
}

static void on_gathered(struct timer *timer)
{
    flush_soon(container_of(timer, struct sqlite_store, pending.gather));
}

static void gather(struct sqlite_store *store)
{
    if (!store->pending.urgent && !timer_is_armed(&store->pending.gather))
        timer_arm_in(&store->pending.gather, GATHER_US);
}

static void sqlite_change(struct store *base, struct change *change)
{
    struct sqlite_store *store = sqlite_from(base);

    assert(!claims_have(&store->claims, change));
    change_queue_append(&store->pending.changes, change);
    gather(store);
}

static void sqlite_claim(struct store *base, struct store_claim *claim)
{
    struct sqlite_store *store = sqlite_from(base);

    claims_add(&store->claims, claim);
    flush_soon(store);
}

static void sqlite_commit(struct store *base, struct store_ticket *ticket)
{
    struct sqlite_store *store = sqlite_from(base);

    list_append(&store->pending.tickets, &ticket->node);
    if (ticket->grade == STORE_WRITTEN_LAZILY)
        gather(store);
    else
        flush_soon(store);
}

static void ask(struct store *base, struct store_query *query, enum store_table table,
                bool expired_only, int64_t now_wall_us)
{
    struct sqlite_store *store = sqlite_from(base);
    struct asking *asking = xnew(struct asking);

    asking->query = query;
    asking->question = (struct sqlite_question){
        .table = table,
        .filter = *query,
        .expired_only = expired_only,
        .now_wall_us = now_wall_us,
        .now_boot_us = loop_now_us(base->loop),
    };
    if (store->askings.last)
        store->askings.last->next = asking;
    else
        store->askings.first = asking;
    store->askings.last = asking;
    flush_soon(store);
}

static void sqlite_query(struct store *base, enum store_table table, struct store_query *query)
{
    ask(base, query, table, false, clock_wall_us(loop_clock(base->loop)));
}

static void sqlite_query_expired(struct store *base, int64_t now_wall_us, struct store_query *query)
{
    ask(base, query, STORE_SESSIONS, true, now_wall_us);
}

/* --- opening and closing ------------------------------------------------------------------- */

static bool something_is_left(const struct sqlite_store *store)
{
    return something_is_pending(store) || store->askings.first ||
           (store->journal.backlog.changes.first && store->backlog.state != BACKLOG_STUCK) ||
           journal_has_waiting(&store->journal);
}

/* The thread is gone: pending changes and questions, and those that callbacks add, are done
 * here. */
static void finish_here(struct sqlite_store *store)
{
    while (something_is_left(store)) {
        enum visit_kind kind = something_is_pending(store) ? VISIT_DIRECT : VISIT_BACKLOG;
        struct visit *visit = visit_fill(store, kind, take_askings(store));

        visit_run(&visit->job);
        visit_done(&visit->job);
        journal_finish_here(&store->journal);
    }
}

/* The redo log goes when the database has everything, on the disk, and knows that it goes. */
static void close_files(struct sqlite_store *store)
{
    struct error err = { 0 };
    bool complete = !store->journal.backlog.changes.first && store->broken.code == ERR_NONE &&
                    sqlite_db_note_log(&store->db, -1, store->flushes, &err) == 0;

    if (err.code != ERR_NONE)
        log_warn("the redo log stays, for the next start", kv("error", err.message));
    sqlite3_close(store->checkpoint.handle);
    sqlite_db_close(&store->db);
    fd_close(store->file);
    claims_fini(&store->claims);
    journal_close(&store->journal, complete);
}

static void sqlite_drain(struct store *base)
{
    struct sqlite_store *store = sqlite_from(base);
    struct worker *worker = steal_ptr(&store->worker);

    if (worker) {
        worker_free(store->checkpoint.worker);
        worker_free(worker);
        journal_stop(&store->journal);
    }
    finish_here(store);
}

static void sqlite_free(struct store *base)
{
    struct sqlite_store *store = sqlite_from(base);

    assert(is_closing(store) && is_free(store));
    timer_stop(&store->pending.gather);
    timer_stop(&store->backlog.apply);
    timer_stop(&store->upkeep.rest);
    timer_stop(&store->upkeep.shrink);
    loop_undefer(base->loop, &store->pending.at_end);
    close_files(store);
    store_fini(base);
    free(store);
}

static const struct store_ops sqlite_ops = {
    .name = "sqlite",
    .drain = sqlite_drain,
    .free = sqlite_free,
    .change = sqlite_change,
    .commit = sqlite_commit,
    .claim = sqlite_claim,
    .watch = store_watch_nothing,
    .query = sqlite_query,
    .query_expired = sqlite_query_expired,
};

static int open_log(struct sqlite_store *store, const struct store_options *options,
                    struct error *err)
{
    const struct redo_options log = { .path = options->path,
                                      .id = store->db.redo_id,
                                      .boot_id = options->boot_id,
                                      .last = store->db.redo_last,
                                      .flushes = str_equal(options->sync, "full"),
                                      .sync = store->flushes };

    if (journal_open(&store->journal, &log, err) < 0)
        return -1;
    return sqlite_db_note_log(&store->db, (int64_t)store->journal.redo.base, store->flushes, err);
}

static void on_claimed(void *context, const struct document_record *document)
{
    struct sqlite_store *store = context;

    claims_load(&store->claims, document);
}

static int open_files(struct sqlite_store *store, const struct store_options *options,
                      struct error *err)
{
    if (sqlite_db_open(&store->db, options, &store->base.load, err) < 0)
        return -1;
    store->file = open(options->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (store->file < 0)
        error_sys(err, "look at database %s", options->path);
    else if (sqlite_checkpointer_open(options->path, options->sync, &store->checkpoint.handle,
                                      err) == 0 &&
             sqlite_db_find_claimed(&store->db, on_claimed, store, err) == 0 &&
             open_log(store, options, err) == 0)
        return 0;
    journal_close(&store->journal, false);
    sqlite3_close(store->checkpoint.handle);
    fd_close(store->file);
    sqlite_db_close(&store->db);
    return -1;
}

static void start(struct sqlite_store *store, const struct store_options *options)
{
    struct loop *loop = options->loop;
    struct journal_options journal = {
        .loop = loop,
        .owner = &journal_owner,
        .syncs = str_equal(options->sync, "full"),
        .never_on_the_loop = options->never_on_the_loop,
    };

    timer_init(&store->pending.gather, loop, on_gathered);
    timer_init(&store->backlog.apply, loop, on_apply);
    timer_init(&store->upkeep.rest, loop, on_rest);
    timer_init(&store->upkeep.shrink, loop, on_shrink);
    store->worker = journal.worker = worker_new(loop, 1, "store");
    store->checkpoint.worker = worker_new(loop, 1, "store-ckpt");
    journal_start(&store->journal, &journal);
}

struct store *store_open_sqlite(const struct store_options *options, struct error *err)
{
    scoped(free) struct sqlite_store *store = xnew(struct sqlite_store);

    store_init(&store->base, &sqlite_ops, options);
    claims_init(&store->claims);
    list_init(&store->pending.tickets);
    list_init(&store->visit.direct.tickets);
    store->visit.job = (struct job){ .run = visit_run, .done = visit_done };
    store->checkpoint.job = (struct job){ .run = checkpoint_run, .done = checkpoint_done };
    store->checkpoint.db = &store->db;
    store->flushes = !str_equal(options->sync, "off");
    if (open_files(store, options, err) < 0) {
        claims_fini(&store->claims);
        store_fini(&store->base);
        error_wrap(err, "open the store");
        return NULL;
    }
    start(store, options);
    return &steal_ptr(&store)->base;
}
