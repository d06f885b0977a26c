/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Growable bytes with a hard maximum. Appending past the maximum fails and changes nothing, so a
 * stranger can never make us grow without bound. Text in it is not NUL-terminated unless
 * buffer_text() is asked for.
 */

#include "base/macros.h"
#include "base/scoped.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buffer {
    uint8_t *data; /* owned */
    size_t length;
    size_t capacity;
    size_t maximum;
    bool overflowed; /* an append was refused; stays set until buffer_clear() */
};

#define BUFFER_INIT(max_bytes) ((struct buffer){ .maximum = (max_bytes) })

void buffer_fini(struct buffer *buffer);
void buffer_clear(struct buffer *buffer); /* keeps the memory */

/* Makes room for `length` more bytes, and one behind them, so that buffer_text() never has to grow.
 * False over the maximum. */
bool buffer_grow(struct buffer *buffer, size_t length);

/* Inline, because documents are written in pieces of a few bytes. */
static inline bool buffer_fits(const struct buffer *buffer, size_t length)
{
    return length < buffer->capacity - buffer->length && buffer->length + length <= buffer->maximum;
}

/* Room for `length` more bytes at the end, NULL over the maximum; commit with buffer_advance(). */
static inline void *buffer_reserve(struct buffer *buffer, size_t length)
{
    return buffer_fits(buffer, length) || buffer_grow(buffer, length)
               ? buffer->data + buffer->length
               : NULL;
}

void buffer_advance(struct buffer *buffer, size_t length);

/* 0, or -1 when the maximum would be passed; here and below. */
static inline int buffer_append(struct buffer *buffer, const void *data, size_t length)
{
    void *room = buffer_reserve(buffer, length);

    if (!room)
        return -1;
    if (length)
        memcpy(room, data, length);
    buffer->length += length;
    return 0;
}

static inline int buffer_append_byte(struct buffer *buffer, uint8_t byte)
{
    return buffer_append(buffer, &byte, 1);
}

static inline int buffer_append_text(struct buffer *buffer, const char *text)
{
    return buffer_append(buffer, text, strlen(text));
}

int buffer_appendf(struct buffer *buffer, const char *format, ...) PRINTF_LIKE(2, 3);
int buffer_vappendf(struct buffer *buffer, const char *format, va_list args);

/* Removes bytes from the front. */
void buffer_consume(struct buffer *buffer, size_t length);

/* The content with a NUL behind it; borrowed, valid until the next change. */
const char *buffer_text(struct buffer *buffer);

/* The content as an allocated, NUL-terminated string; the buffer is empty afterwards. */
char *buffer_steal_text(struct buffer *buffer);

static inline void scoped_buffer_fini(struct buffer *buffer)
{
    buffer_fini(buffer);
}
