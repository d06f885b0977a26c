/* SPDX-License-Identifier: Apache-2.0 */
/* Query parameters of a target. */

#include "wire/http/http_parser.h"

#include <string.h>

static int query_decode(const char *text, size_t length, struct buffer *out)
{
    buffer_clear(out);
    for (size_t i = 0; i < length; i++) {
        int byte = text[i] == '+' ? ' ' : (uint8_t)text[i];

        if (byte == '%') {
            if (i + 2 >= length || http_hex_digit(text[i + 1]) < 0 ||
                http_hex_digit(text[i + 2]) < 0)
                return -1;
            byte = http_hex_digit(text[i + 1]) << 4 | http_hex_digit(text[i + 2]);
            i += 2;
        }
        if (byte == 0 || buffer_append_byte(out, (uint8_t)byte) < 0)
            return -1;
    }
    return 0;
}

int http_query_next(const char **query, struct buffer *name, struct buffer *value)
{
    const char *at = *query + strspn(*query, "&");
    size_t length = strcspn(at, "&");
    const char *equals = memchr(at, '=', length);
    size_t name_length = equals ? (size_t)(equals - at) : length;

    *query = at + length;
    if (!length)
        return 0;
    if (query_decode(at, name_length, name) < 0)
        return -1;
    if (!equals) {
        buffer_clear(value);
        return 1;
    }
    return query_decode(equals + 1, length - name_length - 1, value) < 0 ? -1 : 1;
}
