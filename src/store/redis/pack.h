/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Records as the scripts get them, and back: a record is a hash with the columns of record_types as
 * fields, all of them text. Unset columns are absent. A put leaves unknown fields unchanged.
 *
 * A script gets its arguments in MessagePack, which the server's Lua unpacks.
 */

#include "base/buffer.h"
#include "store/record.h"

#include <hiredis/hiredis.h>

/* One letter for each table, the first of its keys. */
const char *redis_table(enum store_table table);

/* The writing node: events are numbered by each node, and boot-clock stamps are valid on one host
 * only. */
struct redis_writer {
    const char *node;
    const char *boot_id;
};

/* The body of commit.lua: all changes, then all claims (struct store_claim). */
void redis_pack_commit(struct buffer *out, const struct redis_writer *writer,
                       const struct change_queue *changes, const struct list *claims);

void redis_pack_array(struct buffer *out, size_t count);
void redis_pack_text(struct buffer *out, const char *text);

/* The best index for a filter, and the filters that are left to compare. */
struct redis_plan {
    char *index;     /* owned; "" with an id */
    char *id;        /* owned: of the one record; "" without */
    unsigned left;   /* filters that the index does not settle */
    bool is_counted; /* no filter is left: the index's length is the count */
    unsigned labels; /* labels of the query that the index settles: 0 or the first */
};

/* Events are those of the node that the query names, else of the own one. */
void redis_plan_make(struct redis_plan *plan, enum store_table table,
                     const struct store_query *query, const char *own_node);
void redis_plan_fini(struct redis_plan *plan);

/* The filter of query.lua. */
void redis_pack_filter(struct buffer *out, enum store_table table, const struct store_query *query,
                       const struct redis_plan *plan, bool counts);

/* The fields of a hash, in pairs, as a record whose text is in the reply. False when something is
 * missing without which it means nothing. `out_same_boot`: its boot-clock stamps are of `boot_id`. */
bool redis_read_record(const redisReply *hash, enum store_table table, const char *boot_id,
                       char record[RECORD_MAXIMUM], uint64_t *out_position, bool *out_same_boot);
