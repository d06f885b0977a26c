/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/stream_order.h"

#include "core/output/combined_output.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    char path[64];
    int directory;
    uint64_t lengths[2];
    struct stream_order *order;
};

static const uint64_t nothing[2] = { 0, 0 };

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    snprintf(fixture->path, sizeof(fixture->path), "/tmp/test-order-XXXXXX");
    assert_non_null(mkdtemp(fixture->path));
    fixture->directory = open(fixture->path, O_DIRECTORY | O_CLOEXEC);
    fixture->order = stream_order_new(fixture->directory, "order", nothing);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    stream_order_free(fixture->order);
    (void)unlinkat(fixture->directory, "order", 0);
    close(fixture->directory);
    assert_int_equal(rmdir(fixture->path), 0);
    free(fixture);
    return 0;
}

static void take(struct fixture *fixture, unsigned stream, uint64_t bytes)
{
    fixture->lengths[stream] += bytes;
    stream_order_took(fixture->order, stream, fixture->lengths[stream]);
}

/* As the next daemon would find it. */
static void reopen(struct fixture *fixture)
{
    stream_order_free(fixture->order);
    fixture->order = stream_order_new(fixture->directory, "order", fixture->lengths);
}

static void assert_place(const struct fixture *fixture, uint64_t merged, unsigned stream,
                         uint64_t offset, uint64_t run_bytes)
{
    struct stream_order_place place = { 0 };

    assert_true(stream_order_find(fixture->order, merged, &place));
    assert_int_equal(place.stream, stream);
    assert_int_equal(place.offset, offset);
    assert_int_equal(place.run_bytes, run_bytes);
    assert_int_equal(place.other, merged - offset);
    assert_int_equal(stream_order_merged(fixture->order, stream, offset), merged);
}

static bool has_file(const struct fixture *fixture)
{
    return faccessat(fixture->directory, "order", F_OK, 0) == 0;
}

static void one_stream_alone_needs_no_file(void **state)
{
    struct fixture *fixture = *state;
    struct stream_order_place place;

    assert_false(stream_order_find(fixture->order, 0, &place));
    take(fixture, 1, 10);
    take(fixture, 1, 10);
    assert_place(fixture, 5, 1, 5, 15);
    assert_false(stream_order_find(fixture->order, 20, &place));
    assert_int_equal(stream_order_length(fixture->order), 20);
    assert_false(has_file(fixture));
    reopen(fixture);
    assert_place(fixture, 5, 1, 5, 15);
}

static void runs_are_found_in_the_order_they_came(void **state)
{
    struct fixture *fixture = *state;

    take(fixture, 1, 3);
    take(fixture, 0, 5);
    take(fixture, 0, 2);
    take(fixture, 1, 4);
    for (int again = 0; again < 2; again++) {
        assert_place(fixture, 0, 1, 0, 3);
        assert_place(fixture, 2, 1, 2, 1);
        assert_place(fixture, 3, 0, 0, 7);
        assert_place(fixture, 9, 0, 6, 1);
        assert_place(fixture, 10, 1, 3, 4);
        reopen(fixture);
    }
    take(fixture, 1, 1);
    take(fixture, 0, 1);
    assert_place(fixture, 10, 1, 3, 5);
    assert_place(fixture, 15, 0, 7, 1);
}

static void a_change_that_was_not_written_down_is_the_last_one(void **state)
{
    struct fixture *fixture = *state;

    take(fixture, 0, 5);
    take(fixture, 1, 5);
    fixture->lengths[1] += 2; /* taken into the spools by a daemon that was killed then */
    fixture->lengths[0] += 3;
    reopen(fixture);
    assert_place(fixture, 5, 1, 0, 7);
    assert_place(fixture, 12, 0, 5, 3);
    take(fixture, 1, 1);
    assert_place(fixture, 15, 1, 7, 1);
}

static void many_changes_keep_their_order_and_a_bounded_file(void **state)
{
    struct fixture *fixture = *state;
    uint64_t hole_start = 0, hole_end = 0;
    struct stream_order_place place;
    struct stat status;

    for (unsigned i = 0; i < 1250 * 1000; i++)
        take(fixture, i & 1, 1 + (i & 1));
    for (int again = 0; again < 2; again++) {
        assert_true(stream_order_has_hole(fixture->order, &hole_start, &hole_end));
        assert_place(fixture, 0, 0, 0, 1);
        assert_place(fixture, 300, 0, 100, 1);
        assert_place(fixture, hole_start - 3, 0, hole_start / 3 - 1, 1);
        assert_false(stream_order_find(fixture->order, hole_start, &place));
        assert_false(stream_order_find(fixture->order, hole_end - 1, &place));
        assert_true(stream_order_find(fixture->order, hole_end, &place));
        assert_place(fixture, 1874997, 0, 624999, 1);
        assert_place(fixture, 1874998, 1, 1249998, 2);
        assert_int_equal(stream_order_merged(fixture->order, 0, hole_start / 3 + 10), hole_end);
        reopen(fixture);
    }
    assert_int_equal(fstatat(fixture->directory, "order", &status, 0), 0);
    assert_true(status.st_blocks * 512 <= 10 * 1024 * 1024);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(one_stream_alone_needs_no_file),
        TEST(runs_are_found_in_the_order_they_came),
        TEST(a_change_that_was_not_written_down_is_the_last_one),
        TEST(many_changes_keep_their_order_and_a_bounded_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
