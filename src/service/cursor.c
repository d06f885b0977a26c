/* SPDX-License-Identifier: Apache-2.0 */
#include "service/cursor.h"

#include "base/macros.h"
#include "core/core.h"

/* --- life ------------------------------------------------------------------------------------ */

static void on_execution_change(struct execution_watcher *watcher)
{
    struct cursor *cursor = container_of(watcher, struct cursor, watcher);

    cursor->on_change(cursor);
}

static void open_live(struct cursor *cursor, struct execution *execution,
                      enum cursor_streams streams)
{
    struct spool *errors = execution_stderr(execution);

    cursor->execution = execution;
    execution_ref(execution);
    cursor->output.streams[0] = streams == CURSOR_STDERR ? errors : execution_stdout(execution);
    if (streams == CURSOR_BOTH && errors) {
        cursor->output.streams[1] = errors;
        cursor->output.order = execution_stream_order(execution);
    }
    execution_watch(execution, &cursor->watcher, on_execution_change);
}

static void open_record(struct cursor *cursor, struct core *core,
                        const struct execution_record *record, enum cursor_streams streams)
{
    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        if (streams == CURSOR_BOTH || streams == (i ? CURSOR_STDERR : CURSOR_STDOUT))
            cursor->owned[i] = execution_open_output(core, record, i != 0);
    }
    cursor->output.streams[0] = cursor->owned[streams == CURSOR_STDERR];
    if (streams != CURSOR_BOTH)
        return;
    cursor->owned_order =
        execution_open_stream_order(core, record->id, cursor->owned[0], cursor->owned[1]);
    cursor->output.streams[1] = cursor->owned[1];
    cursor->output.order = cursor->owned_order;
}

void cursor_open(struct cursor *cursor, const struct found_execution *found,
                 enum cursor_streams streams)
{
    cursor->end = UINT64_MAX;
    if (found->live)
        open_live(cursor, found->live, streams);
    else
        open_record(cursor, found->core, found->record, streams);
}

void cursor_close(struct cursor *cursor, bool vanished)
{
    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        struct spool_follower *follower = &cursor->followers[i].follower;

        if (!cursor->followers[i].cursor)
            continue;
        if (vanished)
            spool_follower_vanished(cursor->output.streams[i], follower);
        if (list_is_linked(&follower->node))
            spool_unfollow(cursor->output.streams[i], follower);
    }
    execution_unwatch(&cursor->watcher);
    if (cursor->execution)
        execution_unref(cursor->execution);
    stream_order_free(cursor->owned_order);
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        spool_free(cursor->owned[i]);
}

bool cursor_is_live(const struct cursor *cursor)
{
    return cursor->execution && !execution_has_ended(cursor->execution);
}

/* --- following ------------------------------------------------------------------------------- */

/* A slow client has taken something since; one that takes nothing is given up. */
static void on_stalled(struct spool_follower *follower)
{
    struct cursor_follower *place = container_of(follower, struct cursor_follower, follower);
    struct cursor *cursor = place->cursor;
    unsigned stream = (unsigned)(place - cursor->followers);
    uint64_t taken[STREAM_COUNT];

    combined_output_positions(&cursor->output, cursor->taken(cursor), taken);
    if (taken[stream] > follower->offset)
        spool_follow(cursor->output.streams[stream], follower, taken[stream]);
    else
        cursor->on_stalled(cursor);
}

void cursor_follow(struct cursor *cursor)
{
    uint64_t positions[STREAM_COUNT];

    combined_output_positions(&cursor->output, cursor->offset, positions);
    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        struct cursor_follower *place = &cursor->followers[i];

        if (!cursor->output.streams[i])
            continue;
        place->cursor = cursor;
        place->follower.on_stalled = cursor->on_stalled ? on_stalled : NULL;
        spool_follow(cursor->output.streams[i], &place->follower, positions[i]);
    }
}

static void move(struct cursor *cursor, const uint64_t positions[STREAM_COUNT])
{
    for (unsigned i = 0; i < STREAM_COUNT; i++) {
        if (cursor->followers[i].cursor)
            spool_follower_moved(cursor->output.streams[i], &cursor->followers[i].follower,
                                 positions[i]);
    }
}

void cursor_moved(struct cursor *cursor, uint64_t taken)
{
    uint64_t positions[STREAM_COUNT];

    combined_output_positions(&cursor->output, taken, positions);
    move(cursor, positions);
}

void cursor_advance(struct cursor *cursor)
{
    move(cursor, cursor->offsets);
}

/* --- as one sequence ------------------------------------------------------------------------- */

bool cursor_read(struct cursor *cursor, struct combined_output_piece *piece, bool *out_is_lost)
{
    *out_is_lost = false;
    if (cursor->offset >= cursor->gap_start && cursor->offset < cursor->gap_end)
        cursor->offset = cursor->gap_end;
    if (cursor->offset >= cursor->end ||
        !combined_output_find(&cursor->output, cursor->offset, piece))
        return false;
    *out_is_lost = piece->start != cursor->offset;
    piece->end = MIN(piece->end, cursor->end);
    if (cursor->offset < cursor->gap_start)
        piece->end = MIN(piece->end, cursor->gap_start);
    return true;
}

bool cursor_is_short(const struct cursor *cursor)
{
    return cursor->offset < MIN(cursor->end, combined_output_length(&cursor->output));
}

/* Of both streams: without looking at every run. */
static uint64_t count_both(const struct cursor *cursor)
{
    uint64_t begin = cursor->offset, end = MAX(cursor->end, begin);
    uint64_t gap_start = MAX(cursor->gap_start, begin), gap_end = MIN(cursor->gap_end, end);

    return end - begin - (gap_end > gap_start ? gap_end - gap_start : 0);
}

uint64_t cursor_count(const struct cursor *cursor)
{
    struct combined_output_piece piece;
    uint64_t at = cursor->offset, count = 0;

    if (cursor->output.order)
        return count_both(cursor);
    while (at < cursor->end && combined_output_find(&cursor->output, at, &piece)) {
        if (piece.start >= cursor->end)
            break;
        piece.end = MIN(piece.end, cursor->end);
        count += piece.end - piece.start;
        at = piece.end;
    }
    return count;
}

/* --- each stream by itself ------------------------------------------------------------------- */

bool cursor_turn(const struct cursor *cursor, unsigned *out_stream, uint64_t *out_bytes)
{
    struct stream_order_place place;

    if (!cursor->output.order ||
        !stream_order_find(cursor->output.order, cursor->offsets[0] + cursor->offsets[1], &place))
        return false;
    *out_stream = place.stream;
    *out_bytes = place.run_bytes;
    return true;
}
