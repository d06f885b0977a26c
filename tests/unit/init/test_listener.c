/* SPDX-License-Identifier: Apache-2.0 */
/* The relay's key, and connections that come from the relay. */

#include "init/init.h"
#include "init/listener.h"
#include "init/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define UNUSED __attribute__((unused))
#define DIGITS_30 "000102030405060708090a0b0c0d0e"
#define DIGITS_62 DIGITS_30 DIGITS_30 "Fe"

static void the_key_is_read_and_overwritten(void **state UNUSED)
{
    char key[] = "SANDGLASS_KEY=" DIGITS_62 "7f";
    char other[] = "SANDGLASS_KEYS=abc";
    char *environment[] = { other, key, NULL };
    char zeros[64] = { 0 };
    struct relay_setup setup = { 0 };

    assert_true(listener_take_key(environment, &setup));
    assert_int_equal(setup.key[1], 1);
    assert_int_equal(setup.key[30], 0xfe);
    assert_int_equal(setup.key[31], 0x7f);
    assert_memory_equal(key + strlen("SANDGLASS_KEY="), zeros, sizeof(zeros));
    assert_string_equal(other, "SANDGLASS_KEYS=abc");
    assert_false(listener_take_key(environment, &setup)); /* it is gone */
}

static void a_wrong_key_is_none_and_is_overwritten_too(void **state UNUSED)
{
    char texts[][128] = {
        "SANDGLASS_KEY=" DIGITS_62,
        "SANDGLASS_KEY=" DIGITS_62 "7f0",
        "SANDGLASS_KEY=" DIGITS_62 "7g",
        "SANDGLASS_KEY=",
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char *environment[] = { texts[i], NULL };
        struct relay_setup setup = { 0 };

        assert_false(listener_take_key(environment, &setup));
        assert_string_equal(texts[i], "SANDGLASS_KEY=");
    }
}

/* --- connections ------------------------------------------------------------------------------ */

static int relay_end; /* as the relay has it; init's is descriptor 3 */

static int begin(void **state UNUSED)
{
    int ends[2];

    settings.origin = ORIGIN_RELAY;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return -1;
    relay_end = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    close(ends[1]);
    if (ends[0] != FD_LISTEN) {
        dup2(ends[0], FD_LISTEN);
        close(ends[0]);
    }
    return relay_end < 0 ? -1 : 0;
}

static int end(void **state UNUSED)
{
    close(relay_end);
    close(FD_LISTEN);
    settings.origin = ORIGIN_PASSED;
    return 0;
}

static void send_with(const int *fds, size_t count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(4 * sizeof(int))];
    } control = { 0 };
    struct iovec part = { (void *)(uintptr_t) "c", 1 };
    struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1 };

    if (count) {
        control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    }
    assert_int_equal(sendmsg(relay_end, &header, 0), 1);
}

static void a_connection_of_the_relay_is_taken_and_blocks(void **state UNUSED)
{
    int ends[2];
    int fd;
    char byte = 0;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends), 0);
    send_with(ends, 1);
    fd = listener_accept();
    assert_true(fd >= 0);
    assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(send(ends[1], "x", 1, 0), 1);
    assert_int_equal(read(fd, &byte, 1), 1);
    close(fd);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(listener_accept(), -EAGAIN);
}

static void what_is_no_connection_is_dropped(void **state UNUSED)
{
    int before = dup(0);
    int streams[2];
    int after;

    close(before);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, streams), 0);
    send_with(NULL, 0);
    assert_int_equal(listener_accept(), -EBADMSG);
    send_with(streams, 1); /* of another type */
    assert_int_equal(listener_accept(), -EBADMSG);
    send_with(streams, 2);
    assert_int_equal(listener_accept(), -EBADMSG);
    close(streams[0]);
    close(streams[1]);
    after = dup(0);
    assert_int_equal(after, before); /* no descriptor was left open */
    close(after);
}

static void the_end_of_the_relay_is_an_error(void **state UNUSED)
{
    close(relay_end);
    relay_end = -1;
    assert_int_equal(listener_accept(), -EPIPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_key_is_read_and_overwritten),
        cmocka_unit_test(a_wrong_key_is_none_and_is_overwritten_too),
        cmocka_unit_test_setup_teardown(a_connection_of_the_relay_is_taken_and_blocks, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_connection_is_dropped, begin, end),
        cmocka_unit_test_setup_teardown(the_end_of_the_relay_is_an_error, begin, end),
    };

    return cmocka_run_group_tests_name("init/listener", tests, NULL, NULL);
}
