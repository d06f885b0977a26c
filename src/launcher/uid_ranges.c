#include "launcher/uid_ranges.h"

#include "launcher/sys.h"

#include <dirent.h>
#include <string.h>

int slots_open(struct slots *slots, uint32_t count, int state, bool shared, struct fail *fail)
{
    slots->count = count < SLOTS_MAX ? count : SLOTS_MAX;
    slots->next = 0;
    memset(slots->taken, 0, sizeof(slots->taken));
    return leases_open(&slots->leases, slots->count, state, shared, fail);
}

static bool is_taken(const struct slots *slots, uint32_t slot)
{
    return slots->taken[slot / 64] >> slot % 64 & 1;
}

static int find_free(struct slots *slots)
{
    for (uint32_t i = 0; i < slots->count; i++) {
        uint32_t slot = (slots->next + i) % slots->count;

        if (!is_taken(slots, slot) && leases_has(&slots->leases, slot / LEASE_SLOTS))
            return (int)slot;
    }
    return SLOTS_NONE;
}

int slots_take(struct slots *slots)
{
    int slot = find_free(slots);

    if (slot == SLOTS_NONE && leases_take(&slots->leases) >= 0) {
        slot = find_free(slots);
        errno = EAGAIN;
    }
    if (slot == SLOTS_NONE)
        return SLOTS_NONE;
    slots_mark(slots, (uint32_t)slot);
    slots->next = ((uint32_t)slot + 1) % slots->count;
    return slot;
}

int slots_fail(struct fail *fail)
{
    return errno == EAGAIN ? fail_set(fail, "all uid ranges are in use", EAGAIN)
                           : fail_sys(fail, "take a range of user ids");
}

void slots_close(struct slots *slots)
{
    for (uint32_t block = 0; block < slots->leases.blocks; block++) {
        bool taken = false;

        for (uint32_t i = 0; i < LEASE_SLOTS / 64; i++)
            taken |= slots->taken[block * (LEASE_SLOTS / 64) + i] != 0;
        if (!taken)
            leases_release(&slots->leases, block);
    }
}

void slots_mark(struct slots *slots, uint32_t slot)
{
    if (slot < SLOTS_MAX)
        slots->taken[slot / 64] |= (uint64_t)1 << slot % 64;
}

void slots_release(struct slots *slots, uint32_t slot)
{
    if (slot < SLOTS_MAX)
        slots->taken[slot / 64] &= ~((uint64_t)1 << slot % 64);
}

static void scan_folder(struct slots *slots, int folder)
{
    int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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
        dir = sys_open_beneath(folder, entry->d_name, O_RDONLY | O_DIRECTORY);
        if (dir < 0)
            continue;
        if (mark_read(dir, &mark) == 0)
            slots_mark(slots, mark.slot);
        close(dir);
    }
    closedir(stream);
}

void slots_scan(struct slots *slots, struct state *state)
{
    memset(slots->taken, 0, sizeof(slots->taken));
    scan_folder(slots, state->sandboxes);
    scan_folder(slots, state->trash);
}
