/* SPDX-License-Identifier: Apache-2.0 */
/* A real init with a real relay: their lives, and what nobody else gets to see. The relay is the only
 * child that init has. */

#include "box.h"

#include "base/alloc.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 60000, EXIT_WITHOUT_RELAY = 70 };

struct pair {
    char dir[64];
    char path[80];
    pid_t init; /* 0 once it is gone */
    pid_t relay;
};

static pid_t find_child(pid_t parent)
{
    char path[64];
    char line[64] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
    file = fopen(path, "re");
    assert_non_null(file);
    if (!fgets(line, sizeof(line), file))
        line[0] = 0;
    fclose(file);
    return (pid_t)strtol(line, NULL, 10);
}

static int start_pair(void **state)
{
    enum box_mode mode = (enum box_mode)(uintptr_t)*state;
    int64_t deadline_us = box_deadline_us(PATIENCE_MS);
    struct pair *pair = NULL;

    if (box_can_have(mode)) {
        pair = xnew(struct pair);
        snprintf(pair->dir, sizeof(pair->dir), "/tmp/sandglass-init-test-XXXXXX");
        assert_non_null(mkdtemp(pair->dir));
        snprintf(pair->path, sizeof(pair->path), "%s/relay.sock", pair->dir);
        pair->init = box_spawn_relayed(mode, pair->path);
        while (!(pair->relay = find_child(pair->init))) {
            assert_true(clock_now_us(&clock_system) < deadline_us);
            usleep(1000);
        }
    }
    *state = pair;
    return 0;
}

/* Its exit code, or -1 when it was killed. */
static int wait_for_init(struct pair *pair)
{
    int64_t deadline_us = box_deadline_us(PATIENCE_MS);
    int status = 0;

    while (waitpid(pair->init, &status, WNOHANG) == 0) {
        assert_true(clock_now_us(&clock_system) < deadline_us);
        usleep(1000);
    }
    pair->init = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int stop_pair(void **state)
{
    struct pair *pair = *state;

    if (!pair)
        return 0;
    if (pair->init) {
        kill(pair->init, SIGKILL);
        (void)wait_for_init(pair);
    }
    unlink(pair->path);
    rmdir(pair->dir);
    free(pair);
    return 0;
}

static struct pair *the_pair(void **state)
{
    if (!*state)
        skip();
    return *state;
}

/* The relay speaks first. */
static void expect_greeting(const struct pair *pair)
{
    scoped(fd_close) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
    char byte;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", pair->path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(poll(&poll_fd, 1, PATIENCE_MS), 1);
    assert_int_equal(read(fd, &byte, 1), 1);
}

static void the_socket_is_its_owners_alone(void **state)
{
    struct pair *pair = the_pair(state);
    struct stat status;

    assert_int_equal(stat(pair->path, &status), 0);
    assert_int_equal(status.st_mode, S_IFSOCK | 0600);
    expect_greeting(pair);
}

static void expect_no_key(pid_t pid)
{
    char path[64];
    char bytes[4096];
    ssize_t got;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    got = read(fd, bytes, sizeof(bytes));
    close(fd);
    assert_true(got > (ssize_t)strlen(BOX_KEY));
    assert_non_null(memmem(bytes, (size_t)got, "SANDGLASS_KEY=", 14));
    assert_null(memmem(bytes, (size_t)got, "5ec2", 4));
}

static void the_key_is_in_no_environment(void **state)
{
    struct pair *pair = the_pair(state);

    if (geteuid() != 0)
        skip(); /* both are not dumpable: only root may look */
    expect_no_key(pair->init);
    expect_no_key(pair->relay);
}

static void init_ends_with_its_relay(void **state)
{
    struct pair *pair = the_pair(state);

    assert_int_equal(kill(pair->relay, SIGKILL), 0);
    assert_int_equal(wait_for_init(pair), EXIT_WITHOUT_RELAY);
}

static void a_relay_that_is_stopped_goes_on(void **state)
{
    struct pair *pair = the_pair(state);

    assert_int_equal(kill(pair->relay, SIGSTOP), 0);
    expect_greeting(pair);
    assert_int_equal(kill(pair->relay, SIGTERM), 0); /* blocked */
    expect_greeting(pair);
}

static void expect_common_end(struct pair *pair, int signal_number, int code)
{
    pid_t relay = pair->relay;
    int64_t deadline_us = box_deadline_us(PATIENCE_MS);

    assert_int_equal(kill(pair->init, signal_number), 0);
    assert_int_equal(wait_for_init(pair), code);
    while (kill(relay, 0) == 0) {
        assert_true(clock_now_us(&clock_system) < deadline_us);
        usleep(1000);
    }
}

static void the_relay_ends_with_an_init_that_is_told_to(void **state)
{
    expect_common_end(the_pair(state), SIGTERM, 0);
}

static void the_relay_ends_with_an_init_that_is_killed(void **state)
{
    expect_common_end(the_pair(state), SIGKILL, -1);
}

/* clang-format off */
#define BOTH(test)                                                                           \
    { #test " (direct)", test, start_pair, stop_pair, (void *)(uintptr_t)BOX_DIRECT },       \
    { #test " (namespace)", test, start_pair, stop_pair, (void *)(uintptr_t)BOX_NAMESPACE }
/* clang-format on */

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(the_socket_is_its_owners_alone),
        BOTH(the_key_is_in_no_environment),
        BOTH(init_ends_with_its_relay),
        BOTH(a_relay_that_is_stopped_goes_on),
        BOTH(the_relay_ends_with_an_init_that_is_told_to),
        BOTH(the_relay_ends_with_an_init_that_is_killed),
    };

    return cmocka_run_group_tests_name("init/relayed", tests, NULL, NULL);
}
