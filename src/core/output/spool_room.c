/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/spool_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Room for bytes that are yet to come, at the end of the file and in memory. It is made in big
 * steps, because a step takes the disk's time and delays every client of the daemon.
 */

static void unmap(struct spool_room *room)
{
    if (room->memory)
        (void)munmap(room->memory, room->length);
    *room = (struct spool_room){ 0 };
}

static uint64_t room_end(const struct spool_room *room)
{
    return room->start + room->length;
}

/* On a disk that is nearly full, a smaller step. */
static size_t extend_file(const struct spool *spool, uint64_t page)
{
    for (size_t length = AHEAD_BYTES; length >= LEAST_AHEAD_BYTES; length /= 4) {
        if (fallocate(spool->file, 0, (off_t)page, (off_t)length) == 0)
            return length;
        if (errno != ENOSPC && errno != EDQUOT)
            break;
    }
    return 0;
}

static void cut(const struct spool *spool)
{
    (void)!ftruncate(spool->file, (off_t)spool->stored);
}

static int map(struct spool *spool)
{
    uint64_t page = spool->stored / PAGE_BYTES * PAGE_BYTES;
    void *memory = MAP_FAILED;
    size_t length;

    unmap(&spool->room);
    if (!spool->is_ahead) {
        spool->is_ahead = true;
        spool_write_marks(spool);
    }
    length = extend_file(spool, page);
    if (length)
        memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, spool->file, (off_t)page);
    if (memory == MAP_FAILED) {
        cut(spool);
        return -1;
    }
    spool->room = (struct spool_room){ .memory = memory, .start = page, .length = length };
    return 0;
}

/* The kernel does not bring a page in for a process that is being killed, and drops the bytes: the
 * pages of the next read are there before it. */
char *spool_make_room(struct spool *spool)
{
    volatile char *memory;
    size_t at;

    if ((!spool->room.memory || spool->stored + READ_BYTES > room_end(&spool->room)) &&
        map(spool) < 0)
        return NULL;
    memory = spool->room.memory;
    at = (size_t)(spool->stored - spool->room.start);
    for (size_t page = at / PAGE_BYTES * PAGE_BYTES; page < at + READ_BYTES; page += PAGE_BYTES)
        memory[page] = memory[page];
    return spool->room.memory + at;
}

void spool_cut_room(struct spool *spool)
{
    if (!spool->room.memory)
        return;
    unmap(&spool->room);
    cut(spool);
}
