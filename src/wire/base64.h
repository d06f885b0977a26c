#pragma once

/* Base64 as in RFC 4648, with padding: bytes inside of JSON. */

#include "base/buffer.h"

#include <stddef.h>

/* Allocated. */
char *base64_encode(const void *data, size_t length);

/* Appends what the text stands for; spaces and line ends between do not count. 0, or -1 when it is
 * malformed or does not fit. */
int base64_decode(const char *text, size_t length, struct buffer *out);
