#include "launcher/ahead/builder_cache.h"

void kept_init(struct kept *kept)
{
    *kept = (struct kept){ .slot = SLOTS_NONE };
    netns_traces_init(&kept->traces);
    cgroup_watch_init(&kept->groups);
}

void kept_close(struct kept *kept)
{
    netns_traces_close(&kept->traces);
    cgroup_watch_close(&kept->groups);
}

void shelf_empty(struct shelf *shelf)
{
    while (shelf->count > 0)
        kept_close(&shelf->items[--shelf->count]);
    (void)layers_reset();
}

static struct kept *add(struct shelf *shelf, int slot)
{
    struct kept *kept;

    if (shelf->count == KITS_MAX)
        shelf_empty(shelf);
    kept = &shelf->items[shelf->count];
    kept_init(kept);
    kept->slot = slot;
    kept->number = shelf->count++;
    return kept;
}

struct kept *shelf_find(struct shelf *shelf, const struct kit *kit)
{
    for (unsigned i = 0; i < shelf->count; i++) {
        struct kept *kept = &shelf->items[i];

        if (kept->slot != kit->slot)
            continue;
        /* Its namespace or its groups are others: it was not us who completed it last. */
        if (kept->stamp != kit->stamp)
            kept_close(kept);
        return kept;
    }
    return add(shelf, kit->slot);
}

void shelf_stamp(struct shelf *shelf, struct kept *kept, struct kit *kit)
{
    kept->stamp = kit->stamp = ++shelf->stamps;
}
