#include "harness/fake_store.h"

#include "base/alloc.h"
#include "store/claims.h"
#include "store/memory/memory.h"
#include "store/record.h"
#include "store/watches.h"

#include <assert.h>
#include <stdlib.h>

struct fake_store {
    struct store base;
    struct store *memory; /* owned; what is committed */
    struct change_queue journal;
    struct claims claims;
    struct list tickets;
    struct deferred flush;
    enum error_code fail_next;
    bool held;
};

static struct fake_store *fake_from(struct store *store)
{
    return container_of(store, struct fake_store, base);
}

static void note_sequence(struct fake_store *fake, const struct change *change)
{
    const struct event_record *event = (const void *)change->record;

    if (change->table == STORE_EVENTS && !change->forget)
        fake->base.load.last_sequence = MAX(fake->base.load.last_sequence, event->sequence);
}

static void apply(struct fake_store *fake)
{
    struct change_queue changes = change_queue_take(&fake->journal);
    struct change *change;

    while ((change = changes.first)) {
        changes.first = change->next;
        note_sequence(fake, change);
        fake->memory->ops->change(fake->memory, change);
    }
}

static bool something_is_pending(const struct fake_store *fake)
{
    return fake->journal.first || !list_is_empty(&fake->tickets) ||
           claims_are_waiting(&fake->claims);
}

static void decide_claims(struct fake_store *fake)
{
    claims_decide(&fake->claims, clock_wall_us(loop_clock(fake->base.loop)), &fake->journal);
    store_watches_note(&fake->base, &fake->journal);
}

static void commit_all(struct fake_store *fake)
{
    struct list tickets = LIST_INIT(tickets);
    struct change_queue lost = { 0 };
    struct error err = { 0 };

    list_move_all(&fake->tickets, &tickets);
    decide_claims(fake);
    if (fake->fail_next != ERR_NONE) {
        error_set(&err, fake->fail_next, "commit failed, as the test asked");
        fake->fail_next = ERR_NONE;
        lost = change_queue_take(&fake->journal);
    } else {
        apply(fake);
    }
    store_transaction_ended(&fake->base, &err, &lost);
    claims_end(&fake->claims, &err);
    store_tickets_complete(&fake->base, &tickets, &err);
    store_watches_tell(&fake->base, &err);
}

static void on_flush(struct deferred *deferred)
{
    struct fake_store *fake = container_of(deferred, struct fake_store, flush);

    if (!fake->held && something_is_pending(fake))
        commit_all(fake);
}

static void fake_change(struct store *store, struct change *change)
{
    change_queue_append(&fake_from(store)->journal, change);
    loop_defer_last(store->loop, &fake_from(store)->flush, on_flush);
}

static void fake_commit(struct store *store, struct store_ticket *ticket)
{
    list_append(&fake_from(store)->tickets, &ticket->node);
    loop_defer_last(store->loop, &fake_from(store)->flush, on_flush);
}

static void fake_claim(struct store *store, struct store_claim *claim)
{
    claims_add(&fake_from(store)->claims, claim);
    loop_defer_last(store->loop, &fake_from(store)->flush, on_flush);
}

static void fake_query(struct store *store, enum store_table table, struct store_query *query)
{
    apply(fake_from(store));
    fake_from(store)->memory->ops->query(fake_from(store)->memory, table, query);
}

static void fake_query_expired(struct store *store, int64_t now_wall_us, struct store_query *query)
{
    apply(fake_from(store));
    fake_from(store)->memory->ops->query_expired(fake_from(store)->memory, now_wall_us, query);
}

static void fake_drain(struct store *store)
{
    struct fake_store *fake = fake_from(store);

    fake->held = false;
    do {
        store_drain(fake->memory);
        if (something_is_pending(fake))
            commit_all(fake);
    } while (something_is_pending(fake));
    store_drain(fake->memory);
}

static void fake_free(struct store *store)
{
    struct fake_store *fake = fake_from(store);

    fake_store_crash(store);
    store_close(fake->memory);
    claims_fini(&fake->claims);
    store_fini(store);
    free(fake);
}

static const struct store_ops fake_ops = {
    .name = "fake",
    .drain = fake_drain,
    .free = fake_free,
    .change = fake_change,
    .commit = fake_commit,
    .claim = fake_claim,
    .watch = store_watch_nothing,
    .query = fake_query,
    .query_expired = fake_query_expired,
};

/* It never fails. */
static void on_memory_lost(struct store *store, enum store_table table, const char *id)
{
    (void)store;
    (void)table;
    (void)id;
    abort();
}

struct store *fake_store_new(struct loop *loop)
{
    struct fake_store *fake = xnew(struct fake_store);

    store_init(&fake->base, &fake_ops, &(struct store_options){ .loop = loop });
    claims_init(&fake->claims);
    fake->base.load.same_boot = true;
    fake->memory = store_open_memory(&(struct store_options){ .loop = loop });
    fake->memory->on_lost = on_memory_lost;
    list_init(&fake->tickets);
    return &fake->base;
}

void fake_store_hold(struct store *store, bool held)
{
    fake_from(store)->held = held;
    loop_defer_last(store->loop, &fake_from(store)->flush, on_flush);
}

void fake_store_answer(struct store *store, enum store_grade grade, enum error_code code)
{
    struct fake_store *fake = fake_from(store);
    struct list tickets = LIST_INIT(tickets);
    struct store_ticket *ticket;
    struct store_ticket *following;
    struct error err = { 0 };

    assert(fake->held);
    list_for_each_safe (ticket, following, &fake->tickets, node) {
        if (ticket->grade != grade)
            continue;
        list_remove(&ticket->node);
        list_append(&tickets, &ticket->node);
    }
    if (code == ERR_NONE) {
        decide_claims(fake);
        apply(fake);
        claims_end(&fake->claims, &err);
    } else {
        error_set(&err, code, "commit failed, as the test asked");
    }
    store_tickets_complete(store, &tickets, &err);
}

unsigned fake_store_waiting(struct store *store, enum store_grade grade)
{
    const struct store_ticket *ticket;
    unsigned count = 0;

    list_for_each (ticket, &fake_from(store)->tickets, node)
        count += ticket->grade == grade;
    return count;
}

void fake_store_fail_next(struct store *store, enum error_code code)
{
    fake_from(store)->fail_next = code;
}

void fake_store_crash(struct store *store)
{
    struct fake_store *fake = fake_from(store);

    loop_undefer(store->loop, &fake->flush);
    change_queue_free(&fake->journal);
    claims_drop(&fake->claims);
    while (!list_is_empty(&fake->tickets))
        list_remove(fake->tickets.next);
    fake->held = false;
    fake->fail_next = ERR_NONE;
}

size_t fake_store_count(struct store *store, enum store_table table)
{
    return store_memory_count(fake_from(store)->memory, table);
}
