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

/* One byte more than asked for is kept free, so that buffer_text() never has to grow. */
static bool buffer_grow(struct buffer *buffer, size_t extra)
{
    size_t capacity = MAX(buffer->capacity, (size_t)SMALLEST_CAPACITY);

    if (extra > buffer->maximum || buffer->length > buffer->maximum - extra) {
        buffer->overflowed = true;
        return false;
    }
    while (capacity < buffer->length + extra + 1)
        capacity *= 2;
    if (capacity != buffer->capacity) {
        buffer->data = xrealloc(buffer->data, capacity, 1);
        buffer->capacity = capacity;
    }
    return true;
}

void *buffer_reserve(struct buffer *buffer, size_t length)
{
    return buffer_grow(buffer, length) ? buffer->data + buffer->length : NULL;
}

void buffer_advance(struct buffer *buffer, size_t length)
{
    assert(length < buffer->capacity - buffer->length);
    buffer->length += length;
}

int buffer_append(struct buffer *buffer, const void *data, size_t length)
{
    if (!buffer_grow(buffer, length))
        return -1;
    if (length)
        memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
    return 0;
}

int buffer_append_text(struct buffer *buffer, const char *text)
{
    return buffer_append(buffer, text, strlen(text));
}

int buffer_append_byte(struct buffer *buffer, uint8_t byte)
{
    return buffer_append(buffer, &byte, 1);
}

int buffer_vappendf(struct buffer *buffer, const char *format, va_list args)
{
    va_list again;
    int length;

    va_copy(again, args);
    length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    assert(length >= 0);
    if (!buffer_grow(buffer, (size_t)length))
        return -1;
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
