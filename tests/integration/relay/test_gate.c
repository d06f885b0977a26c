/* SPDX-License-Identifier: Apache-2.0 */
/* A real init with a gate, reached by the daemon's end of a sealed line, and by strangers. */

#include "client.h"

#include "backend/remote/line.h"
#include "base/alloc.h"
#include "loop/loop.h"
#include "wire/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LINE_MS = 60 * 1000, SILENT_MS = 500, EXIT_WITHOUT_RELAY = 70 };

struct fixture {
    struct host host;
    struct client *client;
};

/* --- the daemon's end ------------------------------------------------------------------------- */

/* Of the test that runs, for the callbacks of its client. */
static struct fixture *current;

static void send_descriptor(int socket, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    char byte = fd < 0 ? 'x' : 'f';
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    if (fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    }
    if (sendmsg(socket, &message, MSG_NOSIGNAL) != 1)
        _exit(111);
}

static int receive_descriptor(int socket)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    struct iovec part = { &byte, 1 };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };
    int fd;

    assert_int_equal(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
    if (byte != 'f')
        return -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static bool is_answered;

static void on_line(struct line_call *call)
{
    (void)call;
    is_answered = true;
}

/* Opens a line, passes its socket on, and goes on until the line has ended. */
static void run_line(const struct host *host, int socket)
{
    struct loop *loop = loop_new(&clock_system);
    struct line_call call = { 0 };
    struct line_set set;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    is_answered = false;
    line_set_init(&set, loop);
    line_open(&set, &call, "127.0.0.1", host->port, host->key, LINE_MS, on_line);
    while (!is_answered)
        loop_turn(loop, -1);
    send_descriptor(socket, call.fd);
    close(socket);
    if (call.fd >= 0)
        close(call.fd);
    while (!list_is_empty(&set.list))
        loop_turn(loop, -1);
    _exit(0);
}

static void connect_by_line(struct client *client)
{
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    client->pump = fork();
    assert_true(client->pump >= 0);
    if (!client->pump)
        run_line(&current->host, pair[1]);
    close(pair[1]);
    client->fd = client->fd_out = receive_descriptor(pair[0]);
    close(pair[0]);
    assert_true(client->fd >= 0);
    assert_int_equal(fcntl(client->fd, F_SETFL, 0), 0);
}

static int start(void **state)
{
    struct fixture *fixture = xnew(struct fixture);

    host_start_gated(&fixture->host);
    fixture->client = client_new(fixture->host.path, fixture->host.key);
    fixture->client->way = CLIENT_OTHER;
    fixture->client->connect = connect_by_line;
    current = fixture;
    *state = fixture;
    return 0;
}

static int stop(void **state)
{
    struct fixture *fixture = *state;

    client_free(fixture->client);
    host_stop(&fixture->host);
    free(fixture);
    return 0;
}

static void say_hello(struct client *client)
{
    client_begin(client);
    (void)client_take(client, PROTOCOL_HELLO, 0);
}

/* --- what goes through ------------------------------------------------------------------------ */

static void programs_run_through_the_gate(void **state)
{
    struct fixture *fixture = *state;
    struct client *client = fixture->client;
    struct client_process process;

    say_hello(client);
    client_start(client, &process, 1, "cat; echo end", START_STDIN);
    client_wait(client, client->channels[process.in].allowed > 0);
    assert_int_equal(client_write(client, process.in, "in and out ", 11), 11);
    client_end(client, process.in);
    client_ask(client, PROTOCOL_CLOSE_STDIN, 1, 2);
    (void)client_take(client, PROTOCOL_EXITED, 1);
    client_wait(client, client->channels[process.out].has_end);
    assert_string_equal(buffer_text(&client->channels[process.out].out), "in and out end\n");
}

/* Not optimized, and with sanitizers, a cipher is slow. */
#ifdef __SANITIZE_ADDRESS__
#define MUCH "10000000"
#else
#define MUCH "100000000"
#endif

static void a_hundred_megabytes_arrive_whole(void **state)
{
    const uint64_t length = strtoull(MUCH, NULL, 10);
    struct fixture *fixture = *state;
    struct client *client = fixture->client;
    struct client_process process;
    int64_t begin = client_deadline_ms(0);

    say_hello(client);
    client->discards = true;
    client_start(client, &process, 1, "head -c " MUCH " /dev/zero", 0);
    while (!client->channels[process.out].has_end)
        client_go_on(client, begin + 240000, "all of it has come");
    assert_int_equal(client->channels[process.out].total, length);
    assert_int_equal(client->channels[process.out].come, length);
    print_message("# %s bytes in %d ms\n", MUCH, (int)(client_deadline_ms(0) - begin));
}

/* Every second connection carries more than a frame, so that each frame gets through in the end. */
static void a_cut_connection_goes_on_where_it_stopped(void **state)
{
    enum { LINES = 60000 };
    struct fixture *fixture = *state;
    struct client *client = fixture->client;
    uint64_t number = 0;

    say_hello(client);
    for (long step = 500; step < 60000; step += 9973) {
        int64_t deadline = client_deadline_ms(60000);
        struct client_process process;
        const char *text;

        client_start(client, &process, ++number, "seq 1 60000", 0);
        while (!client->channels[process.out].has_end) {
            if (client->cut_in < 0)
                client->cut_in = client->cuts % 2 ? step + 80000 : step;
            client_go_on(client, deadline, "the program ends");
        }
        client->cut_in = -1;
        text = buffer_text(&client->channels[process.out].out);
        for (unsigned i = 1; i <= LINES; i++) {
            char line[16];
            int length = snprintf(line, sizeof line, "%u\n", i);

            assert_memory_equal(text, line, (size_t)length);
            text += length;
        }
        assert_int_equal(*text, 0);
        (void)client_take(client, PROTOCOL_EXITED, number);
    }
    assert_true(client->cuts > 10);
}

static void a_line_that_is_made_again_takes_the_place_of_the_last(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned i = 0; i < 3 * 4; i++) {
        struct client *other = client_new(fixture->host.path, fixture->host.key);

        other->way = CLIENT_OTHER;
        other->connect = connect_by_line;
        say_hello(other);
        client_free(fixture->client); /* its line was cut by the login of the other one */
        fixture->client = other;
    }
}

