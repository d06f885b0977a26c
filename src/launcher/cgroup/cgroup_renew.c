/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/cgroup/cgroup_renew.h"

#include "launcher/sys.h"

#include <stdlib.h>
#include <string.h>

/* Memory that the kernel has not freed: dentries and inodes of removed mounts are freed with a
 * delay. A cgroup with more than this, or more than a sixty-fourth of the limit, is not reused. */
enum { MEMORY_LEFT = 4 << 20, MEMORY_LEFT_SHARE = 64 };

enum { MEMBERS, MEMORY, KILLED, PEAK, TIME };

static const struct {
    enum cgroup_part part;
    const char *name;
    int flags;
} files[CGROUP_WATCH_FILES] = {
    [MEMBERS] = { CGROUP_PIDS, "pids.current", O_RDONLY },
    [MEMORY] = { CGROUP_MEMORY, "memory.usage_in_bytes", O_RDONLY },
    [KILLED] = { CGROUP_MEMORY, "memory.oom_control", O_RDONLY },
    [PEAK] = { CGROUP_MEMORY, "memory.max_usage_in_bytes", O_WRONLY },
    [TIME] = { CGROUP_CPUACCT, "cpuacct.usage", O_WRONLY },
};

void cgroup_watch_init(struct cgroup_watch *watch)
{
    *watch = (struct cgroup_watch){ .entry = CGROUP_ENTRY_NONE };
    memset(watch->files, -1, sizeof(watch->files));
}

void cgroup_watch_close(struct cgroup_watch *watch)
{
    cgroup_entry_close(&watch->entry);
    for (int i = 0; i < CGROUP_WATCH_FILES; i++) {
        if (watch->files[i] >= 0)
            close(watch->files[i]);
    }
    cgroup_watch_init(watch);
}

static int open_part(struct cgroups *cgroups, enum cgroup_part part, const char *id,
                     struct cgroup_watch *watch)
{
    int cgroup = openat(cgroups->base[part], id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int result = 0;

    if (cgroup < 0)
        return -1;
    if (cgroups_has_hierarchy(cgroups, part)) {
        watch->entry.fds[part] = openat(cgroup, "tasks", O_WRONLY | O_CLOEXEC);
        result = watch->entry.fds[part] < 0 ? -1 : 0;
    }
    for (int i = 0; i < CGROUP_WATCH_FILES; i++) {
        if (files[i].part != part)
            continue;
        watch->files[i] = openat(cgroup, files[i].name, files[i].flags | O_CLOEXEC);
        if (watch->files[i] < 0)
            result = -1;
    }
    close(cgroup);
    return result;
}

static int open_watch(struct cgroups *cgroups, const char *id, struct cgroup_watch *watch)
{
    for (int part = 0; part < CGROUP_UNIFIED; part++) {
        if (cgroups->base[part] >= 0 && open_part(cgroups, part, id, watch) < 0) {
            cgroup_watch_close(watch);
            return -1;
        }
    }
    watch->is_open = true;
    return 0;
}

static const char *read_file(int fd, char text[256])
{
    ssize_t length = pread(fd, text, 255, 0);

    text[length > 0 ? length : 0] = '\0';
    return text;
}

/* Where nothing is counted there is nothing to reset. */
static bool reset(int fd)
{
    return fd < 0 || pwrite(fd, "0", 1, 0) == 1;
}

static bool renew_memory(const struct cgroup_watch *watch, const struct launch_limits *limits)
{
    char text[256];
    uint64_t left;

    if (watch->files[MEMORY] < 0)
        return true;
    if (!*read_file(watch->files[MEMORY], text))
        return false;
    left = strtoull(text, NULL, 10);
    return left <= MEMORY_LEFT && left <= limits->memory_bytes / MEMORY_LEFT_SHARE &&
           strstr(read_file(watch->files[KILLED], text), "\noom_kill 0\n") &&
           reset(watch->files[PEAK]);
}

static bool is_empty(const struct cgroup_watch *watch)
{
    char text[256];

    return watch->files[MEMBERS] >= 0 && strcmp(read_file(watch->files[MEMBERS], text), "0\n") == 0;
}

static int copy_entry(const struct cgroup_entry *entry, struct cgroup_entry *out_entry)
{
    *out_entry = (struct cgroup_entry)CGROUP_ENTRY_NONE;
    for (int part = 0; part < CGROUP_UNIFIED; part++) {
        if (entry->fds[part] < 0)
            continue;
        out_entry->fds[part] = sys_duplicate(entry->fds[part]);
        if (out_entry->fds[part] < 0) {
            cgroup_entry_close(out_entry);
            return -1;
        }
    }
    return 0;
}

int cgroups_renew(struct cgroups *cgroups, const char *id, const struct launch_limits *before,
                  const struct launch_limits *limits, struct cgroup_watch *watch,
                  struct cgroup_entry *out_entry)
{
    struct fail ignored;

    if (!watch->is_open && open_watch(cgroups, id, watch) < 0)
        return -1;
    if (!is_empty(watch) || !renew_memory(watch, limits) || !reset(watch->files[TIME]))
        return -1;
    if (!cgroups_limits_equal(before, limits) && cgroups_limit(cgroups, id, limits, &ignored) < 0)
        return -1;
    return copy_entry(&watch->entry, out_entry);
}
