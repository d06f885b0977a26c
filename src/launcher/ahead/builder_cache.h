#pragma once

/*
 * What the maker keeps of kits that are used again, by slot: what their roots are made from, and
 * the open files by which namespaces and groups tell whether they are as good as new. All of it
 * takes longer to make than to use.
 */

#include "launcher/ahead/spare.h"
#include "launcher/cgroup/cgroup_renew.h"
#include "launcher/walls/layers.h"
#include "launcher/walls/native.h"

struct kept {
    int slot;
    unsigned number;
    uint64_t stamp; /* of the kit that the files are of */
    struct netns_traces traces;
    struct cgroup_watch groups;
    struct layers layers;
};

struct shelf {
    struct kept items[KITS_MAX];
    unsigned count;
    uint64_t stamps; /* given so far */
};

/* For a kit of which nothing is kept. */
void kept_init(struct kept *kept);
void kept_close(struct kept *kept);

/* What there is of this kit, or of its slot. When there is no room, all others are forgotten. */
struct kept *shelf_find(struct shelf *shelf, const struct kit *kit);

void shelf_empty(struct shelf *shelf);

/* The kit is what the files are of; it comes back with this stamp. */
void shelf_stamp(struct shelf *shelf, struct kept *kept, struct kit *kit);