/* The way of one byte and back, by a program that echoes. For people. */
static void a_byte_comes_back_soon(void **state)
{
    enum { ROUNDS = 500 };
    struct fixture *fixture = *state;
    struct client *client = fixture->client;
    struct client_process process;
    struct timespec begin, end;

    say_hello(client);
    client->acknowledges = true;
    client_start(client, &process, 1, "exec cat", START_STDIN);
    client_wait(client, client->channels[process.in].allowed > ROUNDS);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        assert_int_equal(client_write(client, process.in, "x", 1), 1);
        client_wait(client, client->channels[process.out].come == i);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    print_message(
        "# a byte there and back: %.0f us\n",
        ((double)(end.tv_sec - begin.tv_sec) * 1e6 + (double)(end.tv_nsec - begin.tv_nsec) / 1e3) /
            ROUNDS);
}

/* --- strangers -------------------------------------------------------------------------------- */

static void read_exactly(int fd, void *bytes, size_t length)
{
    for (size_t done = 0; done < length;) {
        struct pollfd wait = { fd, POLLIN, 0 };
        ssize_t count;

        assert_int_equal(poll(&wait, 1, 60000), 1);
        count = read(fd, (char *)bytes + done, length - done);
        assert_true(count > 0);
        done += (size_t)count;
    }
}

/* What comes until the gate closes the connection, which it does within the time. */
static size_t drain_until_closed(int fd, int timeout_ms)
{
    int64_t deadline = client_deadline_ms(timeout_ms);
    size_t total = 0;
    char bytes[256];

    for (;;) {
        struct pollfd wait = { fd, POLLIN, 0 };
        ssize_t count;

        assert_true(client_deadline_ms(0) < deadline);
        if (poll(&wait, 1, 100) == 0)
            continue;
        count = read(fd, bytes, sizeof bytes);
        if (count <= 0)
            return total;
        total += (size_t)count;
    }
}

struct hello {
    struct seal_answer answer;
    uint8_t proof[SEAL_OVERHEAD];
};

