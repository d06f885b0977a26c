/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files, ports and sockets of a real init through pipes and stream sockets: what a daemon needs that
 * cannot be given the files themselves. The messages are written by hand, so that the answers are
 * seen as init sends them.
 */

#include "both.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATHS = 256, PATIENCE_MS = 60000 };

static char own_path[512];

static char *in(struct box *box, const char *name)
{
    static char paths[8][PATHS];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, PATHS, "%s/%s", box->dir, name);
    return path;
}

/* --- messages --------------------------------------------------------------------------------- */

struct answer {
    int error;
    struct protocol_stat stat;
    int fd;
    char temporary[PROTOCOL_MAX_TEMPORARY];
};

static void wait_readable(int fd)
{
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

    assert_int_equal(poll(&poll_fd, 1, PATIENCE_MS), 1);
}

/* One message and the descriptor that came with it, or -1. 0 at the end of the connection. */
static ssize_t receive(int socket, void *message, size_t size, int *out_fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = { message, size };
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    ssize_t length;

    wait_readable(socket);
    length = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    *out_fd = -1;
    if (length > 0 && CMSG_FIRSTHDR(&header))
        memcpy(out_fd, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(int));
    return length;
}

/* The agent makes way for a bare connection. */
static int connect_bare(struct box *box)
{
    _Alignas(8) char bytes[1024];
    struct protocol_hello hello;
    int socket, fd;
    ssize_t length;

    box_disconnect(box);
    socket = box_connect_raw(box);
    length = receive(socket, bytes, sizeof(bytes), &fd);
    assert_true(length > 0);
    assert_int_equal(protocol_hello_decode(bytes, (size_t)length, &hello), 0);
    assert_true(hello.features & FEATURE_CONNECT);
    return socket;
}

static struct answer ask(struct box *box, const void *message, long length)
{
    scoped(fd_close) int socket = connect_bare(box);
    _Alignas(8) char bytes[1024];
    struct answer answer = { .fd = -1 };
    const struct protocol_file_done *done;
    const char *temporary;
    ssize_t got;

    assert_true(length > 0);
    assert_int_equal(send(socket, message, (size_t)length, MSG_NOSIGNAL), length);
    got = receive(socket, bytes, sizeof(bytes), &answer.fd);
    assert_true(got > 0);
    done = protocol_file_done_decode(bytes, (size_t)got, &temporary);
    assert_non_null(done);
    assert_int_equal(done->header.request, 7);
    answer.error = done->error;
    answer.stat = done->stat;
    snprintf(answer.temporary, sizeof(answer.temporary), "%s", temporary);
    assert_true(!answer.error || answer.fd < 0);
    return answer;
}

static struct answer ask_file(struct box *box, struct protocol_file file, const char *user,
                              const char *path, const char *second)
{
    _Alignas(8) char message[16 * 1024];
    struct protocol_file_texts texts = { .user = user, .path = path, .second = second };

    file.header.request = 7;
    return ask(box, message, protocol_file_encode(message, sizeof(message), &file, &texts));
}

static struct answer ask_read(struct box *box, const char *path, uint64_t offset, uint64_t bytes)
{
    struct protocol_file file = { .kind = FILE_READ, .offset = offset, .bytes = bytes };

    return ask_file(box, file, "", path, "");
}

static struct answer ask_connect(struct box *box, const char *user, unsigned port, const char *path)
{
    _Alignas(8) char message[8 * 1024];
    struct protocol_connect connect = { .header.request = 7, .port = port };

    return ask(box, message,
               protocol_connect_encode(message, sizeof(message), &connect, user, path));
}

/* --- reading ---------------------------------------------------------------------------------- */

static void make_file(const char *path, size_t size)
{
    scoped(fd_close) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    char block[4096];

    assert_true(fd >= 0);
    for (size_t at = 0; at < size; at += sizeof(block)) {
        size_t part = size - at < sizeof(block) ? size - at : sizeof(block);

        for (size_t i = 0; i < part; i++)
            block[i] = (char)((at + i) / 7 % 251);
        assert_int_equal(write(fd, block, part), part);
    }
}

/* Bytes until the end of the stream, which are those that make_file() has put there. */
static size_t read_all(int fd, size_t offset)
{
    static char bytes[65536];
    size_t total = 0;
    ssize_t got;

    while ((wait_readable(fd), got = read(fd, bytes, sizeof(bytes))) > 0) {
        for (ssize_t i = 0; i < got; i++)
            if (bytes[i] != (char)((offset + total + (size_t)i) / 7 % 251))
                fail_msg("byte %zu is wrong", offset + total + (size_t)i);
        total += (size_t)got;
    }
    assert_int_equal(got, 0);
    return total;
}

