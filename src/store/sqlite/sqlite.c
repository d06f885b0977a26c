/*
 * The loop's side of the SQLite store: a queue of changes, one batch at a time under way.
 *
 * While a batch is being written, everything new waits in the queue, and all of it is the next
 * batch: the busier the daemon, the more requests share one commit. The thread is woken once for
 * each batch. Changes that nobody waits for gather for a moment, so that the several that one
 * request makes do not wake it several times.
 */

#include "base/alloc.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "loop/worker.h"
#include "store/sqlite/db.h"
#include "store/sqlite/syncer.h"

#include <assert.h>
#include <string.h>

enum {
    CHECKPOINT_PAGES = 2000,
    /* The log is this long only if the daemon never rests; then the writer itself stops for it. */
    CHECKPOINT_PAGES_URGENT = 8 * CHECKPOINT_PAGES,
    GATHER_US = 2000,
};

struct batch {
    struct job job;
    struct sqlite_store *store; /* borrowed */
    struct change_queue changes;
    struct list tickets;
    int64_t now_wall_us;
    int wal_pages; /* afterwards */
    struct error err;
};

struct asking {
    struct job job;
    struct asking *next;
    struct sqlite_store *store; /* borrowed */
    struct store_query *query;  /* borrowed */
    struct sqlite_question question;
};

struct checkpoint {
    struct job job;
    struct worker *worker; /* owned */
    sqlite3 *handle;       /* owned */
    bool running;
    int code;
    int reported; /* the last code that was logged */
};

struct sqlite_store {
    struct store base;
    struct worker *worker; /* owned; one thread, so jobs keep their order */
    struct sqlite_db db;   /* the worker's, once it runs */
    struct change_queue pending;
    struct list tickets;
    struct asking *askings; /* owned */
    struct asking **askings_end;
    struct batch batch;
    bool writing; /* the batch is under way */
    bool urgent;  /* somebody waits for what is pending, or it has gathered for long enough */
    bool closing;
    struct deferred flush;
    struct timer gather;
    struct checkpoint checkpoint;
    struct syncer syncer;
};

static const struct store_ops sqlite_ops;
static void flush(struct sqlite_store *store);

static struct sqlite_store *sqlite_from(struct store *store)
{
    assert(store->ops == &sqlite_ops);
    return container_of(store, struct sqlite_store, base);
}

/* --- checkpoints --------------------------------------------------------------------------- */

