#include "wire/sse.h"

#include <assert.h>
#include <string.h>

/* --- writing ------------------------------------------------------------------------------- */

static void sse_put_field(struct buffer *buffer, const char *name, const char *value, size_t length)
{
    buffer_append_text(buffer, name);
    buffer_append(buffer, ": ", 2);
    buffer_append(buffer, value, length);
    buffer_append_byte(buffer, '\n');
}

/* CR, LF and CRLF all end a line for the reader, so each starts a new field here. */
static void sse_put_data(struct buffer *buffer, const char *data, size_t length)
{
    const char *end = data + length;

    for (;;) {
        const char *stop = data;

        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        sse_put_field(buffer, "data", data, (size_t)(stop - data));
        if (stop == end)
            return;
        data = stop + (stop + 1 < end && stop[0] == '\r' && stop[1] == '\n' ? 2 : 1);
    }
}

static int sse_finish(struct buffer *buffer, size_t before)
{
    if (!buffer->overflowed)
        return 0;
    buffer->length = before;
    return -1;
}

int sse_write(struct buffer *buffer, const char *id, const char *event, const void *data,
              size_t length)
{
    size_t before = buffer->length;

    assert(!id || !strpbrk(id, "\r\n"));
    assert(!event || !strpbrk(event, "\r\n"));
    buffer->overflowed = false;
    if (id)
        sse_put_field(buffer, "id", id, strlen(id));
    if (event)
        sse_put_field(buffer, "event", event, strlen(event));
    sse_put_data(buffer, length ? data : "", length);
    buffer_append_byte(buffer, '\n');
    return sse_finish(buffer, before);
}

int sse_write_comment(struct buffer *buffer, const char *text)
{
    size_t before = buffer->length;

    assert(!strpbrk(text, "\r\n"));
    buffer->overflowed = false;
    buffer_appendf(buffer, ": %s\n\n", text);
    return sse_finish(buffer, before);
}

/* --- reading ------------------------------------------------------------------------------- */

void sse_parser_init(struct sse_parser *parser, size_t maximum_bytes)
{
    *parser = (struct sse_parser){
        .line = BUFFER_INIT(maximum_bytes),
        .data = BUFFER_INIT(maximum_bytes),
        .event = BUFFER_INIT(maximum_bytes),
        .id = BUFFER_INIT(maximum_bytes),
    };
}

void sse_parser_fini(struct sse_parser *parser)
{
    buffer_fini(&parser->line);
    buffer_fini(&parser->data);
    buffer_fini(&parser->event);
    buffer_fini(&parser->id);
}

static bool field_is(const char *line, size_t length, const char *name)
{
    return strlen(name) == length && memcmp(line, name, length) == 0;
}

static int field_take(struct sse_parser *parser, const char *line, size_t name, const char *value,
                      size_t length)
{
    if (field_is(line, name, "data")) {
        if (parser->has_data && buffer_append_byte(&parser->data, '\n') < 0)
            return -1;
        parser->has_data = true;
        return buffer_append(&parser->data, value, length);
    }
    if (field_is(line, name, "event")) {
        buffer_clear(&parser->event);
        return buffer_append(&parser->event, value, length);
    }
    if (field_is(line, name, "id") && !memchr(value, '\0', length)) {
        buffer_clear(&parser->id);
        return buffer_append(&parser->id, value, length);
    }
    return 0;
}

static int line_take(struct sse_parser *parser)
{
    const char *line = (const char *)parser->line.data;
    size_t length = parser->line.length;
    const char *colon;
    size_t name;

    if (!parser->started && length >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
        line += 3;
        length -= 3;
    }
    parser->started = true;
    if (!length)
        return 0;
    colon = memchr(line, ':', length);
    if (!colon)
        return field_take(parser, line, length, "", 0);
    name = (size_t)(colon - line);
    colon++;
    if (name + 1 < length && *colon == ' ')
        colon++;
    return name ? field_take(parser, line, name, colon, length - (size_t)(colon - line)) : 0;
}

static void event_forget(struct sse_parser *parser)
{
    buffer_clear(&parser->data);
    buffer_clear(&parser->event);
    parser->has_data = false;
    parser->dispatched = false;
}

/* The empty line: an event without data is none. */
static bool event_finish(struct sse_parser *parser, struct sse_event *out_event)
{
    if (!parser->has_data) {
        event_forget(parser);
        return false;
    }
    *out_event = (struct sse_event){
        .id = buffer_text(&parser->id),
        .event = parser->event.length ? buffer_text(&parser->event) : "message",
        .data = buffer_text(&parser->data),
        .length = parser->data.length,
    };
    parser->dispatched = true;
    return true;
}

/* Takes bytes up to the end of a line, which becomes complete with CR, LF or CRLF: 1, or 0 when
 * more is needed, or -1 when it is too long. */
static int line_read(struct sse_parser *parser, const char *data, size_t length, size_t *out_used)
{
    size_t at = *out_used;
    size_t start;

    if (parser->after_cr && at < length && data[at] == '\n')
        at++;
    parser->after_cr &= at == length && at == *out_used;
    start = at;
    while (at < length && data[at] != '\n' && data[at] != '\r')
        at++;
    *out_used = at;
    if (buffer_append(&parser->line, data + start, at - start) < 0)
        return -1;
    if (at == length)
        return 0;
    parser->after_cr = data[at] == '\r';
    *out_used = at + 1;
    return 1;
}

int sse_parser_feed(struct sse_parser *parser, const void *data, size_t length, size_t *out_used,
                    struct sse_event *out_event)
{
    int result;

    *out_used = 0;
    if (parser->dispatched)
        event_forget(parser);
    while ((result = line_read(parser, data, length, out_used)) > 0) {
        bool is_empty = parser->line.length == 0 && parser->started;

        if (line_take(parser) < 0)
            return -1;
        buffer_clear(&parser->line);
        if (is_empty && event_finish(parser, out_event))
            return 1;
    }
    return result;
}