/* Connects, and makes the hello of a daemon with this key. */
static int dial(const struct host *host, const uint8_t key[RELAY_KEY_SIZE],
                struct seal_greeting *greeting, struct hello *hello)
{
    int fd = host_dial(host);
    struct seal seal;

    assert_true(fd >= 0);
    read_exactly(fd, greeting, sizeof *greeting);
    assert_memory_equal(greeting->magic, SEAL_MAGIC, sizeof greeting->magic);
    *hello = (struct hello){ .answer = { .version = SEAL_VERSION, .nonce = { 9 } } };
    seal_init(&seal, key, greeting, &hello->answer, SEAL_TO_SANDBOX);
    (void)seal_close(&seal, hello->proof, 0);
    return fd;
}

static void assert_refused(int fd, const void *bytes, size_t length)
{
    assert_int_equal(send(fd, bytes, length, MSG_NOSIGNAL), length);
    assert_int_equal(drain_until_closed(fd, 60000), 0);
    close(fd);
}

static void only_the_key_of_the_sandbox_is_let_in(void **state)
{
    struct fixture *fixture = *state;
    uint8_t wrong[RELAY_KEY_SIZE];
    struct seal_greeting greeting;
    struct hello hello;
    int fd;

    memcpy(wrong, fixture->host.key, sizeof wrong);
    wrong[31] ^= 1;
    fd = dial(&fixture->host, wrong, &greeting, &hello);
    assert_refused(fd, &hello, sizeof hello);

    fd = dial(&fixture->host, fixture->host.key, &greeting, &hello);
    hello.answer.version++;
    assert_refused(fd, &hello, sizeof hello);

    fd = dial(&fixture->host, fixture->host.key, &greeting, &hello);
    hello.proof[SEAL_OVERHEAD - 1] ^= 0x80;
    assert_refused(fd, &hello, sizeof hello);

    fd = dial(&fixture->host, fixture->host.key, &greeting, &hello);
    assert_int_equal(write(fd, &hello, sizeof hello), sizeof hello);
    read_exactly(fd, &hello, SEAL_OVERHEAD); /* the proof of the gate */
    close(fd);
}

/* A recorded hello is for the nonce of its own greeting. */
static void a_hello_that_is_repeated_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct seal_greeting greeting, other;
    struct hello hello, ignored;
    int fd = dial(&fixture->host, fixture->host.key, &greeting, &hello);

    close(fd);
    fd = dial(&fixture->host, fixture->host.key, &other, &ignored);
    assert_memory_not_equal(greeting.nonce, other.nonce, sizeof other.nonce);
    assert_refused(fd, &hello, sizeof hello);
}

static void a_record_that_is_changed_ends_its_line_alone(void **state)
{
    struct fixture *fixture = *state;
    struct seal_greeting greeting;
    struct hello hello;
    uint8_t record[64 + SEAL_OVERHEAD] = { 0 };
    struct seal seal;
    int fd = dial(&fixture->host, fixture->host.key, &greeting, &hello);

    say_hello(fixture->client);
    seal_init(&seal, fixture->host.key, &greeting, &hello.answer, SEAL_TO_SANDBOX);
    seal.number = 1;
    (void)seal_close(&seal, record, 64);
    record[SEAL_HEAD + 3] ^= 1;
    assert_int_equal(write(fd, &hello, sizeof hello), sizeof hello);
    assert_int_equal(write(fd, record, sizeof record), sizeof record);
    (void)drain_until_closed(fd, 4000); /* before the relay's own deadline */
    close(fd);
    client_ask(fixture->client, PROTOCOL_LIST, 0, 1);
    (void)client_take(fixture->client, PROTOCOL_DONE, 0);
}

static void silent_strangers_are_dropped_in_time_and_take_no_place(void **state)
{
    enum { MANY = 700 };
    struct fixture *fixture = *state;
    int fds[MANY];

    say_hello(fixture->client);
    for (unsigned i = 0; i < MANY; i++) {
        fds[i] = host_dial(&fixture->host);
        assert_true(fds[i] >= 0);
    }
    client_cut(fixture->client);
    assert_int_equal(client_resume(fixture->client),
                     0); /* at once, although all places are taken */
    for (unsigned i = 0; i < MANY; i++) {
        (void)drain_until_closed(fds[i], SEAL_HANDSHAKE_MS + 60000);
        close(fds[i]);
    }
    client_ask(fixture->client, PROTOCOL_LIST, 0, 1);
    (void)client_take(fixture->client, PROTOCOL_DONE, 0);
}

