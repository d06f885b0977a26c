/*
 * The loop's side of the SQLite store.
 *
 * What is put waits in a queue until the end of the turn, then all of it is one frame of the redo
 * log (see redo.h): it is written. The changes stay in memory until they are brought into the
 * database, by a thread, a moment later and many commits together; of a record that has changed
 * several times only the last state is written there. Questions bring everything into the database
 * first.
 *
 * Some changes go directly into the database, behind everything that was committed before, and what
 * comes meanwhile waits for it: those that the database may refuse, and all while the log or the
 * database cannot be written.
 */

#include "base/alloc.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "loop/worker.h"
#include "store/sqlite/db.h"
#include "store/sqlite/keys.h"
#include "store/sqlite/redo.h"
#include "store/sqlite/syncer.h"

#include <assert.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum {
    CHECKPOINT_PAGES = 2000,
    /* The log is this long only if the daemon never rests; then the writer itself stops for it. */
    CHECKPOINT_PAGES_URGENT = 8 * CHECKPOINT_PAGES,
    GATHER_US = 2000,
    APPLY_US = 100 * 1000,
    APPLY_RETRY_US = 1000 * 1000,
    APPLY_BYTES = 256 * 1024,  /* of the redo log, at once */
    REST_US = 3 * 1000 * 1000, /* without a visit to the database: its cache is given back */
    SHRINK_US = 10 * 1000,     /* between two steps, for what waits meanwhile */
    SHRINK_LATER_US = 1000 * 1000,
    UNAPPLIED_MAXIMUM = 32 * 1024 * 1024,
    /* A write that takes this long is one of a disk that has too much to do: the thread waits for
     * the next ones instead of the loop. */
    SLOW_WRITE_US = 5 * 1000,
    SLOW_FOR_US = 1000 * 1000,
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

/* One visit to the database: what is not in it yet, what goes there directly, and questions. */
struct batch {
    struct job job;
    struct sqlite_store *store; /* borrowed */
    struct change_queue backlog;
    uint64_t backlog_last;    /* frame of the redo log */
    struct error backlog_err; /* why it is still there */
    struct change_queue changes;
    struct list tickets; /* for them */
    bool direct;         /* has changes or tickets */
    int flush_code;
    struct askings askings;
    bool rests;                   /* nothing else has happened for a while */
    bool shrinks;                 /* to make the file shorter */
    enum shrink_need shrink_need; /* afterwards */
    int64_t now_wall_us;
    int wal_pages; /* afterwards */
    struct error err;
};

/* One frame of the redo log. */
struct append {
    struct job job;
    struct change_queue changes;
    struct list tickets;
    struct error err;
};

struct checkpoint {
    struct job job;
    struct worker *worker;      /* owned */
    sqlite3 *handle;            /* owned */
    const struct sqlite_db *db; /* borrowed */
    bool running;
    bool flush;       /* the database on the disk, so that the redo log can be used anew */
    bool copy;        /* the write-ahead log into the database */
    uint64_t applied; /* the frame up to which it is flushed */
    int flush_code;
    int code;
    int reported; /* the last code that was logged */
};

struct sqlite_store {
    struct store base;
    struct worker *worker; /* owned; one thread, so jobs keep their order */
    struct sqlite_db db;   /* the worker's, once it runs */
    struct redo redo;      /* the loop's, or that of the append under way */
    struct change_queue pending;
    struct list tickets;
    struct askings askings;
    struct append append;
    struct change_queue unapplied; /* in the redo log, not in the database */
    size_t unapplied_bytes;
    uint64_t applied; /* the last frame that is in the database */
    uint64_t settled; /* and on the disk there */
    int wal_pages;    /* of the database, after the last visit */
    struct batch batch;
    bool busy;      /* the batch is under way */
    bool appending; /* the append is under way, in the thread */
    bool stuck;     /* the backlog could not be applied */
    bool urgent;    /* somebody waits for what is pending, or it has gathered for long enough */
    struct keys keys;
    bool may_be_refused; /* what is pending */
    bool redo_failed;    /* what is pending could not be written to the redo log */
    bool flushes;        /* `sync` is not off */
    bool closing;
    int64_t slow_until_us;
    struct error broken; /* a flush has failed */
    struct log_repeat stuck_logged;
    int file; /* owned; the database, only to be looked at */
    struct deferred flush;
    struct timer gather;
    struct timer apply;
    struct timer rest;
    struct timer shrink;
    struct checkpoint checkpoint;
    struct syncer syncer;
};

