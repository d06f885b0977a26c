#pragma once

/* Base64 as in RFC 4648: with padding, for bytes inside of JSON, and the variant of tokens and keys. */

#include "base/buffer.h"

#include <stddef.h>

/* Allocated. */
char *base64_encode(const void *data, size_t length);

/* Appends what the text stands for; spaces and line ends between do not count. 0, or -1 when it is
 * malformed or does not fit. */
int base64_decode(const char *text, size_t length, struct buffer *out);

/* base64url, for keys and tokens: appends what the text stands for; 0 or -1. Strict: no padding,
 * nothing else between, and no bits that belong to no byte, so that there is one text for each
 * value. */
int base64url_decode(const char *text, size_t length, struct buffer *out);
