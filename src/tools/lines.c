/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/lines.h"

#include "base/str.h"
#include "tools/text.h"

#include <string.h>

void lines_init(struct lines *lines, uint64_t first, uint64_t limit, size_t line_limit,
                size_t total_limit)
{
    *lines = (struct lines){
        .first = first,
        .limit = limit,
        .line_limit = line_limit,
        .total_limit = total_limit,
        .text = BUFFER_INIT(total_limit * 4 + 1024),
        .line = { .bytes = BUFFER_INIT(line_limit * 4) },
    };
}

void lines_fini(struct lines *lines)
{
    buffer_fini(&lines->text);
    buffer_fini(&lines->line.bytes);
}

bool lines_are_done(const struct lines *lines)
{
    return lines->is_full || lines->shown >= lines->limit;
}

static bool is_wanted(const struct lines *lines)
{
    return !lines->is_full && lines->number >= lines->first && lines->shown < lines->limit;
}

/* A part of the line that has begun; what is over the limit is only counted. */
static void take(struct lines *lines, const uint8_t *bytes, size_t length)
{
    struct text_line *line = &lines->line;
    size_t room = line->bytes.maximum - line->bytes.length;

    line->length += length;
    if (is_wanted(lines))
        buffer_append(&line->bytes, bytes, MIN(length, room));
}

static void show(struct lines *lines)
{
    struct text_line *line = &lines->line;
    size_t length = line->bytes.length;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(line->bytes.maximum * 4 + 256);
    char number[TEXT_NUMBER_SIZE];
    size_t shown, characters;

    if (line->length == length && length && line->bytes.data[length - 1] == '\r')
        length--;
    buffer_appendf(&text, "%6llu\t", (unsigned long long)lines->number);
    shown = text_skip(line->bytes.data, length, lines->line_limit);
    text_append(&text, line->bytes.data, shown);
    if (shown < length || line->length > line->bytes.length) {
        buffer_appendf(&text, " … [line cut: it has %s bytes]", text_number(line->length, number));
        lines->cut++;
    }
    buffer_append_byte(&text, '\n');
    characters = text_count(text.data, text.length);
    if (lines->shown && lines->characters + characters > lines->total_limit) {
        lines->is_full = true;
        return;
    }
    buffer_append(&lines->text, text.data, text.length);
    lines->characters += characters;
    lines->shown++;
}

static void end_line(struct lines *lines)
{
    if (is_wanted(lines))
        show(lines);
    buffer_clear(&lines->line.bytes);
    lines->line.length = 0;
    lines->line.is_open = false;
}

void lines_feed(struct lines *lines, const void *bytes, size_t length)
{
    const uint8_t *at = bytes, *end = at + length;

    while (at < end) {
        const uint8_t *line_end = memchr(at, '\n', (size_t)(end - at));

        if (!lines->line.is_open)
            lines->number++;
        lines->line.is_open = true;
        take(lines, at, (size_t)((line_end ? line_end : end) - at));
        if (!line_end)
            return;
        end_line(lines);
        at = line_end + 1;
    }
}

void lines_end(struct lines *lines)
{
    if (lines->line.is_open)
        end_line(lines);
}
