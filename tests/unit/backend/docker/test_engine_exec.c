/* SPDX-License-Identifier: Apache-2.0 */
/* Programs in containers as streams. */

#include "fake_engine.h"

#include "../../../harness/steady_clock.h"
#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define UPGRADED                                                                   \
    "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n" \
    "Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
#define OLD_STYLE "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n"

struct world {
    struct loop *loop;
    struct fake_engine fake;
    struct engine *engine;
    struct engine_exec exec;
    unsigned dones;
    const char *create, *start; /* answers; NULL: none */
    char create_target[256], create_body[512];
    const char *stream_target, *stream_body; /* that ask for the stream */
    struct fake_connection *stream;          /* the engine's end */
    struct buffer read;                      /* from the receiver's end */
    bool read_ended;
};

static struct world *world;

static void on_request(struct fake_connection *connection, const char *method UNUSED,
                       const char *target, const char *body)
{
    if (strstr(target, "/exec") && strstr(target, "/containers/")) {
        snprintf(world->create_target, sizeof(world->create_target), "%s", target);
        snprintf(world->create_body, sizeof(world->create_body), "%s", body);
        if (world->create)
            fake_send_text(connection, world->create);
        return;
    }
    assert_string_equal(target, world->stream_target);
    assert_string_equal(body, world->stream_body);
    world->stream = connection;
    if (!world->start)
        return;
    fake_become_raw(connection);
    fake_send_text(connection, world->start);
}

static int start(void **state UNUSED)
{
    struct engine_options options = { 0 };

    world = xnew(struct world);
    world->loop = loop_new(&steady_clock);
    world->create = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
                    "Content-Length: 11\r\n\r\n{\"Id\":\"e1\"}";
    world->start = UPGRADED;
    world->stream_target = "/v1.41/exec/e1/start";
    world->stream_body = "{\"Detach\":false,\"Tty\":false}";
    world->read = BUFFER_INIT(64 << 20);
    fake_engine_start(&world->fake, world->loop, on_request);
    options.loop = world->loop;
    options.host = world->fake.host;
    world->engine = engine_new(&options, NULL);
    world->exec.fd = -1;
    return 0;
}

static int stop(void **state UNUSED)
{
    fd_close(world->exec.fd);
    engine_free(world->engine);
    fake_engine_stop(&world->fake);
    loop_free(world->loop);
    buffer_fini(&world->read);
    free(world);
    return 0;
}

static void on_done(struct engine_exec *exec UNUSED)
{
    world->dones++;
}

static void begin(int64_t timeout_ms)
{
    static const char *const argv[] = { "/bin/pump", "--x=\"y\"", NULL };
    static const char *const env[] = { "SECRET=", NULL };

    engine_exec_open(world->engine, &world->exec, "c/1", argv, env, "0", timeout_ms, on_done);
    assert_int_equal(world->dones, 0);
}

