/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/mark_cache.h"

#include "launcher/sys.h"

#include <fcntl.h>
#include <string.h>

static struct mark_cache_entry *find(struct mark_cache *cache, const char *id)
{
    for (unsigned i = 0; i < MARK_CACHE_MAX; i++) {
        struct mark_cache_entry *entry = &cache->entries[i];

        if (entry->mark.pid && strcmp(entry->mark.id, id) == 0)
            return entry;
    }
    return NULL;
}

static void drop(struct mark_cache_entry *entry)
{
    if (entry->mark.pid)
        close(entry->pidfd);
    entry->mark.pid = 0;
}

void mark_cache_add(struct mark_cache *cache, const struct mark *mark, int pidfd)
{
    struct mark_cache_entry *entry = &cache->entries[cache->next++ % MARK_CACHE_MAX];
    int own = fcntl(pidfd, F_DUPFD_CLOEXEC, 0);

    drop(entry);
    if (own >= 0)
        *entry = (struct mark_cache_entry){ .mark = *mark, .pidfd = own };
}

bool mark_cache_take(struct mark_cache *cache, const char *id, struct mark *out_mark,
                     int *out_pidfd)
{
    struct mark_cache_entry *entry = find(cache, id);

    if (!entry)
        return false;
    if (sys_pidfd_kill(entry->pidfd, 0) < 0) {
        drop(entry);
        return false;
    }
    *out_mark = entry->mark;
    *out_pidfd = entry->pidfd;
    entry->mark.pid = 0;
    return true;
}

void mark_cache_forget(struct mark_cache *cache, const char *id)
{
    struct mark_cache_entry *entry = find(cache, id);

    if (entry)
        drop(entry);
}
