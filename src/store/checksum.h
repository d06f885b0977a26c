/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A checksum against accidental damage. Not for secrets. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CHECKSUM_FACTOR 0xd6e8feb86659fd93U

/* Each step can be undone, so any word that is changed changes the sum. */
static inline uint64_t checksum_step(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * CHECKSUM_FACTOR;
    return sum ^ sum >> 32;
}

static inline uint64_t checksum(const void *data, size_t length)
{
    const uint8_t *at = data;
    uint64_t sum = length;

    for (; length >= sizeof(uint64_t); at += sizeof(uint64_t), length -= sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, at, sizeof(word));
        sum = checksum_step(sum, word);
    }
    for (; length; at++, length--)
        sum = checksum_step(sum, *at);
    return sum;
}
