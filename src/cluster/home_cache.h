/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Homes of sessions that were looked up a while ago, so that the next request need not ask the store.
 * An entry may be wrong: the node that it names refuses what is not its own, and then the store is
 * asked. Bounded; the entry that was not used for longest goes first.
 */

#include "base/scoped.h"

#include <stddef.h>

struct home_cache;

struct home_cache *home_cache_new(size_t maximum);
void home_cache_free(struct home_cache *cache); /* NULL is fine */
SCOPED_DEFINE(home_cache_free, struct home_cache);

/* The node, when the session is this owner's, or `owner` is NULL; NULL otherwise. Borrowed until the
 * next change. */
const char *home_cache_get(struct home_cache *cache, const char *session_id, const char *owner);

void home_cache_put(struct home_cache *cache, const char *session_id, const char *owner,
                    const char *node);
void home_cache_forget(struct home_cache *cache, const char *session_id);
