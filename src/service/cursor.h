/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A reader of the output of an execution, which may be running or long over.
 *
 * The cursor has what every reader needs: the streams, where it stands in them, and a place among
 * the followers of their spools, so that the program is held back rather than a byte dropped that
 * the client has not taken. A writer sends the bytes to the client. There are two:
 *
 *     raw      api/run/output.c: the bytes of one stream, or of both as they came, by sendfile
 *     events   api/run/output_events.c: pieces of text with their stream and offset
 *
 * A raw writer reads one sequence and moves with cursor_read(); an event writer reads each stream
 * by itself, in the order in which the bytes came, with cursor_turn() and cursor_advance().
 */

#include "core/output/combined_output.h"
#include "service/executions.h"

#include <stdbool.h>
#include <stdint.h>

enum cursor_streams { CURSOR_STDOUT, CURSOR_STDERR, CURSOR_BOTH };

struct cursor;
typedef void cursor_fn(struct cursor *cursor);

/* Embedded by its writer; on_change, on_stalled and taken are set before cursor_open(). */
struct cursor {
    cursor_fn *on_change; /* new bytes, or another state of the execution; from the loop */

    /* The client has taken nothing for exec.stall_timeout: what it has not read may be dropped when
     * this returns. NULL: the writer tells of gaps. With it, `taken` is the offset in the sequence
     * up to which the client has taken the bytes. */
    cursor_fn *on_stalled;
    uint64_t (*taken)(const struct cursor *cursor);

    struct execution *execution;    /* a reference; NULL when it is not in memory */
    struct combined_output output;  /* the streams; no first one: there is no output */
    uint64_t offset;                /* in the sequence: of the next byte to read */
    uint64_t end;                   /* in the sequence: cursor_read() stops here */
    uint64_t gap_start, gap_end;    /* in the sequence: announced as missing, and passed over */
    uint64_t offsets[STREAM_COUNT]; /* in each stream, for cursor_turn() */

    struct spool *owned[STREAM_COUNT]; /* private, here and below: of one that is not in memory */
    struct stream_order *owned_order;
    struct execution_watcher watcher;
    struct cursor_follower {
        struct cursor *cursor;
        struct spool_follower follower;
    } followers[STREAM_COUNT];
};

void cursor_open(struct cursor *cursor, const struct found_execution *found,
                 enum cursor_streams streams);

/* Stops reading. With `vanished` the client was cut off before the end: its place among the
 * followers is kept for a while, so that it can come back. */
void cursor_close(struct cursor *cursor, bool vanished);

/* From now on the program waits for this reader, which stands at `offset` of the sequence. */
void cursor_follow(struct cursor *cursor);

/* Whether more may come. */
bool cursor_is_live(const struct cursor *cursor);

/* --- as one sequence ------------------------------------------------------------------------- */

/* The next bytes before `end`; false when there are none now. With *out_is_lost bytes were dropped
 * before them that no gap announces. The writer adds what it has read to `offset`. */
bool cursor_read(struct cursor *cursor, struct combined_output_piece *piece, bool *out_is_lost);

/* Whether bytes came behind `offset` that cannot be read any more. */
bool cursor_is_short(const struct cursor *cursor);

/* Bytes between `offset` and `end` that can be read now. */
uint64_t cursor_count(const struct cursor *cursor);

/* The client has taken the sequence up to `taken`: the program may go on so far. */
void cursor_moved(struct cursor *cursor, uint64_t taken);

/* --- each stream by itself ------------------------------------------------------------------- */

/* Whose turn it is, and how many bytes of it follow before the turn of the other: false when that
 * is not known, and any stream may be read. */
bool cursor_turn(const struct cursor *cursor, unsigned *out_stream, uint64_t *out_bytes);

/* Every stream was read up to its entry in `offsets`: the program may go on so far. */
void cursor_advance(struct cursor *cursor);
