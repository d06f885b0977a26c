/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A page of the events that the store has, in order: of a session, of an owner, or of all. */

#include "base/error.h"
#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct core;

/* Embedded by the caller, who keeps it until `done`; the first block is set before. */
struct event_page {
    const char *session_id; /* borrowed until `done`, as `owner`; NULL: of all sessions */
    const char *owner;      /* NULL: of every owner */
    uint64_t after;         /* only those with a greater number */
    uint32_t limit, limit_bytes;
    void (*on_event)(struct event_page *page, const struct event_record *event);
    void (*done)(struct event_page *page); /* once, from the loop */

    struct error err;
    bool has_more;            /* at `done`: there are more behind the last one */
    struct store_query query; /* private */
};

void event_page_read(struct event_page *page, struct core *core);
