/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store in Redis, for daemons that share the work or replace each other.
 *
 * All pending changes at the end of a turn are one commit: one atomic call of commit.lua. One
 * commit is under way at a time; later changes gather meanwhile. Each commit has a number, and the
 * server remembers the last one of each node with the outcomes of its claims: a commit whose answer
 * was lost is sent again, and applied once.
 *
 * The commits of a process carry its epoch, which it took when it opened the store (open.lua). When
 * another process has taken the name of the node since, the server refuses them, for good: fenced.
 *
 * While the server cannot be reached, puts gather in order and tickets wait; queries fail.
 */

#include "store/redis/private.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "store/watches.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GATHER_US = 2000,
    PENDING_MAXIMUM = 64 * 1024 * 1024, /* while the server cannot be reached */
    BODY_MAXIMUM = 500 * 1024 * 1024,   /* the server's limit for one argument */
    SYNC_WAIT_MS = 2000,
    SYNC_TRIES = 3,
    DRAIN_US = 10 * 1000 * 1000,
};

static const struct store_ops redis_ops;
static void flush_later(struct redis_store *store);

struct redis_store *redis_from(struct store *store)
{
    assert(store->ops == &redis_ops);
    return container_of(store, struct redis_store, base);
}

bool redis_has_pending(const struct redis_store *store)
{
    return store->pending.changes.first || !list_is_empty(&store->pending.tickets) ||
           !list_is_empty(&store->pending.claims);
}

/* --- the end of a commit -------------------------------------------------------------------- */

/* Three words for each claim: won, lost or none; the version that is there, and its text. */
static void report_claims(struct list *claims, const redisReply *reply, const struct error *err)
{
    struct store_claim *claim;

    for (size_t i = 1; (claim = list_first(claims, struct store_claim, node)); i += 3) {
        struct change *change = steal_ptr(&claim->private.change);
        struct document_record current =
            *(const struct document_record *)(const void *)change->record;
        const char *word = err->code == ERR_NONE ? reply->element[i]->str : "";

        list_remove(&claim->node);
        claim->err = err;
        claim->current = NULL;
        if (err->code != ERR_NONE) {
            claim->outcome = CLAIM_FAILED;
        } else if (strcmp(word, "won") == 0) {
            claim->outcome = CLAIM_WON;
        } else {
            claim->outcome = CLAIM_LOST;
            current.version = strtoull(reply->element[i + 1]->str, NULL, 10);
            current.json = reply->element[i + 2]->str;
            claim->current = strcmp(word, "lost") == 0 ? &current : NULL;
        }
        claim->done(claim);
        free(change);
    }
}

static void hold_unsynced(struct redis_store *store, struct list *tickets)
{
    struct store_ticket *ticket, *following;

    if (store->syncing.sync == REDIS_SYNC_NONE)
        return;
    list_for_each_safe (ticket, following, tickets, node) {
        if (ticket->grade != STORE_SYNCED)
            continue;
        list_remove(&ticket->node);
        list_append(&store->syncing.next, &ticket->node);
    }
}

/* `reply` has the outcomes of the claims; NULL with an error. */
static void commit_ended(struct redis_store *store, const redisReply *reply,
                         const struct error *err)
{
    struct redis_commit *commit = &store->commit;
    struct change_queue changes = change_queue_take(&commit->changes);
    struct list claims = LIST_INIT(claims);
    struct list tickets = LIST_INIT(tickets);

    list_move_all(&commit->claims, &claims);
    list_move_all(&commit->tickets, &tickets);
    commit->flight = FLIGHT_NONE;
    commit->accepts_loss = false;
    buffer_clear(&commit->body);
    store_transaction_ended(&store->base, err, &changes);
    report_claims(&claims, reply, err);
    if (err->code == ERR_NONE)
        hold_unsynced(store, &tickets);
    store_tickets_complete(&store->base, &tickets, err);
}

/* --- replicas ------------------------------------------------------------------------------- */

static void send_wait(struct redis_store *store);

