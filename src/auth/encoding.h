/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Encodings of keys and tokens beside base64url: hexadecimal, and SHA-256 as text. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_TEXT_SIZE = 2 * SHA256_BYTES + 1 };

/* Lower case; `text` has room for 2 * length + 1 bytes. */
void hex_encode(const uint8_t *bytes, size_t length, char *text);

/* Exactly `length` bytes, in lower case; 0 or -1. */
int hex_decode(const char *text, uint8_t *bytes, size_t length);

/* Of one text behind the other; the first may be empty. */
void sha256_of(const void *first, size_t first_length, const void *second, size_t second_length,
               uint8_t digest[SHA256_BYTES]);

/* Compares in constant time. */
bool bytes_equal(const void *a, const void *b, size_t length);

void random_fill(void *bytes, size_t length);
