/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether a file has changed, looked at no more than once a second, and how long what was read of
 * it may be used. A file that is being replaced may be gone or unreadable for a moment; after
 * that its content is unknown, and what was read counts no more.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

enum file_state {
    FILE_CURRENT,
    FILE_STALE, /* it cannot be read, since a moment */
    FILE_LOST,  /* it cannot be read, and what it said counts no more */
};

struct file_watch {
    enum file_state state;
    struct stat seen;
    int64_t looked_us; /* 0: never */
    int64_t failed_us; /* since when it cannot be read, unless it is current */
};

/* True at first, and whenever what stands at the path is not what was seen last. */
bool file_watch_changed(struct file_watch *watch, const char *path, int64_t now_us);

/* After a change: whether the file could be read. If not, it is a change at the next look too. */
enum file_state file_watch_settle(struct file_watch *watch, bool was_read, int64_t now_us);

/* At the last look there was nothing at the path. */
bool file_watch_is_gone(const struct file_watch *watch);

/* Looks again at the next question, and takes it for changed. */
void file_watch_reset(struct file_watch *watch);
