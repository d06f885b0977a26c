#pragma once

/*
 * The output of an execution as one sequence of bytes: one of its streams, or both in the order in
 * which they came. Offsets count from the first byte that the program wrote to any of them.
 *
 * What was dropped from the middle of a stream, and everything that came between its first and its
 * last byte, is one gap of the merged sequence. The streams by themselves may still have some of
 * that.
 */

#include "core/output/spool.h"
#include "core/output/stream_order.h"

struct combined_output {
    struct spool *streams[STREAM_COUNT]; /* borrowed; the second NULL for one alone */
    struct stream_order *order;          /* borrowed; NULL for one alone */
};

uint64_t combined_output_length(const struct combined_output *merged);
bool combined_output_has_gap(const struct combined_output *merged, uint64_t *out_start,
                             uint64_t *out_end);

/* Bytes that can be read in one piece. */
struct combined_output_piece {
    uint64_t start, end; /* merged offsets */
    struct spool *spool;
    uint64_t place; /* of `start` in its spool */
};

/* The next ones at or after `offset`; false when there are none (yet). */
bool combined_output_find(const struct combined_output *merged, uint64_t offset,
                          struct combined_output_piece *out_piece);

/* How far each stream has been read by one who has read up to `offset`. */
void combined_output_positions(const struct combined_output *merged, uint64_t offset,
                               uint64_t out_positions[STREAM_COUNT]);
