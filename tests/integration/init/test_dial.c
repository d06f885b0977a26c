/* SPDX-License-Identifier: Apache-2.0 */
/* An init that connects to the daemon: whenever there is one, and without haste while there is none. */

#include "both.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* 9 attempts fit: at 0, 10, 30, 70, 150, 310, 560 …, and then one in each LONGEST_MS. */
enum { WATCHED_MS = 1200, MOST_ATTEMPTS = 12, LEAST_ATTEMPTS = 2, LONGEST_MS = 250 };

/* How many there may have been since then, however late it is now. */
static unsigned most_attempts(int64_t begin_us)
{
    int64_t over_us = clock_now_us(&clock_system) - begin_us - WATCHED_MS * 1000LL;

    return MOST_ATTEMPTS + (over_us > 0 ? (unsigned)(over_us / (LONGEST_MS * 1000)) + 1 : 0);
}

static void expect_service(struct box *box)
{
    struct run run;

    run_all(&run, box, &RUN_SHELL("exit 5"));
    assert_int_equal(box_find_end(box, run.number)->code, 5);
    run_finish(&run);
}

static int start_alone(void **state)
{
    enum box_mode mode = (enum box_mode)(uintptr_t)*state;

    *state = box_can_have(mode) ? box_new_dialling_nobody(&(struct box_spawn){ .mode = mode })
                                : NULL;
    return 0;
}

/* A field of the kernel's page about init. */
static long long status_of(const struct box *box, const char *field, int base)
{
    char path[64];
    char line[256];
    long long value = -1;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)box->init);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (!strncmp(line, field, strlen(field)))
            value = (long long)strtoull(line + strlen(field), NULL, base);
    fclose(file);
    return value;
}

static bool is_prepared(const struct box *box)
{
    return status_of(box, "SigBlk:", 16) != 0;
}

static void init_waits_for_a_daemon_that_begins_later(void **state)
{
    struct box *box = the_box(state);

    box_wait(box, is_prepared(box));
    box_listen(box);
    box_connect(box);
    expect_service(box);
}

/* Each attempt is a sleep of init's; it does hardly anything else meanwhile. */
static void while_there_is_no_daemon_init_sleeps(void **state)
{
    struct box *box = the_box(state);
    int64_t begin_us;
    long long before, switches;

    box_wait(box, is_prepared(box));
    begin_us = clock_now_us(&clock_system);
    before = status_of(box, "voluntary_ctxt_switches:", 10);
    box_wait(box, clock_now_us(&clock_system) > begin_us + WATCHED_MS * 1000LL &&
                      status_of(box, "voluntary_ctxt_switches:", 10) >= before + LEAST_ATTEMPTS);
    switches = status_of(box, "voluntary_ctxt_switches:", 10) - before;
    assert_in_range(switches, LEAST_ATTEMPTS, 2 * most_attempts(begin_us));
    box_listen(box);
    box_connect(box);
    expect_service(box);
}

static void sigterm_ends_an_init_without_a_daemon(void **state)
{
    struct box *box = the_box(state);
    int status;

    box_wait(box, is_prepared(box));
    assert_int_equal(kill(box->init, SIGTERM), 0);
    box_wait_for_exit(box, &status);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    box_listen(box); /* box_free expects a socket */
}

static void a_daemon_that_refuses_is_asked_seldom(void **state)
{
    struct box *box = the_box(state);
    int64_t begin_us = clock_now_us(&clock_system);
    int64_t end_us = box_deadline_us(WATCHED_MS);
    int64_t deadline_us = box_deadline_us(60000);
    unsigned attempts = 0;

    box_disconnect(box);
    while (clock_now_us(&clock_system) < end_us || attempts < LEAST_ATTEMPTS) {
        int fd = box_accept(box);

        attempts += fd >= 0;
        fd_close(fd);
        usleep(1000);
        assert_true(clock_now_us(&clock_system) < deadline_us);
    }
    print_message("# %u attempts\n", attempts);
    assert_in_range(attempts, LEAST_ATTEMPTS, most_attempts(begin_us));
    box_connect(box);
    expect_service(box);
}

