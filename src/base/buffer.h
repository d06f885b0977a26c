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

/* 0, or -1 when the maximum would be passed. */
int buffer_append(struct buffer *buffer, const void *data, size_t length);
int buffer_append_text(struct buffer *buffer, const char *text);
int buffer_appendf(struct buffer *buffer, const char *format, ...) PRINTF_LIKE(2, 3);
int buffer_vappendf(struct buffer *buffer, const char *format, va_list args);
int buffer_append_byte(struct buffer *buffer, uint8_t byte);

/* Room for `length` more bytes at the end, NULL over the maximum; commit with buffer_advance(). */
void *buffer_reserve(struct buffer *buffer, size_t length);
void buffer_advance(struct buffer *buffer, size_t length);

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
