/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the nodes of a cluster through the server: renew.lua and rehome.lua. */

#include "base/alloc.h"
#include "base/str.h"
#include "store/redis/private.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 3, WORDS_OF_NODE = 6, CLOCK_READING_US = 1 * 1000 * 1000 };

static void set_away(const struct redis_store *store, struct error *err)
{
    if (store->fenced.code != ERR_NONE)
        *err = store->fenced;
    else if (store->away.code != ERR_NONE)
        *err = store->away;
    else
        error_named(err, ERR_UNAVAILABLE, "store_away", "redis cannot be reached");
}

/* Turns an unexpected answer into an error. */
static void take_failure(struct redis_store *store, const redisReply *reply, struct error *err)
{
    if (redis_reply_has_words(reply, 2) && str_equal(reply->element[0]->str, "fenced")) {
        redis_become_fenced(store, reply);
        *err = store->fenced;
    } else if (redis_reply_has_words(reply, 1) && str_equal(reply->element[0]->str, "alive")) {
        error_named(err, ERR_CONFLICT, "node_alive", "the node has reported since");
    } else if (reply && reply->type == REDIS_REPLY_ERROR) {
        error_named(err, ERR_UNAVAILABLE, "store_failed", "redis refuses: %s", reply->str);
    } else if (reply) {
        error_named(err, ERR_INTERNAL, "store_failed",
                    "redis answers something else than the script");
    } else {
        set_away(store, err);
    }
}

static bool is_good(const redisReply *reply, size_t head, size_t step)
{
    return reply && reply->type == REDIS_REPLY_ARRAY && reply->elements >= head &&
           (reply->elements - head) % step == 0 && redis_reply_has_words(reply, reply->elements) &&
           str_equal(reply->element[0]->str, "ok");
}

static uint64_t number_at(const redisReply *reply, size_t index)
{
    return strtoull(reply->element[index]->str, NULL, 10);
}

/* --- reports -------------------------------------------------------------------------------- */

static void end_renewal(struct redis_store *store)
{
    struct store_renewal *renewal = steal_ptr(&store->nodes.renewal);

    renewal->done(renewal);
}

/* An answer that took long does not say when the server has looked at its clock. */
void redis_take_time(struct redis_store *store, const char *text, int64_t sent_us, int64_t now_us)
{
    int64_t server_us = strtoll(text, NULL, 10);

    if (server_us > 0 && now_us - sent_us < CLOCK_READING_US)
        store->base.server_ahead_us = server_us - (sent_us + (now_us - sent_us) / 2);
}

static void on_renewed(struct redis_request *request, const redisReply *reply)
{
    struct redis_store *store = container_of(request, struct redis_store, nodes.renew);
    struct store_renewal *renewal = store->nodes.renewal;

    if (!renewal)
        return;
    if (!is_good(reply, HEAD, WORDS_OF_NODE)) {
        take_failure(store, reply, &renewal->err);
        end_renewal(store);
        return;
    }
    renewal->homeless = number_at(reply, 1);
    redis_take_time(store, reply->element[2]->str, renewal->sent_us, loop_now_us(store->base.loop));
    for (size_t i = HEAD; i < reply->elements; i += WORDS_OF_NODE)
        renewal->on_node(renewal,
                         &(struct store_node){ .id = reply->element[i]->str,
                                               .epoch = number_at(reply, i + 1),
                                               .beat = number_at(reply, i + 2),
                                               .is_lost = *reply->element[i + 3]->str == '1',
                                               .description = reply->element[i + 4]->str,
                                               .sessions = number_at(reply, i + 5) });
    end_renewal(store);
}

static void on_renewal_refused(struct deferred *deferred)
{
    struct redis_store *store = container_of(deferred, struct redis_store, nodes.refuse_renewal);

    end_renewal(store);
}

static void send_renewal(struct redis_store *store)
{
    scoped(free) char *description = steal_ptr(&store->nodes.description);
    struct redis_script script = { 0 };

    redis_script_init(&script, redis_renew_script);
    store->nodes.renew.on_reply = on_renewed;
    store->nodes.renewal->sent_us = loop_now_us(store->base.loop);
    redis_script_call(&script, &store->link, &store->nodes.renew,
                      (struct redis_word[]){ REDIS_WORD(store->prefix),
                                             REDIS_WORD(store->base.node), REDIS_WORD(store->epoch),
                                             REDIS_WORD(description) },
                      4, true);
}