static void a_file_is_read_from_an_offset_with_a_length(void **state)
{
    static const struct {
        uint64_t offset, bytes;
        size_t expected;
    } cases[] = {
        { 0, 0, 3000001 },   { 0, 3000001, 3000001 }, { 1000, 70000, 70000 }, { 2999999, 0, 2 },
        { 2999999, 100, 2 }, { 3000001, 0, 0 },       { 9000000, 10, 0 },     { 1, 1, 1 },
    };
    struct box *box = the_box(state);

    make_file(in(box, "f"), 3000001);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct answer answer = ask_read(box, in(box, "f"), cases[i].offset, cases[i].bytes);

        assert_int_equal(answer.error, 0);
        assert_int_equal(answer.stat.size, 3000001);
        assert_int_equal(read_all(answer.fd, cases[i].offset), cases[i].expected);
        close(answer.fd);
    }
    assert_int_equal(unlink(in(box, "f")), 0);
}

static void a_file_that_shrinks_while_it_is_read_ends_early(void **state)
{
    enum { SIZE = 8 * 1024 * 1024 };
    struct box *box = the_box(state);
    struct answer answer;
    size_t got;

    make_file(in(box, "f"), SIZE);
    answer = ask_read(box, in(box, "f"), 0, SIZE);
    assert_int_equal(answer.error, 0);
    assert_int_equal(truncate(in(box, "f"), 10), 0);
    got = read_all(answer.fd, 0);
    assert_true(got < SIZE);
    close(answer.fd);
    assert_int_equal(unlink(in(box, "f")), 0);
}

static void only_regular_files_are_read(void **state)
{
    struct box *box = the_box(state);

    assert_int_equal(mkfifo(in(box, "pipe"), 0644), 0);
    assert_int_equal(ask_read(box, in(box, "pipe"), 0, 0).error, EINVAL);
    assert_int_equal(ask_read(box, box->dir, 0, 0).error, EISDIR);
    assert_int_equal(ask_read(box, "/dev/zero", 0, 0).error, EINVAL);
    assert_int_equal(ask_read(box, "/proc/self/maps", 0, 0).error, EACCES);
    assert_int_equal(ask_read(box, in(box, "missing"), 0, 0).error, ENOENT);
    assert_int_equal(ask_read(box, in(box, "pipe"), UINT64_MAX, 0).error, EINVAL);
    assert_int_equal(unlink(in(box, "pipe")), 0);
}

static void a_reader_that_goes_away_frees_the_helper(void **state)
{
    struct box *box = the_box(state);

    make_file(in(box, "f"), 8 * 1024 * 1024);
    for (int i = 0; i < 40; i++) { /* more than there may be at one time */
        struct answer answer = { .error = EAGAIN };
        int64_t deadline_us = box_deadline_us(PATIENCE_MS);

        while (answer.error == EAGAIN && clock_now_us(&clock_system) < deadline_us)
            answer = ask_read(box, in(box, "f"), 0, 0);
        assert_int_equal(answer.error, 0);
        close(answer.fd);
    }
    assert_int_equal(unlink(in(box, "f")), 0);
}

/* --- writing ---------------------------------------------------------------------------------- */

static struct answer begin_write(struct box *box, const char *path, const char *user)
{
    return ask_file(box, (struct protocol_file){ .kind = FILE_WRITE }, user, path, "");
}

static struct protocol_note read_last(int fd)
{
    struct protocol_note_view note;
    char bytes[256];
    ssize_t got;

    wait_readable(fd);
    got = read(fd, bytes, sizeof(bytes));
    assert_true(got > 0);
    assert_int_equal(protocol_note_decode(bytes, (size_t)got, &note), got);
    assert_int_equal(note.fixed.kind, NOTE_LAST);
    return note.fixed;
}

static void send_content(int fd, size_t size)
{
    char block[4096];

    for (size_t at = 0; at < size; at += sizeof(block)) {
        size_t part = size - at < sizeof(block) ? size - at : sizeof(block);

        for (size_t i = 0; i < part; i++)
            block[i] = (char)((at + i) / 7 % 251);
        if (send(fd, block, part, MSG_NOSIGNAL) != (ssize_t)part)
            return;
    }
}

