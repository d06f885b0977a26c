/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Base64 as in RFC 4648: with padding, for bytes inside of JSON, and the variant of tokens and keys. */

#include "base/buffer.h"

#include <stddef.h>

/* Allocated. */
char *base64_encode(const void *data, size_t length);

/* Appends the decoded bytes; spaces and line ends are skipped. 0, or -1 when the text is malformed
 * or does not fit. */
int base64_decode(const char *text, size_t length, struct buffer *out);

/* base64url, for keys and tokens: appends the decoded bytes; 0 or -1. Strict: no padding, no other
 * characters and no unused bits, so that there is one text for each value. */
int base64url_decode(const char *text, size_t length, struct buffer *out);
