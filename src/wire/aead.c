/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/aead.h"

#include <string.h>

/* --- ChaCha20 --------------------------------------------------------------------------------- */

enum { WORDS = 16, BLOCK = 64, LANES = 4, ROUND_PAIRS = 10, COUNTER = 12 };

/* Four blocks at a time: lane i of each word belongs to block i. */
typedef uint32_t lanes __attribute__((vector_size(16)));

static uint32_t read32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static uint64_t read64(const uint8_t *bytes)
{
    return read32(bytes) | (uint64_t)read32(bytes + 4) << 32;
}

static void write32(uint8_t *bytes, uint32_t word)
{
    for (unsigned i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(word >> (8 * i));
}

static void write64(uint8_t *bytes, uint64_t word)
{
    write32(bytes, (uint32_t)word);
    write32(bytes + 4, (uint32_t)(word >> 32));
}

static inline lanes rotate(lanes word, unsigned bits)
{
    return word << bits | word >> (32 - bits);
}

static inline void quarter_round(lanes words[WORDS], unsigned a, unsigned b, unsigned c, unsigned d)
{
    words[a] += words[b];
    words[d] = rotate(words[d] ^ words[a], 16);
    words[c] += words[d];
    words[b] = rotate(words[b] ^ words[c], 12);
    words[a] += words[b];
    words[d] = rotate(words[d] ^ words[a], 8);
    words[c] += words[d];
    words[b] = rotate(words[b] ^ words[c], 7);
}

struct chacha {
    uint32_t words[WORDS]; /* with the counter of the next block */
};

static void chacha_init(struct chacha *chacha, const uint8_t key[AEAD_KEY_SIZE],
                        const uint8_t nonce[AEAD_NONCE_SIZE])
{
    static const uint8_t constants[] = "expand 32-byte k";

    for (unsigned i = 0; i < 4; i++)
        chacha->words[i] = read32(constants + (size_t)4 * i);
    for (unsigned i = 0; i < 8; i++)
        chacha->words[4 + i] = read32(key + (size_t)4 * i);
    chacha->words[COUNTER] = 0;
    for (unsigned i = 0; i < 3; i++)
        chacha->words[COUNTER + 1 + i] = read32(nonce + (size_t)4 * i);
}

static void chacha_blocks(struct chacha *chacha, uint8_t out[LANES * BLOCK])
{
    lanes start[WORDS], words[WORDS];

    for (unsigned i = 0; i < WORDS; i++)
        for (unsigned lane = 0; lane < LANES; lane++)
            start[i][lane] = chacha->words[i] + (i == COUNTER ? lane : 0);
    memcpy(words, start, sizeof words);
    for (unsigned i = 0; i < ROUND_PAIRS; i++) {
        quarter_round(words, 0, 4, 8, 12);
        quarter_round(words, 1, 5, 9, 13);
        quarter_round(words, 2, 6, 10, 14);
        quarter_round(words, 3, 7, 11, 15);
        quarter_round(words, 0, 5, 10, 15);
        quarter_round(words, 1, 6, 11, 12);
        quarter_round(words, 2, 7, 8, 13);
        quarter_round(words, 3, 4, 9, 14);
    }
    for (unsigned i = 0; i < WORDS; i++) {
        words[i] += start[i];
        for (unsigned lane = 0; lane < LANES; lane++)
            write32(out + (size_t)lane * BLOCK + (size_t)4 * i, words[i][lane]);
    }
    chacha->words[COUNTER] += LANES;
    explicit_bzero(start, sizeof start);
    explicit_bzero(words, sizeof words);
}

static void mix(uint8_t *data, const uint8_t *stream, size_t length)
{
    size_t i = 0;

    for (; i + 8 <= length; i += 8) {
        uint64_t one, other;

        memcpy(&one, data + i, sizeof one);
        memcpy(&other, stream + i, sizeof other);
        one ^= other;
        memcpy(data + i, &one, sizeof one);
    }
    for (; i < length; i++)
        data[i] ^= stream[i];
}

/* Block 0 of the stream is for the key of the tag, so the data begins at block 1. */
static void chacha_mix(const struct chacha *first, uint8_t *data, size_t length)
{
    struct chacha chacha = *first;
    uint8_t stream[LANES * BLOCK];

    chacha.words[COUNTER] = 1;
    while (length) {
        size_t part = length < sizeof stream ? length : sizeof stream;

        chacha_blocks(&chacha, stream);
        mix(data, stream, part);
        data += part;
        length -= part;
    }
    explicit_bzero(stream, sizeof stream);
    explicit_bzero(&chacha, sizeof chacha);
}

/* --- Poly1305 --------------------------------------------------------------------------------- */

enum { PIECE = 16 };

/* Numbers modulo 2^130 - 5, in limbs of 44, 44 and 42 bits. */
static const uint64_t mask44 = 0xfffffffffff, mask42 = 0x3ffffffffff;

typedef unsigned __int128 wide;

struct poly {
    uint64_t r[3];
    uint64_t sum[3];
    uint64_t pad[2];
};

static void poly_init(struct poly *poly, const uint8_t key[2 * PIECE])
{
    uint64_t low = read64(key), high = read64(key + 8);

    *poly = (struct poly){
        .r = { low & 0xffc0fffffff, (low >> 44 | high << 20) & 0xfffffc0ffff,
               high >> 24 & 0x00ffffffc0f },
        .pad = { read64(key + 16), read64(key + 24) },
    };
}

/* `top` is bit 128: each piece has one above its 16 bytes. */
static void poly_add(struct poly *poly, const uint8_t piece[PIECE])
{
    const uint64_t top = (uint64_t)1 << 40;
    uint64_t low = read64(piece), high = read64(piece + 8);
    uint64_t r0 = poly->r[0], r1 = poly->r[1], r2 = poly->r[2];
    uint64_t s1 = r1 * 20, s2 = r2 * 20;
    uint64_t h0 = poly->sum[0] + (low & mask44);
    uint64_t h1 = poly->sum[1] + ((low >> 44 | high << 20) & mask44);
    uint64_t h2 = poly->sum[2] + (high >> 24 | top);
    wide d0 = (wide)h0 * r0 + (wide)h1 * s2 + (wide)h2 * s1;
    wide d1 = (wide)h0 * r1 + (wide)h1 * r0 + (wide)h2 * s2;
    wide d2 = (wide)h0 * r2 + (wide)h1 * r1 + (wide)h2 * r0;

    d1 += (uint64_t)(d0 >> 44);
    d2 += (uint64_t)(d1 >> 44);
    h0 = ((uint64_t)d0 & mask44) + (uint64_t)(d2 >> 42) * 5;
    poly->sum[1] = ((uint64_t)d1 & mask44) + (h0 >> 44);
    poly->sum[0] = h0 & mask44;
    poly->sum[2] = (uint64_t)d2 & mask42;
}

/* The last piece is filled up with zeros. */
static void poly_add_all(struct poly *poly, const uint8_t *data, size_t length)
{
    uint8_t last[PIECE] = { 0 };

    for (; length >= PIECE; data += PIECE, length -= PIECE)
        poly_add(poly, data);
    if (!length)
        return;
    memcpy(last, data, length);
    poly_add(poly, last);
}

/* Carries until each limb is in its bounds. */
static void poly_settle(uint64_t sum[3])
{
    for (unsigned i = 0; i < 2; i++) {
        sum[1] += sum[0] >> 44;
        sum[0] &= mask44;
        sum[2] += sum[1] >> 44;
        sum[1] &= mask44;
        sum[0] += (sum[2] >> 42) * 5;
        sum[2] &= mask42;
    }
    sum[1] += sum[0] >> 44;
    sum[0] &= mask44;
}

static void poly_finish(struct poly *poly, uint8_t out_tag[AEAD_TAG_SIZE])
{
    uint64_t *h = poly->sum;
    uint64_t g0, g1, g2, is_below, low, high;
    wide sum;

    poly_settle(h);
    g0 = h[0] + 5;
    g1 = h[1] + (g0 >> 44);
    g2 = h[2] + (g1 >> 44) - ((uint64_t)1 << 42);
    is_below = 0 - (g2 >> 63); /* all bits: the sum is below 2^130 - 5 */
    h[0] = (h[0] & is_below) | (g0 & mask44 & ~is_below);
    h[1] = (h[1] & is_below) | (g1 & mask44 & ~is_below);
    h[2] = (h[2] & is_below) | (g2 & mask42 & ~is_below);
    low = h[0] | h[1] << 44;
    high = h[1] >> 20 | h[2] << 24;
    sum = (wide)low + poly->pad[0];
    write64(out_tag, (uint64_t)sum);
    write64(out_tag + 8, high + poly->pad[1] + (uint64_t)(sum >> 64));
    explicit_bzero(poly, sizeof *poly);
}

/* --- both ------------------------------------------------------------------------------------- */

static void make_tag(const struct chacha *first, const void *head, size_t head_length,
                     const void *data, size_t length, uint8_t out_tag[AEAD_TAG_SIZE])
{
    struct chacha chacha = *first;
    uint8_t stream[LANES * BLOCK];
    uint8_t lengths[PIECE];
    struct poly poly;

    chacha_blocks(&chacha, stream);
    poly_init(&poly, stream);
    explicit_bzero(stream, sizeof stream);
    explicit_bzero(&chacha, sizeof chacha);
    write64(lengths, head_length);
    write64(lengths + 8, length);
    poly_add_all(&poly, head, head_length);
    poly_add_all(&poly, data, length);
    poly_add(&poly, lengths);
    poly_finish(&poly, out_tag);
}

static bool is_equal(const uint8_t one[AEAD_TAG_SIZE], const uint8_t other[AEAD_TAG_SIZE])
{
    unsigned difference = 0;

    for (unsigned i = 0; i < AEAD_TAG_SIZE; i++)
        difference |= (unsigned)(one[i] ^ other[i]);
    return !difference;
}

void aead_encrypt(const uint8_t key[AEAD_KEY_SIZE], const uint8_t nonce[AEAD_NONCE_SIZE],
                  const void *head, size_t head_length, void *data, size_t length,
                  uint8_t out_tag[AEAD_TAG_SIZE])
{
    struct chacha chacha;

    chacha_init(&chacha, key, nonce);
    chacha_mix(&chacha, data, length);
    make_tag(&chacha, head, head_length, data, length, out_tag);
    explicit_bzero(&chacha, sizeof chacha);
}

bool aead_decrypt(const uint8_t key[AEAD_KEY_SIZE], const uint8_t nonce[AEAD_NONCE_SIZE],
                  const void *head, size_t head_length, void *data, size_t length,
                  const uint8_t tag[AEAD_TAG_SIZE])
{
    uint8_t expected[AEAD_TAG_SIZE];
    struct chacha chacha;
    bool is_right;

    chacha_init(&chacha, key, nonce);
    make_tag(&chacha, head, head_length, data, length, expected);
    is_right = is_equal(expected, tag);
    if (is_right)
        chacha_mix(&chacha, data, length);
    explicit_bzero(expected, sizeof expected);
    explicit_bzero(&chacha, sizeof chacha);
    return is_right;
}