static void checkpoint_run(struct job *job)
{
    struct checkpoint *checkpoint = container_of(job, struct checkpoint, job);

    checkpoint->code =
        sqlite3_wal_checkpoint_v2(checkpoint->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

/* Nothing is lost when it fails: the log grows until the next one succeeds. It is busy when the
 * writer makes an urgent one. */
static void checkpoint_done(struct job *job)
{
    struct checkpoint *checkpoint = container_of(job, struct checkpoint, job);

    checkpoint->running = false;
    if (checkpoint->code != SQLITE_OK && checkpoint->code != SQLITE_BUSY &&
        checkpoint->code != checkpoint->reported)
        log_warn("store checkpoint failed; continuing without it",
                 kv("error", sqlite3_errstr(checkpoint->code)));
    checkpoint->reported = checkpoint->code;
}

static void checkpoint_if_due(struct sqlite_store *store, int wal_pages)
{
    if (wal_pages < CHECKPOINT_PAGES || store->checkpoint.running || store->closing)
        return;
    store->checkpoint.running = true;
    worker_submit(store->checkpoint.worker, &store->checkpoint.job);
}

/* --- batches ------------------------------------------------------------------------------- */

static void batch_run(struct job *job)
{
    struct batch *batch = container_of(job, struct batch, job);
    struct sqlite_db *db = &batch->store->db;

    if (!batch->changes.first)
        return;
    if (sqlite_db_write(db, &batch->changes, batch->now_wall_us, &batch->err) < 0)
        return;
    change_queue_free(&batch->changes);
    batch->wal_pages = db->wal_pages;
    if (db->wal_pages > CHECKPOINT_PAGES_URGENT)
        (void)sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
}

static void take_unsynced(struct list *tickets, struct list *unsynced)
{
    struct store_ticket *ticket, *following;

    list_for_each_safe (ticket, following, tickets, node) {
        if (ticket->grade != STORE_SYNCED)
            continue;
        list_remove(&ticket->node);
        list_append(unsynced, &ticket->node);
    }
}

static void batch_done(struct job *job)
{
    struct batch *batch = container_of(job, struct batch, job);
    struct sqlite_store *store = batch->store;
    struct change_queue lost = change_queue_take(&batch->changes);
    struct error err = batch->err;
    int wal_pages = batch->wal_pages;
    struct list tickets = LIST_INIT(tickets);
    struct list unsynced = LIST_INIT(unsynced);

    list_move_all(&batch->tickets, &tickets);
    store->writing = false;
    /* The threads go on with what is next while callers hear about this. */
    flush(store);
    if (err.code == ERR_NONE) {
        take_unsynced(&tickets, &unsynced);
        syncer_add(&store->syncer, &unsynced);
    }
    checkpoint_if_due(store, wal_pages);
    store_transaction_ended(&store->base, &err, &lost);
    store_tickets_complete(&store->base, &tickets, &err);
}

static void on_synced(struct syncer *syncer, struct list *tickets, const struct error *err)
{
    struct sqlite_store *store = container_of(syncer, struct sqlite_store, syncer);

    store_tickets_complete(&store->base, tickets, err);
}

static bool batch_is_wanted(const struct sqlite_store *store)
{
    return store->pending.first || !list_is_empty(&store->tickets);
}

static struct batch *batch_fill(struct sqlite_store *store)
{
    struct batch *batch = &store->batch;

    store->writing = true;
    timer_stop(&store->gather);
    if (store->syncer.failure.code != ERR_NONE)
        store->db.broken = store->syncer.failure;
    batch->changes = change_queue_take(&store->pending);
    batch->err = (struct error){ 0 };
    batch->now_wall_us = clock_wall_us(loop_clock(store->base.loop));
    list_move_all(&store->tickets, &batch->tickets);
    return batch;
}

/* --- queries ------------------------------------------------------------------------------- */

static void asking_run(struct job *job)
{
    struct asking *asking = container_of(job, struct asking, job);

    sqlite_db_ask(&asking->store->db, &asking->question);
}

static void asking_done(struct job *job)
{
    struct asking *asking = container_of(job, struct asking, job);
    struct store_query *query = asking->query;

    asking->store->base.load.damaged += asking->question.damaged;
    for (struct found *found = asking->question.first; found; found = found->next)
        record_deliver(asking->question.table, query, found->record);
    found_free(asking->question.first);
    query->err = asking->question.err;
    free(asking);
    query->done(query);
}

static struct asking *take_askings(struct sqlite_store *store)
{
    struct asking *first = store->askings;

    store->askings = NULL;
    store->askings_end = &store->askings;
    return first;
}

/* --- handing over -------------------------------------------------------------------------- */

/* What cannot go now, because a batch is under way, goes when that is done. */
static void flush(struct sqlite_store *store)
{
    struct asking *asking;

    if (store->closing || !store->urgent || (store->writing && batch_is_wanted(store)))
        return;
    store->urgent = false;
    if (batch_is_wanted(store))
        worker_submit(store->worker, &batch_fill(store)->job);
    asking = take_askings(store);
    while (asking) {
        struct asking *next = asking->next;

        worker_submit(store->worker, &asking->job);
        asking = next;
    }
}

static void on_end_of_turn(struct deferred *deferred)
{
    flush(container_of(deferred, struct sqlite_store, flush));
}

static void flush_soon(struct sqlite_store *store)
{
    store->urgent = true;
    loop_defer_last(store->base.loop, &store->flush, on_end_of_turn);
}

static void on_gathered(struct timer *timer)
{
    flush_soon(container_of(timer, struct sqlite_store, gather));
}

static void gather(struct sqlite_store *store)
{
    if (!store->urgent && !timer_is_armed(&store->gather))
        timer_arm_in(&store->gather, GATHER_US);
}

static void sqlite_change(struct store *base, struct change *change)
{
    struct sqlite_store *store = sqlite_from(base);

    change_queue_append(&store->pending, change);
    gather(store);
}

static void sqlite_commit(struct store *base, struct store_ticket *ticket)
{
    struct sqlite_store *store = sqlite_from(base);

    list_append(&store->tickets, &ticket->node);
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

    asking->job = (struct job){ .run = asking_run, .done = asking_done };
    asking->store = store;
    asking->query = query;
    asking->question = (struct sqlite_question){
        .table = table,
        .filter = *query,
        .expired_only = expired_only,
        .now_wall_us = now_wall_us,
        .now_boot_us = loop_now_us(base->loop),
    };
    *store->askings_end = asking;
    store->askings_end = &asking->next;
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

/* The thread is gone: what is still pending, and what its callbacks add, is done here. */
static void finish_here(struct sqlite_store *store)
{
    while (batch_is_wanted(store) || store->askings || !list_is_empty(&store->syncer.waiting)) {
        struct asking *asking;

        if (batch_is_wanted(store)) {
            struct batch *batch = batch_fill(store);

            batch_run(&batch->job);
            batch_done(&batch->job);
        }
        syncer_finish_here(&store->syncer);
        asking = take_askings(store);
        while (asking) {
            struct asking *next = asking->next;

            asking_run(&asking->job);
            asking_done(&asking->job);
            asking = next;
        }
    }
}

static void sqlite_free(struct store *base)
{
    struct sqlite_store *store = sqlite_from(base);

    store->closing = true;
    worker_free(store->checkpoint.worker);
    worker_free(store->worker);
    syncer_stop(&store->syncer);
    finish_here(store);
    timer_stop(&store->gather);
    loop_undefer(base->loop, &store->flush);
    sqlite3_close(store->checkpoint.handle);
    sqlite_db_close(&store->db);
    free(store);
}

static const struct store_ops sqlite_ops = {
    .name = "sqlite",
    .free = sqlite_free,
    .change = sqlite_change,
    .commit = sqlite_commit,
    .query = sqlite_query,
    .query_expired = sqlite_query_expired,
};

static int open_both(struct sqlite_store *store, const struct store_options *options,
                     struct error *err)
{
    if (sqlite_db_open(&store->db, options, &store->base.load, err) < 0)
        return -1;
    if (sqlite_checkpointer_open(options->path, options->sync, &store->checkpoint.handle, err) <
        0) {
        sqlite_db_close(&store->db);
        return -1;
    }
    return 0;
}

struct store *store_open_sqlite(const struct store_options *options, struct error *err)
{
    scoped(free) struct sqlite_store *store = xnew(struct sqlite_store);

    store->base = (struct store){ .ops = &sqlite_ops, .loop = options->loop };
    list_init(&store->tickets);
    list_init(&store->batch.tickets);
    store->askings_end = &store->askings;
    store->batch.store = store;
    store->batch.job = (struct job){ .run = batch_run, .done = batch_done };
    store->checkpoint.job = (struct job){ .run = checkpoint_run, .done = checkpoint_done };
    if (open_both(store, options, err) < 0) {
        error_wrap(err, "open the store");
        return NULL;
    }
    timer_init(&store->gather, options->loop, on_gathered);
    syncer_open(&store->syncer, options->loop, store->db.log, str_equal(options->sync, "full"),
                on_synced);
    store->worker = worker_new(options->loop, 1, "store");
    store->checkpoint.worker = worker_new(options->loop, 1, "store-ckpt");
    return &steal_ptr(&store)->base;
}
