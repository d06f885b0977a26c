/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Memory of the relay for bytes in transit: a pool of blocks of one page, and rings made of them.
 * The pool is mapped once and its pages are touched when they are first used.
 *
 * Each ring has a guarantee: a number of blocks that it gets regardless of the other rings, so that
 * streams without a reader cannot stop the others. Further blocks count as bulk. The memory of the
 * sandbox limits the bulk of all rings together, and one ring gets at most a quarter of the rest,
 * so that the first ones cannot take it all. Bulk can also be reserved ahead of its use, by an
 * input that promises its sender room for a window.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum {
    POOL_BLOCK = 4096,
    POOL_GUARANTEED = 4096, /* blocks */
    POOL_BULK = 2048,       /* at most; less in a small sandbox */
    RING_PARTS = 17,        /* for 64 KiB anywhere in a ring */
};

struct ring {
    uint16_t first; /* block numbers begin at 1; 0: no block */
    uint16_t last;
    uint16_t count;
    uint16_t guarantee; /* blocks */
    uint16_t reserved;  /* blocks beyond the guarantee, which are counted as bulk already */
    uint16_t start;     /* of the bytes in the first block */
    uint16_t end;       /* in the last block */
    uint32_t length;    /* bytes */
};

/* A position in a ring, between its first byte and its end. */
struct ring_place {
    uint16_t block; /* 0: at the first byte */
    uint16_t at;
};

int pool_prepare(size_t bulk_bytes); /* -errno when there is no memory */
bool pool_has_bulk(void);            /* whether a ring could have more than its guarantee now */
void pool_trim(void);                /* gives memory back when nothing is in it */

/* -1 when the pool has no more guarantees to give. */
int ring_open(struct ring *ring, unsigned guarantee);
void ring_close(struct ring *ring);
void ring_clear(struct ring *ring); /* drops the bytes */

/* How many more blocks the ring has reserved after this, `wanted` at most. Half of the bulk cannot be
 * reserved. */
unsigned ring_promise(struct ring *ring, unsigned wanted);

/* Room behind the last byte for `wanted` bytes or fewer, as parts to read into; then commit the
 * number of bytes read, perhaps 0. None when the pool has no room for this ring now. */
unsigned ring_reserve(struct ring *ring, size_t wanted, struct iovec parts[RING_PARTS]);
void ring_commit(struct ring *ring, size_t length);
bool ring_append(struct ring *ring, const void *bytes, size_t length); /* false: does not fit */

/* The first bytes, 64 KiB at most, as parts to write from. */
unsigned ring_peek(const struct ring *ring, struct iovec parts[RING_PARTS]);
void ring_drop(struct ring *ring, size_t length); /* of the first bytes */

/* Copies the bytes at the position and advances it. */
void ring_copy(const struct ring *ring, struct ring_place *place, void *out, size_t length);
