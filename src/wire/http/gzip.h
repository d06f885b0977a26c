/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Undoing gzip, piece by piece or a whole message at once. */

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gunzip;

/* Takes the next decompressed bytes; a negative result ends gunzip_add(), which gives it back. */
typedef int gunzip_fn(void *context, const uint8_t *data, size_t length);

struct gunzip *gunzip_new(void);
void gunzip_free(struct gunzip *gunzip); /* NULL is fine */

/* 0; -1 when the bytes are not gzip; or the result of the callback. */
int gunzip_add(struct gunzip *gunzip, const void *data, size_t length, gunzip_fn *take,
               void *context);

/* Whether the end of the last member has been seen. */
bool gunzip_is_complete(const struct gunzip *gunzip);

/* A whole message, appended; -1 when it is malformed, incomplete or does not fit. */
int gunzip_message(const void *data, size_t length, struct buffer *out);
