#pragma once

/* What keys and tokens are written in: base64url, hexadecimal, and their SHA-256. */

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_TEXT_SIZE = 2 * SHA256_BYTES + 1 };

/* Appends what the text stands for; 0 or -1. Strict: no padding, nothing else between, and no bits
 * that belong to no byte, so that there is one text for each value. */
int base64url_decode(const char *text, size_t length, struct buffer *out);

/* Lower case; `text` has room for 2 * length + 1 bytes. */
void hex_encode(const uint8_t *bytes, size_t length, char *text);

/* Exactly `length` bytes, in lower case; 0 or -1. */
int hex_decode(const char *text, uint8_t *bytes, size_t length);

/* Of one text behind the other; the first may be empty. */
void sha256_of(const void *first, size_t first_length, const void *second, size_t second_length,
               uint8_t digest[SHA256_BYTES]);

/* Takes the same time whatever the difference is. */
bool bytes_equal(const void *a, const void *b, size_t length);

void random_fill(void *bytes, size_t length);
