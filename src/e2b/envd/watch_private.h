/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One watch, for watch.c and watchers.c. */

#include "e2b/envd/path.h"
#include "e2b/envd/watch.h"

enum { WATCH_EVENTS = 4096 }; /* that wait; then init waits */

struct watch;
typedef void watch_fn(struct watch *watch);

/* Embedded; `on_start`, `on_event` and `on_end` are set before watch_begin(). */
struct watch {
    watch_fn *on_start;
    void (*on_event)(struct watch *watch, struct buffer *json); /* a FilesystemEvent */

    /* It is over: err, or number for an errno of init, says why; neither when the sandbox went. */
    void (*on_end)(struct watch *watch, int number, const struct error *err);

    struct file_call call; /* private, here and below */
    struct loop *loop;     /* borrowed */
    char *user, *path;     /* owned; the path is for init */
    bool is_recursive, has_entries;
    bool is_on, is_over, is_held_back;
    struct io_watch pipe; /* its fd is owned; -1 without */
    struct buffer bytes;
    json_t *waiting; /* owned: events that wait for their entries, {name,type} */
    struct describe describe;
};

/* Begins the watch that the input of the call asks for; false when the call was answered. */
bool watch_begin(struct watch *watch, struct rpc *rpc);
void watch_fini(struct watch *watch);

/* While it is held back, no events come, and init waits in the end. */
void watch_hold_back(struct watch *watch, bool is_held_back);

/* Whether there are events that have not been told yet. */
bool watch_is_behind(const struct watch *watch);
