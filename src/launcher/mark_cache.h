/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sandboxes that this launcher has made lately, with their marks and processes at hand: most are
 * destroyed soon, without a lookup of their directory and in /proc. A new entry replaces the oldest
 * one.
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

/* False when the sandbox is not in the cache, or dead. The receiver owns the pidfd. */
bool mark_cache_take(struct mark_cache *cache, const char *id, struct mark *out_mark,
                     int *out_pidfd);

/* Removes an entry whose mark is about to change. */
void mark_cache_forget(struct mark_cache *cache, const char *id);
