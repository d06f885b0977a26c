/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/cgroup/cgroup_io.h"

#include "launcher/cgroup/cgroup_files.h"
#include "launcher/sys.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Not a disk: memory that looks like one, and devices whose files are on a disk that is limited. */
static bool is_disk(int block, const char *name)
{
    char path[64];

    if (*name == '.' || strncmp(name, "loop", 4) == 0 || strncmp(name, "ram", 3) == 0 ||
        strncmp(name, "zram", 4) == 0 || strlen(name) > 32)
        return false;
    snprintf(path, sizeof(path), "%s/size", name);
    return cgroup_read_number(block, path) > 0;
}

static void add_disk(struct cgroup_io *io, int block, const char *name)
{
    char path[64];
    char text[32];
    unsigned major;
    unsigned minor;

    snprintf(path, sizeof(path), "%.32s/dev", name);
    if (cgroup_read_text(block, path, text, sizeof(text)) <= 0 ||
        sscanf(text, "%u:%u", &major, &minor) != 2)
        return;
    io->disks[io->count].major = major;
    io->disks[io->count++].minor = minor;
}

void cgroup_io_find_disks(struct cgroup_io *io)
{
    DIR *stream = cgroup_io_is_limited(io) ? opendir("/sys/block") : NULL;
    struct dirent *entry;

    io->count = 0;
    if (!stream)
        return;
    while ((entry = readdir(stream)) && io->count < CGROUP_DISKS) {
        if (is_disk(dirfd(stream), entry->d_name))
            add_disk(io, dirfd(stream), entry->d_name);
    }
    closedir(stream);
}

/* A disk may have been pulled out since. */
static int write_limit(int cgroup, const char *name, const char *text)
{
    return cgroup_write_text(cgroup, name, text) < 0 && errno != ENODEV ? -1 : 0;
}

int cgroup_io_limit_v1(const struct cgroup_io *io, int cgroup)
{
    const struct {
        const char *name;
        uint64_t value;
    } files[] = {
        { "blkio.throttle.read_bps_device", io->bytes_per_s },
        { "blkio.throttle.write_bps_device", io->bytes_per_s },
        { "blkio.throttle.read_iops_device", io->operations_per_s },
        { "blkio.throttle.write_iops_device", io->operations_per_s },
    };
    char text[64];

    for (unsigned i = 0; i < io->count; i++) {
        for (size_t j = 0; j < sizeof(files) / sizeof(files[0]); j++) {
            snprintf(text, sizeof(text), "%u:%u %llu", io->disks[i].major, io->disks[i].minor,
                     (unsigned long long)files[j].value);
            if (files[j].value && write_limit(cgroup, files[j].name, text) < 0)
                return -1;
        }
    }
    return 0;
}

static void format_limit(char text[24], uint64_t value)
{
    if (value)
        snprintf(text, 24, "%llu", (unsigned long long)value);
    else
        snprintf(text, 24, "max");
}

int cgroup_io_limit_v2(const struct cgroup_io *io, int cgroup)
{
    char text[160];
    char bytes[24];
    char operations[24];

    format_limit(bytes, io->bytes_per_s);
    format_limit(operations, io->operations_per_s);
    for (unsigned i = 0; i < io->count; i++) {
        snprintf(text, sizeof(text), "%u:%u rbps=%s wbps=%s riops=%s wiops=%s", io->disks[i].major,
                 io->disks[i].minor, bytes, bytes, operations, operations);
        if (write_limit(cgroup, "io.max", text) < 0)
            return -1;
    }
    return 0;
}