static void open_stream(void)
{
    begin(5000);
    fake_wait(world->loop, world->dones);
    if (world->exec.err.code)
        fail_msg("%s", world->exec.err.message);
    assert_true(world->exec.fd >= 0);
    assert_true(fcntl(world->exec.fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(world->exec.fd, F_GETFD) & FD_CLOEXEC);
}

static void close_receiver(void)
{
    close(world->exec.fd);
    world->exec.fd = -1;
}

/* Reads what is there. */
static bool receive(void)
{
    char bytes[65536];
    ssize_t length = recv(world->exec.fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (length > 0)
        buffer_append(&world->read, bytes, (size_t)length);
    else if (length == 0)
        world->read_ended = true;
    return length > 0;
}

static bool has_read(size_t length)
{
    while (receive())
        ;
    return world->read.length >= length;
}

static bool has_ended(void)
{
    (void)has_read(0);
    return world->read_ended;
}

static void send_frame(uint8_t stream, const void *data, size_t length)
{
    uint8_t header[8] = { stream,
                          0,
                          0,
                          0,
                          (uint8_t)(length >> 24),
                          (uint8_t)(length >> 16),
                          (uint8_t)(length >> 8),
                          (uint8_t)length };

    fake_send(world->stream, header, sizeof(header));
    fake_send(world->stream, data, length);
}

/* --- opening --------------------------------------------------------------------------------- */

static void an_exec_is_made_and_started(void **state UNUSED)
{
    open_stream();
    assert_string_equal(world->create_target, "/v1.41/containers/c%2F1/exec");
    assert_string_equal(world->create_body,
                        "{\"AttachStdin\":true,\"AttachStdout\":true,\"AttachStderr\":false,"
                        "\"Tty\":false,\"Cmd\":[\"/bin/pump\",\"--x=\\\"y\\\"\"],"
                        "\"Env\":[\"SECRET=\"],\"User\":\"0\"}");
    send_frame(1, "hello", 5);
    fake_wait(world->loop, has_read(5));
    assert_string_equal(buffer_text(&world->read), "hello");
    assert_int_equal(send(world->exec.fd, "abc", 3, 0), 3);
    fake_wait(world->loop, world->stream->received.length == 3);
    assert_string_equal(buffer_text(&world->stream->received), "abc");
}

static void an_older_engine_answers_with_200(void **state UNUSED)
{
    world->start = OLD_STYLE;
    open_stream();
    fake_send(world->stream, "\x01\0\0\0\0\0\0\x02hi", 10);
    assert_int_equal(send(world->exec.fd, "abc", 3, 0), 3);
    fake_wait(world->loop, world->stream->received.length == 3);
    fake_wait(world->loop, has_read(2));
    assert_string_equal(buffer_text(&world->read), "hi");
    fake_hang_up(world->stream);
    fake_wait(world->loop, has_ended());
}

static void output_that_comes_with_the_head_is_not_lost(void **state UNUSED)
{
    static const char early[] = UPGRADED "\x01\0\0\0\0\0\0\x02hi";

    world->start = NULL;
    begin(5000);
    fake_wait(world->loop, world->stream);
    fake_become_raw(world->stream);
    fake_send(world->stream, early, sizeof(early) - 1);
    fake_hang_up(world->stream);
    fake_wait(world->loop, world->dones);
    fake_wait(world->loop, has_ended());
    assert_string_equal(buffer_text(&world->read), "hi");
}

static void a_refused_exec_is_told(void **state UNUSED)
{
    world->create = "HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\n"
                    "Content-Length: 21\r\n\r\n{\"message\":\"not now\"}";
    begin(5000);
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->exec.err.code, ERR_CONFLICT);
    assert_string_equal(world->exec.err.message, "not now");
    assert_int_equal(world->exec.fd, -1);
    world->create = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n"
                    "Content-Length: 2\r\n\r\n{}";
    world->dones = 0;
    begin(5000);
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->exec.err.code, ERR_BACKEND);
}

static void a_refused_start_is_told(void **state UNUSED)
{
    static const struct {
        const char *answer;
        enum error_code code;
    } rows[] = {
        { "HTTP/1.1 404 No\r\nContent-Type: application/json\r\nContent-Length: "
          "16\r\n\r\n{\"message\":\"no\"}",
          ERR_NOT_FOUND },
        { "HTTP/1.1 204 Started\r\n\r\n", ERR_BACKEND },
        { "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ERR_BACKEND },
        { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ERR_BACKEND },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        world->start = rows[i].answer;
        world->dones = 0;
        begin(5000);
        fake_wait(world->loop, world->dones);
        assert_int_equal(world->exec.err.code, rows[i].code);
        assert_int_equal(world->exec.fd, -1);
    }
}

static void an_engine_that_does_not_start_it_is_given_up(void **state UNUSED)
{
    world->start = NULL;
    begin(200);
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->exec.err.code, ERR_UNAVAILABLE);
    world->create = NULL;
    world->dones = 0;
    begin(200);
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->exec.err.code, ERR_UNAVAILABLE);
}

