#pragma once

/*
 * Sandboxes that this launcher has made lately, with their marks and processes at hand: most are
 * destroyed soon, and need not be looked up by their directory and in /proc for that. The one that was
 * noted first gives way to the next.
 */

#include "wire/mark.h"

#include <stdbool.h>

enum { MARK_CACHE_MAX = 128 };

struct mark_cache {
    struct mark_cache_entry {
        struct mark mark; /* with pid 0: none */
        int pidfd;        /* owned */
    } entries[MARK_CACHE_MAX];
    unsigned next;
};

/* The pidfd is borrowed. */
void mark_cache_add(struct mark_cache *cache, const struct mark *mark, int pidfd);

/* False when it is not known, or dead. The receiver owns the pidfd. */
bool mark_cache_take(struct mark_cache *cache, const char *id, struct mark *out_mark,
                     int *out_pidfd);

/* Its mark changes. */
void mark_cache_forget(struct mark_cache *cache, const char *id);