static void flood(const struct host *host)
{
    uint8_t garbage[4096];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        int fd = host_dial(host);

        if (fd < 0 || getrandom(garbage, sizeof garbage, 0) < 0)
            continue;
        (void)!send(fd, garbage, sizeof garbage, MSG_NOSIGNAL);
        close(fd);
    }
}

static void a_flood_of_garbage_does_not_keep_the_daemon_out(void **state)
{
    struct fixture *fixture = *state;
    struct client *client = fixture->client;
    pid_t flooder;

    say_hello(client);
    flooder = fork();
    if (!flooder)
        flood(&fixture->host);
    for (unsigned i = 0; i < 20; i++) {
        struct client_process process;

        client_cut(client);
        assert_int_equal(client_resume(client), 0);
        client_start(client, &process, 1 + i, "echo here", 0);
        client_wait(client, client->channels[process.out].has_end);
        assert_string_equal(buffer_text(&client->channels[process.out].out), "here\n");
    }
    kill(flooder, SIGKILL);
    assert_int_equal(waitpid(flooder, NULL, 0), flooder);
}

/* --- the daemon's end against others ---------------------------------------------------------- */

static struct error open_line_within(int timeout_ms, unsigned port, const char *address,
                                     const uint8_t key[RELAY_KEY_SIZE])
{
    struct loop *loop = loop_new(&clock_system);
    struct line_call call = { 0 };
    struct line_set set;

    is_answered = false;
    line_set_init(&set, loop);
    line_open(&set, &call, address, port, key, timeout_ms, on_line);
    while (!is_answered)
        loop_turn(loop, -1);
    if (call.fd >= 0)
        close(call.fd);
    line_set_fini(&set);
    loop_free(loop);
    return call.err;
}

static struct error open_line(unsigned port, const char *address, const uint8_t key[RELAY_KEY_SIZE])
{
    return open_line_within(LINE_MS, port, address, key);
}

static void a_line_with_a_wrong_key_is_refused(void **state)
{
    struct fixture *fixture = *state;
    uint8_t wrong[RELAY_KEY_SIZE] = { 1 };
    struct error err = open_line(fixture->host.port, "127.0.0.1", wrong);

    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(err.message, "refuses the key"));
    err = open_line(fixture->host.port, "127.0.0.1", fixture->host.key);
    assert_int_equal(err.code, ERR_NONE);
}

static void a_gate_is_reached_by_ipv6_as_well(void **state)
{
    struct fixture *fixture = *state;
    struct error err = open_line(fixture->host.port, "::1", fixture->host.key);

    if (err.sys_errno == EADDRNOTAVAIL || err.sys_errno == EAFNOSUPPORT) {
        print_message("skip: this host has no IPv6\n");
        skip();
    }
    assert_int_equal(err.code, ERR_NONE);
}

/* A host that has the address of the pod, and not its key: what it sends, what the daemon says. */
static void a_peer_that_is_no_gate_is_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t length;
        bool closes;
        const char *words;
    } table[] = {
        { "", 0, true, "before a greeting" },
        { "", 0, false, "does not answer within" },
        { "SSH-2.0-OpenSSH_9.2 and more", 28, false, "is not the gate" },
        { "SGSL\2\0\3\0"
          "0123456789abcdef",
          24, false, "is not the gate" },
        { "SGSL\1\0\1\0"
          "0123456789abcdef"
          "\0\0\0\0"
          "0123456789abcdef",
          44, false, "does not know the key" },
        { "SGSL\1\0\1\0"
          "0123456789abcdef"
          "\377\377\377\377",
          28, false, "does not know the key" },
    };
    struct fixture *fixture = *state;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t length = sizeof address;
        struct error err;
        pid_t peer;

        address.sin_port = 0;
        assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
        peer = fork();
        if (!peer) {
            int fd = accept(listener, NULL, NULL);

            prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)!write(fd, table[i].bytes, table[i].length);
            if (table[i].closes)
                _exit(0);
            pause();
        }
        close(listener);
        err = open_line_within(table[i].length || table[i].closes ? LINE_MS : SILENT_MS,
                               ntohs(address.sin_port), "127.0.0.1", fixture->host.key);
        assert_int_equal(err.code, ERR_UNAVAILABLE);
        if (!strstr(err.message, table[i].words))
            fail_msg("row %zu: %s", i, err.message);
        kill(peer, SIGKILL);
        assert_int_equal(waitpid(peer, NULL, 0), peer);
    }
    assert_int_equal(open_line(1, "127.0.0.1", fixture->host.key).sys_errno, ECONNREFUSED);
    assert_non_null(strstr(open_line(1, "pod.example", fixture->host.key).message, "no address"));
}

