/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/outlet.h"

#include "base/alloc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { LARGE = 1 << 20, DEADLINE_TURNS = 2000 };

struct fixture {
    struct outlet outlet; /* first: callbacks find the fixture by it */
    struct loop *loop;
    int pipe[2];
    unsigned drained;
    unsigned closed;
};

static void on_drained(struct outlet *outlet)
{
    container_of(outlet, struct fixture, outlet)->drained++;
}

static void on_closed(struct outlet *outlet)
{
    container_of(outlet, struct fixture, outlet)->closed++;
}

static void fixture_init(struct fixture *fixture)
{
    *fixture = (struct fixture){ .loop = loop_new(&clock_system) };
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe2(fixture->pipe, O_CLOEXEC), 0);
    outlet_init(&fixture->outlet, fixture->loop, fixture->pipe[1], on_drained, on_closed);
}

static void fixture_fini(struct fixture *fixture)
{
    outlet_fini(&fixture->outlet);
    fd_close(fixture->pipe[0]);
    fd_close(fixture->pipe[1]);
    loop_free(fixture->loop);
}

static void a_pipe_that_is_read_takes_everything_at_once(void **state UNUSED)
{
    struct fixture fixture;
    char text[6] = "";

    fixture_init(&fixture);
    assert_true(outlet_write(&fixture.outlet, "hello", 5));
    assert_int_equal(read(fixture.pipe[0], text, 5), 5);
    assert_string_equal(text, "hello");
    fixture_fini(&fixture);
}

static void a_full_pipe_does_not_block_and_loses_nothing(void **state UNUSED)
{
    scoped(free) uint8_t *data = xmalloc(LARGE);
    scoped(free) uint8_t *copy = xmalloc(LARGE);
    struct fixture fixture;
    size_t got = 0;

    for (size_t i = 0; i < LARGE; i++)
        data[i] = (uint8_t)(i * 31 >> 3);
    fixture_init(&fixture);
    assert_false(outlet_write(&fixture.outlet, data, LARGE));
    for (int turn = 0; turn < DEADLINE_TURNS && got < LARGE; turn++) {
        ssize_t count = read(fixture.pipe[0], copy + got, LARGE - got);

        assert_true(count > 0);
        got += (size_t)count;
        loop_turn(fixture.loop, 0);
    }
    assert_int_equal(got, LARGE);
    assert_memory_equal(data, copy, LARGE);
    assert_int_equal(fixture.drained, 1);
    fixture_fini(&fixture);
}

static void the_descriptor_we_inherited_stays_blocking(void **state UNUSED)
{
    struct fixture fixture;

    fixture_init(&fixture);
    assert_false(fcntl(fixture.pipe[1], F_GETFL) & O_NONBLOCK);
    fixture_fini(&fixture);
}

static void a_reader_that_went_is_told_once_and_the_rest_is_dropped(void **state UNUSED)
{
    struct fixture fixture;

    fixture_init(&fixture);
    fd_close(steal_fd(&fixture.pipe[0]));
    assert_true(outlet_write(&fixture.outlet, "x", 1));
    assert_true(outlet_write(&fixture.outlet, "y", 1));
    assert_int_equal(fixture.closed, 1);
    fixture_fini(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipe_that_is_read_takes_everything_at_once),
        cmocka_unit_test(a_full_pipe_does_not_block_and_loses_nothing),
        cmocka_unit_test(the_descriptor_we_inherited_stays_blocking),
        cmocka_unit_test(a_reader_that_went_is_told_once_and_the_rest_is_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
