/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The output of an execution as one sequence of bytes: one of its streams, or both in the order in
 * which they came. Offsets count from the first byte that the program wrote to any of them.
 *
 * The dropped middle of a stream, and every byte that came between the first and the last byte of
 * it, are one gap of the merged sequence. The streams by themselves may still have some of those
 * bytes.
 */

#include "core/output/spool.h"
#include "core/output/stream_order.h"

struct combined_output {
    struct spool *streams[STREAM_COUNT]; /* borrowed; the second is NULL for one stream */
    struct stream_order *order;          /* borrowed; NULL for one stream */
};

uint64_t combined_output_length(const struct combined_output *merged);
bool combined_output_has_gap(const struct combined_output *merged, uint64_t *out_start,
                             uint64_t *out_end);

/* Bytes that can be read in one piece. */
struct combined_output_piece {
    uint64_t start, end; /* merged offsets */
    struct spool *spool;
    uint64_t place; /* offset of `start` in its spool */
};

/* The next piece at or after `offset`; false when there is none (yet). */
bool combined_output_find(const struct combined_output *merged, uint64_t offset,
                          struct combined_output_piece *out_piece);

/* The offset in each stream of a reader that has read the merged output up to `offset`. */
void combined_output_positions(const struct combined_output *merged, uint64_t offset,
                               uint64_t out_positions[STREAM_COUNT]);