static void syncing_ended(struct redis_store *store, const struct error *err)
{
    struct list tickets = LIST_INIT(tickets);

    list_move_all(&store->syncing.waiting, &tickets);
    store->syncing.tries = 0;
    if (err->code != ERR_NONE)
        store_note_failure(&store->base, err);
    store_tickets_complete(&store->base, &tickets, err);
}

/* The number of copies of the commit: replicas, or the server's own disk. -1 for an unknown
 * answer. */
static long long synced_by(const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER)
        return reply->integer;
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 ? reply->element[0]->integer
                                                                    : -1;
}

static void on_waited(struct redis_request *request, const redisReply *reply)
{
    struct redis_store *store = container_of(request, struct redis_store, syncing.request);
    struct redis_syncing *syncing = &store->syncing;
    struct error err = { 0 };
    long long count;

    if (!reply) { /* they come first when the server is back */
        list_move_all(&syncing->next, &syncing->waiting);
        list_move_all(&syncing->waiting, &syncing->next);
        return;
    }
    count = synced_by(reply);
    if (count >= (long long)syncing->replicas) {
        syncing_ended(store, &err);
    } else if (count >= 0 && ++syncing->tries < SYNC_TRIES) {
        list_move_all(&syncing->next, &syncing->waiting);
        list_move_all(&syncing->waiting, &syncing->next);
    } else {
        error_named(&err, ERR_UNAVAILABLE, "store_unsynced",
                    "written, but store.redis.sync is not reached: %s",
                    count < 0 && reply->type == REDIS_REPLY_ERROR ? reply->str
                                                                  : "too few replicas have it");
        err.retryable = true;
        syncing_ended(store, &err);
    }
    flush_later(store);
}

static void on_touched(struct redis_request *request UNUSED, const redisReply *reply UNUSED)
{
}

static void send_touch(struct redis_store *store)
{
    scoped(free) char *key = xasprintf("%snode:%s", store->prefix, store->base.node);

    store->syncing.touch.on_reply = on_touched;
    redis_link_send(&store->link, &store->syncing.touch,
                    (struct redis_word[]){ REDIS_WORD("HINCRBY"), REDIS_WORD(key),
                                           REDIS_WORD("links"), REDIS_WORD("1") },
                    4);
}

/* One WAIT at a time: tickets that come meanwhile share the next. */
static void send_wait(struct redis_store *store)
{
    struct redis_syncing *syncing = &store->syncing;
    bool is_aof = syncing->sync == REDIS_SYNC_AOF;
    char count[16], timeout[16];

    if (list_is_empty(&syncing->next) || !list_is_empty(&syncing->waiting) ||
        !redis_link_is_ready(&store->link))
        return;
    if (syncing->is_new_link)
        send_touch(store);
    syncing->is_new_link = false;
    list_move_all(&syncing->next, &syncing->waiting);
    snprintf(count, sizeof(count), "%u", syncing->replicas);
    snprintf(timeout, sizeof(timeout), "%d", SYNC_WAIT_MS);
    syncing->request.on_reply = on_waited;
    redis_link_send(&store->link, &syncing->request,
                    (struct redis_word[]){ REDIS_WORD(is_aof ? "WAITAOF" : "WAIT"),
                                           REDIS_WORD(count), REDIS_WORD(is_aof ? "0" : timeout),
                                           REDIS_WORD(timeout) },
                    is_aof ? 4 : 3);
}

/* --- a commit ------------------------------------------------------------------------------- */

static void fail_pending(struct redis_store *store, const struct error *err);

static void on_fenced_told(struct deferred *deferred)
{
    struct redis_store *store = container_of(deferred, struct redis_store, tell_fenced);

    if (store->base.on_fenced)
        store->base.on_fenced(&store->base, store->base.on_fenced_data);
}

