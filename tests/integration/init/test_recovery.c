/* SPDX-License-Identifier: Apache-2.0 */
/* Daemons come and go, and one of them is hostile: nothing is lost and init does not mind. */

#include "both.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* No more than a pipe holds, however much is written meanwhile. */
static void read_some(struct run *run)
{
    char bytes[65536];
    ssize_t got = read(run->pipes.output, bytes, sizeof(bytes));

    if (got > 0)
        assert_int_equal(buffer_append(&run->out, bytes, (size_t)got), 0);
}

static void a_daemon_that_dies_loses_no_byte(void **state)
{
    enum {
        LINES = 300000
    }; /* more than six daemons can take away, a pipe beyond what each wants */
    struct box *box = the_box(state);
    struct buffer all = BUFFER_INIT(16 * 1024 * 1024);
    struct run run;
    size_t at = 0;

    run_begin(&run, box, &RUN_SHELL("i=0; while [ $i -lt 300000 ]; do echo $i; i=$((i+1)); done"));
    run_wait_started(&run);
    for (int daemon = 0; daemon < 6; daemon++) {
        size_t wanted = all.length + 20000;
        struct box_listed *listed;

        box_wait(box, (read_some(&run), all.length + run.out.length >= wanted));
        buffer_append(&all, run.out.data, run.out.length);
        box_disconnect(box);
        close(run.pipes.output);
        close(run.pipes.errors);

        box_connect(box);
        assert_int_equal(agent_hello(box->agent)->processes, 1);
        box->listed_count = 0;
        box_list(box);
        assert_int_equal(box->listed_count, 1);
        listed = &box->listed[0];
        assert_int_equal(listed->number, run.number);
        run.pipes = listed->pipes;
        box->listed_count = 0;
        buffer_clear(&run.out);
    }
    run_wait_end(&run);
    buffer_append(&all, run.out.data, run.out.length);
    for (int i = 0; i < LINES; i++) {
        char line[16];
        int length = snprintf(line, sizeof(line), "%d\n", i);

        assert_true(at + (size_t)length <= all.length);
        assert_memory_equal(all.data + at, line, length);
        at += (size_t)length;
    }
    assert_int_equal(at, all.length);
    buffer_fini(&all);
    run_finish(&run);
}

static void an_end_that_nobody_heard_is_remembered(void **state)
{
    struct box *box = the_box(state);
    struct run run;
    struct run other;
    char text[160];

    snprintf(text, sizeof(text), "while [ ! -e %s/go ]; do sleep 0.01; done; echo late; exit 9",
             box->dir);
    run_begin(
        &run, box,
        &(struct agent_start){ .argv = (const char *const[]){ "/bin/sh", "-c", text, NULL } });
    run_wait_started(&run);
    box_disconnect(box);
    snprintf(text, sizeof(text), "%s/go", box->dir);
    fclose(fopen(text, "w"));

    box_connect(box);
    for (int64_t deadline = box_deadline_us(60000);;) {
        box->listed_count = 0;
        box_list(box);
        assert_int_equal(box->listed_count, 1);
        if (box->listed[0].has_ended)
            break;
        fd_close(box->listed[0].pipes.output);
        fd_close(box->listed[0].pipes.errors);
        assert_true(clock_now_us(&clock_system) < deadline);
    }
    assert_int_equal(box->listed[0].end.code, 9);
    close(run.pipes.output);
    run.pipes.output = box->listed[0].pipes.output;
    fd_close(box->listed[0].pipes.errors);
    box->listed_count = 0;
    run_read(&run);
    assert_string_equal(run_out(&run), "late\n");
    run_finish(&run);
    unlink(text);

    box_list(box);
    assert_int_equal(box->listed_count, 0);
    run_all(&other, box, &RUN_SHELL("exit 0"));
    run_finish(&other);
}

static void input_that_was_closed_is_not_passed_again(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start = RUN_SHELL("sleep 1000");
    struct run run;

    start.wants_stdin = true;
    run_begin(&run, box, &start);
    run_wait_started(&run);
    box_list(box);
    assert_true(box->listed[0].pipes.input >= 0);
    agent_close_stdin(box->agent, run.number, NULL, NULL);
    box_list(box);
    assert_int_equal(box->listed_count, 2);
    assert_int_equal(box->listed[1].pipes.input, -1);
    assert_true(box->listed[1].pipes.output >= 0);
    assert_int_equal(box_kill_tree(box, run.number, SIGKILL), 0);
    run_finish(&run);
}

static void the_next_daemon_takes_over(void **state)
{
    struct box *box = the_box(state);
    int second = box_connect_raw(box);

    box_wait(box, box->is_lost);
    close(second);
    box_connect(box);
}

/* --- hostile ---------------------------------------------------------------------------------- */

static bool is_closed(int fd)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
    char bytes[1024];

    while (poll(&poll_fd, 1, 60000) == 1) {
        ssize_t got = recv(fd, bytes, sizeof(bytes), 0);

        if (got <= 0)
            return true;
    }
    return false;
}

static void expect_hangup(struct box *box, const void *bytes, size_t length, int passed_fd)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { .header = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
    struct iovec part = { (void *)(uintptr_t)bytes, length };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    int fd = box_connect_raw(box);

    if (passed_fd >= 0) {
        memcpy(CMSG_DATA(&control.header), &passed_fd, sizeof(passed_fd));
        message.msg_control = &control;
        message.msg_controllen = sizeof(control);
    }
    assert_int_equal(sendmsg(fd, &message, 0), length);
    if (!is_closed(fd))
        fail_msg("init took a bad message of %zu bytes", length);
    close(fd);
}

