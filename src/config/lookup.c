/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "base/str.h"
#include "config/settings.h"

#include <limits.h>
#include <string.h>

const struct setting *setting_find(const struct setting *rows, const char *key)
{
    for (; rows->key; rows++)
        if (strcmp(rows->key, key) == 0)
            return rows;
    return NULL;
}

/* How far `key` is from a row: from its whole key, or from one of the groups that it stands in. */
static unsigned key_distance(const char *key, const char *row_key, size_t *out_length)
{
    unsigned smallest = UINT_MAX;
    char prefix[64];

    for (size_t end = 1; end < sizeof(prefix); end++) {
        unsigned distance;

        if (row_key[end] && row_key[end] != '.')
            continue;
        memcpy(prefix, row_key, end);
        prefix[end] = '\0';
        distance = str_distance(key, prefix);
        if (distance < smallest) {
            smallest = distance;
            *out_length = end;
        }
        if (!row_key[end])
            break;
    }
    return smallest;
}

static bool is_last_word(const char *key, const char *row_key)
{
    const char *dot = strrchr(row_key, '.');

    return dot && strcmp(dot + 1, key) == 0;
}

int setting_refuse_key(const struct setting *rows, const char *key, struct error *err)
{
    size_t key_length = MIN(strlen(key), (size_t)60);
    unsigned smallest = key_length < 4 ? 2 : MAX(3U, (unsigned)key_length / 4);
    const char *nearest = NULL;
    size_t length = 0;

    for (; rows->key && strlen(key) < 64; rows++) {
        size_t row_length = strlen(rows->key);
        unsigned distance =
            is_last_word(key, rows->key) ? 1 : key_distance(key, rows->key, &row_length);

        if (distance < smallest) {
            smallest = distance;
            nearest = rows->key;
            length = row_length;
        }
    }
    if (!nearest)
        return error_set(err, ERR_INVALID, "unknown setting \"%.100s\"", key);
    return error_set(err, ERR_INVALID, "unknown setting \"%.100s\"; did you mean \"%.*s\"?", key,
                     (int)length, nearest);
}