static const struct store_ops sqlite_ops;
static void flush_soon(struct sqlite_store *store);

static struct sqlite_store *sqlite_from(struct store *store)
{
    assert(store->ops == &sqlite_ops);
    return container_of(store, struct sqlite_store, base);
}

/* --- checkpoints --------------------------------------------------------------------------- */

static void checkpoint_run(struct job *job)
{
    struct checkpoint *checkpoint = container_of(job, struct checkpoint, job);

    if (checkpoint->flush)
        checkpoint->flush_code = sqlite_db_flush(checkpoint->db);
    if (checkpoint->copy)
        checkpoint->code = sqlite3_wal_checkpoint_v2(checkpoint->handle, NULL,
                                                     SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
}

static void note_flush(struct sqlite_store *store, int code)
{
    if (code != SQLITE_OK && store->broken.code == ERR_NONE)
        error_named(&store->broken, ERR_INTERNAL, "store_failed",
                    "the database could not be flushed to the disk: %s", sqlite3_errstr(code));
}

/* Nothing is lost when it fails: the log grows until the next one succeeds. It is busy when the
 * writer makes an urgent one. */
static void checkpoint_done(struct job *job)
{
    struct checkpoint *checkpoint = container_of(job, struct checkpoint, job);
    struct sqlite_store *store = container_of(checkpoint, struct sqlite_store, checkpoint);

    checkpoint->running = false;
    if (checkpoint->copy)
        store->wal_pages = 0; /* not again before the next visit */
    if (checkpoint->flush) {
        note_flush(store, checkpoint->flush_code);
        if (checkpoint->flush_code == SQLITE_OK)
            store->settled = checkpoint->applied;
    }
    if (checkpoint->code != SQLITE_OK && checkpoint->code != SQLITE_BUSY &&
        checkpoint->code != checkpoint->reported)
        log_warn("store checkpoint failed; continuing without it",
                 kv("error", sqlite3_errstr(checkpoint->code)));
    checkpoint->reported = checkpoint->code;
}

/* While the redo log is written by the thread it is not to be looked at: when that is done. */
static void checkpoint_if_due(struct sqlite_store *store, bool rests)
{
    struct checkpoint *checkpoint = &store->checkpoint;

    if (!store->flushes)
        store->settled = store->applied;
    if (checkpoint->running || store->closing || store->appending)
        return;
    checkpoint->copy = rests || store->wal_pages >= CHECKPOINT_PAGES;
    checkpoint->flush = store->flushes && redo_is_long(&store->redo, store->settled);
    checkpoint->applied = store->applied;
    if (!checkpoint->copy && !checkpoint->flush)
        return;
    checkpoint->running = true;
    worker_submit(checkpoint->worker, &checkpoint->job);
}

/* --- a visit to the database --------------------------------------------------------------- */

static void run_askings(struct batch *batch)
{
    struct sqlite_db *db = &batch->store->db;
    struct error err = { 0 };
    bool pretending = batch->backlog.first && batch->askings.first;

    /* What was committed is seen, even while the database cannot be written. */
    if (pretending && sqlite_db_pretend(db, &batch->backlog, batch->now_wall_us, &err) < 0)
        pretending = false;
    for (struct asking *asking = batch->askings.first; asking; asking = asking->next) {
        if (err.code != ERR_NONE)
            asking->question.err = err;
        else
            sqlite_db_ask(db, &asking->question);
    }
    if (pretending)
        sqlite_db_take_back(db);
}

static void write_changes(struct batch *batch)
{
    struct sqlite_db *db = &batch->store->db;

    if (!batch->changes.first)
        return;
    if (batch->backlog.first) {
        batch->err = batch->backlog_err;
        return;
    }
    if (sqlite_db_write(db, &batch->changes, batch->now_wall_us, &batch->err) < 0)
        return;
    change_queue_free(&batch->changes);
    /* Frames that follow may come to the disk before it, and would be all that is left then. */
    if (batch->store->flushes)
        batch->flush_code = sqlite_db_flush(db);
}

/* A burst leaves megabytes of pages, and holes in the heap behind what it has freed. */
static void give_memory_back(const struct sqlite_db *db)
{
    (void)sqlite3_db_release_memory(db->handle);
    (void)malloc_trim(0);
}

static void batch_run(struct job *job)
{
    struct batch *batch = container_of(job, struct batch, job);
    struct sqlite_db *db = &batch->store->db;

    bool writes = batch->backlog.first || batch->changes.first;

    if (batch->backlog.first && sqlite_db_apply(db, &batch->backlog, batch->backlog_last,
                                                batch->now_wall_us, &batch->backlog_err) == 0)
        change_queue_free(&batch->backlog);
    write_changes(batch);
    run_askings(batch);
    if (db->wal_pages > CHECKPOINT_PAGES_URGENT)
        (void)sqlite3_wal_checkpoint_v2(db->handle, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
    batch->wal_pages = db->wal_pages;
    batch->shrink_need = batch->shrinks ? sqlite_db_shrink(db)
                         : writes       ? sqlite_db_shrink_need(db)
                                        : SHRINK_NO;
    if (batch->rests)
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

/* What could not be applied stays in front; it is in the redo log, and tried again. */
static void take_backlog(struct sqlite_store *store, struct batch *batch)
{
    uint64_t left_out;

    store->stuck = batch->backlog.first != NULL;
    if (!store->stuck) {
        store->applied = MAX(store->applied, batch->backlog_last);
        return;
    }
    if (log_repeat_is_due(&store->stuck_logged, clock_now_us(&clock_system), &left_out))
        log_error("store cannot be brought up to date; trying again",
                  kv("error", batch->backlog_err.message), kv("hint", batch->backlog_err.hint),
                  kv("repeated", left_out));
    change_queue_join(&batch->backlog, &store->unapplied);
    store->unapplied = change_queue_take(&batch->backlog);
    if (!store->closing)
        timer_arm_in(&store->apply, APPLY_RETRY_US);
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

/* Those of a direct one have been flushed, and still wait for their turn behind earlier ones. */
static void commit_ended(struct sqlite_store *store, struct list *tickets, const struct error *err,
                         struct change_queue *lost)
{
    const struct error *told = err->code == ERR_NONE ? &store->broken : err;
    struct list unsynced = LIST_INIT(unsynced);

    if (told->code == ERR_NONE) {
        take_unsynced(tickets, &unsynced);
        syncer_add(&store->syncer, &unsynced);
    }
    store->keys.unknown = store->keys.unknown || err->code != ERR_NONE;
    store_transaction_ended(&store->base, err, lost);
    store_tickets_complete(&store->base, tickets, told);
}

static void shrink_soon(struct sqlite_store *store, enum shrink_need need)
{
    if (need == SHRINK_NO || store->closing)
        return;
    if (need == SHRINK_NOW || !timer_is_armed(&store->shrink))
        timer_arm_in(&store->shrink, need == SHRINK_NOW ? SHRINK_US : SHRINK_LATER_US);
}

static void batch_done(struct job *job)
{
    struct batch *batch = container_of(job, struct batch, job);
    struct sqlite_store *store = batch->store;
    struct change_queue lost = change_queue_take(&batch->changes);
    struct asking *asking = batch->askings.first;
    struct error err = batch->err;
    bool direct = batch->direct;
    bool was_copying = store->checkpoint.running; /* then the rest has to be copied later */
    struct list tickets = LIST_INIT(tickets);

    list_move_all(&batch->tickets, &tickets);
    note_flush(store, batch->flush_code);
    take_backlog(store, batch);
    store->busy = false;
    store->wal_pages = batch->wal_pages;
    checkpoint_if_due(store, batch->rests && batch->wal_pages > 0);
    if ((!batch->rests || was_copying) && !store->closing)
        timer_arm_in(&store->rest, REST_US);
    shrink_soon(store, batch->shrink_need);
    if (direct)
        commit_ended(store, &tickets, &err, &lost);
    deliver(store, asking);
    if (store->urgent)
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

/* What was put before one of the questions is committed already, or goes with them. */
static struct batch *batch_fill(struct sqlite_store *store, bool direct, struct askings askings)
{
    struct batch *batch = &store->batch;

    store->busy = true;
    timer_stop(&store->apply);
    timer_stop(&store->rest);
    if (store->syncer.failure.code != ERR_NONE)
        store->broken = store->syncer.failure;
    if (store->broken.code != ERR_NONE)
        store->db.broken = store->broken;
    batch->backlog = change_queue_take(&store->unapplied);
    batch->backlog_last = store->redo.last;
    batch->backlog_err = batch->err = (struct error){ 0 };
    change_queue_fold(&batch->backlog);
    store->unapplied_bytes = 0;
    batch->direct = direct;
    batch->rests = batch->shrinks = false;
    batch->flush_code = SQLITE_OK;
    batch->now_wall_us = clock_wall_us(loop_clock(store->base.loop));
    batch->askings = askings;
    if (!direct)
        return batch;
    timer_stop(&store->gather);
    batch->changes = change_queue_take(&store->pending);
    list_move_all(&store->tickets, &batch->tickets);
    store->redo_failed = store->may_be_refused = false;
    return batch;
}

static void on_rest(struct timer *timer)
{
    struct sqlite_store *store = container_of(timer, struct sqlite_store, rest);
    struct batch *batch;

    if (store->closing || store->busy || store->appending)
        return; /* what it does sets the clock again */
    batch = batch_fill(store, false, (struct askings){ 0 });
    batch->rests = true;
    worker_submit(store->worker, &batch->job);
}

static void on_shrink(struct timer *timer)
{
    struct sqlite_store *store = container_of(timer, struct sqlite_store, shrink);
    struct batch *batch;

    if (store->closing)
        return;
    if (store->busy || store->appending) {
        timer_arm_in(&store->shrink, SHRINK_US);
        return;
    }
    batch = batch_fill(store, false, (struct askings){ 0 });
    batch->shrinks = true;
    worker_submit(store->worker, &batch->job);
}

/* --- the redo log -------------------------------------------------------------------------- */

static void on_synced(struct syncer *syncer, struct list *tickets, const struct error *err)
{
    struct sqlite_store *store = container_of(syncer, struct sqlite_store, syncer);

    store_tickets_complete(&store->base, tickets, err);
}

static void start_applying(struct sqlite_store *store)
{
    if (store->closing || !store->unapplied.first)
        return;
    if (store->busy || store->appending)
        timer_arm_in(&store->apply, APPLY_US);
    else
        worker_submit(store->worker, &batch_fill(store, false, (struct askings){ 0 })->job);
}

static void on_apply(struct timer *timer)
{
    start_applying(container_of(timer, struct sqlite_store, apply));
}

static void apply_soon(struct sqlite_store *store)
{
    if (store->unapplied_bytes >= APPLY_BYTES && !store->busy)
        start_applying(store);
    else if (!timer_is_armed(&store->apply))
        timer_arm_in(&store->apply, APPLY_US);
}

static void append_run(struct job *job)
{
    struct append *append = container_of(job, struct append, job);
    struct sqlite_store *store = container_of(append, struct sqlite_store, append);

    if (append->changes.first)
        (void)redo_append(&store->redo, &append->changes, &append->err);
}

/* What the log does not take goes directly into the database: that says what is wrong, or does it.
 */
static void take_back(struct sqlite_store *store)
{
    struct append *append = &store->append;

    log_debug("store redo log cannot be written", kv("error", append->err.message));
    store->redo_failed = true;
    change_queue_join(&append->changes, &store->pending);
    store->pending = change_queue_take(&append->changes);
    list_move_all(&store->tickets, &append->tickets);
    list_move_all(&append->tickets, &store->tickets);
    flush_soon(store);
}

static void append_ended(struct sqlite_store *store)
{
    struct append *append = &store->append;
    struct list tickets = LIST_INIT(tickets);
    struct change_queue none = { 0 };

    if (append->err.code != ERR_NONE) {
        take_back(store);
        return;
    }
    list_move_all(&append->tickets, &tickets);
    if (append->changes.first) {
        redo_note_appended(&store->redo);
        store->unapplied_bytes += store->redo.frame.length;
        change_queue_join(&store->unapplied, &append->changes);
        apply_soon(store);
    }
    commit_ended(store, &tickets, &append->err, &none);
}

static void append_done(struct job *job)
{
    struct append *append = container_of(job, struct append, job);
    struct sqlite_store *store = container_of(append, struct sqlite_store, append);

    store->appending = false;
    checkpoint_if_due(store, false);
    append_ended(store);
    if (store->urgent)
        flush_soon(store);
}

/* How often this thread has waited. One that only lacked a processor has not. */
static long count_waits(void)
{
    struct rusage usage = { 0 };

    (void)getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void append_here(struct sqlite_store *store)
{
    int64_t began_us = clock_now_us(&clock_system);
    long waits = count_waits();
    int64_t ended_us;

    append_run(&store->append.job);
    ended_us = clock_now_us(&clock_system);
    if (ended_us - began_us > SLOW_WRITE_US && count_waits() != waits)
        store->slow_until_us = ended_us + SLOW_FOR_US;
    append_ended(store);
}

static bool disk_is_slow(const struct sqlite_store *store)
{
    return store->slow_until_us && clock_now_us(&clock_system) < store->slow_until_us;
}

static void append(struct sqlite_store *store)
{
    struct append *append = &store->append;

    timer_stop(&store->gather);
    append->changes = change_queue_take(&store->pending);
    append->err = (struct error){ 0 };
    list_move_all(&store->tickets, &append->tickets);
    redo_will_append(&store->redo, store->settled);
    store->appending = disk_is_slow(store);
    if (store->appending)
        worker_submit(store->worker, &append->job);
    else
        append_here(store);
}

/* --- handing over -------------------------------------------------------------------------- */

/* That it was moved is noticed when it is written. */
static bool has_a_name(const struct sqlite_store *store)
{
    struct stat info;

    return fstat(store->file, &info) == 0 && info.st_nlink > 0;
}

static bool has_to_be_direct(const struct sqlite_store *store)
{
    return store->stuck || store->redo_failed || store->may_be_refused ||
           store->unapplied_bytes > UNAPPLIED_MAXIMUM || store->broken.code != ERR_NONE ||
           store->syncer.failure.code != ERR_NONE || !has_a_name(store);
}

static bool something_is_pending(const struct sqlite_store *store)
{
    return store->pending.first || !list_is_empty(&store->tickets);
}

/* What cannot go now, because something is under way, goes when that is done. Tickets complete in
 * here: what their callbacks put and ask is for the next time. */
static void hand_over(struct sqlite_store *store)
{
    bool direct = something_is_pending(store) && has_to_be_direct(store);
    struct askings askings;

    if (store->busy && direct)
        return;
    store->urgent = false;
    askings = take_askings(store);
    if (something_is_pending(store) && !direct)
        append(store);
    if (!direct && !askings.first)
        return;
    if (store->busy || store->appending || (store->redo_failed && !direct)) {
        put_askings_back(store, &askings);
        store->urgent = true;
    } else {
        worker_submit(store->worker, &batch_fill(store, direct, askings)->job);
    }
}

static void on_end_of_turn(struct deferred *deferred)
{
    struct sqlite_store *store = container_of(deferred, struct sqlite_store, flush);

    if (store->urgent && !store->closing && !store->appending &&
        !(store->busy && store->batch.direct))
        hand_over(store);
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

    store->may_be_refused = keys_note(&store->keys, change) || store->may_be_refused;
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

/* The thread is gone: what is still pending, and what its callbacks add, is done here. */
static void finish_here(struct sqlite_store *store)
{
    while (something_is_pending(store) || store->askings.first ||
           (store->unapplied.first && !store->stuck) || !list_is_empty(&store->syncer.waiting)) {
        struct batch *batch = batch_fill(store, something_is_pending(store), take_askings(store));

        batch_run(&batch->job);
        batch_done(&batch->job);
        syncer_finish_here(&store->syncer);
    }
}

/* The redo log goes when the database has everything, on the disk, and knows that it goes. */
static void close_files(struct sqlite_store *store)
{
    struct error err = { 0 };
    bool complete = !store->unapplied.first && store->broken.code == ERR_NONE &&
                    sqlite_db_note_log(&store->db, -1, store->flushes, &err) == 0;

    if (err.code != ERR_NONE)
        log_warn("the redo log stays, for the next start", kv("error", err.message));
    sqlite3_close(store->checkpoint.handle);
    sqlite_db_close(&store->db);
    fd_close(store->file);
    keys_fini(&store->keys);
    redo_close(&store->redo, complete);
    change_queue_free(&store->unapplied);
}

static void sqlite_drain(struct store *base)
{
    struct sqlite_store *store = sqlite_from(base);

    if (!store->closing) {
        store->closing = true;
        worker_free(store->checkpoint.worker);
        worker_free(store->worker);
        syncer_stop(&store->syncer);
    }
    finish_here(store);
}

static void sqlite_free(struct store *base)
{
    struct sqlite_store *store = sqlite_from(base);

    timer_stop(&store->gather);
    timer_stop(&store->apply);
    timer_stop(&store->rest);
    timer_stop(&store->shrink);
    loop_undefer(base->loop, &store->flush);
    close_files(store);
    free(store);
}

static const struct store_ops sqlite_ops = {
    .name = "sqlite",
    .drain = sqlite_drain,
    .free = sqlite_free,
    .change = sqlite_change,
    .commit = sqlite_commit,
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

    if (redo_open(&store->redo, &log, err) < 0)
        return -1;
    return sqlite_db_note_log(&store->db, (int64_t)store->redo.base, store->flushes, err);
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
             open_log(store, options, err) == 0)
        return 0;
    redo_close(&store->redo, false);
    sqlite3_close(store->checkpoint.handle);
    fd_close(store->file);
    sqlite_db_close(&store->db);
    return -1;
}

static void start(struct sqlite_store *store, const struct store_options *options)
{
    struct loop *loop = options->loop;

    store->applied = store->settled = store->db.redo_last;
    keys_load(&store->keys, store->db.handle);
    store->slow_until_us = options->never_on_the_loop ? INT64_MAX : 0;
    timer_init(&store->gather, loop, on_gathered);
    timer_init(&store->apply, loop, on_apply);
    timer_init(&store->rest, loop, on_rest);
    timer_init(&store->shrink, loop, on_shrink);
    syncer_open(&store->syncer, loop, &store->redo, str_equal(options->sync, "full"), on_synced);
    store->worker = worker_new(loop, 1, "store");
    store->checkpoint.worker = worker_new(loop, 1, "store-ckpt");
}

struct store *store_open_sqlite(const struct store_options *options, struct error *err)
{
    scoped(free) struct sqlite_store *store = xnew(struct sqlite_store);

    store->base = (struct store){ .ops = &sqlite_ops, .loop = options->loop };
    list_init(&store->tickets);
    list_init(&store->append.tickets);
    list_init(&store->batch.tickets);
    store->batch.store = store;
    store->batch.job = (struct job){ .run = batch_run, .done = batch_done };
    store->append.job = (struct job){ .run = append_run, .done = append_done };
    store->checkpoint.job = (struct job){ .run = checkpoint_run, .done = checkpoint_done };
    store->checkpoint.db = &store->db;
    store->flushes = !str_equal(options->sync, "off");
    if (open_files(store, options, err) < 0) {
        error_wrap(err, "open the store");
        return NULL;
    }
    start(store, options);
    return &steal_ptr(&store)->base;
}
