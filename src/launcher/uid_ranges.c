/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/uid_ranges.h"

#include "launcher/sys.h"

#include <dirent.h>
#include <string.h>

int uid_ranges_open(struct uid_ranges *ranges, uint32_t count, int state, bool shared,
                    struct fail *fail)
{
    ranges->count = count < UID_RANGES_MAX ? count : UID_RANGES_MAX;
    ranges->next = 0;
    memset(ranges->taken, 0, sizeof(ranges->taken));
    return uid_blocks_open(&ranges->blocks, ranges->count, state, shared, fail);
}

static bool is_taken(const struct uid_ranges *ranges, uint32_t slot)
{
    return ranges->taken[slot / 64] >> slot % 64 & 1;
}

static int find_free(struct uid_ranges *ranges)
{
    for (uint32_t i = 0; i < ranges->count; i++) {
        uint32_t slot = (ranges->next + i) % ranges->count;

        if (!is_taken(ranges, slot) && uid_blocks_has(&ranges->blocks, slot / UID_BLOCK_RANGES))
            return (int)slot;
    }
    return UID_RANGE_NONE;
}

int uid_ranges_take(struct uid_ranges *ranges)
{
    int slot = find_free(ranges);

    if (slot == UID_RANGE_NONE && uid_blocks_take(&ranges->blocks) >= 0) {
        slot = find_free(ranges);
        errno = EAGAIN;
    }
    if (slot == UID_RANGE_NONE)
        return UID_RANGE_NONE;
    uid_ranges_mark(ranges, (uint32_t)slot);
    ranges->next = ((uint32_t)slot + 1) % ranges->count;
    return slot;
}

int uid_ranges_fail(struct fail *fail)
{
    return errno == EAGAIN ? fail_set(fail, "all uid ranges are in use", EAGAIN)
                           : fail_sys(fail, "keep user ids in /run/sandglass/uids");
}

void uid_ranges_close(struct uid_ranges *ranges)
{
    for (uint32_t block = 0; block < ranges->blocks.count; block++) {
        bool taken = false;

        for (uint32_t i = 0; i < UID_BLOCK_RANGES / 64; i++)
            taken |= ranges->taken[block * (UID_BLOCK_RANGES / 64) + i] != 0;
        if (!taken)
            uid_blocks_release(&ranges->blocks, block);
    }
}

void uid_ranges_mark(struct uid_ranges *ranges, uint32_t slot)
{
    if (slot < UID_RANGES_MAX)
        ranges->taken[slot / 64] |= (uint64_t)1 << slot % 64;
}

void uid_ranges_release(struct uid_ranges *ranges, uint32_t slot)
{
    if (slot < UID_RANGES_MAX)
        ranges->taken[slot / 64] &= ~((uint64_t)1 << slot % 64);
}

static void scan_directory(struct uid_ranges *ranges, int directory)
{
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    struct mark mark;

    if (!stream) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((entry = readdir(stream))) {
        int dir;

        if (strncmp(entry->d_name, "sbx_", 4) != 0)
            continue;
        dir = sys_open_beneath(directory, entry->d_name, O_RDONLY | O_DIRECTORY);
        if (dir < 0)
            continue;
        if (mark_read(dir, &mark) == 0)
            uid_ranges_mark(ranges, mark.slot);
        close(dir);
    }
    closedir(stream);
}

void uid_ranges_scan(struct uid_ranges *ranges, struct state *state)
{
    memset(ranges->taken, 0, sizeof(ranges->taken));
    scan_directory(ranges, state->sandboxes);
    scan_directory(ranges, state->trash);
}
