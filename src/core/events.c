/* SPDX-License-Identifier: Apache-2.0 */
#include "core/events.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Emitted and not delivered yet: its ticket is in the same transaction as its put. */
struct pending_event {
    struct list node;
    struct events *events; /* borrowed */
    struct store_ticket ticket;
    struct event_record record; /* its texts are owned */
};

struct events {
    struct core *core; /* borrowed */
    uint64_t last;
    struct list watchers; /* notified when it is durable */
    struct list overhearers;
    struct list pending; /* struct pending_event, in order */
};

struct events *events_new(struct core *core, uint64_t last_sequence)
{
    struct events *events = xnew(struct events);

    events->core = core;
    events->last = last_sequence;
    list_init(&events->watchers);
    list_init(&events->overhearers);
    list_init(&events->pending);
    return events;
}

static void pending_free(struct pending_event *event)
{
    list_remove(&event->node);
    free((char *)event->record.owner);
    free((char *)event->record.type);
    free((char *)event->record.data_json);
    free(event);
}

void events_free(struct events *events)
{
    struct pending_event *event;

    if (!events)
        return;
    while ((event = list_first(&events->pending, struct pending_event, node)))
        pending_free(event);
    free(events);
}

/* --- delivery ------------------------------------------------------------------------------ */

static bool wants(const struct events_watcher *watcher, const struct event_record *event)
{
    if (*watcher->session_id && strcmp(watcher->session_id, event->session_id) != 0)
        return false;
    return !watcher->owner || str_equal(watcher->owner, event->owner);
}

/* A callback may remove its watcher: each moves to the other list before its callback runs. */
static void deliver(struct events *events, const struct event_record *event)
{
    struct list notified = LIST_INIT(notified);
    struct events_watcher *watcher;

    while ((watcher = list_first(&events->watchers, struct events_watcher, node))) {
        list_remove(&watcher->node);
        list_append(&notified, &watcher->node);
        if (wants(watcher, event))
            watcher->on_event(watcher, event);
    }
    while ((watcher = list_first(&notified, struct events_watcher, node))) {
        list_remove(&watcher->node);
        list_append(&events->watchers, &watcher->node);
    }
}

static void on_committed(struct store_ticket *ticket)
{
    struct pending_event *event = container_of(ticket, struct pending_event, ticket);

    if (ticket->err->code == ERR_NONE)
        deliver(event->events, &event->record);
    else
        log_error("event could not be recorded and is not delivered",
                  kv("type", event->record.type), kv("error", ticket->err->message));
    pending_free(event);
}

static void deliver_when_durable(struct events *events, const struct event_record *record)
{
    struct pending_event *event = xnew(struct pending_event);

    event->events = events;
    event->record = *record;
    event->record.owner = xstrdup(record->owner);
    event->record.type = xstrdup(record->type);
    event->record.data_json = xstrdup(record->data_json);
    list_append(&events->pending, &event->node);
    store_commit(events->core->parts.store, &event->ticket, on_committed);
}

/* A watcher that is added later finds the event in the store. */
void events_emit(struct events *events, const char *session_id, const char *owner,
                 uint64_t session_sequence, const char *type, const char *data_json)
{
    struct event_record record = {
        .sequence = ++events->last,
        .session_sequence = session_sequence,
        .owner = owner ? owner : "",
        .type = type,
        .data_json = data_json ? data_json : "{}",
        .wall_us = clock_wall_us(loop_clock(events->core->loop)),
    };
    struct events_watcher *watcher;

    snprintf(record.session_id, sizeof(record.session_id), "%s", session_id);
    store_put_event(events->core->parts.store, &record);
    list_for_each (watcher, &events->overhearers, node)
        watcher->on_event(watcher, &record);
    if (!list_is_empty(&events->watchers))
        deliver_when_durable(events, &record);
}

void event_write_members(const struct event_record *event, struct json_writer *json)
{
    json_put_int(json, "sequence", (int64_t)event->sequence);
    json_put_text(json, "type", event->type);
    json_put_text(json, "session_id", *event->session_id ? event->session_id : NULL);
    json_put_int(json, "session_sequence", (int64_t)event->session_sequence);
    json_put_time(json, "time", event->wall_us);
    json_put_raw(json, "data", str_is_empty(event->data_json) ? "{}" : event->data_json);
}

void events_watch(struct events *events, struct events_watcher *watcher)
{
    list_append(&events->watchers, &watcher->node);
}

void events_overhear(struct events *events, struct events_watcher *watcher)
{
    list_append(&events->overhearers, &watcher->node);
}

void events_unwatch(struct events_watcher *watcher)
{
    list_remove(&watcher->node);
}

uint64_t events_last(const struct events *events)
{
    return events->last;
}

void events_skip(struct events *events, uint64_t sequence)
{
    events->last = MAX(events->last, sequence);
}
