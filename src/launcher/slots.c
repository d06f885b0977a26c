#include "launcher/slots.h"

#include "launcher/sys.h"

#include <dirent.h>
#include <string.h>

void slots_init(struct slots *slots, uint32_t count)
{
    *slots = (struct slots){ .count = count < SLOTS_MAX ? count : SLOTS_MAX };
}

int slots_take(struct slots *slots)
{
    for (uint32_t i = 0; i < slots->count; i++) {
        uint32_t slot = (slots->next + i) % slots->count;

        if (slots->taken[slot / 64] >> slot % 64 & 1)
            continue;
        slots_mark(slots, slot);
        slots->next = (slot + 1) % slots->count;
        return (int)slot;
    }
    return SLOTS_NONE;
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
