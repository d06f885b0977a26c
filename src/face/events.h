/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An answer of Server-Sent Events: its start, its events, and the comment that keeps the connection
 * warm while nothing happens.
 */

#include "loop/loop.h"

#include <stdbool.h>
#include <stddef.h>

struct request;

/* Embedded in what the handler holds. */
struct event_answer {
    struct request *request; /* borrowed */
    struct timer heartbeat;
    bool has_started;
};

/* The head is sent with the first event or heartbeat, so that a handler can still fail. */
void event_answer_init(struct event_answer *answer, struct request *request);

/* Sends the head, if that has not been done. */
void event_answer_start(struct event_answer *answer);
void event_answer_send(struct event_answer *answer, const char *name, const void *data,
                       size_t length);

/* Whether the client takes what it is sent. */
bool event_answer_has_room(const struct event_answer *answer);

/* The last event was sent. */
void event_answer_end(struct event_answer *answer);

/* The heartbeat stops; the exchange is left as it is. Fine for a zeroed one. */
void event_answer_fini(struct event_answer *answer);