static void the_next_daemon_may_have_another_socket(void **state)
{
    struct box *box = the_box(state);
    struct run run;

    run_begin(&run, box, &RUN_SHELL("sleep 1000"));
    run_wait_started(&run);
    for (int i = 0; i < 3; i++) {
        box_listen(box); /* removes the one that init is connected to */
        box_connect(box);
    }
    assert_int_equal(agent_hello(box->agent)->processes, 1);
    assert_int_equal(box_kill_tree(box, run.number, SIGKILL), 0);
    run_finish(&run);
    expect_service(box);
}

static void output_goes_on_while_there_is_no_connection(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start = RUN_SHELL("while read line; do echo \"$line\"; done; exit 4");
    struct run run;

    start.wants_stdin = true;
    run_begin(&run, box, &start);
    run_wait_started(&run);
    box_disconnect(box);
    for (int i = 0; i < 20; i++) {
        size_t wanted = run.out.length + 6;

        assert_int_equal(write(run.pipes.input, "hello\n", 6), 6);
        box_wait(box, (run_read(&run), run.out.length >= wanted));
    }
    box_connect(box);
    box_list(box);
    assert_int_equal(box->listed_count, 1);
    agent_close_stdin(box->agent, run.number, NULL, NULL);
    fd_close(box->listed[0].pipes.input);
    box->listed[0].pipes.input = -1;
    fd_close(run.pipes.input);
    run.pipes.input = -1;
    run_wait_end(&run);
    assert_int_equal(box_find_end(box, run.number)->code, 4);
    run_finish(&run);
}

static void many_daemons_leave_nothing_open(void **state)
{
    struct box *box = the_box(state);
    size_t before;

    box_list(box);
    before = box_count_descriptors(box);
    for (int i = 0; i < 100; i++) {
        box_connect(box);
        box_list(box);
    }
    box_wait(box, box_count_descriptors(box) == before);
    expect_service(box);
}

/* Connects to the test's own socket until its queue is full; init finds no room then. */
static size_t fill_queue(struct box *box, int *fds, size_t maximum)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t count = 0;

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", box->socket);
    for (; count < maximum; count++) {
        fds[count] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_true(fds[count] >= 0);
        if (connect(fds[count], (struct sockaddr *)&address, sizeof(address)) == 0)
            continue;
        assert_int_equal(errno, EAGAIN);
        close(fds[count]);
        break;
    }
    assert_true(count < maximum);
    return count;
}

static bool accepts_init(struct box *box, int *out_fd)
{
    struct ucred peer;
    socklen_t length = sizeof(peer);
    int fd = box_accept(box);

    if (fd < 0)
        return false;
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length), 0);
    *out_fd = peer.pid == box->init ? fd : -1;
    if (*out_fd < 0)
        close(fd);
    return *out_fd >= 0;
}

static void a_full_queue_does_not_stop_init(void **state)
{
    struct box *box = the_box(state);
    int fds[64];
    int fd = -1;
    size_t count;

    box_wait(box, is_prepared(box));
    box_listen(box);
    count = fill_queue(box, fds, ARRAY_LENGTH(fds));
    box_wait(box, accepts_init(box, &fd)); /* ours come first */
    close(fd);
    while (count)
        close(fds[--count]);
    box_connect(box);
    expect_service(box);
}

/* The daemon knows init by this. */
static void the_daemon_sees_the_pid_of_init(void **state)
{
    struct box *box = the_box(state);
    int fd = -1;

    box_disconnect(box);
    box_wait(box, accepts_init(box, &fd));
    close(fd);
    box_connect(box);
}

/* clang-format off */
#define ALONE(test)                                                                       \
    { #test " (direct)", test, start_alone, stop_box, (void *)(uintptr_t)BOX_DIRECT },    \
    { #test " (namespace)", test, start_alone, stop_box, (void *)(uintptr_t)BOX_NAMESPACE }
/* clang-format on */

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALONE(init_waits_for_a_daemon_that_begins_later),
        ALONE(while_there_is_no_daemon_init_sleeps),
        ALONE(sigterm_ends_an_init_without_a_daemon),
        ALONE(a_full_queue_does_not_stop_init),
        IN_DIALLING(a_daemon_that_refuses_is_asked_seldom),
        IN_DIALLING(the_next_daemon_may_have_another_socket),
        IN_DIALLING(output_goes_on_while_there_is_no_connection),
        IN_DIALLING(many_daemons_leave_nothing_open),
        IN_DIALLING(the_daemon_sees_the_pid_of_init),
    };

    return cmocka_run_group_tests_name("init/dial", tests, NULL, NULL);
}