static void content_is_written_and_committed(void **state)
{
    enum { SIZE = 3000001 };
    struct box *box = the_box(state);
    struct answer answer = begin_write(box, in(box, "a/f"), "");
    struct protocol_note last;

    assert_int_equal(answer.error, 0);
    assert_true(answer.temporary[0]);
    send_content(answer.fd, SIZE);
    assert_int_equal(shutdown(answer.fd, SHUT_WR), 0);
    last = read_last(answer.fd);
    assert_int_equal(last.error, 0);
    assert_int_equal(last.amount, SIZE);
    close(answer.fd);
    assert_int_equal(access(in(box, "a/f"), F_OK), -1);

    answer = ask_file(box, (struct protocol_file){ .kind = FILE_COMMIT }, "", in(box, "a/f"),
                      answer.temporary);
    assert_int_equal(answer.error, 0);
    assert_int_equal(answer.stat.size, SIZE);
    answer = ask_read(box, in(box, "a/f"), 0, 0);
    assert_int_equal(read_all(answer.fd, 0), SIZE);
    close(answer.fd);
    assert_int_equal(unlink(in(box, "a/f")), 0);
    assert_int_equal(rmdir(in(box, "a")), 0);
}

/* Also proves that nothing else is left in the directory. */
static void wait_until_removable(const char *path)
{
    int64_t deadline_us = box_deadline_us(PATIENCE_MS);

    while (rmdir(path) < 0) {
        assert_int_equal(errno, ENOTEMPTY);
        assert_true(clock_now_us(&clock_system) < deadline_us);
        usleep(1000);
    }
}

static void a_writer_that_hangs_up_leaves_no_file(void **state)
{
    static const size_t sizes[] = { 0, 10, 300000 };
    struct box *box = the_box(state);

    for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
        struct answer answer = begin_write(box, in(box, "d/f"), "");

        assert_int_equal(answer.error, 0);
        send_content(answer.fd, sizes[i]);
        close(answer.fd);
        wait_until_removable(in(box, "d"));
    }
}

static void a_full_disk_is_told_and_leaves_no_file(void **state)
{
    struct box *box = the_box(state);
    struct answer answer;
    struct protocol_note last;

    if (geteuid() != 0)
        skip();
    assert_int_equal(mkdir(in(box, "small"), 0755), 0);
    assert_int_equal(mount("small", in(box, "small"), "tmpfs", 0, "size=256k"), 0);
    answer = begin_write(box, in(box, "small/d/f"), "");
    assert_int_equal(answer.error, 0);
    send_content(answer.fd, 2 * 1024 * 1024);
    last = read_last(answer.fd);
    assert_int_equal(last.error, ENOSPC);
    assert_true(last.amount <= 256 * 1024);
    wait_until_removable(in(box, "small/d"));
    close(answer.fd);
    assert_int_equal(umount2(in(box, "small"), MNT_DETACH), 0);
    assert_int_equal(rmdir(in(box, "small")), 0);
}

static void files_are_reached_with_the_rights_of_the_user(void **state)
{
    struct box *box = the_box(state);
    struct answer answer;

    if (geteuid() != 0)
        skip();
    make_file(in(box, "secret"), 10);
    assert_int_equal(chmod(in(box, "secret"), 0600), 0);
    answer =
        ask_file(box, (struct protocol_file){ .kind = FILE_READ }, "1:1", in(box, "secret"), "");
    assert_int_equal(answer.error, EACCES);
    assert_int_equal(begin_write(box, in(box, "new"), "1:1").error, EACCES);
    assert_int_equal(begin_write(box, in(box, "secret/new"), "").error, ENOTDIR);
    assert_int_equal(begin_write(box, box->dir, "").error, EISDIR);
    assert_int_equal(unlink(in(box, "secret")), 0);
}

/* --- servers inside --------------------------------------------------------------------------- */

/* As a server, but without a listener: nobody else can have its address. */
static int make_bound(const char *where, int *out_port)
{
    struct sockaddr_in ip4 = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct sockaddr_in6 ip6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    struct sockaddr_un path = { .sun_family = AF_UNIX };
    bool is_ip4 = !strcmp(where, "ip4"), is_ip6 = !strcmp(where, "ip6");
    socklen_t size = is_ip4 ? sizeof(ip4) : is_ip6 ? sizeof(ip6) : sizeof(path);
    void *address = is_ip4 ? (void *)&ip4 : is_ip6 ? (void *)&ip6 : (void *)&path;
    int fd = socket(is_ip4 ? AF_INET : is_ip6 ? AF_INET6 : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(path.sun_path, sizeof(path.sun_path), "%s", where);
    if (fd < 0 || bind(fd, address, size) < 0 || getsockname(fd, address, &size) < 0)
        return -1;
    *out_port = is_ip4 ? ntohs(ip4.sin_port) : is_ip6 ? ntohs(ip6.sin6_port) : 0;
    return fd;
}

static int make_server(const char *where, int *out_port)
{
    int fd = make_bound(where, out_port);

    return fd >= 0 && listen(fd, 4) == 0 ? fd : -1;
}

/* As a program of the sandbox: says its port, then who has connected, and echoes until the end. */
static int serve(const char *where)
{
    struct ucred peer = { .uid = (uid_t)-1 };
    socklen_t length = sizeof(peer);
    char bytes[256];
    int port = 0;
    int fd = make_server(where, &port);
    ssize_t got;

    if (fd < 0)
        return 2;
    printf("%d\n", port);
    fflush(stdout);
    fd = accept(fd, NULL, NULL);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0)
        printf("uid %d\n", (int)peer.uid);
    fflush(stdout);
    while ((got = read(fd, bytes, sizeof(bytes))) > 0)
        if (write(fd, bytes, (size_t)got) != got)
            return 3;
    return 0;
}