static void an_exec_can_be_cancelled_in_every_state(void **state UNUSED)
{
    engine_exec_cancel(&world->exec);
    begin(5000);
    engine_exec_cancel(&world->exec);
    world->start = NULL;
    begin(5000);
    fake_wait(world->loop, world->stream);
    engine_exec_cancel(&world->exec);
    for (int i = 0; i < 10; i++)
        loop_turn(world->loop, 5);
    assert_int_equal(world->dones, 0);
    world->start = UPGRADED;
    open_stream();
    engine_exec_cancel(&world->exec);
    send_frame(1, "x", 1);
    fake_wait(world->loop, has_read(1));
}

static void begin_attach(int64_t timeout_ms)
{
    world->stream_target = "/v1.41/containers/c%2F1/attach?stream=1&stdin=1&stdout=1&detachKeys=";
    world->stream_body = "";
    engine_exec_attach(world->engine, &world->exec, "c/1", timeout_ms, on_done);
    assert_int_equal(world->dones, 0);
}

static void the_first_program_is_attached_to(void **state UNUSED)
{
    begin_attach(5000);
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->exec.err.code, ERR_NONE);
    assert_string_equal(world->create_target, "");
    send_frame(1, "hello", 5);
    fake_wait(world->loop, has_read(5));
    assert_string_equal(buffer_text(&world->read), "hello");
    assert_int_equal(send(world->exec.fd, "abc", 3, 0), 3);
    fake_wait(world->loop, world->stream->received.length == 3);
    close_receiver();
    fake_wait(world->loop, world->stream->ended);
}

static void a_refused_attach_is_told(void **state UNUSED)
{
    world->start = "HTTP/1.1 409 Conflict\r\nContent-Type: application/json\r\n"
                   "Content-Length: 21\r\n\r\n{\"message\":\"not now\"}";
    begin_attach(5000);
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->exec.err.code, ERR_CONFLICT);
    assert_int_equal(world->exec.fd, -1);
}

static void an_engine_that_does_not_attach_is_given_up(void **state UNUSED)
{
    world->start = NULL;
    begin_attach(200);
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->exec.err.code, ERR_UNAVAILABLE);
    world->dones = 0;
    begin_attach(5000);
    engine_exec_cancel(&world->exec);
    for (int i = 0; i < 10; i++)
        loop_turn(world->loop, 5);
    assert_int_equal(world->dones, 0);
}

/* --- the stream ------------------------------------------------------------------------------ */

static void bytes_go_both_ways_in_random_pieces(void **state UNUSED)
{
    enum { TOTAL = 3 << 20 };
    uint8_t *out = xmalloc(TOTAL);
    uint8_t *in = xmalloc(TOTAL);
    size_t sent_out = 0, sent_in = 0;

    srandom(17);
    for (size_t i = 0; i < TOTAL; i++) {
        out[i] = (uint8_t)(i * 31 + (i >> 8));
        in[i] = (uint8_t)(i * 17 + (i >> 7));
    }
    open_stream();
    while (sent_out < TOTAL || sent_in < TOTAL) {
        size_t piece = MIN((size_t)(random() % 4 ? random() % 300 : random() % 200000),
                           (size_t)TOTAL - sent_out);
        size_t push = MIN((size_t)random() % 100000, (size_t)TOTAL - sent_in);
        ssize_t pushed = send(world->exec.fd, in + sent_in, push, MSG_DONTWAIT);

        sent_in += pushed > 0 ? (size_t)pushed : 0;
        if (random() % 3 == 0)
            send_frame(random() % 2 ? 2 : 3, in, (size_t)random() % 5000);
        for (int i = 0; i < 3; i++) {
            loop_turn(world->loop, 0);
            (void)has_read(0);
        }
        /* The fake turns the loop while it waits for room, and nobody reads meanwhile. */
        piece = MIN(piece, (size_t)50000);
        send_frame(1, out + sent_out, piece);
        sent_out += piece;
        loop_turn(world->loop, 0);
    }
    shutdown(world->exec.fd, SHUT_WR);
    fake_wait(world->loop, has_read(TOTAL) && world->stream->ended);
    assert_int_equal(world->read.length, TOTAL);
    assert_memory_equal(world->read.data, out, TOTAL);
    assert_int_equal(world->stream->received.length, TOTAL);
    assert_memory_equal(world->stream->received.data, in, TOTAL);
    fake_hang_up(world->stream);
    fake_wait(world->loop, has_ended());
    free(out);
    free(in);
}