static void expect_alive(struct box *box)
{
    struct run run;

    box_connect(box);
    run_all(&run, box, &RUN_SHELL("exit 3"));
    assert_int_equal(box_find_end(box, run.number)->code, 3);
    run_finish(&run);
}

static void malformed_messages_end_the_connection_only(void **state)
{
    struct box *box = the_box(state);
    struct protocol_plain plain = { protocol_header(PROTOCOL_FORGET, sizeof(plain), 1, 1) };
    struct protocol_plain wrong;
    size_t before;
    int fds[2];

    box_list(box);
    before = box_count_descriptors(box);
    expect_hangup(box, "x", 1, -1);
    wrong = plain;
    wrong.header.length++;
    expect_hangup(box, &wrong, sizeof(wrong), -1);
    wrong = plain;
    wrong.header.version = 99;
    expect_hangup(box, &wrong, sizeof(wrong), -1);
    wrong = plain;
    wrong.header.type = 40;
    expect_hangup(box, &wrong, sizeof(wrong), -1);
    wrong.header.type = PROTOCOL_HELLO;
    expect_hangup(box, &wrong, sizeof(wrong), -1);
    wrong.header.type = PROTOCOL_START;
    expect_hangup(box, &wrong, sizeof(wrong), -1);
    assert_int_equal(pipe(fds), 0);
    expect_hangup(box, &plain, sizeof(plain), fds[0]);
    close(fds[0]);
    close(fds[1]);
    expect_alive(box);
    box_list(box);
    box_wait(box,
             box_count_descriptors(box) == before); /* supervisors tell first, then init lets go */
}

static void random_messages_never_crash_init(void **state)
{
    struct box *box = the_box(state);
    unsigned seed = (unsigned)getpid();

    print_message("# seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 400; round++) {
        _Alignas(8) unsigned char bytes[512];
        struct protocol_header *header = (struct protocol_header *)bytes;
        size_t length = sizeof(*header) + (size_t)rand() % (sizeof(bytes) - sizeof(*header));
        int fd = box_connect_raw(box);

        for (int i = 0; i < 8; i++) {
            for (size_t at = 0; at < length; at++)
                bytes[at] = (unsigned char)(rand() % 4 ? rand() % 3 : rand());
            *header =
                protocol_header((enum protocol_type)(1 + rand() % PROTOCOL_PORTS), length, 1, 7);
            if (send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
                break;
        }
        close(fd);
    }
    expect_alive(box);
}

static void a_daemon_that_does_not_read_cannot_stall_what_runs(void **state)
{
    struct box *box = the_box(state);
    struct protocol_plain plain = { protocol_header(PROTOCOL_FORGET, sizeof(plain), 1, 1) };
    int fd = box_connect_raw(box);
    int sent = 0;

    for (int tries = 0; tries < 200000 && sent >= 0; tries++)
        sent = (int)send(fd, &plain, sizeof(plain), MSG_DONTWAIT | MSG_NOSIGNAL);
    assert_true(sent < 0);
    assert_int_equal(errno, EAGAIN);
    expect_alive(box);
    close(fd);
}

/* --- from inside ------------------------------------------------------------------------------ */

/* As a program in the sandbox: exit code 0 when init talks to us. */
static int probe(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char bytes[256];
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return 2;
    return recv(fd, bytes, sizeof(bytes), 0) > 0 ? 0 : 1;
}

static char own_path[512];

static void nobody_inside_can_talk_to_init(void **state)
{
    struct box *box = the_box(state);
    char text[1400];
    struct run run;

    snprintf(text, sizeof(text), "%s --probe %s; echo $?; (setsid %s --probe %s; echo $?)",
             own_path, box->socket, own_path, box->socket);
    run_all(&run, box,
            &(struct agent_start){ .argv = (const char *const[]){ "/bin/sh", "-c", text, NULL } });
    assert_string_equal(run_out(&run), "1\n1\n");
    assert_false(box->is_lost);
    run_finish(&run);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        IN_BOTH(a_daemon_that_dies_loses_no_byte),
        IN_DIALLING(a_daemon_that_dies_loses_no_byte),
        IN_BOTH(an_end_that_nobody_heard_is_remembered),
        IN_DIALLING(an_end_that_nobody_heard_is_remembered),
        IN_BOTH(input_that_was_closed_is_not_passed_again),
        IN_BOTH(the_next_daemon_takes_over),
        IN_BOTH(malformed_messages_end_the_connection_only),
        IN_BOTH(random_messages_never_crash_init),
        IN_BOTH(a_daemon_that_does_not_read_cannot_stall_what_runs),
        IN_BOTH(nobody_inside_can_talk_to_init),
        IN_LISTENING(the_next_daemon_takes_over),
        IN_LISTENING(nobody_inside_can_talk_to_init),
    };

    if (argc == 3 && !strcmp(argv[1], "--probe"))
        return probe(argv[2]);
    if (readlink("/proc/self/exe", own_path, sizeof(own_path) - 1) < 0)
        return 1;
    return cmocka_run_group_tests_name("init/recovery", tests, NULL, NULL);
}