static int start_server(struct run *run, struct box *box, const char *where)
{
    const char *argv[] = { own_path, "--serve", where, NULL };
    struct agent_start start = { .argv = argv };

    box_connect(box);
    run_begin(run, box, &start);
    run_wait_started(run);
    box_wait(box, (run_read(run), strchr(run_out(run), '\n')));
    return atoi(run_out(run));
}

static void expect_echo(int fd)
{
    char bytes[8] = "";

    assert_int_equal(send(fd, "hello", 5, MSG_NOSIGNAL), 5);
    wait_readable(fd);
    assert_int_equal(recv(fd, bytes, sizeof(bytes), 0), 5);
    assert_string_equal(bytes, "hello");
}

/* Its end went to the bare connection, or to none. */
static void end_server(struct run *run, struct box *box, int fd)
{
    close(fd);
    box_connect(box);
    assert_int_equal(box_kill_tree(box, run->number, SIGKILL), 0);
    run_read(run);
}

static void a_port_of_either_loopback_can_be_connected_to(void **state)
{
    static const char *const loopbacks[] = { "ip4", "ip6" };
    struct box *box = the_box(state);

    for (size_t i = 0; i < ARRAY_LENGTH(loopbacks); i++) {
        int ignored;
        scoped(fd_close) int possible = make_server(loopbacks[i], &ignored);
        struct answer answer;
        struct run run;
        int port;

        if (possible < 0)
            continue; /* this machine has no such loopback */
        port = start_server(&run, box, loopbacks[i]);
        answer = ask_connect(box, "", (unsigned)port, "");
        assert_int_equal(answer.error, 0);
        expect_echo(answer.fd);
        end_server(&run, box, answer.fd);
        run_finish(&run);
    }
}

static void a_unix_socket_is_connected_to_as_the_user(void **state)
{
    struct box *box = the_box(state);
    char path[PATHS];
    struct answer answer;
    struct run run;

    snprintf(path, sizeof(path), "%s", in(box, "server"));
    (void)start_server(&run, box, path);
    if (geteuid() == 0) {
        assert_int_equal(chmod(path, 0700), 0);
        assert_int_equal(ask_connect(box, "1:1", 0, path).error, EACCES);
        assert_int_equal(chmod(path, 0777), 0);
    }
    answer = ask_connect(box, geteuid() ? "" : "1:1", 0, path);
    assert_int_equal(answer.error, 0);
    expect_echo(answer.fd);
    end_server(&run, box, answer.fd);
    if (geteuid() == 0)
        assert_non_null(strstr(run_out(&run), "uid 1\n"));
    run_finish(&run);
    assert_int_equal(unlink(path), 0);
}

static void a_path_longer_than_an_address_can_be_connected_to(void **state)
{
    struct box *box = the_box(state);
    char path[512], shown[PATHS];
    struct answer answer;
    struct run run;

    snprintf(path, sizeof(path), "%s/%0100d/%0100d", box->dir, 1, 2);
    snprintf(shown, sizeof(shown), "%s/s", box->dir);
    *strrchr(path, '/') = 0;
    assert_int_equal(mkdir(path, 0755), 0);
    path[strlen(path)] = '/';
    (void)start_server(&run, box, shown);
    assert_int_equal(rename(shown, path), 0);
    answer = ask_connect(box, "", 0, path);
    assert_int_equal(answer.error, 0);
    expect_echo(answer.fd);
    end_server(&run, box, answer.fd);
    run_finish(&run);
    assert_int_equal(unlink(path), 0);
    *strrchr(path, '/') = 0;
    assert_int_equal(rmdir(path), 0);
}