void redis_become_fenced(struct redis_store *store, const redisReply *reply)
{
    const char *epoch = redis_reply_has_words(reply, 2) ? reply->element[1]->str : "";

    if (store->fenced.code != ERR_NONE)
        return;
    store->base.is_replaced = !redis_reply_has_words(reply, 3) || !*reply->element[2]->str;
    if (store->base.is_replaced) {
        error_named(&store->fenced, ERR_UNAVAILABLE, "store_fenced",
                    "another daemon has taken the name of this node, \"%.64s\"", store->base.node);
        error_hint(&store->fenced, "give each daemon a name of its own (instance, node.id), or "
                                   "stop the other one; then restart this one");
    } else {
        error_named(&store->fenced, ERR_UNAVAILABLE, "store_fenced",
                    "other nodes have taken over the sessions of this node, \"%.64s\"",
                    store->base.node);
        store->fenced.retryable = true;
    }
    log_error("store fenced: nothing that this daemon writes is kept any more",
              kv("node", store->base.node), kv("epoch", store->epoch), kv("epoch_of_other", epoch));
    store->base.absence = store->fenced;
    loop_defer(store->base.loop, &store->tell_fenced, on_fenced_told);
}

static void fail_fenced(struct redis_store *store, const redisReply *reply)
{
    redis_become_fenced(store, reply);
    commit_ended(store, NULL, &store->fenced);
    fail_pending(store, &store->fenced);
}

/* A server that has less than it acknowledged: a failover to a replica that was behind, or a
 * restart from an old file. The lost changes are unknown, so the owner puts all records again. */
static void report_loss(struct redis_store *store, const redisReply *reply)
{
    struct error err = { 0 };
    const char *has = redis_reply_has_words(reply, 2) ? reply->element[1]->str : "0";

    error_named(&err, ERR_INTERNAL, "store_lost",
                "redis has lost commits that it had acknowledged");
    log_error("redis has lost commits that it had acknowledged; putting all live records again",
              kv("acknowledged", store->number), kv("has", has), kv("epoch", store->epoch));
    store_note_failure(&store->base, &err);
    store->base.counts.lost++;
    if (store->base.on_lost)
        store->base.on_lost(&store->base, STORE_SESSIONS, "");
    store->commit.accepts_loss = true;
    store->commit.flight = FLIGHT_UNSENT;
}

/* The server cannot serve now; another one may, or this one soon. */
static bool is_passing(const char *error)
{
    static const char *const passing[] = { "READONLY",    "LOADING",  "MASTERDOWN", "BUSY",
                                           "CLUSTERDOWN", "TRYAGAIN", "NOAUTH" };

    for (size_t i = 0; i < ARRAY_LENGTH(passing); i++)
        if (str_starts_with(error, passing[i]))
            return true;
    return false;
}

static void take_refusal(struct redis_store *store, const redisReply *reply)
{
    struct error err = { 0 };

    if (is_passing(reply->str)) {
        store->commit.flight = FLIGHT_UNSENT;
        error_named(&err, ERR_UNAVAILABLE, "store_away", "redis cannot write now: %s", reply->str);
        redis_link_drop(&store->link, &err);
        return;
    }
    error_named(&err, str_starts_with(reply->str, "OOM") ? ERR_NO_SPACE : ERR_UNAVAILABLE,
                "store_failed", "redis refuses to write: %s", reply->str);
    err.retryable = true;
    error_hint(&err, "see the log of the server; INFO persistence and INFO memory say more");
    commit_ended(store, NULL, &err);
}

static bool has_all_outcomes(const struct redis_commit *commit, const redisReply *reply)
{
    const struct store_claim *claim;
    size_t count = 1;

    list_for_each (claim, &commit->claims, node)
        count += 3;
    return reply->elements == count && redis_reply_has_words(reply, count);
}

/* The answer is from another script, or not from a Redis server: it is not trusted. */
static void take_nonsense(struct redis_store *store)
{
    struct error err = { 0 };

    error_named(&err, ERR_INTERNAL, "store_failed", "redis answers something else than the script");
    commit_ended(store, NULL, &err);
}

