/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"

#include "base/alloc.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALLEST_CAPACITY = 64 };

void buffer_fini(struct buffer *buffer)
{
    free(buffer->data);
    *buffer = BUFFER_INIT(buffer->maximum);
}

void buffer_clear(struct buffer *buffer)
{
    buffer->length = 0;
    buffer->overflowed = false;
}

bool buffer_grow(struct buffer *buffer, size_t length)
{
    size_t capacity = MAX(buffer->capacity, (size_t)SMALLEST_CAPACITY);

    if (length > buffer->maximum || buffer->length > buffer->maximum - length) {
        buffer->overflowed = true;
        return false;
    }
    while (capacity < buffer->length + length + 1)
        capacity *= 2;
    if (capacity != buffer->capacity) {
        buffer->data = xrealloc(buffer->data, capacity, 1);
        buffer->capacity = capacity;
    }
    return true;
}

void buffer_advance(struct buffer *buffer, size_t length)
{
    assert(length < buffer->capacity - buffer->length);
    buffer->length += length;
}

int buffer_vappendf(struct buffer *buffer, const char *format, va_list args)
{
    size_t room = buffer->capacity - buffer->length;
    va_list again;
    int length;

    va_copy(again, args);
    length = vsnprintf(room ? (char *)buffer->data + buffer->length : NULL, room, format, again);
    va_end(again);
    assert(length >= 0);
    if (!buffer_grow(buffer, (size_t)length))
        return -1;
    if ((size_t)length >= room)
        vsnprintf((char *)buffer->data + buffer->length, (size_t)length + 1, format, args);
    buffer->length += (size_t)length;
    return 0;
}

int buffer_appendf(struct buffer *buffer, const char *format, ...)
{
    va_list args;
    int result;

    va_start(args, format);
    result = buffer_vappendf(buffer, format, args);
    va_end(args);
    return result;
}

void buffer_consume(struct buffer *buffer, size_t length)
{
    assert(length <= buffer->length);
    buffer->length -= length;
    if (buffer->length)
        memmove(buffer->data, buffer->data + length, buffer->length);
}

const char *buffer_text(struct buffer *buffer)
{
    if (!buffer->data) {
        buffer->data = xmalloc(SMALLEST_CAPACITY);
        buffer->capacity = SMALLEST_CAPACITY;
    }
    buffer->data[buffer->length] = '\0';
    return (const char *)buffer->data;
}

char *buffer_steal_text(struct buffer *buffer)
{
    char *text;

    (void)buffer_text(buffer);
    text = (char *)buffer->data;
    *buffer = BUFFER_INIT(buffer->maximum);
    return text;
}