static void the_end_of_the_input_leaves_the_output_open(void **state UNUSED)
{
    open_stream();
    assert_int_equal(send(world->exec.fd, "last words", 10, 0), 10);
    shutdown(world->exec.fd, SHUT_WR);
    fake_wait(world->loop, world->stream->ended);
    assert_string_equal(buffer_text(&world->stream->received), "last words");
    for (int i = 0; i < 20; i++) {
        send_frame(1, "abcde", 5);
        fake_wait(world->loop, has_read(5 * (size_t)(i + 1)));
    }
    assert_false(has_ended());
    fake_hang_up(world->stream);
    fake_wait(world->loop, has_ended());
}

static void the_end_of_the_program_ends_the_stream_after_its_output(void **state UNUSED)
{
    enum { TOTAL = 150000 };
    static char bytes[TOTAL];

    open_stream();
    send_frame(1, bytes, TOTAL);
    fake_hang_up(world->stream);
    for (int i = 0; i < 50; i++)
        loop_turn(world->loop, 1);
    fake_wait(world->loop, has_ended());
    assert_int_equal(world->read.length, TOTAL);
    assert_int_equal(send(world->exec.fd, "x", 1, MSG_NOSIGNAL), -1);
}

static void a_receiver_that_closes_ends_the_input(void **state UNUSED)
{
    open_stream();
    assert_int_equal(send(world->exec.fd, "bye", 3, 0), 3);
    close_receiver();
    fake_wait(world->loop, world->stream->ended);
    assert_string_equal(buffer_text(&world->stream->received), "bye");
    /* Nobody takes its output, which must not stop it. */
    for (int i = 0; i < 30; i++) {
        static char bytes[65536];

        send_frame(1, bytes, sizeof(bytes));
    }
    fake_hang_up(world->stream);
    for (int i = 0; i < 10; i++)
        loop_turn(world->loop, 1);
}

static void a_program_that_does_not_end_is_left_when_the_receiver_has_closed(void **state UNUSED)
{
    char byte;

    open_stream();
    shutdown(world->exec.fd, SHUT_WR);
    fake_wait(world->loop, world->stream->ended);
    close_receiver();
    /* Noticed by the look of each second, and the engine is left five seconds later. */
    fake_wait(world->loop, send(world->stream->socket.fd, "\1\0\0\0\0\0\0\0", 8, MSG_NOSIGNAL) < 0);
    assert_int_equal(recv(world->stream->socket.fd, &byte, 1, MSG_DONTWAIT), 0);
}

static void output_that_nobody_reads_is_held_back(void **state UNUSED)
{
    static const uint8_t header[8] = { 1, 0, 0, 0, 0x40, 0, 0, 0 };
    static char bytes[65536];
    size_t sent = 0;
    unsigned idle = 0;

    open_stream();
    fake_send(world->stream, header, sizeof(header));
    while (idle < 50) {
        ssize_t length = send(world->stream->socket.fd, bytes, sizeof(bytes), MSG_NOSIGNAL);

        idle = length > 0 ? 0 : idle + 1;
        sent += length > 0 ? (size_t)length : 0;
        loop_turn(world->loop, 1);
    }
    /* Two sockets, and less than 256 KiB of ours. */
    assert_true(sent < 1200 * 1024);
    fake_wait(world->loop, has_read(sent));
    assert_int_equal(world->read.length, sent);
}

