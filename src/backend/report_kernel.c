/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/report_kernel.h"

#include "backend/busiest.h"
#include "base/macros.h"
#include "base/scoped.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_SIZE = 64 * 1024, PATH_SIZE = 1024 };

static bool read_file(const char *path, char *text, size_t size)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    ssize_t got = 1;

    text[0] = '\0';
    while (fd >= 0 && got > 0 && length < size - 1) {
        got = read(fd, text + length, size - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    text[length] = '\0';
    return length > 0;
}

static uint64_t read_number(const char *dir, const char *name)
{
    char path[2 * PATH_SIZE];
    char text[64];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return read_file(path, text, sizeof(text)) ? strtoull(text, NULL, 10) : 0;
}

/* --- /proc/PID ----------------------------------------------------------------------------- */

/* The text behind a word at the start of a line; NULL if there is none. */
static const char *find_line(const char *text, const char *word)
{
    size_t length = strlen(word);
    const char *line;

    for (line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, word, length) == 0)
            return line + length;
    }
    return NULL;
}

static uint64_t line_number(const char *text, const char *word, int base)
{
    const char *value = find_line(text, word);

    return value ? strtoull(value, NULL, base) : 0;
}

static void read_status(const char *text, struct kernel_view *view)
{
    view->capabilities = line_number(text, "CapEff:", 16);
    view->bounding = line_number(text, "CapBnd:", 16);
    view->no_new_privs = line_number(text, "NoNewPrivs:", 10);
    view->seccomp = (unsigned)line_number(text, "Seccomp:", 10);
}

static void read_ids(const char *text, struct kernel_view *view)
{
    char *end;

    (void)strtoul(text, &end, 10); /* inside */
    view->uid_first = (uint32_t)strtoul(end, &end, 10);
    view->uid_count = (uint32_t)strtoul(end, &end, 10);
    /* The host's own map is no range of the sandbox's. */
    if (view->uid_count == UINT32_MAX)
        view->uid_count = 0;
}

/* The size of a block device in bytes; the kernel reports sectors. */
static uint64_t read_block_size(unsigned major, unsigned minor)
{
    char path[64];

    snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major, minor);
    return read_number(path, "size") * 512;
}

/* The sandbox's /dev/shm is on the file system of all its files. */
static void read_disk(const char *text, struct kernel_view *view)
{
    const char *place = strstr(text, " /dev/shm ");
    const char *begin = place;
    char line[512];
    const char *size;
    uint64_t kilobytes;
    unsigned major;
    unsigned minor;

    if (!place)
        return;
    while (begin > text && begin[-1] != '\n')
        begin--;
    snprintf(line, sizeof(line), "%.*s", (int)strcspn(begin, "\n"), begin);
    size = strstr(line, "size=");
    if (strstr(line, " - ext4 ") && sscanf(line, "%*u %*u %u:%u", &major, &minor) == 2) {
        view->disk_bytes = read_block_size(major, minor);
        view->disk_is_image = true;
    } else if (size && sscanf(size, "size=%" SCNu64 "k", &kilobytes) == 1) {
        view->disk_bytes = kilobytes * 1024;
    }
}

/* --- control groups ------------------------------------------------------------------------ */

enum controller { UNIFIED, MEMORY, PIDS, CPU, CPUACCT, BLKIO, FREEZER, CONTROLLERS };

static const char *const controllers[CONTROLLERS] = {
    [UNIFIED] = "",        [MEMORY] = "memory", [PIDS] = "pids",       [CPU] = "cpu",
    [CPUACCT] = "cpuacct", [BLKIO] = "blkio",   [FREEZER] = "freezer",
};

static bool list_has(const char *list, size_t length, const char *word)
{
    const char *end = list + length;
    size_t size = strlen(word);

    while (list < end) {
        size_t item = MIN(strcspn(list, ","), (size_t)(end - list));

        if (item == size && memcmp(list, word, size) == 0)
            return true;
        list += item + 1;
    }
    return false;
}

/* The path of the process's group in the hierarchy with that controller; "" is the one of v2. A
 * line is "number:controllers:path". */
