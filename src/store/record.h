/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The five kinds of records as tables of fields, so that copying, matching, binding and reading
 * are written once for all of them. For the implementations of the store only.
 */

#include "store/store.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>

enum field_kind {
    FIELD_ID,   /* char[ID_SIZE] */
    FIELD_TEXT, /* const char *, "" when empty */
    FIELD_KEY,  /* const char *, NULL when empty */
    FIELD_I64,
    FIELD_U64,
    FIELD_U32,
    FIELD_INT,
    FIELD_BOOL,
    FIELD_BOOT, /* boot-clock half of a stamp; its wall-clock half is the field before it */
};

/* The fields of struct store_query; FILTER_ENDED is FILTER_STATE with the value "ended". */
enum filter {
    FILTER_ID = 1 << 0,
    FILTER_SESSION = 1 << 1,
    FILTER_OWNER = 1 << 2,
    FILTER_KEY = 1 << 3,
    FILTER_KIND = 1 << 4,
    FILTER_STATE = 1 << 5,
    FILTER_ENDED = 1 << 6,
    FILTER_LIVE = 1 << 7, /* sessions only */
    FILTER_NODE = 1 << 8,
    FILTER_COMBINATIONS = 1 << 9,
};

struct record_field {
    const char *column;
    enum field_kind kind;
    size_t offset;
    unsigned filter; /* the filter that compares it, or 0 */
    bool required;   /* a record without it is damaged */
    bool indexed;    /* an index contains it: only written when it changes */
    bool minus_one;  /* a row without a value reads as -1, because 0 means something */
    uint8_t code;    /* its number in the redo log, which never changes; 0: its index */
};

enum { RECORD_TABLES = STORE_DOCUMENTS + 1 };
enum { RECORD_MAXIMUM = 1024 }; /* bytes of any record without its text */

struct record_type {
    const char *table;
    const char *identity; /* columns that say which record it is */
    const char *order;    /* column of the order of first puts */
    size_t size;
    const struct record_field *fields;
    size_t field_count;
    bool has_stamps;
};

extern const struct record_type record_types[RECORD_TABLES];

/*
 * A deep copy in one allocation, which free() releases: `header_size` bytes for the caller (a
 * multiple of the strictest alignment), the record, then its text.
 */
void *record_copy(const struct record_type *type, const void *record, size_t header_size);

/* The memory of a record with its text, in bytes. */
size_t record_size(const struct record_type *type, const void *record);

/* Which filters of the query apply to this kind of record. */
unsigned record_filters(const struct record_type *type, const struct store_query *query);

/* The value of one filter in the query, as text. */
const char *record_filter_value(unsigned filter, const struct store_query *query);

bool record_matches(const struct record_type *type, const void *record, unsigned filters,
                    const struct store_query *query);

/* The text of an id or text field, never NULL. */
const char *record_text(const struct record_field *field, const void *record);

/* An id or text; all others are numbers. */
bool record_is_text(const struct record_field *field);
int64_t record_number(const struct record_field *field, const void *record);

/* Recomputes the boot-clock stamps of another boot from the wall clock. Never 0, which would mean
 * "not set". */
void record_renew_stamps(const struct record_type *type, char *record, int64_t boot_began_wall_us);

/* Calls the on_… of the query that belongs to the table. */
void record_deliver(enum store_table table, struct store_query *query, const void *record);

/* One put or forget, in a queue. A forget carries a record of which only the identity is set. */
struct change {
    struct change *next;
    const struct change *newest; /* the last put of this record in the queue, or NULL */
    enum store_table table;
    bool forget;
    bool is_moot; /* later changes of the queue supersede it */
    alignas(max_align_t) char record[];
};

struct change *change_new(enum store_table table, bool forget, const void *record);

/* The id that store_lost_fn gets; allocated. */
char *change_id(const struct change *change);

struct change_queue {
    struct change *first; /* owned */
    struct change *last;
};

void change_queue_append(struct change_queue *queue, struct change *change);
struct change_queue change_queue_take(struct change_queue *queue);             /* leaves it empty */
void change_queue_join(struct change_queue *queue, struct change_queue *rest); /* empties it */

/* Of several puts of one record, the first gets the values of the last, and the others are moot.
 * For a queue that is written in one transaction. */
void change_queue_fold(struct change_queue *queue);
void change_queue_free(struct change_queue *queue);

/* The base of each implementation. */
void store_init(struct store *store, const struct store_ops *ops,
                const struct store_options *options);
void store_fini(struct store *store);

/* Shared bookkeeping of the end of a transaction: counts, logs, on_lost; frees the lost changes. */
void store_transaction_ended(struct store *store, const struct error *err,
                             struct change_queue *lost);

/* Earlier writes cannot be relied on any more, though no transaction has failed yet. */
void store_note_failure(struct store *store, const struct error *err);

/* Completes the tickets in order. A failure without a ticket is reported to the next one. */
void store_tickets_complete(struct store *store, struct list *tickets, const struct error *err);
