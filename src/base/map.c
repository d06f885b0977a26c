/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { SMALLEST_CAPACITY = 16 };

static uint64_t hash_seed(void)
{
    static uint64_t seed;

    if (!seed && getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        seed = (uint64_t)(uintptr_t)&seed;
    seed |= 1;
    return seed;
}

/* FNV-1a over a random start, finished with a mixer. */
static uint64_t hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325U ^ hash_seed();

    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3U;
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93U;
    return hash ^ (hash >> 32);
}

/* The slot that holds the key, or the free one where it belongs. Linear probing. */
static struct map_slot *find_slot(const struct map *map, const char *key, uint64_t hash)
{
    size_t mask = map->capacity - 1;

    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct map_slot *slot = &map->slots[i];

        if (!slot->key || (slot->hash == hash && strcmp(slot->key, key) == 0))
            return slot;
    }
}

static void map_resize(struct map *map, size_t capacity)
{
    struct map old = *map;

    *map = (struct map){ .slots = xcalloc(capacity, sizeof(struct map_slot)),
                         .capacity = capacity,
                         .count = old.count };
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].key)
            *find_slot(map, old.slots[i].key, old.slots[i].hash) = old.slots[i];
    free(old.slots);
}

void map_fini(struct map *map)
{
    free(map->slots);
    *map = (struct map){ 0 };
}

void *map_get(const struct map *map, const char *key)
{
    return map->capacity ? find_slot(map, key, hash_text(key))->value : NULL;
}

void map_put(struct map *map, const char *key, void *value)
{
    uint64_t hash = hash_text(key);
    struct map_slot *slot;

    if ((map->count + 1) * 4 > map->capacity * 3)
        map_resize(map, map->capacity ? map->capacity * 2 : SMALLEST_CAPACITY);
    slot = find_slot(map, key, hash);
    if (!slot->key)
        map->count++;
    *slot = (struct map_slot){ .key = key, .value = value, .hash = hash };
}

/* Closes the hole: later members of the same run move up, so that no tombstones are needed. */
static void close_hole(struct map *map, size_t hole)
{
    size_t mask = map->capacity - 1;

    for (size_t i = (hole + 1) & mask; map->slots[i].key; i = (i + 1) & mask) {
        size_t home = map->slots[i].hash & mask;
        bool stays = hole < i ? (home > hole && home <= i) : (home > hole || home <= i);

        if (stays)
            continue;
        map->slots[hole] = map->slots[i];
        hole = i;
    }
    map->slots[hole] = (struct map_slot){ 0 };
}

void *map_remove(struct map *map, const char *key)
{
    struct map_slot *slot;
    void *value;

    if (!map->capacity)
        return NULL;
    slot = find_slot(map, key, hash_text(key));
    if (!slot->key)
        return NULL;
    value = slot->value;
    map->count--;
    close_hole(map, (size_t)(slot - map->slots));
    return value;
}

struct map_slot *map_next(const struct map *map, size_t *position)
{
    while (*position < map->capacity) {
        struct map_slot *slot = &map->slots[(*position)++];

        if (slot->key)
            return slot;
    }
    return NULL;
}
