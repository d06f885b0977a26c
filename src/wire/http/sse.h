/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Server-sent events: text blocks of "field: value" lines, ended by an empty line. The daemon only
 * writes them.
 */

#include "base/buffer.h"

#include <stddef.h>

/* Appends one event. Each line of the data (LF, CR or CRLF ends one) becomes a field of its own, so
 * that data with line breaks arrives as one event. `id` and `event` may be NULL; neither has line
 * breaks. 0, or -1 when the buffer is full, which leaves it as it was. */
int sse_write(struct buffer *buffer, const char *id, const char *event, const void *data,
              size_t length);
