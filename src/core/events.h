/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Events, in the order in which they happened. Each has a sequence number for the instance and one
 * for its session; it is persisted before it is delivered, and replayed from any number on.
 */

#include "core/core.h"
#include "store/store.h"

struct events;
struct events_watcher;
struct json_writer;

typedef void events_fn(struct events_watcher *watcher, const struct event_record *event);

struct events_watcher {
    events_fn *on_event;      /* in order */
    char session_id[ID_SIZE]; /* "" for all */
    const char *owner;        /* borrowed; NULL for all */
    struct list node;
};

struct events *events_new(struct core *core, uint64_t last_sequence);
void events_free(struct events *events);

/* `data_json` is an object or NULL. session_id "" for the instance itself. */
void events_emit(struct events *events, const char *session_id, const char *owner,
                 uint64_t session_sequence, const char *type, const char *data_json);

/* Its members, as the API shows them. */
void event_write_members(const struct event_record *event, struct json_writer *json);

void events_watch(struct events *events, struct events_watcher *watcher);

/* Hears of each event when it happens, before it is durable: for uses that do not leave this
 * process. Its callback neither watches nor unwatches. */
void events_overhear(struct events *events, struct events_watcher *watcher);
void events_unwatch(struct events_watcher *watcher);
uint64_t events_last(const struct events *events);

/* The next number is behind this one: a session that comes from another node has events up to it. */
void events_skip(struct events *events, uint64_t sequence);
