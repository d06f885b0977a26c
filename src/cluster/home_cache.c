/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/home_cache.h"

#include "base/alloc.h"
#include "base/list.h"
#include "base/map.h"
#include "base/str.h"

#include <stdlib.h>

struct entry {
    struct list link;
    char *session_id, *owner, *node; /* owned */
};

struct home_cache {
    struct map by_id;
    struct list entries; /* least recently used first */
    size_t maximum;
};

struct home_cache *home_cache_new(size_t maximum)
{
    struct home_cache *cache = xnew(struct home_cache);

    cache->maximum = maximum;
    list_init(&cache->entries);
    return cache;
}

static void remove_entry(struct home_cache *cache, struct entry *entry)
{
    map_remove(&cache->by_id, entry->session_id);
    list_remove(&entry->link);
    free(entry->session_id);
    free(entry->owner);
    free(entry->node);
    free(entry);
}

void home_cache_free(struct home_cache *cache)
{
    struct entry *entry;

    if (!cache)
        return;
    while ((entry = list_first(&cache->entries, struct entry, link)))
        remove_entry(cache, entry);
    map_fini(&cache->by_id);
    free(cache);
}

const char *home_cache_get(struct home_cache *cache, const char *session_id, const char *owner)
{
    struct entry *entry = map_get(&cache->by_id, session_id);

    if (!entry || (owner && !str_equal(owner, entry->owner)))
        return NULL;
    list_remove(&entry->link);
    list_append(&cache->entries, &entry->link);
    return entry->node;
}

void home_cache_put(struct home_cache *cache, const char *session_id, const char *owner,
                    const char *node)
{
    struct entry *entry;

    home_cache_forget(cache, session_id);
    if (cache->by_id.count == cache->maximum)
        remove_entry(cache, list_first(&cache->entries, struct entry, link));
    entry = xnew(struct entry);
    entry->session_id = xstrdup(session_id);
    entry->owner = xstrdup(owner);
    entry->node = xstrdup(node);
    map_put(&cache->by_id, entry->session_id, entry);
    list_append(&cache->entries, &entry->link);
}

void home_cache_forget(struct home_cache *cache, const char *session_id)
{
    struct entry *entry = map_get(&cache->by_id, session_id);

    if (entry)
        remove_entry(cache, entry);
}
