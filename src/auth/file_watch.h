#pragma once

/* Whether a file has changed, looked at no more than once a second. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct file_watch {
    struct stat seen;
    int64_t looked_us; /* 0: never */
};

/* True at first, and whenever what stands at the path is not what was seen last. */
bool file_watch_changed(struct file_watch *watch, const char *path, int64_t now_us);

/* Looks again at the next question, and takes it for changed. */
void file_watch_reset(struct file_watch *watch);