static void on_committed(struct redis_request *request, const redisReply *reply)
{
    struct redis_store *store = container_of(request, struct redis_store, commit.request);
    const char *word = redis_reply_has_words(reply, 1) ? reply->element[0]->str : "";

    assert(store->commit.flight == FLIGHT_SENT);
    if (!reply) {
        store->commit.flight = FLIGHT_UNSENT;
        return;
    }
    if (redis_reply_is_noscript(reply)) {
        store->commit.flight = FLIGHT_UNSENT;
        store->commit.by_text = true;
    } else if (reply->type == REDIS_REPLY_ERROR) {
        take_refusal(store, reply);
    } else if (strcmp(word, "ok") == 0 && has_all_outcomes(&store->commit, reply)) {
        store->number++;
        store->commit.by_text = false;
        commit_ended(store, reply, &(struct error){ 0 });
    } else if (strcmp(word, "fenced") == 0) {
        fail_fenced(store, reply);
    } else if (strcmp(word, "lost") == 0) {
        report_loss(store, reply);
    } else {
        take_nonsense(store);
    }
    flush_later(store);
}

static void send_commit(struct redis_store *store)
{
    struct redis_commit *commit = &store->commit;
    char number[24], previous[24], now[24];

    snprintf(number, sizeof(number), "%" PRIu64, store->number + 1);
    snprintf(previous, sizeof(previous), "%" PRIu64, store->number);
    snprintf(now, sizeof(now), "%" PRId64, clock_wall_us(loop_clock(store->base.loop)));
    commit->flight = FLIGHT_SENT;
    commit->request.on_reply = on_committed;
    redis_script_call(
        &store->commit_script, &store->link, &commit->request,
        (struct redis_word[]){ REDIS_WORD(store->prefix),
                               REDIS_WORD(store->base.node),
                               REDIS_WORD(store->epoch),
                               REDIS_WORD(number),
                               REDIS_WORD(previous),
                               REDIS_WORD(commit->accepts_loss ? "1" : ""),
                               REDIS_WORD(now),
                               { (const char *)commit->body.data, commit->body.length } },
        8, commit->by_text);
}

/* --- pending changes ----------------------------------------------------------------------- */

static void make_commit(struct redis_store *store)
{
    struct redis_pending *pending = &store->pending;
    struct redis_commit *commit = &store->commit;
    const struct redis_writer writer = { store->base.node, store->boot_id };

    assert(commit->flight == FLIGHT_NONE);
    timer_stop(&pending->gather);
    store->has_to_probe = false;
    pending->urgent = false;
    pending->bytes = 0;
    commit->changes = change_queue_take(&pending->changes);
    list_move_all(&pending->claims, &commit->claims);
    list_move_all(&pending->tickets, &commit->tickets);
    change_queue_fold(&commit->changes);
    redis_pack_commit(&commit->body, &writer, &commit->changes, &commit->claims);
    commit->flight = FLIGHT_UNSENT;
    store->made++;
}

static void fail_pending(struct redis_store *store, const struct error *err)
{
    if (!redis_has_pending(store))
        return;
    make_commit(store);
    commit_ended(store, NULL, err);
}

static void fail_overflow(struct redis_store *store)
{
    struct error err = { 0 };

    error_named(&err, ERR_UNAVAILABLE, "store_away",
                "redis cannot be reached, and too much is waiting for it: %s", store->away.message);
    err.retryable = true;
    if (store->commit.flight == FLIGHT_NONE)
        fail_pending(store, &err);
}

static void flush(struct redis_store *store)
{
    struct redis_commit *commit = &store->commit;
    struct error too_long = { 0 };

    if (store->fenced.code != ERR_NONE && commit->flight == FLIGHT_NONE)
        fail_pending(store, &store->fenced);
    if (commit->flight == FLIGHT_NONE &&
        (store->has_to_probe || (redis_has_pending(store) && store->pending.urgent)))
        make_commit(store);
    if (commit->flight == FLIGHT_UNSENT && commit->body.overflowed) {
        error_set(&too_long, ERR_TOO_LARGE, "a commit is longer than redis takes");
        commit_ended(store, NULL, &too_long);
    }
    if (commit->flight == FLIGHT_UNSENT && redis_link_is_ready(&store->link))
        send_commit(store);
    if (store->pending.bytes > PENDING_MAXIMUM && store->reach == REACH_AWAY)
        fail_overflow(store);
    send_wait(store);
    redis_send_askings(store);
}

