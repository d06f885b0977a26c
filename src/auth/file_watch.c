/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/file_watch.h"

enum { LOOK_US = 1000 * 1000, PATIENCE_US = 10 * LOOK_US };

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mode == b->st_mode && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
           a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

bool file_watch_changed(struct file_watch *watch, const char *path, int64_t now_us)
{
    bool first = watch->looked_us == 0;
    struct stat now = { 0 };

    if (!first && now_us - watch->looked_us < LOOK_US)
        return false;
    watch->looked_us = now_us;
    if (stat(path, &now) < 0)
        now = (struct stat){ 0 };
    if (!first && same_file(&now, &watch->seen))
        return false;
    watch->seen = now;
    return true;
}

enum file_state file_watch_settle(struct file_watch *watch, bool was_read, int64_t now_us)
{
    if (was_read) {
        watch->state = FILE_CURRENT;
        return FILE_CURRENT;
    }
    watch->seen.st_size = -1;
    if (watch->state == FILE_CURRENT) {
        watch->state = FILE_STALE;
        watch->failed_us = now_us;
    } else if (now_us - watch->failed_us >= PATIENCE_US) {
        watch->state = FILE_LOST;
    }
    return watch->state;
}

bool file_watch_is_gone(const struct file_watch *watch)
{
    return watch->seen.st_nlink == 0;
}

void file_watch_reset(struct file_watch *watch)
{
    watch->looked_us = 0;
}
