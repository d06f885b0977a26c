/* SPDX-License-Identifier: Apache-2.0 */
/* Watchers: watches whose events are kept until the client asks for them. */

#include "base/alloc.h"
#include "base/list.h"
#include "base/str.h"
#include "core/core.h"
#include "e2b/envd/filesystem.h"
#include "e2b/envd/watch_private.h"

#include <string.h>

enum {
    EVENTS_MAXIMUM = 4 * 1024 * 1024, /* bytes that are kept for a client; then init waits */
    QUIET_US = 20 * 1000,             /* without a change: those that were on their way have come */
    PATIENCE_US = 100 * 1000,         /* for the first one */
};

struct watchers {
    struct list all;
};

struct watcher {
    struct list node;
    char id[ID_SIZE];
    char session_id[ID_SIZE];
    struct watch watch;
    struct buffer events; /* JSON, with commas between */
    struct rpc *creator;  /* the call that waits for its start; NULL afterwards */
    struct rpc *taker;    /* the call that waits for its events; NULL without one */
    struct timer quiet;
};

struct watchers *watchers_new(void)
{
    struct watchers *watchers = xnew(struct watchers);

    list_init(&watchers->all);
    return watchers;
}

static void watcher_free(struct watcher *watcher)
{
    if (watcher->creator)
        watcher->creator->state = NULL;
    if (watcher->taker)
        watcher->taker->state = NULL;
    list_remove(&watcher->node);
    timer_stop(&watcher->quiet);
    watch_fini(&watcher->watch);
    buffer_fini(&watcher->events);
    free(watcher);
}

void watchers_free(struct watchers *watchers)
{
    struct watcher *watcher, *following;

    if (!watchers)
        return;
    list_for_each_safe (watcher, following, &watchers->all, node)
        watcher_free(watcher);
    free(watchers);
}

static struct watchers *watchers_of(const struct rpc *rpc)
{
    return ((struct e2b *)rpc->request->context)->watchers;
}

/* --- create ----------------------------------------------------------------------------------- */

static void creator_release(struct rpc *rpc)
{
    struct watcher *watcher = rpc->state;

    if (watcher)
        watcher_free(watcher); /* the client has left before it was told the id */
}

static void on_start(struct watch *watch)
{
    struct watcher *watcher = container_of(watch, struct watcher, watch);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256);
    struct rpc *rpc = watcher->creator;

    watcher->creator = NULL;
    rpc->state = NULL;
    (void)buffer_appendf(&text, "{\"watcherId\":\"%s\"}", watcher->id);
    rpc_reply(rpc, &text);
}

static void on_event(struct watch *watch, struct buffer *json)
{
    struct watcher *watcher = container_of(watch, struct watcher, watch);

    if (watcher->events.length)
        (void)buffer_append_text(&watcher->events, ",");
    (void)buffer_append(&watcher->events, json->data, json->length);
    if (watcher->events.length > EVENTS_MAXIMUM)
        watch_hold_back(watch, true);
    if (watcher->taker)
        timer_arm_in(&watcher->quiet, QUIET_US);
}

static void fail_call(struct watch *watch, struct rpc *rpc, int number, const struct error *err)
{
    rpc->state = NULL;
    if (number)
        files_call_fail(rpc, number, watch->path);
    else if (err)
        rpc_fail_error(rpc, err);
    else
        rpc_fail(rpc, CONNECT_UNAVAILABLE, "the sandbox has ended");
}

/* Called by the watch itself, which is not freed before the end of the turn. */
static void on_end(struct watch *watch, int number, const struct error *err)
{
    struct watcher *watcher = container_of(watch, struct watcher, watch);
    struct rpc *creator = steal_ptr(&watcher->creator);
    struct rpc *taker = steal_ptr(&watcher->taker);

    timer_stop(&watcher->quiet);
    if (creator)
        fail_call(watch, creator, number, err);
    if (taker)
        fail_call(watch, taker, number, err);
    timer_arm_in(&watcher->quiet, 0);
}

static void reply_events(struct watcher *watcher)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct rpc *rpc = steal_ptr(&watcher->taker);

    (void)buffer_append_text(&text, "{\"events\":[");
    (void)buffer_append(&text, watcher->events.data, watcher->events.length);
    (void)buffer_append_text(&text, "]}");
    buffer_clear(&watcher->events);
    watch_hold_back(&watcher->watch, false);
    rpc->state = NULL;
    rpc_reply(rpc, &text);
}

/* Events that wait for their entries have come: the timer is armed again with each that is told. */
static void on_quiet(struct timer *timer)
{
    struct watcher *watcher = container_of(timer, struct watcher, quiet);

    if (watcher->watch.is_over)
        watcher_free(watcher);
    else if (watcher->taker && !watch_is_behind(&watcher->watch))
        reply_events(watcher);
}

void watch_create(struct rpc *rpc)
{
    struct watcher *watcher = xnew(struct watcher);

    id_make(watcher->id, "wat_");
    memcpy(watcher->session_id, rpc->request->session_id, sizeof(watcher->session_id));
    watcher->events = BUFFER_INIT(EVENTS_MAXIMUM + 1024 * 1024);
    watcher->creator = rpc;
    watcher->watch.on_start = on_start;
    watcher->watch.on_event = on_event;
    watcher->watch.on_end = on_end;
    timer_init(&watcher->quiet, rpc->request->core->loop, on_quiet);
    list_append(&watchers_of(rpc)->all, &watcher->node);
    rpc->state = watcher;
    rpc->release = creator_release;
    if (!watch_begin(&watcher->watch, rpc))
        watcher_free(watcher);
}

/* --- events and end --------------------------------------------------------------------------- */

static struct watcher *find(struct rpc *rpc)
{
    const char *id = json_string_value(json_object_get(rpc->input, "watcherId"));
    struct watcher *watcher;

    list_for_each (watcher, &watchers_of(rpc)->all, node)
        if (str_equal(watcher->id, id) && !watcher->watch.is_over && !watcher->creator &&
            str_equal(watcher->session_id, rpc->request->session_id))
            return watcher;
    rpc_fail(rpc, CONNECT_NOT_FOUND, "watcher with id %.80s not found", id ? id : "");
    return NULL;
}

static void taker_release(struct rpc *rpc)
{
    struct watcher *watcher = rpc->state;

    if (watcher)
        watcher->taker = NULL;
}

/* Changes that were made before the call have to be among its events: they may still be on their
 * way from the kernel through init. */
void watch_take_events(struct rpc *rpc)
{
    struct watcher *watcher = find(rpc);

    if (!watcher)
        return;
    if (watcher->taker) {
        rpc_fail(rpc, CONNECT_ABORTED, "another call waits for the events of this watcher");
        return;
    }
    watcher->taker = rpc;
    rpc->state = watcher;
    rpc->release = taker_release;
    timer_arm_in(&watcher->quiet, watcher->events.length ? QUIET_US : PATIENCE_US);
}

void watch_remove(struct rpc *rpc)
{
    struct watcher *watcher = find(rpc);

    if (!watcher)
        return;
    if (watcher->taker)
        fail_call(&watcher->watch, steal_ptr(&watcher->taker), 0, NULL);
    watcher_free(watcher);
    rpc_reply_empty(rpc);
}
