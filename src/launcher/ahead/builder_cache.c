/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ahead/builder_cache.h"

void cache_entry_init(struct cache_entry *entry)
{
    *entry = (struct cache_entry){ .slot = UID_RANGE_NONE };
    netns_traces_init(&entry->traces);
    cgroup_watch_init(&entry->cgroups);
}

void cache_entry_close(struct cache_entry *entry)
{
    netns_traces_close(&entry->traces);
    cgroup_watch_close(&entry->cgroups);
}

void builder_cache_empty(struct builder_cache *cache)
{
    while (cache->count > 0)
        cache_entry_close(&cache->items[--cache->count]);
    (void)layers_reset();
}

static struct cache_entry *add(struct builder_cache *cache, int slot)
{
    struct cache_entry *entry;

    if (cache->count == BUILDER_CACHE_MAX)
        builder_cache_empty(cache);
    entry = &cache->items[cache->count];
    cache_entry_init(entry);
    entry->slot = slot;
    entry->number = cache->count++;
    return entry;
}

struct cache_entry *builder_cache_find(struct builder_cache *cache, const struct spare *spare)
{
    for (unsigned i = 0; i < cache->count; i++) {
        struct cache_entry *entry = &cache->items[i];

        if (entry->slot != spare->slot)
            continue;
        /* Another builder completed this spare last, so its namespace or cgroups have changed. */
        if (entry->stamp != spare->stamp)
            cache_entry_close(entry);
        return entry;
    }
    return add(cache, spare->slot);
}

void builder_cache_stamp(struct builder_cache *cache, struct cache_entry *entry,
                         struct spare *spare)
{
    entry->stamp = spare->stamp = ++cache->stamps;
}
