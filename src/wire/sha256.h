/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * SHA-256 and HMAC-SHA-256 (FIPS 180-4, RFC 2104) for programs that link nothing: a relay proves
 * with it that it knows the key of its sandbox. Where OpenSSL is linked, OpenSSL is used.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHA256_SIZE = 32, SHA256_BLOCK = 64 };

struct sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    uint8_t block[SHA256_BLOCK];
};

void sha256_init(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *data, size_t length);
void sha256_finish(struct sha256 *hash, uint8_t out_digest[SHA256_SIZE]);

struct hmac {
    struct sha256 inner;
    struct sha256 outer;
};

void hmac_init(struct hmac *hmac, const void *key, size_t length);
void hmac_add(struct hmac *hmac, const void *data, size_t length);
void hmac_finish(struct hmac *hmac, uint8_t out_mac[SHA256_SIZE]);

/* Compares in constant time. */
bool hmac_equal(const uint8_t one[SHA256_SIZE], const uint8_t other[SHA256_SIZE]);
