/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mask.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

/* One value with its table of borders (Knuth, Morris, Pratt): when the byte behind the first
 * `state` bytes of it does not match, borders[state - 1] of them still do. */
struct value {
    uint8_t *bytes;  /* owned */
    size_t *borders; /* owned */
    size_t length;
};

struct mask {
    struct value *values; /* owned */
    size_t count;
    unsigned references;
    bool starts[256]; /* the bytes that a value begins with */
};

struct mask *mask_new(void)
{
    struct mask *mask = xnew(struct mask);

    mask->references = 1;
    return mask;
}

struct mask *mask_ref(struct mask *mask)
{
    if (mask)
        mask->references++;
    return mask;
}

void mask_free(struct mask *mask)
{
    if (!mask || --mask->references > 0)
        return;
    for (size_t i = 0; i < mask->count; i++) {
        explicit_bzero(mask->values[i].bytes, mask->values[i].length);
        free(mask->values[i].bytes);
        free(mask->values[i].borders);
    }
    free(mask->values);
    free(mask);
}

bool mask_is_empty(const struct mask *mask)
{
    return !mask || mask->count == 0;
}

/* --- values ---------------------------------------------------------------------------------- */

static size_t advance(const struct value *value, size_t state, uint8_t byte)
{
    while (state > 0 && (state == value->length || value->bytes[state] != byte))
        state = value->borders[state - 1];
    return value->bytes[state] == byte ? state + 1 : 0;
}

static void make_borders(struct value *value)
{
    size_t state = 0;

    value->borders = xcalloc(value->length, sizeof(*value->borders));
    for (size_t i = 1; i < value->length; i++) {
        while (state > 0 && value->bytes[state] != value->bytes[i])
            state = value->borders[state - 1];
        state += value->bytes[state] == value->bytes[i];
        value->borders[i] = state;
    }
}

static bool has(const struct mask *mask, const char *bytes, size_t length)
{
    for (size_t i = 0; i < mask->count; i++) {
        if (mask->values[i].length == length && memcmp(mask->values[i].bytes, bytes, length) == 0)
            return true;
    }
    return false;
}

static void add_one(struct mask *mask, const char *bytes, size_t length, size_t shortest)
{
    struct value value = { .length = length };

    if (length < shortest || has(mask, bytes, length))
        return;
    value.bytes = xmalloc(length);
    memcpy(value.bytes, bytes, length);
    make_borders(&value);
    mask->values = xrealloc(mask->values, mask->count + 1, sizeof(*mask->values));
    mask->values[mask->count++] = value;
    mask->starts[value.bytes[0]] = true;
}

static bool is_line_end(char byte)
{
    return byte == '\n' || byte == '\r';
}

static size_t trimmed(const char *bytes, size_t length)
{
    while (length > 0 && is_line_end(bytes[length - 1]))
        length--;
    return length;
}

void mask_add(struct mask *mask, const char *value, size_t length)
{
    size_t at = 0;

    length = trimmed(value, length);
    add_one(mask, value, length, MASK_SHORTEST);
    while (memchr(value, '\n', length) && at < length) {
        const char *end = memchr(value + at, '\n', length - at);
        size_t line = end ? (size_t)(end - value) - at : length - at;

        add_one(mask, value + at, trimmed(value + at, line), MASK_SHORTEST_LINE);
        at += line + 1;
    }
}

/* --- runs: ranges to mask ------------------------------------------------------------------ */

/* Runs come in the order of their ends: a new run absorbs the runs that it touches. */
static void add_run(struct mask_stream *stream, uint64_t from, uint64_t to)
{
    bool is_told = false;

    while (stream->run_count > 0 && stream->runs[stream->run_count - 1].to >= from) {
        const struct mask_run *last = &stream->runs[--stream->run_count];

        from = last->from < from ? last->from : from;
        is_told = is_told || last->is_told;
    }
    if (stream->run_count == stream->run_capacity) {
        stream->run_capacity = stream->run_capacity ? stream->run_capacity * 2 : 8;
        stream->runs = xrealloc(stream->runs, stream->run_capacity, sizeof(*stream->runs));
    }
    stream->runs[stream->run_count++] = (struct mask_run){ from, to, is_told };
}

