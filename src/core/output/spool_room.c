#include "core/output/spool_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/*
 * Room for bytes that are yet to come, at the end of the file and in memory. It is made in big
 * steps, because a step takes the disk's time and that of everybody who waits for us.
 */

static void unmap(struct output_room *room)
{
    if (room->memory)
        (void)munmap(room->memory, room->length);
    *room = (struct output_room){ 0 };
}

static uint64_t room_end(const struct output_room *room)
{
    return room->start + room->length;
}

/* On a disk that is nearly full, a smaller step. */
static size_t extend_file(const struct output *output, uint64_t page)
{
    for (size_t length = AHEAD_BYTES; length >= LEAST_AHEAD_BYTES; length /= 4) {
        if (fallocate(output->file, 0, (off_t)page, (off_t)length) == 0)
            return length;
        if (errno != ENOSPC && errno != EDQUOT)
            break;
    }
    return 0;
}

static void cut(const struct output *output)
{
    (void)!ftruncate(output->file, (off_t)output->stored);
}

static int map(struct output *output)
{
    uint64_t page = output->stored / PAGE_BYTES * PAGE_BYTES;
    void *memory = MAP_FAILED;
    size_t length;

    unmap(&output->room);
    if (!output->is_ahead) {
        output->is_ahead = true;
        output_write_marks(output);
    }
    length = extend_file(output, page);
    if (length)
        memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, output->file, (off_t)page);
    if (memory == MAP_FAILED) {
        cut(output);
        return -1;
    }
    output->room = (struct output_room){ .memory = memory, .start = page, .length = length };
    return 0;
}

/* The kernel does not bring a page in for a process that is being killed, and drops the bytes: the
 * pages of the next read are there before it. */
char *output_make_room(struct output *output)
{
    volatile char *memory;
    size_t at;

    if ((!output->room.memory || output->stored + READ_BYTES > room_end(&output->room)) &&
        map(output) < 0)
        return NULL;
    memory = output->room.memory;
    at = (size_t)(output->stored - output->room.start);
    for (size_t page = at / PAGE_BYTES * PAGE_BYTES; page < at + READ_BYTES; page += PAGE_BYTES)
        memory[page] = memory[page];
    return output->room.memory + at;
}

void output_cut_room(struct output *output)
{
    if (!output->room.memory)
        return;
    unmap(&output->room);
    cut(output);
}
