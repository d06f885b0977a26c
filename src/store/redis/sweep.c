/* SPDX-License-Identifier: Apache-2.0 */
#include "store/redis/private.h"

#include "base/alloc.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_US = 1000 * 1000,
    BETWEEN_US = 100 * 1000,       /* two parts: others use the server too */
    AGAIN_US = 1800 * 1000 * 1000, /* half an hour */
};

/* Escapes characters of the prefix that SCAN would take for a pattern. */
static char *pattern_of(const char *prefix)
{
    struct buffer pattern = BUFFER_INIT(4096);

    for (; *prefix; prefix++) {
        if (strchr("*?[]\\", *prefix))
            buffer_append_byte(&pattern, '\\');
        buffer_append_byte(&pattern, (uint8_t)*prefix);
    }
    buffer_append_text(&pattern, "s:*");
    return buffer_steal_text(&pattern);
}

static void on_swept(struct redis_request *request, const redisReply *reply)
{
    struct redis_store *store = container_of(request, struct redis_store, sweep.request);
    struct redis_sweep *sweep = &store->sweep;

    if (!redis_reply_has_words(reply, 2)) {
        timer_arm_in(&sweep->timer, AGAIN_US);
        return;
    }
    snprintf(sweep->cursor, sizeof(sweep->cursor), "%s", reply->element[0]->str);
    if (strcmp(reply->element[1]->str, "0") != 0)
        log_warn("sessions in redis were in no index; they are found again",
                 kv("sessions", reply->element[1]->str));
    timer_arm_in(&sweep->timer, strcmp(sweep->cursor, "0") == 0 ? AGAIN_US : BETWEEN_US);
}

static void on_due(struct timer *timer)
{
    struct redis_store *store = container_of(timer, struct redis_store, sweep.timer);
    struct redis_sweep *sweep = &store->sweep;
    struct redis_script script = { 0 };
    scoped(free) char *pattern = NULL;

    if (!redis_link_is_ready(&store->link)) {
        timer_arm_in(timer, FIRST_US);
        return;
    }
    pattern = pattern_of(store->prefix);
    redis_script_init(&script, redis_sweep_script);
    sweep->request.on_reply = on_swept;
    redis_script_call(&script, &store->link, &sweep->request,
                      (struct redis_word[]){ REDIS_WORD(store->prefix), REDIS_WORD(pattern),
                                             REDIS_WORD(sweep->cursor) },
                      3, true);
}

void redis_sweep_start(struct redis_store *store)
{
    snprintf(store->sweep.cursor, sizeof(store->sweep.cursor), "0");
    timer_init(&store->sweep.timer, store->base.loop, on_due);
    timer_arm_in(&store->sweep.timer, FIRST_US);
}

void redis_sweep_stop(struct redis_store *store)
{
    timer_stop(&store->sweep.timer);
}