static void input_that_the_engine_does_not_take_is_held_back(void **state UNUSED)
{
    static char bytes[65536];
    size_t sent = 0;
    unsigned idle = 0;

    open_stream();
    io_watch_stop(&world->stream->socket);
    while (idle < 50) {
        ssize_t length = send(world->exec.fd, bytes, sizeof(bytes), MSG_NOSIGNAL);

        idle = length > 0 ? 0 : idle + 1;
        sent += length > 0 ? (size_t)length : 0;
        loop_turn(world->loop, 1);
    }
    assert_true(sent < 1200 * 1024);
    /* What was written before it closed is not lost. */
    close_receiver();
    while (world->stream->received.length < sent) {
        ssize_t length = recv(world->stream->socket.fd, bytes, sizeof(bytes), MSG_DONTWAIT);

        if (length > 0)
            buffer_append(&world->stream->received, bytes, (size_t)length);
        loop_turn(world->loop, 1);
    }
    assert_int_equal(world->stream->received.length, sent);
}

static void a_malformed_stream_ends(void **state UNUSED)
{
    open_stream();
    send_frame(1, "good", 4);
    fake_send_text(world->stream, "HTTP/1.1 500 What");
    fake_wait(world->loop, has_ended());
    assert_string_equal(buffer_text(&world->read), "good");
}

static void many_streams_do_not_disturb_each_other(void **state UNUSED)
{
    enum { STREAMS = 20 };
    struct fake_connection *streams[STREAMS];
    int fds[STREAMS];

    for (int i = 0; i < STREAMS; i++) {
        world->dones = 0;
        world->exec = (struct engine_exec){ .fd = -1 };
        open_stream();
        streams[i] = world->stream;
        fds[i] = world->exec.fd;
    }
    for (int i = 0; i < STREAMS; i++) {
        char byte = (char)('a' + i);

        world->stream = streams[i];
        send_frame(1, &byte, 1);
        assert_int_equal(send(fds[i], &byte, 1, 0), 1);
    }
    for (int i = 0; i < STREAMS; i++) {
        char byte = 0;

        fake_wait(world->loop, recv(fds[i], &byte, 1, MSG_DONTWAIT) == 1);
        assert_int_equal(byte, 'a' + i);
        fake_wait(world->loop, streams[i]->received.length == 1);
        assert_int_equal(streams[i]->received.data[0], 'a' + i);
        if (i % 2)
            close(fds[i]);
    }
    engine_free(world->engine);
    world->engine = NULL;
    for (int i = 0; i < STREAMS; i += 2) {
        char byte;

        assert_int_equal(recv(fds[i], &byte, 1, MSG_DONTWAIT), 0);
        close(fds[i]);
    }
    world->exec.fd = -1;
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(an_exec_is_made_and_started),
        ROW(an_older_engine_answers_with_200),
        ROW(output_that_comes_with_the_head_is_not_lost),
        ROW(a_refused_exec_is_told),
        ROW(a_refused_start_is_told),
        ROW(an_engine_that_does_not_start_it_is_given_up),
        ROW(an_exec_can_be_cancelled_in_every_state),
        ROW(the_first_program_is_attached_to),
        ROW(a_refused_attach_is_told),
        ROW(an_engine_that_does_not_attach_is_given_up),
        ROW(bytes_go_both_ways_in_random_pieces),
        ROW(the_end_of_the_input_leaves_the_output_open),
        ROW(the_end_of_the_program_ends_the_stream_after_its_output),
        ROW(a_receiver_that_closes_ends_the_input),
        ROW(a_program_that_does_not_end_is_left_when_the_receiver_has_closed),
        ROW(output_that_nobody_reads_is_held_back),
        ROW(input_that_the_engine_does_not_take_is_held_back),
        ROW(a_malformed_stream_ends),
        ROW(many_streams_do_not_disturb_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
