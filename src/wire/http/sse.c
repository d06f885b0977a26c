/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http/sse.h"

#include <assert.h>
#include <string.h>

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