static void on_end_of_turn(struct deferred *deferred)
{
    flush(container_of(deferred, struct redis_store, pending.at_end));
}

/* A commit is made when everything else in the turn is done, also after an answer of the server:
 * later puts of the same turn are part of it. */
static void flush_later(struct redis_store *store)
{
    loop_defer_last(store->base.loop, &store->pending.at_end, on_end_of_turn);
}

void redis_flush_soon(struct redis_store *store)
{
    store->pending.urgent = true;
    flush_later(store);
}

static void on_gathered(struct timer *timer)
{
    redis_flush_soon(container_of(timer, struct redis_store, pending.gather));
}

static void gather(struct redis_store *store)
{
    if (!store->pending.urgent && !timer_is_armed(&store->pending.gather))
        timer_arm_in(&store->pending.gather, GATHER_US);
}

/* --- the link ------------------------------------------------------------------------------- */

/* After it was away the next commit is made even when nothing is pending: it finds out whether the
 * server still has all that it acknowledged. */
static void on_ready(struct redis_link *link)
{
    struct redis_store *store = container_of(link, struct redis_store, link);
    bool was_away = store->reach == REACH_AWAY;

    store->reach = REACH_THERE;
    store->base.absence = store->fenced;
    store->syncing.is_new_link = true;
    if (was_away)
        log_info("redis is back", kv("server", link->target));
    if (was_away && store->counts_away) {
        store->counts_away = false;
        store->base.counts.failing = false;
    }
    store->has_to_probe = store->has_to_probe || was_away;
    redis_nodes_reach_changed(store);
    flush_later(store);
}

static void on_away(struct redis_link *link, const struct error *err)
{
    struct redis_store *store = container_of(link, struct redis_store, link);
    uint64_t left_out;

    store->reach = REACH_AWAY;
    error_named(&store->away, ERR_UNAVAILABLE, "store_away", "redis cannot be reached: %s",
                err->message);
    store->away.retryable = true;
    if (store->fenced.code == ERR_NONE)
        store->base.absence = store->away;
    if (!store->base.counts.failing)
        store->counts_away = true;
    store_note_failure(&store->base, &store->away);
    if (log_repeat_is_due(&store->logged, clock_now_us(&clock_system), &left_out))
        log_warn("redis is away; puts wait for it, queries fail", kv("error", err->message),
                 kv("repeated", left_out));
    redis_nodes_reach_changed(store);
    redis_send_askings(store);
}

static const struct redis_link_owner link_owner = { .on_ready = on_ready, .on_away = on_away };

static int start_link(struct redis_store *store, struct loop *loop, struct error *err)
{
    if (redis_link_init(
            &store->link,
            &(struct redis_link_options){
                .loop = loop, .owner = &link_owner, .url = &store->url, .ca = store->ca },
            err) < 0)
        return -1;
    redis_link_start(&store->link);
    return 0;
}

/* --- watches -------------------------------------------------------------------------------- */

/* Earlier changes are not reported, so every document may have changed. */
static void on_subscribed(struct redis_request *request, const redisReply *reply)
{
    struct redis_store *store = container_of(request, struct redis_store, subscription);

    if (reply && reply->type == REDIS_REPLY_ARRAY)
        store_watches_changed(&store->base, NULL, NULL);
}

static void on_watcher_ready(struct redis_link *link)
{
    struct redis_store *store = container_of(link, struct redis_store, watcher);
    scoped(free) char *channel = xasprintf("%schanged", store->prefix);

    store->subscription.on_reply = on_subscribed;
    redis_link_send(link, &store->subscription,
                    (struct redis_word[]){ REDIS_WORD("SUBSCRIBE"), REDIS_WORD(channel) }, 2);
}

static void on_watcher_away(struct redis_link *link UNUSED, const struct error *err UNUSED)
{
}

