/* SPDX-License-Identifier: Apache-2.0 */
/* Writing parts of a head. */

#include "wire/http/http_parser.h"

#include <stdio.h>
#include <string.h>

int http_escape(struct buffer *buffer, const char *text)
{
    size_t before = buffer->length;
    char escape[4];

    for (; *text; text++) {
        bool is_plain = http_char_is(*text, HTTP_CHAR_HOST) || *text == '~';

        snprintf(escape, sizeof(escape), is_plain ? "%c" : "%%%02X", (uint8_t)*text);
        if (buffer_append_text(buffer, escape) < 0) {
            buffer->length = before;
            return -1;
        }
    }
    return 0;
}

static void append_clean(struct buffer *buffer, const char *text)
{
    size_t length = strlen(text);
    uint8_t *room = buffer_reserve(buffer, length);

    if (!room)
        return;
    for (size_t i = 0; i < length; i++)
        room[i] = http_char_is(text[i], HTTP_CHAR_CONTROL) ? '?' : (uint8_t)text[i];
    buffer->length += length;
}

int http_put_header(struct buffer *buffer, const char *name, const char *value)
{
    size_t before = buffer->length;

    buffer->overflowed = false;
    append_clean(buffer, name);
    buffer_append(buffer, ": ", 2);
    append_clean(buffer, value);
    buffer_append(buffer, "\r\n", 2);
    if (!buffer->overflowed)
        return 0;
    buffer->length = before;
    return -1;
}
