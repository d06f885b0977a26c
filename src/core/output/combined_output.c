#include "core/output/combined_output.h"

uint64_t merged_length(const struct merged *merged)
{
    return merged->journal ? journal_length(merged->journal) : output_length(merged->streams[0]);
}

static void widen(uint64_t start, uint64_t end, uint64_t *inout_start, uint64_t *inout_end)
{
    *inout_start = MIN(*inout_start, start);
    *inout_end = MAX(*inout_end, end);
}

bool merged_has_gap(const struct merged *merged, uint64_t *out_start, uint64_t *out_end)
{
    uint64_t start, end, first = UINT64_MAX, last = 0;

    if (!merged->journal)
        return output_has_hole(merged->streams[0], out_start, out_end);
    if (journal_has_hole(merged->journal, &start, &end))
        widen(start, end, &first, &last);
    for (unsigned i = 0; i < JOURNAL_STREAMS; i++) {
        if (output_has_hole(merged->streams[i], &start, &end))
            widen(journal_merged(merged->journal, i, start),
                  journal_merged(merged->journal, i, end - 1) + 1, &first, &last);
    }
    if (!last)
        return false;
    *out_start = first;
    *out_end = last;
    return true;
}

static bool find_in_one(struct output *output, uint64_t offset, struct merged_piece *out_piece)
{
    if (!output_extent(output, offset, &out_piece->start, &out_piece->end))
        return false;
    out_piece->output = output;
    out_piece->place = out_piece->start;
    return true;
}

bool merged_find(const struct merged *merged, uint64_t offset, struct merged_piece *out_piece)
{
    uint64_t gap_start = UINT64_MAX, gap_end = 0, start, end;
    struct journal_place place;

    if (!merged->journal)
        return find_in_one(merged->streams[0], offset, out_piece);
    if (merged_has_gap(merged, &gap_start, &gap_end) && offset >= gap_start)
        offset = MAX(offset, gap_end);
    if (!journal_find(merged->journal, offset, &place) ||
        !output_extent(merged->streams[place.stream], place.offset, &start, &end) ||
        start != place.offset)
        return false;
    *out_piece = (struct merged_piece){
        .start = offset,
        .end = offset + MIN(place.run_bytes, end - start),
        .output = merged->streams[place.stream],
        .place = start,
    };
    if (offset < gap_start)
        out_piece->end = MIN(out_piece->end, gap_start);
    return true;
}

void merged_positions(const struct merged *merged, uint64_t offset,
                      uint64_t out_positions[JOURNAL_STREAMS])
{
    struct journal_place place;

    out_positions[0] = offset;
    out_positions[1] = 0;
    if (!merged->journal)
        return;
    if (journal_find(merged->journal, offset, &place)) {
        out_positions[place.stream] = place.offset;
        out_positions[!place.stream] = place.other;
        return;
    }
    for (unsigned i = 0; i < JOURNAL_STREAMS; i++)
        out_positions[i] = offset ? output_length(merged->streams[i]) : 0;
}
