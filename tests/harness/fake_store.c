/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/fake_store.h"

#include "base/alloc.h"
#include "store/claims.h"
#include "store/memory/memory.h"
#include "store/record.h"
#include "store/watches.h"

#include <assert.h>
#include <stdlib.h>

/* What nodes share. */
struct fake_server {
    struct store *memory; /* owned; what is committed */
    struct claims claims;
    struct list nodes; /* struct fake_store */
};

enum { QUERIES_MAXIMUM = 64 };

struct waiting_query {
    enum store_table table;
    struct store_query *query; /* borrowed */
};

struct fake_store {
    struct store base;
    struct list node;
    struct fake_server *server; /* owned by all nodes together */
    struct store *memory;       /* borrowed: of the server */
    struct change_queue journal;
    struct list claims; /* struct store_claim: not decided yet */
    struct list tickets;
    struct deferred flush;
    enum error_code fail_next;
    bool held, queries_held;
    struct waiting_query queries[QUERIES_MAXIMUM];
    unsigned query_count;
};

static void on_flush(struct deferred *deferred);

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
    return fake->journal.first || !list_is_empty(&fake->tickets) || !list_is_empty(&fake->claims);
}

static void decide_claims(struct fake_store *fake)
{
    struct store_claim *claim;

    while ((claim = list_first(&fake->claims, struct store_claim, node))) {
        list_remove(&claim->node);
        claims_add(&fake->server->claims, claim);
    }
    claims_decide(&fake->server->claims, clock_wall_us(loop_clock(fake->base.loop)),
                  &fake->journal);
    store_watches_note(&fake->base, &fake->journal);
}

/* As a server does: the nodes that watch are told soon. */
static void note_for_others(struct fake_store *fake, bool is_written)
{
    struct fake_store *other;

    list_for_each (other, &fake->server->nodes, node) {
        if (other == fake || !is_written)
            continue;
        store_watches_note(&other->base, &fake->journal);
        loop_defer_last(other->base.loop, &other->flush, on_flush);
    }
}

static void commit_all(struct fake_store *fake)
{
    struct list tickets = LIST_INIT(tickets);
    struct change_queue lost = { 0 };
    struct error err = { 0 };

    list_move_all(&fake->tickets, &tickets);
    decide_claims(fake);
    note_for_others(fake, fake->fail_next == ERR_NONE);
    if (fake->fail_next != ERR_NONE) {
        error_set(&err, fake->fail_next, "commit failed, as the test asked");
        fake->fail_next = ERR_NONE;
        lost = change_queue_take(&fake->journal);
    } else {
        apply(fake);
    }
    store_transaction_ended(&fake->base, &err, &lost);
    claims_end(&fake->server->claims, &err);
    store_tickets_complete(&fake->base, &tickets, &err);
    store_watches_tell(&fake->base, &err);
}

static void on_flush(struct deferred *deferred)
{
    struct fake_store *fake = container_of(deferred, struct fake_store, flush);

    if (fake->held)
        return;
    if (something_is_pending(fake))
        commit_all(fake);
    else
        store_watches_tell(&fake->base, &(struct error){ 0 });
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
    list_append(&fake_from(store)->claims, &claim->node);
    loop_defer_last(store->loop, &fake_from(store)->flush, on_flush);
}

static void ask_memory(struct fake_store *fake, const struct waiting_query *waiting)
{
    apply(fake);
    fake->memory->ops->query(fake->memory, waiting->table, waiting->query);
}

static void fake_query(struct store *store, enum store_table table, struct store_query *query)
{
    struct fake_store *fake = fake_from(store);

    if (fake->queries_held) {
        assert(fake->query_count < QUERIES_MAXIMUM);
        fake->queries[fake->query_count++] = (struct waiting_query){ table, query };
        return;
    }
    ask_memory(fake, &(struct waiting_query){ table, query });
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
    list_remove(&fake->node);
    if (list_is_empty(&fake->server->nodes)) {
        store_close(fake->memory);
        claims_fini(&fake->server->claims);
        free(fake->server);
    }
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

static struct store *open_node(struct fake_server *server, struct loop *loop, const char *node)
{
    struct fake_store *fake = xnew(struct fake_store);

    store_init(&fake->base, &fake_ops, &(struct store_options){ .loop = loop, .node = node });
    fake->base.load.same_boot = true;
    fake->server = server;
    fake->memory = server->memory;
    list_append(&server->nodes, &fake->node);
    list_init(&fake->claims);
    list_init(&fake->tickets);
    return &fake->base;
}

struct store *fake_store_new(struct loop *loop)
{
    struct fake_server *server = xnew(struct fake_server);

    claims_init(&server->claims);
    list_init(&server->nodes);
    server->memory = store_open_memory(&(struct store_options){ .loop = loop });
    server->memory->on_lost = on_memory_lost;
    return open_node(server, loop, NULL);
}

struct store *fake_store_join(struct store *store, const char *node)
{
    return open_node(fake_from(store)->server, store->loop, node);
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
        claims_end(&fake->server->claims, &err);
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

bool fake_store_answer_query(struct store *store)
{
    struct fake_store *fake = fake_from(store);
    struct waiting_query first = fake->queries[0];

    if (fake->query_count == 0)
        return false;
    fake->query_count--;
    for (unsigned i = 0; i < fake->query_count; i++)
        fake->queries[i] = fake->queries[i + 1];
    ask_memory(fake, &first);
    return true;
}

void fake_store_hold_queries(struct store *store, bool held)
{
    fake_from(store)->queries_held = held;
    while (!held && fake_store_answer_query(store))
        ;
}

void fake_store_crash(struct store *store)
{
    struct fake_store *fake = fake_from(store);
    struct store_claim *claim;

    loop_undefer(store->loop, &fake->flush);
    change_queue_free(&fake->journal);
    while ((claim = list_first(&fake->claims, struct store_claim, node))) {
        list_remove(&claim->node);
        free(steal_ptr(&claim->private.change));
    }
    while (!list_is_empty(&fake->tickets))
        list_remove(fake->tickets.next);
    fake->held = fake->queries_held = false;
    fake->query_count = 0;
    fake->fail_next = ERR_NONE;
}

size_t fake_store_count(struct store *store, enum store_table table)
{
    return store_memory_count(fake_from(store)->memory, table);
}

void fake_store_lose_claims(struct store *store)
{
    struct fake_server *server = fake_from(store)->server;

    claims_fini(&server->claims);
    server->claims = (struct claims){ 0 };
    claims_init(&server->claims);
    store->on_lost(store, STORE_SESSIONS, "");
}
