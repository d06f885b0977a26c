/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/keys.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

static const char *const prefixes[] = { "sg_", "e2b_" };

void key_set_fini(struct key_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->items[i].principal);
    for (size_t i = 0; i < set->damaged_count; i++)
        free(set->damaged[i]);
    free(set->items);
    free(set->damaged);
    *set = (struct key_set){ 0 };
}

static void key_hash(const struct api_key *key, const char *digits, uint8_t hash[SHA256_BYTES])
{
    sha256_of(key->salt, sizeof(key->salt), digits, 2 * KEY_SECRET_BYTES, hash);
}

struct api_key *key_set_add(struct key_set *set, const char *principal, unsigned roles,
                            int64_t now_us, int64_t expires_us, char out_text[KEY_TEXT_SIZE])
{
    uint8_t secret[KEY_SECRET_BYTES];
    struct api_key *key;

    set->items = xrealloc(set->items, set->count + 1, sizeof(set->items[0]));
    key = &set->items[set->count++];
    *key = (struct api_key){ .principal = xstrdup(principal),
                             .roles = roles,
                             .created_us = now_us,
                             .expires_us = expires_us };
    id_make(key->id, ID_KEY);
    random_fill(key->salt, sizeof(key->salt));
    random_fill(secret, sizeof(secret));
    memcpy(out_text, prefixes[0], strlen(prefixes[0]));
    hex_encode(secret, sizeof(secret), out_text + strlen(prefixes[0]));
    key_hash(key, out_text + strlen(prefixes[0]), key->hash);
    explicit_bzero(secret, sizeof(secret));
    return key;
}

void key_text_for_e2b(char text[KEY_TEXT_SIZE])
{
    memmove(text + strlen(prefixes[1]), text + strlen(prefixes[0]), 2 * KEY_SECRET_BYTES + 1);
    memcpy(text, prefixes[1], strlen(prefixes[1]));
}

struct api_key *key_set_by_id(const struct key_set *set, const char *id)
{
    for (size_t i = 0; i < set->count; i++)
        if (strcmp(set->items[i].id, id) == 0)
            return &set->items[i];
    return NULL;
}

/* The digits of a key, or as many zeros for what is none. */
static bool read_digits(const char *text, char digits[2 * KEY_SECRET_BYTES + 1])
{
    uint8_t secret[KEY_SECRET_BYTES];

    memset(digits, '0', 2 * KEY_SECRET_BYTES);
    digits[2 * KEY_SECRET_BYTES] = '\0';
    for (size_t i = 0; i < ARRAY_LENGTH(prefixes); i++) {
        const char *rest = text + strlen(prefixes[i]);

        if (!str_starts_with(text, prefixes[i]) || strlen(rest) != 2 * KEY_SECRET_BYTES ||
            hex_decode(rest, secret, sizeof(secret)) < 0)
            continue;
        memcpy(digits, rest, 2 * KEY_SECRET_BYTES);
        explicit_bzero(secret, sizeof(secret));
        return true;
    }
    return false;
}

bool key_is_usable(const struct api_key *key, int64_t now_us)
{
    return !key->revoked_us && (!key->expires_us || now_us < key->expires_us);
}

/* All keys are tried, found or not: how long it takes says nothing about which exist. */
const struct api_key *key_set_find(const struct key_set *set, const char *text, int64_t now_us)
{
    char digits[2 * KEY_SECRET_BYTES + 1];
    bool well_formed = read_digits(text, digits);
    const struct api_key *found = NULL;

    for (size_t i = 0; i < set->count; i++) {
        uint8_t hash[SHA256_BYTES];

        key_hash(&set->items[i], digits, hash);
        if (bytes_equal(hash, set->items[i].hash, sizeof(hash)))
            found = &set->items[i];
    }
    explicit_bzero(digits, sizeof(digits));
    return found && well_formed && key_is_usable(found, now_us) ? found : NULL;
}
