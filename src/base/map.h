/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Hash map from text to pointer. Keys are borrowed: they usually live in the value. Lookups,
 * insertions and removals take constant time; the hash is seeded, so a client cannot choose collisions.
 */

#include <stddef.h>
#include <stdint.h>

struct map_slot {
    const char *key; /* borrowed; NULL when free */
    void *value;     /* borrowed */
    uint64_t hash;
};

struct map {
    struct map_slot *slots; /* owned */
    size_t capacity;        /* a power of two, or 0 */
    size_t count;
};

void map_fini(struct map *map);
void *map_get(const struct map *map, const char *key);       /* NULL when absent */
void map_put(struct map *map, const char *key, void *value); /* replaces, key included */
void *map_remove(struct map *map, const char *key);          /* the old value, or NULL */

/* Walks all entries; the map must not change in the body. Start with *position = 0. */
struct map_slot *map_next(const struct map *map, size_t *position);

#define map_for_each(slot, map) for (size_t position_ = 0; (slot = map_next(map, &position_));)