static void refuse_renewal(struct redis_store *store)
{
    free(steal_ptr(&store->nodes.description));
    set_away(store, &store->nodes.renewal->err);
    loop_defer(store->base.loop, &store->nodes.refuse_renewal, on_renewal_refused);
}

/* The first report waits for the first connection. */
void redis_renew(struct store *base, struct store_renewal *renewal, const char *description)
{
    struct redis_store *store = redis_from(base);

    assert(!store->nodes.renewal);
    store->nodes.renewal = renewal;
    store->nodes.description = xstrdup(description);
    if (store->fenced.code != ERR_NONE || store->reach == REACH_AWAY)
        refuse_renewal(store);
    else if (redis_link_is_ready(&store->link))
        send_renewal(store);
}

void redis_nodes_reach_changed(struct redis_store *store)
{
    if (!store->nodes.description)
        return;
    if (redis_link_is_ready(&store->link))
        send_renewal(store);
    else
        refuse_renewal(store);
}

/* --- sessions that are taken ---------------------------------------------------------------- */

static void end_rehoming(struct redis_store *store)
{
    struct store_rehoming *rehoming = steal_ptr(&store->nodes.rehoming);

    rehoming->done(rehoming);
}

static void on_rehomed(struct redis_request *request, const redisReply *reply)
{
    struct redis_store *store = container_of(request, struct redis_store, nodes.rehome);
    struct store_rehoming *rehoming = store->nodes.rehoming;

    if (!rehoming)
        return;
    if (!is_good(reply, 2, 1)) {
        take_failure(store, reply, &rehoming->err);
        end_rehoming(store);
        return;
    }
    rehoming->sequence = number_at(reply, 1);
    rehoming->taken = (unsigned)(reply->elements - 2);
    for (size_t i = 2; i < reply->elements; i++)
        rehoming->on_session(rehoming, reply->element[i]->str);
    end_rehoming(store);
}

static void on_rehoming_refused(struct deferred *deferred)
{
    struct redis_store *store = container_of(deferred, struct redis_store, nodes.refuse_rehoming);

    end_rehoming(store);
}

void redis_rehome(struct store *base, struct store_rehoming *rehoming,
                  const struct store_node *from, unsigned most)
{
    struct redis_store *store = redis_from(base);
    struct redis_script script = { 0 };
    char epoch[24] = "", beat[24] = "", count[24];

    assert(!store->nodes.rehoming);
    store->nodes.rehoming = rehoming;
    if (!redis_link_is_ready(&store->link) || store->fenced.code != ERR_NONE) {
        set_away(store, &rehoming->err);
        loop_defer(base->loop, &store->nodes.refuse_rehoming, on_rehoming_refused);
        return;
    }
    if (from) {
        snprintf(epoch, sizeof(epoch), "%" PRIu64, from->epoch);
        snprintf(beat, sizeof(beat), "%" PRIu64, from->beat);
    }
    snprintf(count, sizeof(count), "%u", most);
    redis_script_init(&script, redis_rehome_script);
    store->nodes.rehome.on_reply = on_rehomed;
    redis_script_call(&script, &store->link, &store->nodes.rehome,
                      (struct redis_word[]){
                          REDIS_WORD(store->prefix), REDIS_WORD(base->node),
                          REDIS_WORD(store->epoch), REDIS_WORD(from ? from->id : STORE_NO_NODE),
                          REDIS_WORD(epoch), REDIS_WORD(beat), REDIS_WORD(count) },
                      7, true);
}

/* --- the end -------------------------------------------------------------------------------- */

void redis_nodes_give_up(struct redis_store *store, const struct error *err)
{
    loop_undefer(store->base.loop, &store->nodes.refuse_renewal);
    loop_undefer(store->base.loop, &store->nodes.refuse_rehoming);
    free(steal_ptr(&store->nodes.description));
    if (store->nodes.renewal) {
        store->nodes.renewal->err = *err;
        if (err->code == ERR_NONE)
            set_away(store, &store->nodes.renewal->err);
        end_renewal(store);
    }
    if (store->nodes.rehoming) {
        store->nodes.rehoming->err = *err;
        if (err->code == ERR_NONE)
            set_away(store, &store->nodes.rehoming->err);
        end_rehoming(store);
    }
}
