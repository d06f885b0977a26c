/* SPDX-License-Identifier: Apache-2.0 */
#include "init/files/file_walk.h"

#include "init/sys.h"

#include <errno.h>
#include <string.h>
#include <sys/statfs.h>

enum { DIRECTORY = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, SYSFS_MAGIC_ = 0x62656572 };

void walk_begin(struct walk *walk, int directory, unsigned maximum)
{
    walk->levels[0] = directory;
    walk->path_lengths[0] = 0;
    walk->states[0] = 0;
    walk->depth = 1;
    walk->maximum = maximum < PROTOCOL_MAX_DEPTH ? maximum : PROTOCOL_MAX_DEPTH;
    walk->stays = walk->was_cut = false;
    walk->at = walk->filled = 0;
    walk->deadline_us = 0;
}

static bool is_dots(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* Puts the entry's name behind the path of its directory. */
static bool set_path(struct walk *walk, const char *name)
{
    size_t length = walk->path_lengths[walk->depth - 1];
    size_t name_size = strlen(name) + 1;

    if (length + 1 + name_size > sizeof walk->path) {
        walk->was_cut = true;
        return false;
    }
    if (length)
        walk->path[length++] = '/';
    memcpy(walk->path + length, name, name_size);
    return true;
}

static bool take(struct walk *walk, const struct sys_dirent *entry, struct walk_entry *out)
{
    int dir = walk->levels[walk->depth - 1];

    if (is_dots(entry->name) ||
        sys(newfstatat, dir, entry->name, &out->status, AT_SYMLINK_NOFOLLOW) < 0 ||
        !set_path(walk, entry->name))
        return false;
    out->dir = dir;
    out->name = entry->name;
    out->path = walk->path;
    out->state = walk->states[walk->depth - 1];
    out->next = entry->offset;
    return true;
}

static void read_entries(struct walk *walk)
{
    int dir = walk->levels[walk->depth - 1];

    walk->at = 0;
    walk->filled = sys(getdents64, dir, walk->entries, sizeof walk->entries);
    if (walk->filled > 0)
        return;
    walk->filled = 0;
    sys_close(dir);
    walk->depth--;
}

bool walk_next(struct walk *walk, struct walk_entry *out_entry)
{
    while (walk->depth) {
        if (walk->at == walk->filled) {
            if (walk->deadline_us && sys_now_us() > walk->deadline_us) {
                walk->was_cut = true;
                walk_end(walk);
            } else {
                read_entries(walk);
            }
            continue;
        }
        const struct sys_dirent *entry = (const struct sys_dirent *)(walk->entries + walk->at);

        walk->at += entry->length;
        if (take(walk, entry, out_entry))
            return true;
    }
    return false;
}

static bool is_virtual(int fd)
{
    struct statfs system;

    return sys(fstatfs, fd, &system) < 0 || system.f_type == PROC_MAGIC ||
           system.f_type == SYSFS_MAGIC_;
}

int walk_enter(struct walk *walk, const struct walk_entry *entry, uint64_t state)
{
    int fd;

    if (walk->depth >= walk->maximum) {
        walk->was_cut = true;
        return -ELOOP;
    }
    fd = sys_open(entry->dir, entry->name, DIRECTORY, 0, 0);
    if (fd < 0)
        return fd;
    if (walk->stays && is_virtual(fd)) {
        sys_close(fd);
        return -EXDEV;
    }
    /* Entries that were read ahead are read again later, from behind this entry. */
    (void)sys(lseek, entry->dir, entry->next, SEEK_SET);
    walk->at = walk->filled = 0;
    walk->levels[walk->depth] = fd;
    walk->path_lengths[walk->depth] = (uint32_t)strlen(walk->path);
    walk->states[walk->depth] = state;
    walk->depth++;
    return 0;
}

void walk_end(struct walk *walk)
{
    while (walk->depth)
        sys_close(walk->levels[--walk->depth]);
}
