/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/private.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPEN_US = 5 * 1000 * 1000 };

#define FORMAT "2"

enum opening_state { OPENING_ASKS, OPENING_DONE, OPENING_FAILED };

/* The first connection, on a loop of its own. */
struct opening {
    struct redis_store *store; /* borrowed */
    struct redis_link link;
    struct redis_request command, policy, acquire;
    int64_t asked_us; /* when the name was asked for */
    enum opening_state state;
    struct error err;
};

static struct opening *opening_of(struct redis_request *request)
{
    return container_of(request->link, struct opening, link);
}

static void fail(struct opening *opening)
{
    opening->state = OPENING_FAILED;
}

/* --- features of the server ---------------------------------------------------------------- */

static void on_command(struct redis_request *request, const redisReply *reply)
{
    struct opening *opening = opening_of(request);
    bool has_it = reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
                  reply->element[0]->type == REDIS_REPLY_ARRAY && reply->element[0]->elements;

    if (!reply || has_it)
        return;
    error_named(&opening->err, ERR_INVALID, "redis_too_old",
                "store.redis.sync is aof, and this server has no WAITAOF (Redis 7.2 and newer)");
    error_hint(&opening->err, "use a newer server, or replicas:N, or none with appendfsync always");
    fail(opening);
}

static void on_policy(struct redis_request *request UNUSED, const redisReply *reply)
{
    const char *policy = redis_reply_has_words(reply, 2)
                             ? reply->element[1]->str
                             : "noeviction"; /* a server that does not say */

    if (!str_equal(policy, "noeviction"))
        log_warn("redis may evict records when its memory is full: set maxmemory-policy to "
                 "noeviction",
                 kv("maxmemory_policy", policy));
}

/* --- the name of the node -------------------------------------------------------------------- */

static void take(const struct opening *opening, const redisReply *reply)
{
    struct redis_store *store = opening->store;

    snprintf(store->epoch, sizeof(store->epoch), "%s", reply->element[1]->str);
    store->base.epoch = store->is_sole ? 0 : strtoull(store->epoch, NULL, 10);
    store->base.load.last_sequence = strtoull(reply->element[2]->str, NULL, 10);
    store->base.load.same_boot = *store->boot_id &&
                                 str_equal(reply->element[3]->str, store->boot_id);
    redis_take_time(store, reply->element[4]->str, opening->asked_us, clock_now_us(&clock_system));
}

static void on_acquired(struct redis_request *request, const redisReply *reply)
{
    struct opening *opening = opening_of(request);
    size_t words = redis_reply_has_words(reply, 5) ? 5 : redis_reply_has_words(reply, 2) ? 2 : 0;

    if (!reply || opening->state != OPENING_ASKS)
        return;
    if (words == 5) {
        take(opening, reply);
        opening->state = OPENING_DONE;
        return;
    }
    if (words == 2 && str_equal(reply->element[0]->str, "taken")) {
        error_named(&opening->err, ERR_INVALID, "store_taken",
                    "the records with this prefix are those of the instance \"%.64s\"",
                    reply->element[1]->str);
        error_hint(&opening->err, "set another store.redis.prefix, or the same instance to go on "
                                  "with its sessions");
    } else if (words == 2 && str_equal(reply->element[0]->str, "shared")) {
        error_named(&opening->err, ERR_INVALID, "store_taken",
                    "the records with this prefix are those of a cluster");
        error_hint(&opening->err, "set node.address to join it, or another store.redis.prefix");
    } else if (words == 2) {
        error_named(&opening->err, ERR_INVALID, "store_newer",
                    "a newer sandglass has used the keys with this prefix (format %s, and this "
                    "program knows " FORMAT ")",
                    reply->element[1]->str);
        error_hint(&opening->err, "run that version, or set another store.redis.prefix");
    } else {
        error_named(&opening->err, ERR_UNAVAILABLE, "store_failed", "redis refuses to write: %s",
                    reply->type == REDIS_REPLY_ERROR ? reply->str : "an answer of another kind");
    }
    fail(opening);
}

static void on_ready(struct redis_link *link)
{
    struct opening *opening = container_of(link, struct opening, link);
    struct redis_store *store = opening->store;
    struct redis_script script = { 0 };

    opening->command.on_reply = on_command;
    opening->policy.on_reply = on_policy;
    opening->acquire.on_reply = on_acquired;
    if (store->syncing.sync == REDIS_SYNC_AOF)
        redis_link_send(link, &opening->command,
                        (struct redis_word[]){ REDIS_WORD("COMMAND"), REDIS_WORD("INFO"),
                                               REDIS_WORD("WAITAOF") },
                        3);
    redis_link_send(link, &opening->policy,
                    (struct redis_word[]){ REDIS_WORD("CONFIG"), REDIS_WORD("GET"),
                                           REDIS_WORD("maxmemory-policy") },
                    3);
    opening->asked_us = clock_now_us(&clock_system);
    redis_script_init(&script, redis_open_script);
    redis_script_call(&script, link, &opening->acquire,
                      (struct redis_word[]){ REDIS_WORD(store->prefix),
                                             REDIS_WORD(store->base.node), REDIS_WORD(FORMAT),
                                             REDIS_WORD(store->boot_id),
                                             REDIS_WORD(store->is_sole ? "1" : "0") },
                      5, true);
}

/* Waits for a server that is starting, but not for one that refuses the password. */
static void on_away(struct redis_link *link, const struct error *err)
{
    struct opening *opening = container_of(link, struct opening, link);

    if (opening->state != OPENING_ASKS)
        return;
    opening->err = *err;
    if (str_equal(err->name, "redis_refused"))
        fail(opening);
}

static const struct redis_link_owner owner = { .on_ready = on_ready, .on_away = on_away };

int redis_acquire(struct redis_store *store, struct error *err)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    int64_t deadline_us = clock_now_us(&clock_system) + OPEN_US;
    struct opening opening = { .store = store };
    struct redis_link_options options = {
        .loop = loop, .owner = &owner, .url = &store->url, .ca = store->ca
    };

    if (redis_link_init(&opening.link, &options, err) < 0)
        return error_wrap(err, "store.redis.ca");
    redis_link_start(&opening.link);
    while (opening.state == OPENING_ASKS && clock_now_us(&clock_system) < deadline_us)
        loop_turn(loop, 50);
    redis_link_fini(&opening.link);
    if (opening.state == OPENING_DONE)
        return 0;
    if (opening.err.code == ERR_NONE)
        error_named(&opening.err, ERR_UNAVAILABLE, "store_away", "redis does not answer");
    if (!*opening.err.hint)
        error_hint(&opening.err, "check store.redis.url, and that the server runs and lets this "
                                 "host in");
    *err = opening.err;
    return error_wrap(err, "store.redis.url");
}
