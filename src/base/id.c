#include "base/id.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { RANDOM_BYTES = 16, PREFIX_LENGTH = 4, ENCODED_LENGTH = 26 };

static const char alphabet[] = "0123456789abcdefghjkmnpqrstvwxyz";

void id_make(char id[ID_SIZE], const char *prefix)
{
    uint8_t random[RANDOM_BYTES];
    unsigned bits = 0;
    unsigned held = 0;
    size_t byte = 0;

    assert(strlen(prefix) == PREFIX_LENGTH);
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        abort();
    memcpy(id, prefix, PREFIX_LENGTH);
    for (size_t i = 0; i < ENCODED_LENGTH; i++) {
        if (held < 5) {
            bits = bits << 8 | (byte < sizeof(random) ? random[byte++] : 0);
            held += 8;
        }
        held -= 5;
        id[PREFIX_LENGTH + i] = alphabet[bits >> held & 31];
    }
    id[PREFIX_LENGTH + ENCODED_LENGTH] = '\0';
}

bool id_is_valid(const char *text, const char *prefix)
{
    if (strncmp(text, prefix, PREFIX_LENGTH) != 0)
        return false;
    text += PREFIX_LENGTH;
    return strlen(text) == ENCODED_LENGTH && strspn(text, alphabet) == ENCODED_LENGTH;
}
