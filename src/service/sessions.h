/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Many sessions: which ones a caller means, and a page of them.
 *
 * Live sessions come from memory, in the order in which they were made. Ended ones come from the
 * store, the newest first. Both are paged by a cursor that is opaque to the caller.
 */

#include "base/error.h"
#include "base/id.h"
#include "base/map.h"
#include "core/session/session.h"
#include "service/identity.h"
#include "store/store.h"

#include <stdbool.h>
#include <stdint.h>

struct core;
struct json_writer;

/* --- which ----------------------------------------------------------------------------------- */

enum { SESSION_FILTER_LABELS = 16, SESSION_FILTER_IDS = 500 };

/* Empty fields do not filter. */
struct session_filter {
    const char *owner;                                /* borrowed; NULL: every owner */
    unsigned states;                                  /* 1 << enum session_state, joined; 0: all */
    struct store_label labels[SESSION_FILTER_LABELS]; /* names are owned, values borrowed */
    unsigned label_count;
    char *ids;        /* owned: the texts of `by_id`; NULL: any id */
    struct map by_id; /* live sessions only */
};

/* `text` is NAME=VALUE and outlives the filter; -1 when it is not, or there are too many. */
int session_filter_add_label(struct session_filter *filter, const char *text);

/* `text` is ids with commas between them; -1 when one is malformed, or there are too many. */
int session_filter_set_ids(struct session_filter *filter, const char *text);
void session_filter_fini(struct session_filter *filter);

static inline void scoped_session_filter_fini(struct session_filter *filter)
{
    session_filter_fini(filter);
}

bool session_filter_matches(const struct session_filter *filter, const struct session *session);

/* Whether it asks for sessions that have ended, and for no others. */
bool session_filter_is_ended(const struct session_filter *filter);

/* The next live session that matches, behind `session`; NULL for the first, NULL at the end. Nothing
 * may end the session between two calls. */
struct session *session_filter_next(const struct session_filter *filter, struct core *core,
                                    const struct session *session);

/* --- a page ---------------------------------------------------------------------------------- */

/* A session that is live, or one of which the record is left: exactly one of the two is set. */
struct found_session {
    const struct session *live;
    const struct session_record *record;
};

void found_session_write_json(const struct found_session *found, struct json_writer *json,
                              const char *key);

enum { SESSION_CURSOR_SIZE = ID_SIZE + 32 };

struct session_page;

/* Embedded by the caller; the first block is set before session_page_start(). */
struct session_page {
    struct session_filter filter; /* taken over by session_page_fini() */
    const char *cursor;           /* borrowed; NULL or "": from the start */
    uint64_t limit;
    uint32_t limit_bytes; /* about so much is read from the store at once */
    bool measures;        /* the usage of their sandboxes is measured first */
    bool (*on_session)(struct session_page *page, const struct found_session *found); /* false:
                             there is no room for it; the page ends before it */
    void (*done)(struct session_page *page); /* once; inside session_page_start() if it can be */

    struct error err;
    uint64_t total; /* that match, on all pages */
    bool has_more;
    char next[SESSION_CURSOR_SIZE]; /* with that: the cursor of the next page */

    struct core *core; /* private, here and below */
    struct store_query query;
    uint64_t shown, last;
};

/* Whether the cursor, which the filter goes with, is one that a page has given. */
bool session_page_knows_cursor(const struct session_page *page);

/* Nothing can stop it: the caller keeps the page until `done`. */
void session_page_start(struct session_page *page, struct core *core);
void session_page_fini(struct session_page *page);