static void a_server_that_is_not_there_is_told(void **state)
{
    struct box *box = the_box(state);
    int port = 0;
    scoped(fd_close) int bound = make_bound("ip4", &port);

    assert_true(bound >= 0);
    assert_int_equal(ask_connect(box, "", (unsigned)port, "").error, ECONNREFUSED);
    assert_int_equal(ask_connect(box, "", 0, in(box, "missing")).error, ENOENT);
    make_file(in(box, "plain"), 1);
    assert_int_equal(ask_connect(box, "", 0, in(box, "plain")).error, ECONNREFUSED);
    assert_int_equal(unlink(in(box, "plain")), 0);
    assert_int_equal(ask_connect(box, "nobody-has-this-name", 1, "").error, EINVAL);
}

/* How often the port is told; all notes are well formed, and the last one counts the others. */
static unsigned count_port(struct box *box, int port)
{
    struct protocol_plain ports = { protocol_header(PROTOCOL_PORTS, sizeof(ports), 0, 7) };
    struct answer answer = ask(box, &ports, sizeof(ports));
    static char bytes[256 * 1024];
    struct protocol_note_view note = { 0 };
    size_t length = 0, at = 0;
    unsigned told = 0, found = 0;
    ssize_t got;

    assert_int_equal(answer.error, 0);
    while ((wait_readable(answer.fd),
            got = read(answer.fd, bytes + length, sizeof(bytes) - length)) > 0)
        length += (size_t)got;
    close(answer.fd);
    for (; at < length; told++) {
        long used = protocol_note_decode(bytes + at, length - at, &note);

        assert_true(used > 0);
        at += (size_t)used;
        if (note.fixed.kind == NOTE_LAST)
            break;
        assert_int_equal(note.fixed.kind, NOTE_PORT);
        found += note.fixed.number == (uint64_t)port;
    }
    assert_int_equal(note.fixed.kind, NOTE_LAST);
    assert_int_equal(note.fixed.number, told);
    assert_int_equal(at, length);
    return found;
}

static void ports_that_are_listened_on_are_told(void **state)
{
    struct box *box = the_box(state);
    int outer_port = 0;
    scoped(fd_close) int outer = make_server("ip4", &outer_port);
    struct run run;
    int port = start_server(&run, box, "ip4");

    assert_true(outer >= 0);
    assert_int_equal(count_port(box, port), 1);
    /* The network is shared: without a namespace of processes only those of the sandbox count. */
    assert_int_equal(count_port(box, outer_port), box->mode == BOX_DIRECT ? 0 : 1);
    end_server(&run, box, -1);
    assert_int_equal(count_port(box, port), 0);
    run_finish(&run);
}

static void a_malformed_connect_ends_the_connection_only(void **state)
{
    struct box *box = the_box(state);
    scoped(fd_close) int socket = connect_bare(box);
    _Alignas(8) char message[1024];
    struct protocol_connect connect = { .port = 80 };
    long length = protocol_connect_encode(message, sizeof(message), &connect, "", "");
    int fd;

    assert_true(length > 0); /* but it has no number to be answered with */
    assert_int_equal(send(socket, message, (size_t)length, MSG_NOSIGNAL), length);
    assert_int_equal(receive(socket, message, sizeof(message), &fd), 0);
    box_connect(box);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        IN_BOTH(a_file_is_read_from_an_offset_with_a_length),
        IN_BOTH(a_file_that_shrinks_while_it_is_read_ends_early),
        IN_BOTH(only_regular_files_are_read),
        IN_BOTH(a_reader_that_goes_away_frees_the_helper),
        IN_BOTH(content_is_written_and_committed),
        IN_BOTH(a_writer_that_hangs_up_leaves_no_file),
        IN_DIRECT(a_full_disk_is_told_and_leaves_no_file),
        IN_BOTH(files_are_reached_with_the_rights_of_the_user),
        IN_BOTH(a_port_of_either_loopback_can_be_connected_to),
        IN_BOTH(a_unix_socket_is_connected_to_as_the_user),
        IN_BOTH(a_path_longer_than_an_address_can_be_connected_to),
        IN_BOTH(a_server_that_is_not_there_is_told),
        IN_BOTH(ports_that_are_listened_on_are_told),
        IN_BOTH(a_malformed_connect_ends_the_connection_only),
    };

    if (argc == 3 && !strcmp(argv[1], "--serve"))
        return serve(argv[2]);
    if (readlink("/proc/self/exe", own_path, sizeof(own_path) - 1) < 0)
        return 1;
    /* What a test mounts is nobody else's, and goes with it. */
    if (geteuid() == 0 &&
        (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
        return 1;
    return cmocka_run_group_tests_name("init/streams", tests, NULL, NULL);
}