static void append_held(struct mask_stream *stream, uint64_t from, uint64_t to, struct buffer *out)
{
    if (from < to)
        (void)buffer_append(out, stream->held.data + (from - stream->base), (size_t)(to - from));
}

/* Appends the held text before `until`, masked, and forgets it. */
static void release(struct mask_stream *stream, uint64_t until, struct buffer *out)
{
    uint64_t at = stream->base;
    size_t done = 0;

    while (done < stream->run_count && stream->runs[done].from < until) {
        struct mask_run *run = &stream->runs[done];

        append_held(stream, at, run->from, out);
        if (!run->is_told)
            (void)buffer_append_text(out, MASK_TEXT);
        run->is_told = true;
        at = run->to < until ? run->to : until;
        if (run->to > until) {
            run->from = until; /* the rest of the run belongs to the next call */
            break;
        }
        done++;
    }
    append_held(stream, at, until, out);
    buffer_consume(&stream->held, (size_t)(until - stream->base));
    stream->base = until;
    stream->run_count -= done;
    if (done)
        memmove(stream->runs, stream->runs + done, stream->run_count * sizeof(*stream->runs));
}

/* --- streams --------------------------------------------------------------------------------- */

/* Takes one byte; returns how many of the last bytes may be part of a value. */
static size_t step(struct mask_stream *stream, uint8_t byte, uint64_t end)
{
    const struct mask *mask = stream->mask;
    size_t longest = 0;

    for (size_t i = 0; i < stream->count; i++) {
        size_t state = advance(&mask->values[i], stream->states[i], byte);

        stream->states[i] = state;
        if (state == mask->values[i].length)
            add_run(stream, end - state, end);
        longest = state > longest ? state : longest;
    }
    return longest;
}

static size_t skip_harmless(const struct mask *mask, const uint8_t *bytes, size_t length)
{
    size_t count = 0;

    while (count < length && !mask->starts[bytes[count]])
        count++;
    return count;
}

void mask_feed(struct mask_stream *stream, const void *data, size_t length, struct buffer *out)
{
    const uint8_t *bytes = data;
    uint64_t start = stream->base + stream->held.length; /* of these bytes in the stream */
    size_t kept = stream->held.length; /* of the last bytes, how many may be part of a value */

    if (mask_is_empty(stream->mask)) {
        (void)buffer_append(out, data, length);
        return;
    }
    if (!stream->states) {
        stream->count = stream->mask->count;
        stream->states = xcalloc(stream->count, sizeof(*stream->states));
    }
    (void)buffer_append(&stream->held, data, length);
    for (size_t i = 0; i < length; i++) {
        if (kept == 0)
            i += skip_harmless(stream->mask, bytes + i, length - i);
        if (i < length)
            kept = step(stream, bytes[i], start + i + 1);
    }
    release(stream, start + length - kept, out);
}

void mask_end(struct mask_stream *stream, struct buffer *out)
{
    if (!mask_is_empty(stream->mask))
        release(stream, stream->base + stream->held.length, out);
}

void mask_stream_fini(struct mask_stream *stream)
{
    if (stream->held.data)
        explicit_bzero(stream->held.data, stream->held.capacity);
    buffer_fini(&stream->held);
    free(stream->states);
    free(stream->runs);
    *stream = MASK_STREAM(stream->mask);
}

void mask_append(const struct mask *mask, const void *data, size_t length, struct buffer *out)
{
    scoped(mask_stream_fini) struct mask_stream stream = MASK_STREAM(mask);

    mask_feed(&stream, data, length, out);
    mask_end(&stream, out);
}

char *mask_text(const struct mask *mask, const char *text)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(SIZE_MAX);

    mask_append(mask, text, strlen(text), &out);
    return buffer_steal_text(&out);
}