/* --- ends ------------------------------------------------------------------------------------- */

static bool is_gate(pid_t pid)
{
    char path[64], name[32] = "";
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    (void)!fgets(name, sizeof name, file);
    fclose(file);
    return !strcmp(name, "sandglass-gate\n");
}

/* It has its name a moment after it listens. */
static pid_t find_gate(pid_t init)
{
    int64_t deadline = client_deadline_ms(60000);
    char path[64], line[256] = "";

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)init, (int)init);
    for (;;) {
        FILE *file = fopen(path, "re");
        char *at = line, *end;

        assert_non_null(file);
        (void)!fgets(line, sizeof line, file);
        fclose(file);
        for (long pid; (pid = strtol(at, &end, 10)) > 0; at = end)
            if (is_gate((pid_t)pid))
                return (pid_t)pid;
        assert_true(client_deadline_ms(0) < deadline);
        usleep(1000);
    }
}

static void init_ends_with_its_gate_and_goes_on_when_it_is_stopped(void **state)
{
    struct fixture *fixture = *state;
    pid_t gate = find_gate(fixture->host.init);
    int status;

    kill(gate, SIGSTOP);
    say_hello(fixture->client);
    kill(gate, SIGKILL);
    assert_int_equal(waitpid(fixture->host.init, &status, 0), fixture->host.init);
    fixture->host.init = 0;
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_WITHOUT_RELAY);
}

static void a_gate_needs_a_relay_with_a_path_and_a_key(void **state)
{
    static const char *const others[][3] = {
        { "--gate=4247", NULL, NULL },
        { "--gate=4247", "--relay", NULL },
        { "--gate=4247", "--listen=/tmp/x", NULL },
        { "--gate=4247", "--relay=/nowhere/x", "--unbound" },
        { "--gate=0", "--relay=/nowhere/x", NULL },
        { "--gate=65536", "--relay=/nowhere/x", NULL },
        { "--gate=", "--relay=/nowhere/x", NULL },
        { "--gate=80x", "--relay=/nowhere/x", NULL },
    };

    (void)state;
    for (unsigned i = 0; i < sizeof others / sizeof others[0]; i++) {
        int status;
        pid_t pid = fork();

        if (!pid) {
            execl(getenv("SANDGLASS_INIT"), "sandglass-init", others[i][0], others[i][1],
                  others[i][2], NULL);
            _exit(112);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    }
}

#define GATED(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        GATED(programs_run_through_the_gate),
        GATED(a_hundred_megabytes_arrive_whole),
        GATED(a_cut_connection_goes_on_where_it_stopped),
        GATED(a_line_that_is_made_again_takes_the_place_of_the_last),
        GATED(a_byte_comes_back_soon),
        GATED(only_the_key_of_the_sandbox_is_let_in),
        GATED(a_hello_that_is_repeated_is_refused),
        GATED(a_record_that_is_changed_ends_its_line_alone),
        GATED(silent_strangers_are_dropped_in_time_and_take_no_place),
        GATED(a_flood_of_garbage_does_not_keep_the_daemon_out),
        GATED(a_line_with_a_wrong_key_is_refused),
        GATED(a_gate_is_reached_by_ipv6_as_well),
        GATED(a_peer_that_is_no_gate_is_refused),
        GATED(init_ends_with_its_gate_and_goes_on_when_it_is_stopped),
        cmocka_unit_test(a_gate_needs_a_relay_with_a_path_and_a_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
