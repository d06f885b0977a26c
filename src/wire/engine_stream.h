/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The output of a program as a container engine streams it: frames of an 8-byte header (which
 * stream, three zeros, the length as a big-endian number) and bytes of standard output or standard
 * error. The splitter gives the runs of standard output, as they stand in the caller's input, and
 * drops the rest.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ENGINE_STREAM_HEADER = 8 };

/* A zeroed struct is ready for the first frame. */
struct engine_stream {
    uint8_t header[ENGINE_STREAM_HEADER];
    unsigned header_length; /* how much of it has come */
    uint32_t left;          /* bytes of the frame that have not */
};

enum engine_stream_event {
    ENGINE_STREAM_OUTPUT,    /* *out_run, *out_length point into the input; never empty */
    ENGINE_STREAM_NEED_MORE, /* all input is used */
    ENGINE_STREAM_BAD,       /* no frame begins like this; the stream is lost */
};

/* Reads from `data`; *out_used says how much was used before the event. */
enum engine_stream_event engine_stream_next(struct engine_stream *stream, const void *data,
                                            size_t length, size_t *out_used,
                                            const uint8_t **out_run, size_t *out_length);

/* Whether the input may end here: between two frames. */
bool engine_stream_is_whole(const struct engine_stream *stream);
