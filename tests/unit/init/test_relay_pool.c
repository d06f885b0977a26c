/* SPDX-License-Identifier: Apache-2.0 */
/* Rings of the relay: bytes come out as they went in, guarantees hold, and nothing is lost. */

#include "init/relay_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BULK = 64 * POOL_BLOCK };

static int prepare(void **state)
{
    (void)state;
    return pool_prepare(BULK);
}

static uint8_t byte_at(uint64_t offset)
{
    return (uint8_t)(offset * 7 + (offset >> 8));
}

static void append(struct ring *ring, uint64_t offset, size_t length)
{
    uint8_t bytes[8192];

    assert_true(length <= sizeof bytes);
    for (size_t i = 0; i < length; i++)
        bytes[i] = byte_at(offset + i);
    assert_true(ring_append(ring, bytes, length));
}

static void bytes_come_out_in_their_order(void **state)
{
    struct ring ring;
    struct ring_place place = { 0 };
    uint64_t put = 0, copied = 0, dropped = 0;
    uint8_t bytes[8192];

    (void)state;
    srand(7);
    assert_int_equal(ring_open(&ring, 1), 0);
    for (unsigned round = 0; round < 20000; round++) {
        size_t length = (size_t)rand() % 5000;

        if (put - dropped + length < 40000) {
            append(&ring, put, length);
            put += length;
        }
        length = (size_t)rand() % (put - copied + 1) % sizeof bytes;
        ring_copy(&ring, &place, bytes, length);
        for (size_t i = 0; i < length; i++)
            assert_int_equal(bytes[i], byte_at(copied + i));
        copied += length;
        length = (size_t)rand() % (copied - dropped + 1);
        ring_drop(&ring, length);
        dropped += length;
        if (dropped == copied)
            place = (struct ring_place){ 0 };
        assert_int_equal(ring.length, put - dropped);
    }
    ring_close(&ring);
    assert_true(pool_has_bulk());
}

static void peek_gives_the_first_bytes(void **state)
{
    struct ring ring;
    struct iovec parts[RING_PARTS];
    uint64_t offset = 100;
    unsigned count;

    (void)state;
    assert_int_equal(ring_open(&ring, 1), 0);
    append(&ring, 0, 8000);
    append(&ring, 8000, 3000);
    ring_drop(&ring, 100);
    count = ring_peek(&ring, parts);
    for (unsigned i = 0; i < count; i++)
        for (size_t j = 0; j < parts[i].iov_len; j++)
            assert_int_equal(((uint8_t *)parts[i].iov_base)[j], byte_at(offset++));
    assert_int_equal(offset, 11000);
    ring_close(&ring);
}

/* One ring cannot take all that there is, and whoever comes late still gets the guarantee. */
static void a_guarantee_holds_when_the_bulk_is_gone(void **state)
{
    static struct ring rings[300];
    struct iovec parts[RING_PARTS];
    struct ring late;
    unsigned blocks = 0;

    (void)state;
    for (unsigned i = 0; i < 300; i++) {
        assert_int_equal(ring_open(&rings[i], 1), 0);
        while (ring_reserve(&rings[i], POOL_BLOCK, parts)) {
            ring_commit(&rings[i], POOL_BLOCK);
            blocks++;
        }
    }
    assert_true(rings[0].count < 20); /* a quarter of 64, and a little */
    assert_true(blocks <= 300 + 64);
    assert_int_equal(ring_open(&late, 1), 0);
    assert_int_equal(ring_reserve(&late, 2 * POOL_BLOCK, parts), 1);
    ring_commit(&late, 0);
    ring_close(&late);
    for (unsigned i = 0; i < 300; i++)
        ring_close(&rings[i]);
    assert_true(pool_has_bulk());
    pool_trim();
}

static void a_promise_is_kept(void **state)
{
    struct ring input, greedy;
    struct iovec parts[RING_PARTS];
    uint8_t bytes[POOL_BLOCK] = { 0 };

    (void)state;
    assert_int_equal(ring_open(&input, 2), 0);
    assert_int_equal(ring_open(&greedy, 1), 0);
    assert_int_equal(ring_promise(&input, 10), 10);
    assert_int_equal(ring_promise(&input, 1000), 22); /* half of the bulk in all */
    while (ring_reserve(&greedy, POOL_BLOCK, parts))
        ring_commit(&greedy, POOL_BLOCK);
    for (unsigned i = 0; i < 34; i++)
        assert_true(ring_append(&input, bytes, sizeof bytes));
    ring_close(&input);
    ring_close(&greedy);
}

static void guarantees_end(void **state)
{
    static struct ring rings[POOL_GUARANTEED];
    struct ring more;

    (void)state;
    for (unsigned i = 0; i < POOL_GUARANTEED; i++)
        assert_int_equal(ring_open(&rings[i], 1), 0);
    assert_int_equal(ring_open(&more, 1), -1);
    for (unsigned i = 0; i < POOL_GUARANTEED; i++)
        ring_close(&rings[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_out_in_their_order),
        cmocka_unit_test(peek_gives_the_first_bytes),
        cmocka_unit_test(a_guarantee_holds_when_the_bulk_is_gone),
        cmocka_unit_test(a_promise_is_kept),
        cmocka_unit_test(guarantees_end),
    };

    return cmocka_run_group_tests(tests, prepare, NULL);
}
