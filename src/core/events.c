#include "core/events.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

/* Emitted and not delivered yet. */
struct pending_event {
    struct list node;
    struct event_record record; /* its texts are owned */
};

struct events {
    struct core *core; /* borrowed */
    uint64_t last;
    struct list watchers;
    struct list pending;    /* not asked to be durable yet */
    struct list committing; /* the store has been asked about these */
    struct store_ticket ticket;
    struct deferred flush;
    bool ticket_running;
};

struct events *events_new(struct core *core, uint64_t last_sequence)
{
    struct events *events = xnew(struct events);

    events->core = core;
    events->last = last_sequence;
    list_init(&events->watchers);
    list_init(&events->pending);
    list_init(&events->committing);
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

static void free_all(struct list *list)
{
    struct pending_event *event;

    while ((event = list_first(list, struct pending_event, node)))
        pending_free(event);
}

void events_free(struct events *events)
{
    if (!events)
        return;
    loop_undefer(events->core->loop, &events->flush);
    free_all(&events->pending);
    free_all(&events->committing);
    free(events);
}

/* --- delivery ------------------------------------------------------------------------------ */

static bool wants(const struct events_watcher *watcher, const struct event_record *event)
{
    if (*watcher->session_id && strcmp(watcher->session_id, event->session_id) != 0)
        return false;
    return !watcher->owner || str_equal(watcher->owner, event->owner);
}

/* A watcher may go while it is told: each is moved to the list of those told before it is. */
static void deliver(struct events *events, const struct event_record *event)
{
    struct list told = LIST_INIT(told);
    struct events_watcher *watcher;

    while ((watcher = list_first(&events->watchers, struct events_watcher, node))) {
        list_remove(&watcher->node);
        list_append(&told, &watcher->node);
        if (wants(watcher, event))
            watcher->on_event(watcher, event);
    }
    while ((watcher = list_first(&told, struct events_watcher, node))) {
        list_remove(&watcher->node);
        list_append(&events->watchers, &watcher->node);
    }
}

static void flush(struct events *events);

static void on_committed(struct store_ticket *ticket)
{
    struct events *events = container_of(ticket, struct events, ticket);
    struct pending_event *event;

    events->ticket_running = false;
    if (ticket->err.code != ERR_NONE) {
        log_error("events could not be recorded and are not delivered",
                  kv("error", ticket->err.message));
        free_all(&events->committing);
    }
    while ((event = list_first(&events->committing, struct pending_event, node))) {
        deliver(events, &event->record);
        pending_free(event);
    }
    flush(events);
}

static void flush(struct events *events)
{
    struct pending_event *event;

    if (events->ticket_running || list_is_empty(&events->pending))
        return;
    while ((event = list_first(&events->pending, struct pending_event, node))) {
        list_remove(&event->node);
        list_append(&events->committing, &event->node);
    }
    events->ticket_running = true;
    store_commit(events->core->parts.store, &events->ticket, on_committed);
}

static void on_flush(struct deferred *deferred)
{
    flush(container_of(deferred, struct events, flush));
}

void events_emit(struct events *events, const char *session_id, const char *owner,
                 uint64_t session_sequence, const char *type, const char *data_json)
{
    struct pending_event *event = xnew(struct pending_event);

    event->record = (struct event_record){
        .sequence = ++events->last,
        .session_sequence = session_sequence,
        .owner = xstrdup(owner ? owner : ""),
        .type = xstrdup(type),
        .data_json = xstrdup(data_json ? data_json : "{}"),
        .wall_us = clock_wall_us(loop_clock(events->core->loop)),
    };
    memcpy(event->record.session_id, session_id,
           MIN(strlen(session_id), sizeof(event->record.session_id) - 1));
    list_append(&events->pending, &event->node);
    store_put_event(events->core->parts.store, &event->record);
    loop_defer(events->core->loop, &events->flush, on_flush);
}

void events_watch(struct events *events, struct events_watcher *watcher)
{
    list_append(&events->watchers, &watcher->node);
}

void events_unwatch(struct events_watcher *watcher)
{
    list_remove(&watcher->node);
}

uint64_t events_last(const struct events *events)
{
    return events->last;
}