static bool find_group(const char *groups, const char *controller, char path[PATH_SIZE])
{
    const char *line;

    for (line = groups; line && *line; line = strchr(line, '\n')) {
        const char *names;
        size_t length;

        line += *line == '\n';
        names = line + strcspn(line, ":\n");
        if (*names != ':')
            continue;
        length = strcspn(++names, ":\n");
        if (names[length] == ':' &&
            (*controller ? list_has(names, length, controller) : length == 0 && *line == '0')) {
            const char *group = names + length + 1;

            return snprintf(path, PATH_SIZE, "%.*s", (int)strcspn(group, "\n"), group) < PATH_SIZE;
        }
    }
    return false;
}

bool kernel_find_hierarchy(const char *mounts, const char *controller, char *out_path, size_t size)
{
    const char *line;

    for (line = mounts; line && *line; line = strchr(line, '\n')) {
        char where[512] = "";
        char type[32] = "";
        char options[512] = "";

        line += *line == '\n';
        if (sscanf(line, "%*s %511s %31s %511s", where, type, options) != 3)
            continue;
        if (*controller
                ? strcmp(type, "cgroup") == 0 && list_has(options, strlen(options), controller)
                : strcmp(type, "cgroup2") == 0)
            return (size_t)snprintf(out_path, size, "%s", where) < size;
    }
    return false;
}

/* Where the hierarchy with that controller is mounted; "" if it is not. That does not change while
 * we run. */
static const char *hierarchy_of(enum controller controller)
{
    static char places[CONTROLLERS][PATH_SIZE];
    static bool known;
    static char mounts[TEXT_SIZE];

    if (!known && read_file("/proc/self/mounts", mounts, sizeof(mounts))) {
        for (unsigned i = 0; i < CONTROLLERS; i++)
            if (!kernel_find_hierarchy(mounts, controllers[i], places[i], PATH_SIZE))
                places[i][0] = '\0';
        known = true;
    }
    return places[controller];
}

/* /proc/PID/cgroup, and the text that a path of the sandbox's own cgroup contains. */
struct groups {
    const char *text;
    const char *mark;
};

static bool locate(const struct groups *groups, enum controller controller, char path[PATH_SIZE])
{
    const char *where = hierarchy_of(controller);
    char group[PATH_SIZE];

    if (!*where || !find_group(groups->text, controllers[controller], group) ||
        !strstr(group, groups->mark))
        return false;
    return snprintf(path, PATH_SIZE, "%.511s%.511s", where, group) < PATH_SIZE;
}

/* The number behind a key in the first line of a file; v1 has a file for each key instead. */
static uint64_t read_rate(const char *dir, const char *name, const char *key)
{
    char path[2 * PATH_SIZE];
    char text[256];
    const char *at;
    uint64_t value = 0;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    at = read_file(path, text, sizeof(text)) ? strstr(text, key) : NULL;
    if (at)
        (void)sscanf(at + strlen(key), "%" SCNu64, &value);
    return value;
}

static void read_v2(const char *dir, struct kernel_view *view)
{
    char path[2 * PATH_SIZE];
    char text[64];
    uint64_t quota = 0;
    uint64_t period = 0;

    view->cgroup_version = 2;
    view->freezer = true;
    view->memory_bytes = read_number(dir, "memory.max");
    view->pids = (uint32_t)read_number(dir, "pids.max");
    view->io_bytes_per_s = read_rate(dir, "io.max", "rbps=");
    view->io_operations_per_s = read_rate(dir, "io.max", "riops=");
    snprintf(path, sizeof(path), "%s/cpu.max", dir);
    if (read_file(path, text, sizeof(text)) &&
        sscanf(text, "%" SCNu64 " %" SCNu64, &quota, &period) == 2 && period)
        view->cpu_millis = (uint32_t)(quota * 1000 / period);
}

