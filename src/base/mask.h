/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Takes the values of secrets out of text: every occurrence becomes MASK_TEXT, also where two of
 * them overlap and where one is cut in two by the end of a chunk.
 *
 *     struct mask_stream stream = MASK_STREAM(mask);
 *     mask_feed(&stream, data, length, &out);     for each chunk
 *     mask_end(&stream, &out);                    the bytes held back until then
 *     mask_stream_fini(&stream);
 *
 * Only bytes that may be the beginning of a value are held back, at most the length of the longest.
 * The time for a byte depends on the number of values, never on their content or the text.
 */

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MASK_TEXT "[redacted]"

enum {
    /* Shorter values occur in every text: masking them would destroy it and reveal them. */
    MASK_SHORTEST = 4,
    MASK_SHORTEST_LINE = 8, /* of a value of several lines, whose lines are masked one by one too */
};

struct mask;

struct mask *mask_new(void);
struct mask *mask_ref(struct mask *mask); /* a further reference; NULL is fine, here and below */
void mask_free(struct mask *mask);        /* the last reference wipes the values */
SCOPED_DEFINE(mask_free, struct mask);

/* Adds a value without its trailing line ends. A value that is known or too short is ignored. A
 * stream that has begun does not look for new values. */
void mask_add(struct mask *mask, const char *value, size_t length);

bool mask_is_empty(const struct mask *mask); /* also NULL */

/* A text as a whole. With an empty mask it is only copied. */
void mask_append(const struct mask *mask, const void *data, size_t length, struct buffer *out);

/* As allocated text. */
char *mask_text(const struct mask *mask, const char *text);

/* --- in pieces ------------------------------------------------------------------------------- */

struct mask_run {
    uint64_t from, to; /* bytes of the stream that are part of a value */
    bool is_told;
};

/* The fields are private. The mask is borrowed and may be NULL. */
struct mask_stream {
    const struct mask *mask;
    size_t *states;        /* owned; how much of each value the last bytes are */
    size_t count;          /* of these: values that there were when it began */
    struct buffer held;    /* owned; bytes that may still turn out to be part of a value */
    uint64_t base;         /* position of the first of them in the stream */
    struct mask_run *runs; /* owned; within `held`, in order */
    size_t run_count, run_capacity;
};

#define MASK_STREAM(values) \
    ((struct mask_stream){ .mask = (values), .held = { .maximum = SIZE_MAX } })

void mask_feed(struct mask_stream *stream, const void *data, size_t length, struct buffer *out);
void mask_end(struct mask_stream *stream, struct buffer *out);
void mask_stream_fini(struct mask_stream *stream);

static inline void scoped_mask_stream_fini(struct mask_stream *stream)
{
    mask_stream_fini(stream);
}
