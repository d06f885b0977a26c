/* SPDX-License-Identifier: Apache-2.0 */
#include "bridge/carrier.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cmocka.h>

struct asked {
    struct carrier_attempt attempt;
    unsigned answers;
};

static void on_done(struct carrier_attempt *attempt)
{
    container_of(attempt, struct asked, attempt)->answers++;
}

static int listen_in(int directory, const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", directory, name);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

/* Far longer than the address of a socket. */
static int open_deep_directory(char path[512])
{
    size_t length = (size_t)snprintf(path, 512, "/tmp/carrier.XXXXXX");

    assert_non_null(mkdtemp(path));
    for (unsigned i = 0; i < 3; i++) {
        memset(path + length, 'd', 64);
        path[length] = '/';
        length += 64;
        path[length] = '\0';
        assert_int_equal(mkdir(path, 0700), 0);
    }
    return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void remove_deep_directory(char path[512], int directory)
{
    (void)unlinkat(directory, "relay.sock", 0);
    for (unsigned i = 0; i < 4; i++) {
        (void)rmdir(path);
        *strrchr(path, '/') = '\0';
    }
}

static void a_unix_socket_is_reached_through_its_directory(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    char path[512];
    scoped(fd_close) int directory = open_deep_directory(path);
    scoped(carrier_free) struct carrier *carrier = carrier_unix_new(loop, directory, "relay.sock");
    scoped(fd_close) int listener = listen_in(directory, "relay.sock");
    struct asked asked = { .answers = 0 };

    carrier_open(carrier, &asked.attempt, on_done);
    assert_int_equal(asked.answers, 0);
    loop_turn(loop, 0);
    assert_int_equal(asked.answers, 1);
    assert_true(asked.attempt.fd >= 0);
    assert_true(fcntl(asked.attempt.fd, F_GETFL) & O_NONBLOCK);
    assert_int_equal(send(asked.attempt.fd, "x", 1, MSG_NOSIGNAL), 1);
    fd_close(asked.attempt.fd);
    remove_deep_directory(path, directory);
}

static void a_unix_socket_that_is_not_there_is_an_error(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    scoped(carrier_free) struct carrier *carrier =
        carrier_unix_new(loop, -1, "/nonexistent/relay.sock");
    struct asked asked = { .answers = 0 };

    carrier_open(carrier, &asked.attempt, on_done);
    loop_turn(loop, 0);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.attempt.fd, -1);
    assert_int_equal(asked.attempt.err.sys_errno, ENOENT);
}

static void a_path_that_is_too_long_is_an_error(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    char path[200];
    struct asked asked = { .answers = 0 };
    struct carrier *carrier;

    memset(path, 'p', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    carrier = carrier_unix_new(loop, -1, path);
    carrier_open(carrier, &asked.attempt, on_done);
    loop_turn(loop, 0);
    assert_int_equal(asked.attempt.err.code, ERR_INVALID);
    carrier_free(carrier);
}

struct streams {
    unsigned opened, cancelled;
    int gives; /* -1: later */
};

static void on_stream_open(struct carrier *carrier, void *context)
{
    struct streams *streams = context;

    streams->opened++;
    if (streams->gives >= 0)
        carrier_finish(carrier, streams->gives, NULL);
}

static void on_stream_cancel(struct carrier *carrier UNUSED, void *context)
{
    ((struct streams *)context)->cancelled++;
}

static const struct carrier_stream calls = { .open = on_stream_open, .cancel = on_stream_cancel };

static void a_cancelled_attempt_is_not_answered_and_its_stream_is_closed(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    int ends[2];
    struct streams streams = { 0 };
    struct asked asked = { .answers = 0 };
    scoped(carrier_free) struct carrier *carrier = carrier_stream_new(loop, &calls, &streams);
    char byte;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    streams.gives = ends[0];
    carrier_open(carrier, &asked.attempt, on_done);
    carrier_cancel(&asked.attempt);
    carrier_cancel(&asked.attempt);
    loop_turn(loop, 0);
    assert_int_equal(asked.answers, 0);
    assert_int_equal(streams.cancelled, 0); /* it was answered already */
    assert_int_equal(read(ends[1], &byte, 1), 0);
    fd_close(ends[1]);

    streams.gives = -1;
    carrier_open(carrier, &asked.attempt, on_done);
    carrier_cancel(&asked.attempt);
    assert_int_equal(streams.cancelled, 1);
    assert_int_equal(streams.opened, 2);
}

static void freeing_a_carrier_cancels_what_runs(void **state UNUSED)
{
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct streams streams = { .gives = -1 };
    struct asked asked = { .answers = 0 };
    struct carrier *carrier = carrier_stream_new(loop, &calls, &streams);

    carrier_open(carrier, &asked.attempt, on_done);
    carrier_free(carrier);
    loop_turn(loop, 0);
    assert_int_equal(streams.cancelled, 1);
    assert_int_equal(asked.answers, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unix_socket_is_reached_through_its_directory),
        cmocka_unit_test(a_unix_socket_that_is_not_there_is_an_error),
        cmocka_unit_test(a_path_that_is_too_long_is_an_error),
        cmocka_unit_test(a_cancelled_attempt_is_not_answered_and_its_stream_is_closed),
        cmocka_unit_test(freeing_a_carrier_cancels_what_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
