/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/sha256.h"

#include <string.h>

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t word, unsigned bits)
{
    return word >> bits | word << (32 - bits);
}

static uint32_t read_big_endian(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void write_big_endian(uint8_t *bytes, uint32_t word)
{
    for (unsigned i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(word >> (24 - 8 * i));
}

static void expand(const uint8_t *block, uint32_t words[64])
{
    for (unsigned i = 0; i < 16; i++)
        words[i] = read_big_endian(block + 4 * i);
    for (unsigned i = 16; i < 64; i++) {
        uint32_t early = words[i - 15];
        uint32_t late = words[i - 2];

        words[i] = words[i - 16] + words[i - 7] +
                   (rotate(early, 7) ^ rotate(early, 18) ^ early >> 3) +
                   (rotate(late, 17) ^ rotate(late, 19) ^ late >> 10);
    }
}

static void mix(uint32_t state[8], const uint8_t *block)
{
    uint32_t words[64];
    uint32_t v[8];

    expand(block, words);
    memcpy(v, state, sizeof v);
    for (unsigned i = 0; i < 64; i++) {
        uint32_t first = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) +
                         ((v[4] & v[5]) ^ (~v[4] & v[6])) + round_constants[i] + words[i];
        uint32_t second = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) +
                          ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));

        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += first;
        v[0] = first + second;
    }
    for (unsigned i = 0; i < 8; i++)
        state[i] += v[i];
}

void sha256_init(struct sha256 *hash)
{
    *hash = (struct sha256){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                        0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

void sha256_add(struct sha256 *hash, const void *data, size_t length)
{
    const uint8_t *bytes = data;

    while (length) {
        size_t used = hash->length % SHA256_BLOCK;
        size_t part = SHA256_BLOCK - used < length ? SHA256_BLOCK - used : length;

        memcpy(hash->block + used, bytes, part);
        hash->length += part;
        bytes += part;
        length -= part;
        if (used + part == SHA256_BLOCK)
            mix(hash->state, hash->block);
    }
}

void sha256_finish(struct sha256 *hash, uint8_t out_digest[SHA256_SIZE])
{
    static const uint8_t padding[SHA256_BLOCK] = { 0x80 };
    uint64_t bits = hash->length * 8;
    size_t used = hash->length % SHA256_BLOCK;
    uint8_t length[8];

    sha256_add(hash, padding, (used < 56 ? 56 : 120) - used);
    write_big_endian(length, (uint32_t)(bits >> 32));
    write_big_endian(length + 4, (uint32_t)bits);
    sha256_add(hash, length, sizeof length);
    for (unsigned i = 0; i < 8; i++)
        write_big_endian(out_digest + 4 * i, hash->state[i]);
}

static void begin_with(struct sha256 *hash, const uint8_t key[SHA256_BLOCK], uint8_t pad)
{
    uint8_t padded[SHA256_BLOCK];

    for (unsigned i = 0; i < SHA256_BLOCK; i++)
        padded[i] = key[i] ^ pad;
    sha256_init(hash);
    sha256_add(hash, padded, sizeof padded);
}

void hmac_init(struct hmac *hmac, const void *key, size_t length)
{
    uint8_t block[SHA256_BLOCK] = { 0 };

    if (length > SHA256_BLOCK) {
        struct sha256 hash;

        sha256_init(&hash);
        sha256_add(&hash, key, length);
        sha256_finish(&hash, block);
    } else {
        memcpy(block, key, length);
    }
    begin_with(&hmac->inner, block, 0x36);
    begin_with(&hmac->outer, block, 0x5c);
}

void hmac_add(struct hmac *hmac, const void *data, size_t length)
{
    sha256_add(&hmac->inner, data, length);
}

void hmac_finish(struct hmac *hmac, uint8_t out_mac[SHA256_SIZE])
{
    uint8_t digest[SHA256_SIZE];

    sha256_finish(&hmac->inner, digest);
    sha256_add(&hmac->outer, digest, sizeof digest);
    sha256_finish(&hmac->outer, out_mac);
}

bool hmac_equal(const uint8_t one[SHA256_SIZE], const uint8_t other[SHA256_SIZE])
{
    uint8_t difference = 0;

    for (unsigned i = 0; i < SHA256_SIZE; i++)
        difference |= one[i] ^ other[i];
    return !difference;
}
