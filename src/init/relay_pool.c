/* SPDX-License-Identifier: Apache-2.0 */
#include "init/relay_pool.h"

#include "init/init.h"
#include "init/sys.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum {
    POOL_BLOCKS = POOL_GUARANTEED + POOL_BULK,
    POOL_TRIM_OVER = 64, /* blocks that stay as they are: taking pages and giving them back costs */
};

static TABLE_SELDOM_USED struct {
    char *memory;
    unsigned bulk_limit;
    unsigned bulk;     /* taken or reserved beyond guarantees */
    unsigned promised; /* the part of it that is reserved */
    unsigned guaranteed;
    unsigned used;
    unsigned highest;               /* block ever used since the memory was last given back */
    uint16_t free;                  /* list of blocks that were used before */
    uint16_t next[POOL_BLOCKS + 1]; /* of free blocks, and of the blocks of a ring */
} pool;

/* Between ring_reserve() and ring_commit(). */
static uint16_t taken[RING_PARTS];
static unsigned taken_count;

int pool_prepare(size_t bulk_bytes)
{
    long address = sys(mmap, NULL, (size_t)POOL_BLOCKS * POOL_BLOCK, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (address < 0 && address > -4096)
        return (int)address;
    pool.memory = (char *)address;
    pool.bulk_limit = bulk_bytes / POOL_BLOCK < POOL_BULK ? (unsigned)(bulk_bytes / POOL_BLOCK)
                                                          : POOL_BULK;
    return 0;
}

bool pool_has_bulk(void)
{
    return pool.bulk < pool.bulk_limit;
}

void pool_trim(void)
{
    if (pool.used || pool.highest <= POOL_TRIM_OVER)
        return;
    (void)sys(madvise, pool.memory, (size_t)pool.highest * POOL_BLOCK, MADV_DONTNEED);
    pool.free = 0;
    pool.highest = 0;
}

static char *block_memory(uint16_t block)
{
    return pool.memory + (size_t)(block - 1) * POOL_BLOCK;
}

/* --- blocks of a ring ----------------------------------------------------------------------- */

static bool ring_may_grow(const struct ring *ring)
{
    unsigned own = ring->guarantee + ring->reserved;

    return ring->count < own ||
           (pool_has_bulk() && ring->count - own <= (pool.bulk_limit - pool.bulk) / 4);
}

/* Takes a block for this ring without linking it yet; 0 without room. */
static uint16_t ring_take(struct ring *ring)
{
    uint16_t block = pool.free;

    if (!ring_may_grow(ring))
        return 0;
    if (block)
        pool.free = pool.next[block];
    else
        block = (uint16_t)++pool.highest;
    pool.used++;
    if (++ring->count > ring->guarantee + ring->reserved)
        pool.bulk++;
    return block;
}

static void ring_give(struct ring *ring, uint16_t block)
{
    pool.next[block] = pool.free;
    pool.free = block;
    pool.used--;
    if (ring->count-- > ring->guarantee + ring->reserved)
        pool.bulk--;
}

static void ring_link(struct ring *ring, uint16_t block)
{
    pool.next[block] = 0;
    if (ring->last)
        pool.next[ring->last] = block;
    else
        ring->first = block;
    ring->last = block;
    ring->end = 0;
}

static void ring_unlink_first(struct ring *ring)
{
    uint16_t block = ring->first;

    ring->first = pool.next[block];
    if (!ring->first)
        ring->last = 0;
    ring->start = 0;
    ring_give(ring, block);
}

/* --- rings ---------------------------------------------------------------------------------- */

int ring_open(struct ring *ring, unsigned guarantee)
{
    if (pool.guaranteed + guarantee > POOL_GUARANTEED)
        return -1;
    pool.guaranteed += guarantee;
    *ring = (struct ring){ .guarantee = (uint16_t)guarantee };
    return 0;
}

void ring_clear(struct ring *ring)
{
    while (ring->first)
        ring_unlink_first(ring);
    ring->end = 0;
    ring->length = 0;
}

void ring_close(struct ring *ring)
{
    ring_clear(ring);
    pool.guaranteed -= ring->guarantee;
    pool.bulk -= ring->reserved;
    pool.promised -= ring->reserved;
    *ring = (struct ring){ 0 };
}

/* Blocks that the ring has as bulk already become reserved ones. */
unsigned ring_promise(struct ring *ring, unsigned wanted)
{
    unsigned given = 0;

    while (given < wanted && pool.promised < pool.bulk_limit / 2) {
        if (ring->count <= ring->guarantee + ring->reserved) {
            if (!pool_has_bulk())
                break;
            pool.bulk++;
        }
        ring->reserved++;
        pool.promised++;
        given++;
    }
    return given;
}

unsigned ring_reserve(struct ring *ring, size_t wanted, struct iovec parts[RING_PARTS])
{
    unsigned count = 0;
    size_t room = ring->last ? POOL_BLOCK - ring->end : 0;

    if (room && wanted) {
        if (room > wanted)
            room = wanted;
        parts[count++] = (struct iovec){ block_memory(ring->last) + ring->end, room };
        wanted -= room;
    }
    while (wanted && count < RING_PARTS) {
        uint16_t block = ring_take(ring);

        if (!block)
            break;
        taken[taken_count++] = block;
        room = wanted < POOL_BLOCK ? wanted : POOL_BLOCK;
        parts[count++] = (struct iovec){ block_memory(block), room };
        wanted -= room;
    }
    return count;
}

void ring_commit(struct ring *ring, size_t length)
{
    size_t room = ring->last ? POOL_BLOCK - ring->end : 0;
    unsigned used = 0;

    ring->length += (uint32_t)length;
    if (room > length)
        room = length;
    ring->end = (uint16_t)(ring->end + room);
    length -= room;
    for (; length; length -= room) {
        ring_link(ring, taken[used++]);
        room = length < POOL_BLOCK ? length : POOL_BLOCK;
        ring->end = (uint16_t)room;
    }
    while (taken_count > used)
        ring_give(ring, taken[--taken_count]);
    taken_count = 0;
}

bool ring_append(struct ring *ring, const void *bytes, size_t length)
{
    struct iovec parts[RING_PARTS];
    const char *from = bytes;

    while (length) {
        unsigned count = ring_reserve(ring, length, parts);
        size_t copied = 0;

        for (unsigned i = 0; i < count; i++) {
            memcpy(parts[i].iov_base, from + copied, parts[i].iov_len);
            copied += parts[i].iov_len;
        }
        ring_commit(ring, copied);
        if (!copied)
            return false;
        from += copied;
        length -= copied;
    }
    return true;
}

/* Bytes of this block, which begin at `start`. */
static size_t block_length(const struct ring *ring, uint16_t block, size_t start)
{
    return (block == ring->last ? ring->end : POOL_BLOCK) - start;
}

unsigned ring_peek(const struct ring *ring, struct iovec parts[RING_PARTS])
{
    unsigned count = 0;
    size_t start = ring->start;

    for (uint16_t block = ring->first; block && count < RING_PARTS; block = pool.next[block]) {
        parts[count++] =
            (struct iovec){ block_memory(block) + start, block_length(ring, block, start) };
        start = 0;
    }
    return count;
}

void ring_drop(struct ring *ring, size_t length)
{
    ring->length -= (uint32_t)length;
    while (length) {
        size_t here = block_length(ring, ring->first, ring->start);

        if (here > length) {
            ring->start = (uint16_t)(ring->start + length);
            return;
        }
        length -= here;
        ring_unlink_first(ring);
    }
    if (!ring->length)
        ring_clear(ring); /* the last block may be there without a byte */
}

void ring_copy(const struct ring *ring, struct ring_place *place, void *out, size_t length)
{
    char *to = out;

    if (!place->block)
        *place = (struct ring_place){ ring->first, ring->start };
    while (length) {
        size_t here = block_length(ring, place->block, place->at);

        if (!here) { /* the block was full, and has a next one since */
            *place = (struct ring_place){ pool.next[place->block], 0 };
            continue;
        }
        if (here > length)
            here = length;
        memcpy(to, block_memory(place->block) + place->at, here);
        place->at = (uint16_t)(place->at + here);
        to += here;
        length -= here;
    }
}
