/* SPDX-License-Identifier: Apache-2.0 */
/* When init dials, and what it gets by that. */

#include "init/dial.h"

#include "init/init.h"
#include "init/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define UNUSED __attribute__((unused))

static void the_delay_doubles_up_to_the_longest(void **state UNUSED)
{
    static const int expected[] = { 10, 20, 40, 80, 160, 250, 250 };
    int delay_ms = 0;

    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        delay_ms = dial_next_delay_ms(delay_ms, (int64_t)delay_ms * 1000);
        assert_int_equal(delay_ms, expected[i]);
    }
}

static void after_a_connection_that_lasted_it_begins_anew(void **state UNUSED)
{
    assert_int_equal(dial_next_delay_ms(250, (int64_t)3600 * 1000 * 1000), 10);
    assert_int_equal(dial_next_delay_ms(80, 501 * 1000), 10);
    assert_int_equal(dial_next_delay_ms(80, 300 * 1000), 160); /* it was refused */
}

static void a_daemon_that_asks_makes_the_delays_begin_anew(void **state UNUSED)
{
    settings.socket_path = "/nowhere/at/all";
    for (int i = 0; i < 8; i++)
        assert_int_equal(dial_connect(), -ENOENT);
    assert_in_range(dial_wait_ms(), 1, DIAL_LONGEST_MS);
    dial_confirm();
    assert_in_range(dial_wait_ms(), 0, DIAL_SHORTEST_MS); /* never without any pause */
    assert_int_equal(dial_connect(), -ENOENT);
    assert_in_range(dial_wait_ms(), 0, DIAL_SHORTEST_MS);
    assert_int_equal(dial_connect(), -ENOENT);
    assert_in_range(dial_wait_ms(), 0, 2 * DIAL_SHORTEST_MS);
    settings.socket_path = NULL;
}

static int listen_at(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

static void a_connection_blocks_and_is_not_inherited(void **state UNUSED)
{
    char dir[] = "/tmp/sandglass-dial-test-XXXXXX";
    char path[64];
    char byte = 0;
    int listener;
    int peer;
    int fd;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/socket", dir);
    settings.origin = ORIGIN_DIALLED;
    settings.socket_path = path;
    assert_int_equal(listener_open(), 0);
    assert_true(listener_is_right()); /* whatever descriptor 3 is */
    assert_false(listener_has_socket());

    assert_int_equal(listener_accept(), -ENOENT);
    listener = listen_at(path);
    fd = listener_accept();
    assert_true(fd >= 0);
    assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    peer = accept(listener, NULL, NULL);
    assert_int_equal(send(peer, "x", 1, 0), 1);
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    close(fd);
    close(peer);
    close(listener);
    assert_int_equal(listener_accept(), -ECONNREFUSED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    settings.origin = ORIGIN_PASSED;
    settings.socket_path = NULL;
}

static void a_full_queue_is_not_waited_for(void **state UNUSED)
{
    char path[] = "/tmp/sandglass-dial-test-XXXXXX";
    int fds[8];
    int count = 0;
    int listener;

    close(mkstemp(path));
    assert_int_equal(unlink(path), 0);
    listener = listen_at(path);
    settings.socket_path = path;
    while (count < 8 && (fds[count] = dial_connect()) >= 0)
        count++;
    assert_in_range(count, 1, 7);
    assert_int_equal(fds[count], -EAGAIN);
    while (count)
        close(fds[--count]);
    close(listener);
    assert_int_equal(unlink(path), 0);
    settings.socket_path = NULL;
}

static void a_path_that_can_never_be_dialled_is_refused_at_once(void **state UNUSED)
{
    char path[128];

    memset(path, 'x', sizeof(path) - 1);
    path[0] = '/';
    path[sizeof(path) - 1] = 0;
    settings.origin = ORIGIN_DIALLED;
    settings.socket_path = path;
    assert_int_equal(listener_open(), -ENAMETOOLONG);
    settings.origin = ORIGIN_PASSED;
    settings.socket_path = NULL;
}

static void the_first_attempt_is_due_at_once(void **state UNUSED)
{
    assert_int_equal(dial_wait_ms(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_attempt_is_due_at_once),
        cmocka_unit_test(the_delay_doubles_up_to_the_longest),
        cmocka_unit_test(after_a_connection_that_lasted_it_begins_anew),
        cmocka_unit_test(a_daemon_that_asks_makes_the_delays_begin_anew),
        cmocka_unit_test(a_connection_blocks_and_is_not_inherited),
        cmocka_unit_test(a_full_queue_is_not_waited_for),
        cmocka_unit_test(a_path_that_can_never_be_dialled_is_refused_at_once),
    };

    return cmocka_run_group_tests_name("init/dial", tests, NULL, NULL);
}