static void on_message(struct redis_link *link, const redisReply *reply)
{
    struct redis_store *store = container_of(link, struct redis_store, watcher);
    scoped(free) char *kind = NULL;
    char *slash;

    if (!redis_reply_has_words(reply, 3))
        return;
    kind = xstrdup(reply->element[2]->str);
    slash = strchr(kind, '/');
    if (!slash)
        return;
    *slash = '\0';
    store_watches_changed(&store->base, kind, slash + 1);
}

static const struct redis_link_owner watcher_owner = { .on_ready = on_watcher_ready,
                                                       .on_away = on_watcher_away,
                                                       .on_message = on_message };

static void redis_watch(struct store *base, struct store_watch *watch UNUSED)
{
    struct redis_store *store = redis_from(base);
    struct error err = { 0 };

    if (store->watcher.loop)
        return;
    if (redis_link_init(
            &store->watcher,
            &(struct redis_link_options){
                .loop = base->loop, .owner = &watcher_owner, .url = &store->url, .ca = store->ca },
            &err) < 0)
        log_error("changes of other nodes are not reported", kv("error", err.message));
    else
        redis_link_start(&store->watcher);
}

/* --- the operations ------------------------------------------------------------------------- */

static void redis_change(struct store *base, struct change *change)
{
    struct redis_store *store = redis_from(base);

    store->pending.bytes += record_size(&record_types[change->table], change->record);
    change_queue_append(&store->pending.changes, change);
    gather(store);
}

static void redis_commit(struct store *base, struct store_ticket *ticket)
{
    struct redis_store *store = redis_from(base);

    list_append(&store->pending.tickets, &ticket->node);
    if (ticket->grade == STORE_WRITTEN_LAZILY)
        gather(store);
    else
        redis_flush_soon(store);
}

static void redis_claim(struct store *base, struct store_claim *claim)
{
    struct redis_store *store = redis_from(base);

    list_append(&store->pending.claims, &claim->node);
    redis_flush_soon(store);
}

static void redis_query(struct store *base, enum store_table table, struct store_query *query)
{
    redis_ask(redis_from(base), table, query, false, clock_wall_us(loop_clock(base->loop)));
}

static void redis_query_expired(struct store *base, int64_t now_wall_us, struct store_query *query)
{
    redis_ask(redis_from(base), STORE_SESSIONS, query, true, now_wall_us);
}

static bool something_is_left(const struct redis_store *store)
{
    return redis_has_pending(store) || store->commit.flight != FLIGHT_NONE ||
           !list_is_empty(&store->askings) || !list_is_empty(&store->syncing.next) ||
           !list_is_empty(&store->syncing.waiting);
}

/* The server cannot be reached, and there is no more time. */
static void give_up(struct redis_store *store)
{
    struct error err = store->away;

    if (err.code == ERR_NONE)
        error_named(&err, ERR_UNAVAILABLE, "store_away", "redis does not answer");
    while (something_is_left(store)) {
        if (store->commit.flight != FLIGHT_NONE)
            commit_ended(store, NULL, &err);
        fail_pending(store, &err);
        list_move_all(&store->syncing.next, &store->syncing.waiting);
        syncing_ended(store, &err);
        redis_fail_askings(store, &err);
    }
}

/* Over a connection and a loop of its own: the caller's loop has stopped. Unanswered commits are
 * sent again, which is harmless. */
static void redis_drain(struct store *base)
{
    struct redis_store *store = redis_from(base);
    scoped(loop_free) struct loop *loop = NULL;
    int64_t deadline_us = clock_now_us(&clock_system) + DRAIN_US;
    struct error err = { 0 };

    redis_sweep_stop(store);
    redis_nodes_give_up(store, &store->away);
    redis_link_fini(&store->watcher);
    redis_link_fini(&store->link);
    if (!something_is_left(store))
        return;
    redis_asking_reset(store);
    if (store->commit.flight == FLIGHT_SENT)
        store->commit.flight = FLIGHT_UNSENT;
    list_move_all(&store->syncing.next, &store->syncing.waiting);
    list_move_all(&store->syncing.waiting, &store->syncing.next);
    if (store->fenced.code != ERR_NONE) { /* the server refuses them for good */
        store->away = store->fenced;
        give_up(store);
        return;
    }
    store->reach = REACH_FIRST;
    loop = loop_new(&clock_system);
    if (start_link(store, loop, &err) < 0)
        store->away = err;
    while (something_is_left(store) && store->link.loop &&
           clock_now_us(&clock_system) < deadline_us) {
        store->pending.urgent = true;
        flush(store);
        loop_turn(loop, 20);
    }
    redis_link_fini(&store->link);
    give_up(store);
}