static void read_v1(const struct groups *groups, struct kernel_view *view)
{
    char path[PATH_SIZE];
    uint64_t period;

    if (locate(groups, MEMORY, path)) {
        view->cgroup_version = 1;
        view->memory_bytes = read_number(path, "memory.limit_in_bytes");
    }
    if (locate(groups, PIDS, path))
        view->pids = (uint32_t)read_number(path, "pids.max");
    if (locate(groups, CPU, path)) {
        period = read_number(path, "cpu.cfs_period_us");
        if (period)
            view->cpu_millis = (uint32_t)(read_number(path, "cpu.cfs_quota_us") * 1000 / period);
    }
    if (locate(groups, BLKIO, path)) {
        view->io_bytes_per_s = read_rate(path, "blkio.throttle.read_bps_device", " ");
        view->io_operations_per_s = read_rate(path, "blkio.throttle.read_iops_device", " ");
    }
    view->freezer = locate(groups, FREEZER, path);
}

/* On a host with both versions, that of version 2 may be without the controllers. */
static bool locate_unified(const struct groups *groups, char path[PATH_SIZE])
{
    char file[2 * PATH_SIZE];

    if (!locate(groups, UNIFIED, path))
        return false;
    snprintf(file, sizeof(file), "%s/memory.current", path);
    return access(file, F_OK) == 0;
}

static void read_groups(const struct groups *groups, struct kernel_view *view)
{
    char path[PATH_SIZE];

    if (locate_unified(groups, path))
        read_v2(path, view);
    else
        read_v1(groups, view);
    /* The limit has room for init. */
    if (view->pids > 0)
        view->pids--;
}

static bool read_proc(pid_t pid, const char *name, char text[TEXT_SIZE])
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    return read_file(path, text, TEXT_SIZE);
}

void kernel_view_read(pid_t pid, const char *mark, struct kernel_view *out_view)
{
    static const struct {
        const char *name;
        void (*read)(const char *text, struct kernel_view *view);
    } files[] = {
        { "status", read_status },
        { "uid_map", read_ids },
        { "mountinfo", read_disk },
    };
    static char text[TEXT_SIZE];

    *out_view = (struct kernel_view){ 0 };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (read_proc(pid, files[i].name, text))
            files[i].read(text, out_view);
    }
    if (read_proc(pid, "cgroup", text))
        read_groups(&(struct groups){ .text = text, .mark = mark }, out_view);
}

/* --- usage --------------------------------------------------------------------------------- */

/* The number behind a word at the start of a line of a file. */
static uint64_t read_keyed(const char *dir, const char *name, const char *key)
{
    char path[2 * PATH_SIZE];
    char text[4096];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return read_file(path, text, sizeof(text)) ? line_number(text, key, 10) : 0;
}

static void read_usage_v2(const char *dir, struct sandbox_usage *usage)
{
    usage->cpu_us = read_keyed(dir, "cpu.stat", "usage_usec ");
    usage->memory_bytes = read_number(dir, "memory.current");
    usage->memory_peak_bytes = read_number(dir, "memory.peak");
    usage->oom_kills = (uint32_t)read_keyed(dir, "memory.events", "oom_kill ");
    usage->pids = (uint32_t)read_number(dir, "pids.current");
    busiest_read(dir, usage);
}

static bool read_usage_v1(const struct groups *groups, struct sandbox_usage *usage)
{
    char path[PATH_SIZE];

    if (!locate(groups, MEMORY, path))
        return false;
    usage->memory_bytes = read_number(path, "memory.usage_in_bytes");
    usage->memory_peak_bytes = read_number(path, "memory.max_usage_in_bytes");
    usage->oom_kills = (uint32_t)read_keyed(path, "memory.oom_control", "oom_kill ");
    busiest_read(path, usage);
    if (locate(groups, CPUACCT, path))
        usage->cpu_us = read_number(path, "cpuacct.usage") / 1000;
    if (locate(groups, PIDS, path))
        usage->pids = (uint32_t)read_number(path, "pids.current");
    return true;
}

bool kernel_usage_read(pid_t pid, const char *mark, struct sandbox_usage *out_usage)
{
    static char text[TEXT_SIZE];
    struct groups groups = { .text = text, .mark = mark };
    char path[PATH_SIZE];

    *out_usage = (struct sandbox_usage){ 0 };
    if (!read_proc(pid, "cgroup", text))
        return false;
    if (!locate_unified(&groups, path))
        return read_usage_v1(&groups, out_usage);
    read_usage_v2(path, out_usage);
    return true;
}
