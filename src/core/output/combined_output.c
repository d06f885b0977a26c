/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/combined_output.h"

uint64_t combined_output_length(const struct combined_output *merged)
{
    return merged->order ? stream_order_length(merged->order) : spool_length(merged->streams[0]);
}

static void widen(uint64_t start, uint64_t end, uint64_t *inout_start, uint64_t *inout_end)
{
    *inout_start = MIN(*inout_start, start);
    *inout_end = MAX(*inout_end, end);
}

bool combined_output_has_gap(const struct combined_output *merged, uint64_t *out_start,
                             uint64_t *out_end)
{
    uint64_t start, end, first = UINT64_MAX, last = 0;

    if (!merged->order)
        return spool_has_hole(merged->streams[0], out_start, out_end);
    if (stream_order_has_hole(merged->order, &start, &end))
        widen(start, end, &first, &last);
    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        if (spool_has_hole(merged->streams[i], &start, &end))
            widen(stream_order_merged(merged->order, i, start),
                  stream_order_merged(merged->order, i, end - 1) + 1, &first, &last);
    }
    if (!last)
        return false;
    *out_start = first;
    *out_end = last;
    return true;
}

static bool find_in_one(struct spool *spool, uint64_t offset,
                        struct combined_output_piece *out_piece)
{
    if (!spool_extent(spool, offset, &out_piece->start, &out_piece->end))
        return false;
    out_piece->spool = spool;
    out_piece->place = out_piece->start;
    return true;
}

bool combined_output_find(const struct combined_output *merged, uint64_t offset,
                          struct combined_output_piece *out_piece)
{
    uint64_t gap_start = UINT64_MAX, gap_end = 0, start, end;
    struct stream_order_place place;

    if (!merged->order)
        return find_in_one(merged->streams[0], offset, out_piece);
    if (combined_output_has_gap(merged, &gap_start, &gap_end) && offset >= gap_start)
        offset = MAX(offset, gap_end);
    if (!stream_order_find(merged->order, offset, &place) ||
        !spool_extent(merged->streams[place.stream], place.offset, &start, &end) ||
        start != place.offset)
        return false;
    *out_piece = (struct combined_output_piece){
        .start = offset,
        .end = offset + MIN(place.run_bytes, end - start),
        .spool = merged->streams[place.stream],
        .place = start,
    };
    if (offset < gap_start)
        out_piece->end = MIN(out_piece->end, gap_start);
    return true;
}

void combined_output_positions(const struct combined_output *merged, uint64_t offset,
                               uint64_t out_positions[STREAM_COUNT])
{
    struct stream_order_place place;

    out_positions[0] = offset;
    out_positions[1] = 0;
    if (!merged->order)
        return;
    if (stream_order_find(merged->order, offset, &place)) {
        out_positions[place.stream] = place.offset;
        out_positions[!place.stream] = place.other;
        return;
    }
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        out_positions[i] = offset ? spool_length(merged->streams[i]) : 0;
}
