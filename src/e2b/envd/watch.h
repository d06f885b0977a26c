/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Changes of the files in a directory. A watch is one FILE_WATCH of init, whose notes become
 * events as E2B knows them; the client follows them in a stream (WatchDir), or asks for what has
 * come since (a watcher). Watching is looking: it does not keep a sandbox from being idle, and
 * ends with it.
 */

#include "e2b/envd/rpc.h"

struct watchers;

/* Of all sandboxes; ends before the core. */
struct watchers *watchers_new(void);
void watchers_free(struct watchers *watchers); /* NULL is fine */

rpc_fn watch_stream, watch_create, watch_take_events, watch_remove;
