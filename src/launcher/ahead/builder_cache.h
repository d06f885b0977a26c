/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The builder's cache for reused spares, by slot: the layers of their roots, and open files that
 * show whether their namespaces and cgroups are as good as new. All of them take longer to make
 * than to use.
 */

#include "launcher/ahead/spare.h"
#include "launcher/walls/layers.h"

enum { BUILDER_CACHE_MAX = 64 };

struct cache_entry {
    int slot;
    unsigned number;
    uint64_t stamp; /* of the spare that the files are of */
    struct netns_traces traces;
    struct cgroup_watch cgroups;
    struct layers layers;
};

struct builder_cache {
    struct cache_entry items[BUILDER_CACHE_MAX];
    unsigned count;
    uint64_t stamps; /* given so far */
};

/* An entry without cached files. */
void cache_entry_init(struct cache_entry *entry);
void cache_entry_close(struct cache_entry *entry);

/* The entry of this spare, or of its slot. When the cache is full, it is emptied first. */
struct cache_entry *builder_cache_find(struct builder_cache *cache, const struct spare *spare);

void builder_cache_empty(struct builder_cache *cache);

/* Stamps the spare that the cached files belong to; a reclaimed spare is recognised by the
 * stamp. */
void builder_cache_stamp(struct builder_cache *cache, struct cache_entry *entry,
                         struct spare *spare);
