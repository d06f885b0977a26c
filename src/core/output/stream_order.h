/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The order in which the bytes of an execution's two streams came, so that they can be read as one.
 *
 * Time is cut into runs: bytes of one stream with none of the other between them. When a run is
 * over, because the other stream has bytes, the end of its stream at that moment is appended to a
 * file: runs alternate, so two neighbours give the whole state, and any offset is found by
 * bisection. The run that goes on is not in the file; it follows from the sizes of the spools. So
 * there is no file until both streams have bytes, and after a crash nothing is missing: at most one
 * change of streams was not written, and it comes after the last written one.
 *
 * The order is that in which the daemon found the bytes in the pipes. Bytes that a program wrote to
 * both streams within one turn of the loop may be recorded in the other order.
 *
 * A program that changes streams without end fills STREAM_ORDER_BYTES; then the middle of the order
 * is dropped as that of a spool is, and the order of those bytes is not known any more.
 */

#include "core/output/spool.h"

enum { STREAM_COUNT = 2 };

struct stream_order;

/* Finds the file of an earlier daemon if there is one. `lengths`: of the streams. */
struct stream_order *stream_order_new(int directory, const char *name,
                                      const uint64_t lengths[STREAM_COUNT]);
void stream_order_free(struct stream_order *order); /* NULL is fine; keeps the file */

/* The stream has grown to this length. */
void stream_order_took(struct stream_order *order, unsigned stream, uint64_t length);

uint64_t stream_order_length(const struct stream_order *order); /* of both streams together */

/* The position of a byte of the merged output. */
struct stream_order_place {
    unsigned stream;
    uint64_t offset;    /* in the stream */
    uint64_t run_bytes; /* that follow it there, itself included, before the other stream's turn */
    uint64_t other;     /* how far the other stream had come */
};

/* False when the byte has not come, or its position is not known any more. */
bool stream_order_find(const struct stream_order *order, uint64_t merged,
                       struct stream_order_place *out_place);

/* The merged offset of a byte of a stream, which must have come; in the dropped part of the order
 * it is that of the next byte that is known. */
uint64_t stream_order_merged(const struct stream_order *order, unsigned stream, uint64_t offset);

/* The merged bytes whose order is not known any more. */
bool stream_order_has_hole(const struct stream_order *order, uint64_t *out_start,
                           uint64_t *out_end);
