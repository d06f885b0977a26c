/* SPDX-License-Identifier: Apache-2.0 */
/* JSON of an engine: documents, and streams with one object in each line. */

#include "backend/docker/engine_private.h"
#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

json_t *engine_json_read(const void *data, size_t length)
{
    json_t *document = json_loadb(data, length, 0, NULL);

    /* An unlimited counter is 2^64 - 1, which jansson refuses as a whole number. */
    return document ? document : json_loadb(data, length, JSON_DECODE_INT_AS_REAL, NULL);
}

struct engine_lines {
    enum { LINES_IDLE, LINES_FED, LINES_FREED } state; /* freed while they are fed: later */
    struct buffer partial; /* the beginning of a line whose end has not come */
};

struct engine_lines *engine_lines_new(void)
{
    struct engine_lines *lines = xnew(struct engine_lines);

    lines->partial = BUFFER_INIT(ENGINE_LINE_MAXIMUM);
    return lines;
}

void engine_lines_free(struct engine_lines *lines)
{
    if (lines->state == LINES_FED) {
        lines->state = LINES_FREED;
        return;
    }
    buffer_fini(&lines->partial);
    free(lines);
}

void engine_lines_clear(struct engine_lines *lines)
{
    assert(lines->state == LINES_IDLE);
    buffer_clear(&lines->partial);
}

static bool line_is_blank(const uint8_t *line, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (line[i] != ' ' && line[i] != '\r' && line[i] != '\t')
            return false;
    }
    return true;
}

static int line_give(const uint8_t *line, size_t length, engine_line_fn *on_line, void *context,
                     struct error *err)
{
    scoped(json_decref) json_t *object = NULL;

    if (line_is_blank(line, length))
        return 0;
    object = engine_json_read(line, length);
    if (!json_is_object(object))
        return error_set(err, ERR_BACKEND, "the engine sends a line that is no JSON object");
    on_line(context, object);
    return 0;
}

/* The next line, or the beginning of one; *out_used says how much it took. */
static int lines_take(struct engine_lines *lines, const uint8_t *data, size_t length,
                      size_t *out_used, engine_line_fn *on_line, void *context, struct error *err)
{
    const uint8_t *newline = memchr(data, '\n', length);
    size_t piece = newline ? (size_t)(newline - data) : length;
    bool is_whole = newline && !lines->partial.length;

    *out_used = newline ? piece + 1 : piece;
    if (piece > ENGINE_LINE_MAXIMUM ||
        (!is_whole && buffer_append(&lines->partial, data, piece) < 0))
        return error_set(err, ERR_BACKEND, "the engine sends a line of more than %d bytes",
                         ENGINE_LINE_MAXIMUM);
    if (is_whole)
        return line_give(data, piece, on_line, context, err);
    if (!newline)
        return 0;
    if (line_give(lines->partial.data, lines->partial.length, on_line, context, err) < 0)
        return -1;
    buffer_clear(&lines->partial);
    return 0;
}

int engine_lines_feed(struct engine_lines *lines, const void *data, size_t length,
                      engine_line_fn *on_line, void *context, struct error *err)
{
    const uint8_t *at = data;
    const uint8_t *end = at + length;
    int result = 0;

    lines->state = LINES_FED;
    while (at < end && lines->state == LINES_FED && result == 0) {
        size_t used;

        result = lines_take(lines, at, (size_t)(end - at), &used, on_line, context, err);
        at += used;
    }
    if (lines->state == LINES_FED) {
        lines->state = LINES_IDLE;
        return result;
    }
    lines->state = LINES_IDLE;
    engine_lines_free(lines);
    return 0;
}