static void redis_free(struct store *base)
{
    struct redis_store *store = redis_from(base);

    timer_stop(&store->pending.gather);
    loop_undefer(base->loop, &store->pending.at_end);
    loop_undefer(base->loop, &store->tell_fenced);
    redis_link_fini(&store->link);
    redis_link_fini(&store->watcher);
    buffer_fini(&store->commit.body);
    redis_url_fini(&store->url);
    free(store->prefix);
    free(store->boot_id);
    free(store->ca);
    store_fini(base);
    free(store);
}

static const struct store_ops redis_ops = {
    .name = "redis",
    .drain = redis_drain,
    .free = redis_free,
    .change = redis_change,
    .commit = redis_commit,
    .claim = redis_claim,
    .watch = redis_watch,
    .query = redis_query,
    .renew = redis_renew,
    .rehome = redis_rehome,
    .query_expired = redis_query_expired,
};

/* --- opening -------------------------------------------------------------------------------- */

static int set_sync(struct redis_syncing *syncing, const char *text, struct error *err)
{
    uint64_t count;

    syncing->replicas = 1;
    if (str_is_empty(text) || str_equal(text, "none"))
        syncing->sync = REDIS_SYNC_NONE;
    else if (str_equal(text, "aof"))
        syncing->sync = REDIS_SYNC_AOF;
    else if (str_starts_with(text, "replicas:") &&
             str_to_u64(text + strlen("replicas:"), &count) == 0 && count > 0 && count < 100)
        *syncing =
            (struct redis_syncing){ .sync = REDIS_SYNC_REPLICAS, .replicas = (unsigned)count };
    else
        return error_set(err, ERR_INVALID,
                         "store.redis.sync: \"%.40s\" is not none, replicas:N or aof", text);
    return 0;
}

static int set_up(struct redis_store *store, const struct store_options *options, struct error *err)
{
    if (set_sync(&store->syncing, options->redis.sync, err) < 0)
        return -1;
    if (redis_url_parse(&store->url, options->redis.url, err) < 0)
        return error_wrap(err, "store.redis.url");
    list_init(&store->pending.claims);
    list_init(&store->pending.tickets);
    list_init(&store->commit.claims);
    list_init(&store->commit.tickets);
    list_init(&store->syncing.next);
    list_init(&store->syncing.waiting);
    list_init(&store->askings);
    timer_init(&store->pending.gather, store->base.loop, on_gathered);
    store->commit.body = BUFFER_INIT(BODY_MAXIMUM);
    store->prefix = xstrdup(options->redis.prefix ? options->redis.prefix : "sandglass:");
    store->boot_id = xstrdup(options->boot_id ? options->boot_id : "");
    store->is_sole = options->redis.is_sole;
    store->ca = xstrdup(options->redis.ca ? options->redis.ca : "");
    redis_script_init(&store->commit_script, redis_commit_script);
    redis_script_init(&store->query_script, redis_query_script);
    return 0;
}

struct store *store_open_redis(const struct store_options *options, struct error *err)
{
    struct redis_store *store = xnew(struct redis_store);

    store_init(&store->base, &redis_ops, options);
    assert(!str_is_empty(store->base.node));
    if (set_up(store, options, err) == 0 && redis_acquire(store, err) == 0 &&
        start_link(store, options->loop, err) == 0) {
        redis_sweep_start(store);
        return &store->base;
    }
    error_wrap(err, "open the store");
    redis_free(&store->base);
    return NULL;
}
