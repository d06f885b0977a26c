/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { RANDOM_BYTES = 16, PREFIX_LENGTH = 4, ENCODED_LENGTH = 26 };

static const char alphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";

static void encode(char id[ID_SIZE], const char *prefix, const uint8_t bytes[RANDOM_BYTES])
{
    unsigned bits = 0;
    unsigned held = 0;
    size_t byte = 0;

    assert(strlen(prefix) == PREFIX_LENGTH);
    memcpy(id, prefix, PREFIX_LENGTH);
    for (size_t i = 0; i < ENCODED_LENGTH; i++) {
        if (held < 5) {
            bits = bits << 8 | (byte < RANDOM_BYTES ? bytes[byte++] : 0);
            held += 8;
        }
        held -= 5;
        id[PREFIX_LENGTH + i] = alphabet[bits >> held & 31];
    }
    id[PREFIX_LENGTH + ENCODED_LENGTH] = '\0';
}

void id_make(char id[ID_SIZE], const char *prefix)
{
    uint8_t random[RANDOM_BYTES];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        abort();
    encode(id, prefix, random);
}

/* FNV-1a of 128 bits. */
void id_derive(char id[ID_SIZE], const char *prefix, const char *text)
{
    const unsigned __int128 prime = (unsigned __int128)1 << 88 | 0x13b;
    unsigned __int128 hash = (unsigned __int128)0x6c62272e07bb0142 << 64 | 0x62b821756295c58d;
    uint8_t bytes[RANDOM_BYTES];

    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * prime;
    for (size_t i = 0; i < RANDOM_BYTES; i++)
        bytes[i] = (uint8_t)(hash >> (120 - 8 * i));
    encode(id, prefix, bytes);
}

bool id_is_valid(const char *text, const char *prefix)
{
    if (strncmp(text, prefix, PREFIX_LENGTH) != 0)
        return false;
    text += PREFIX_LENGTH;
    return strlen(text) == ENCODED_LENGTH && strspn(text, alphabet) == ENCODED_LENGTH;
}
