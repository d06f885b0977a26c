/* SPDX-License-Identifier: Apache-2.0 */
/* Requests and answers: order, framing, bodies both ways, errors of the front door. */

#include "fixture.h"

#include "base/id.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define H "Host: a\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" H "\r\n"

static size_t drains;

static void on_close(struct http_exchange *exchange)
{
    struct fixture *fixture = http_exchange_user(exchange);

    fixture->closes++;
    if (fixture->held == exchange)
        fixture->held = NULL;
}

static void on_whole_body(struct http_exchange *exchange, struct buffer *body)
{
    http_respond(exchange, 200, "text/plain", body->data, body->length);
}

/* Echoes the body while it comes, and stops reading while the client does not read. */
static void on_echo_drain(struct http_exchange *exchange)
{
    drains++;
    http_exchange_resume_body(exchange);
}

static void on_echo_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    if (!length) {
        http_respond_end(exchange);
        return;
    }
    http_respond_write(exchange, data, length);
    assert_true(http_respond_pending(exchange) < HTTP_HIGH_WATER + (1 << 20));
    if (http_respond_pending(exchange) >= HTTP_HIGH_WATER)
        http_exchange_pause_body(exchange);
}

static void serve_file(struct http_exchange *exchange, int64_t length)
{
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat status;

    assert_int_equal(fstat(fd, &status), 0);
    http_respond_start(exchange, 200, "application/octet-stream",
                       length < 0 ? -1 : (int64_t)status.st_size - 100);
    http_respond_write_file(exchange, fd, 100, (size_t)status.st_size - 100);
    close(fd);
    http_respond_end(exchange);
}

static void serve_describe(struct http_exchange *exchange)
{
    const struct http_peer *peer = http_exchange_peer(exchange);
    char text[256];

    snprintf(text, sizeof(text), "%s unix=%d uid=%d pid=%d", peer->address, peer->is_unix,
             (int)peer->uid, (int)peer->pid);
    http_respond_header(exchange, "X-Injected", "a\r\nX-Evil: 1");
    http_respond(exchange, 200, "text/plain", text, strlen(text));
}

static void serve_stream(struct http_exchange *exchange, int64_t length)
{
    http_respond_start(exchange, 200, "text/plain", length);
    http_respond_write(exchange, "one ", 4);
    http_respond_write(exchange, "", 0);
    http_respond_write(exchange, "two", 3);
    http_respond_end(exchange);
}

static void on_request(void *context, struct http_exchange *exchange)
{
    struct fixture *fixture = context;
    const char *path = http_exchange_head(exchange)->path;

    fixture->requests++;
    http_exchange_set_user(exchange, fixture);
    http_exchange_on_close(exchange, on_close);
    if (strcmp(path, "/echo") == 0) {
        http_respond_on_drain(exchange, on_echo_drain);
        http_respond_start(exchange, 200, "application/octet-stream", -1);
        http_exchange_stream_body(exchange, on_echo_data);
    } else if (strcmp(path, "/body") == 0) {
        http_exchange_read_body(exchange, 1000, on_whole_body);
    } else if (strcmp(path, "/hold") == 0) {
        fixture->held = exchange;
    } else if (strcmp(path, "/file") == 0) {
        serve_file(exchange, 0);
    } else if (strcmp(path, "/file-chunked") == 0) {
        serve_file(exchange, -1);
    } else if (strcmp(path, "/peer") == 0) {
        serve_describe(exchange);
    } else if (strcmp(path, "/stream") == 0) {
        serve_stream(exchange, -1);
    } else if (strcmp(path, "/length") == 0) {
        serve_stream(exchange, 7);
    } else if (strcmp(path, "/short") == 0) {
        serve_stream(exchange, 8);
    } else if (strcmp(path, "/nothing") == 0) {
        http_respond(exchange, 204, NULL, NULL, 0);
    } else {
        http_respond(exchange, 200, "text/plain", path, strlen(path));
    }
}

static int start(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    drains = 0;
    fixture_start(fixture, NULL, on_request);
    *state = fixture;
    return 0;
}

static int stop(void **state)
{
    fixture_stop(*state);
    free(*state);
    return 0;
}

/* --- plain answers ------------------------------------------------------------------------- */

static void a_request_is_answered_on_both_kinds_of_socket(void **state)
{
    scoped(peer_close) struct peer over_unix;
    scoped(peer_close) struct peer over_tcp;

    peer_open_unix(&over_unix, *state);
    peer_open_tcp(&over_tcp, *state);
    peer_send_text(&over_unix, GET("/a"));
    peer_send_text(&over_tcp, GET("/b"));
    peer_expect(&over_unix, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n");
    peer_expect(&over_unix, "\r\n\r\n/a");
    peer_expect(&over_tcp, "\r\n\r\n/b");
}

static void every_answer_has_a_fresh_request_id(void **state)
{
    scoped(peer_close) struct peer peer;
    char ids[2][ID_SIZE];

    peer_open_unix(&peer, *state);
    for (int i = 0; i < 2; i++) {
        const char *header;

        peer_send_text(&peer, i ? "BAD\r\n" : GET("/a"));
        peer_expect(&peer, i ? "}\n" : "/a");
        header = strstr(buffer_text(&peer.received), "X-Request-Id: ");
        assert_non_null(header);
        snprintf(ids[i], ID_SIZE, "%.30s", header + strlen("X-Request-Id: "));
        assert_true(id_is_valid(ids[i], ID_REQUEST));
        buffer_clear(&peer.received);
    }
    assert_string_not_equal(ids[0], ids[1]);
}

static void pipelined_requests_are_answered_in_order(void **state)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1 << 20);
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(1 << 20);
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;
    char path[32];

    for (int i = 0; i < 500; i++)
        buffer_appendf(&text,
                       i % 3 ? "GET /%d HTTP/1.1\r\n" H "\r\n"
                             : "POST /body HTTP/1.1\r\n" H "Content-Length: 5\r\n\r\n/%04d",
                       i);
    peer_open_tcp(&peer, fixture);
    peer_send(&peer, text.data, text.length);
    for (int i = 0; i < 500; i++) {
        snprintf(path, sizeof(path), i % 3 ? "/%d" : "/%04d", i);
        assert_int_equal(peer_read_response(&peer, &body), 200);
        assert_string_equal(buffer_text(&body), path);
    }
    assert_int_equal(fixture->closes, 500);
}

static void a_turn_serves_few_requests_of_one_connection(void **state)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1 << 20);
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;
    unsigned most = 0;

    for (int i = 0; i < 500; i++)
        buffer_appendf(&text, GET("/%d"), i);
    peer_open_unix(&peer, fixture);
    peer_send(&peer, text.data, text.length);
    while (fixture->closes < 500) {
        unsigned before = fixture->requests;

        loop_turn(fixture->loop, FIXTURE_DEADLINE_MS);
        assert_true(fixture->requests > before || fixture->closes == 500 || before == 0);
        most = MAX(most, fixture->requests - before);
        (void)peer_poll(&peer);
    }
    assert_in_range(most, 1, 8);
}

static void a_pipelined_request_waits_for_the_answer_before_it(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, fixture);
    peer_send_text(&peer, GET("/hold") GET("/after"));
    fixture_wait(fixture, fixture->held);
    loop_turn(fixture->loop, 20);
    assert_int_equal(fixture->requests, 1);
    http_respond(fixture->held, 200, "text/plain", "held", 4);
    peer_expect(&peer, "held");
    peer_expect(&peer, "/after");
    assert_int_equal(fixture->closes, 2);
}

static void a_bad_request_in_the_middle_ends_the_pipeline(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;

    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, GET("/a") "GET /b HTTP/1.1\n\n" GET("/c"));
    peer_expect(&peer, "/a");
    peer_expect(&peer, "400 Bad Request");
    peer_expect(&peer, "Connection: close");
    peer_expect_end(&peer);
    assert_false(peer.reset);
    assert_int_equal(peer_count(&peer, "HTTP/1.1"), 2);
    assert_int_equal(fixture->requests, 1);
}

static void an_error_has_the_json_shape(void **state)
{
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, *state);
    peer_send_text(&peer, "GET / HTTP/3.0\r\n\r\n");
    peer_expect(&peer, "505 HTTP Version Not Supported");
    peer_expect(&peer, "{\"error\":{\"code\":\"version_not_supported\",\"message\":\"");
    peer_expect(&peer, "\"hint\":\"\",\"retryable\":false}}\n");
    peer_expect_end(&peer);
}

static void head_has_the_length_and_no_body(void **state)
{
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, *state);
    peer_send_text(&peer, "HEAD /abcdef HTTP/1.1\r\n" H "\r\nHEAD /stream HTTP/1.1\r\n" H
                          "\r\n" GET("/nothing") GET("/z"));
    peer_expect(&peer, "\r\n\r\n/z");
    assert_true(peer_has(&peer, "Content-Length: 7\r\n"));
    assert_false(peer_has(&peer, "/abcdef"));
    assert_false(peer_has(&peer, "one"));
    assert_true(peer_has(&peer, "204 No Content\r\nX-Request-Id"));
}

static void the_connection_closes_when_asked(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;
    scoped(peer_close) struct peer old;
    scoped(peer_close) struct peer old_kept;

    peer_open_tcp(&peer, fixture);
    peer_open_tcp(&old, fixture);
    peer_open_tcp(&old_kept, fixture);
    peer_send_text(&peer, "GET /a HTTP/1.1\r\n" H "Connection: close\r\n\r\n");
    peer_send_text(&old, "GET /a HTTP/1.0\r\n\r\n");
    peer_send_text(&old_kept,
                   "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /b HTTP/1.0\r\n\r\n");
    peer_expect(&peer, "Connection: close\r\n");
    peer_expect_end(&peer);
    peer_expect_end(&old);
    peer_expect(&old_kept, "Connection: keep-alive\r\n");
    peer_expect(&old_kept, "/b");
    peer_expect_end(&old_kept);
}

static void the_peer_is_known_and_no_header_breaks_its_line(void **state)
{
    scoped(peer_close) struct peer over_unix;
    scoped(peer_close) struct peer over_tcp;
    char expected[64];

    snprintf(expected, sizeof(expected), "unix unix=1 uid=%d pid=%d", (int)getuid(), (int)getpid());
    peer_open_unix(&over_unix, *state);
    peer_open_tcp(&over_tcp, *state);
    peer_send_text(&over_unix, GET("/peer"));
    peer_send_text(&over_tcp, GET("/peer"));
    peer_expect(&over_unix, expected);
    peer_expect(&over_tcp, "127.0.0.1:");
    assert_true(peer_has(&over_unix, "X-Injected: a??X-Evil: 1\r\n"));
}

/* --- streamed answers ---------------------------------------------------------------------- */

static void a_streamed_answer_is_chunked_or_has_its_length(void **state)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(1024);
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, *state);
    peer_send_text(&peer, GET("/stream") GET("/length"));
    peer_expect(&peer, "4\r\none \r\n3\r\ntwo\r\n0\r\n\r\n");
    assert_int_equal(peer_read_response(&peer, &body), 200);
    assert_string_equal(buffer_text(&body), "one two");
    assert_int_equal(peer_read_response(&peer, &body), 200);
    assert_string_equal(buffer_text(&body), "one two");
}

static void a_streamed_answer_to_an_old_client_ends_with_the_connection(void **state)
{
    scoped(peer_close) struct peer peer;

    peer_open_tcp(&peer, *state);
    peer_send_text(&peer, "GET /stream HTTP/1.0\r\n\r\n");
    peer_expect_end(&peer);
    assert_true(peer_has(&peer, "\r\n\r\none two"));
    assert_false(peer_has(&peer, "chunked"));
}

static void an_answer_shorter_than_promised_is_cut(void **state)
{
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, *state);
    peer_send_text(&peer, GET("/short"));
    peer_expect_end(&peer);
    assert_true(peer_has(&peer, "Content-Length: 8\r\n"));
    assert_int_equal(peer_read_response(&peer, NULL), 0);
}

static void an_aborted_answer_never_looks_complete(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;
    scoped(peer_close) struct peer old;

    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, GET("/hold"));
    fixture_wait(fixture, fixture->held);
    http_respond_start(fixture->held, 200, NULL, -1);
    http_respond_write(fixture->held, "part", 4);
    http_exchange_abort(fixture->held);
    peer_expect_end(&peer);
    assert_true(peer_has(&peer, "4\r\npart\r\n"));
    assert_false(peer_has(&peer, "\r\n0\r\n"));
    assert_null(fixture->held);

    peer_open_tcp(&old, fixture);
    peer_send_text(&old, "GET /hold HTTP/1.0\r\n\r\n");
    fixture_wait(fixture, fixture->held);
    http_respond_start(fixture->held, 200, NULL, -1);
    loop_turn(fixture->loop, 0);
    http_exchange_abort(fixture->held);
    peer_expect_end(&old);
    assert_true(old.reset);
}

static uint64_t hash_bytes(uint64_t hash, const uint8_t *data, size_t length)
{
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ data[i]) * 1099511628211ULL;
    return hash;
}

static void a_file_comes_out_byte_for_byte(void **state)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(64 << 20);
    scoped(buffer_fini) struct buffer file = BUFFER_INIT(64 << 20);
    scoped(fd_close) int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    scoped(peer_close) struct peer peer;
    struct stat status;

    assert_int_equal(fstat(fd, &status), 0);
    assert_int_equal(
        read(fd, buffer_reserve(&file, (size_t)status.st_size), (size_t)status.st_size),
        status.st_size);
    buffer_advance(&file, (size_t)status.st_size);
    peer_open_tcp(&peer, *state);
    peer_send_text(&peer, GET("/file") GET("/file-chunked") GET("/last"));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(peer_read_response(&peer, &body), 200);
        assert_int_equal(body.length, file.length - 100);
        assert_memory_equal(body.data, file.data + 100, body.length);
    }
    peer_expect(&peer, "/last");
}

/* --- content from a descriptor ------------------------------------------------------------- */

/* The answer of /hold becomes `length` bytes from a pipe; its writing end comes back. */
static int answer_from_pipe(struct fixture *fixture, size_t length)
{
    int ends[2];

    fixture_wait(fixture, fixture->held);
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    http_respond_start(fixture->held, 200, "text/plain", (int64_t)length);
    http_respond_content(fixture->held, ends[0], 0, length);
    close(ends[0]);
    return ends[1];
}

static void content_of_a_file_is_the_rest_of_the_answer(void **state)
{
    struct fixture *fixture = *state;
    scoped(fd_close) int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(1 << 20);
    scoped(peer_close) struct peer peer;
    char bytes[1000];

    assert_int_equal(pread(fd, bytes, sizeof(bytes), 100), sizeof(bytes));
    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, GET("/hold") GET("/last"));
    fixture_wait(fixture, fixture->held);
    http_respond_start(fixture->held, 200, "text/plain", sizeof(bytes));
    http_respond_content(fixture->held, fd, 100, sizeof(bytes));
    assert_int_equal(peer_read_response(&peer, &body), 200);
    assert_int_equal(body.length, sizeof(bytes));
    assert_memory_equal(body.data, bytes, sizeof(bytes));
    peer_expect(&peer, "/last");
}

static void content_of_a_pipe_is_sent_as_it_comes_and_the_connection_goes_on(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;
    size_t files = count_open_files();
    int pipe;

    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, GET("/hold") GET("/last"));
    pipe = answer_from_pipe(fixture, 10);
    peer_expect(&peer, "Content-Length: 10\r\n");
    assert_int_equal(write(pipe, "one", 3), 3);
    peer_expect(&peer, "one");
    assert_non_null(fixture->held);
    assert_int_equal(write(pipe, " two six, and more", 18), 18);
    peer_expect(&peer, "one two si");
    peer_expect(&peer, "/last");
    assert_false(peer_has(&peer, "x, and more"));
    assert_int_equal(fixture->closes, 2);
    close(pipe);
    assert_int_equal(count_open_files(), files + 2); /* both ends of the connection */
}

static void content_that_ends_early_cuts_the_answer(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;
    int pipe;

    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, GET("/hold"));
    pipe = answer_from_pipe(fixture, 10);
    assert_int_equal(write(pipe, "123456789", 9), 9);
    close(pipe);
    peer_expect_end(&peer);
    assert_true(peer_has(&peer, "\r\n\r\n123456789"));
    assert_int_equal(peer_read_response(&peer, NULL), 0);
    assert_null(fixture->held);
}

static void content_for_head_is_not_read(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;
    int pipe;

    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, "HEAD /hold HTTP/1.1\r\n" H "\r\n" GET("/last"));
    pipe = answer_from_pipe(fixture, 10);
    peer_expect(&peer, "/last");
    assert_true(peer_has(&peer, "Content-Length: 10\r\n"));
    close(pipe);
}

/* The pipe stays full while the client does not read: what is in memory is bounded. */
static void a_client_that_does_not_read_holds_the_pipe_back(void **state)
{
    enum { TOTAL = 16 << 20, PIECE = 4096 };
    struct fixture *fixture = *state;
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(TOTAL);
    scoped(peer_close) struct peer peer;
    static uint8_t piece[PIECE];
    size_t written = 0, most = 0;
    int pipe;

    peer_open_unix(&peer, fixture);
    peer_send_text(&peer, GET("/hold"));
    pipe = answer_from_pipe(fixture, TOTAL);
    for (int idle = 0; idle < 50; idle++) {
        while (written < TOTAL && write(pipe, piece, PIECE) == PIECE) {
            written += PIECE;
            idle = 0;
        }
        loop_turn(fixture->loop, 0);
        most = MAX(most, http_respond_pending(fixture->held));
    }
    assert_true(most >= HTTP_HIGH_WATER && most <= HTTP_HIGH_WATER + (64 << 10));
    assert_true(written < TOTAL / 4);
    while (written < TOTAL) {
        if (write(pipe, piece, PIECE) == PIECE)
            written += PIECE;
        else
            (void)peer_poll(&peer);
        loop_turn(fixture->loop, 0);
    }
    assert_int_equal(peer_read_response(&peer, &body), 200);
    assert_int_equal(body.length, TOTAL);
    close(pipe);
}

static void a_client_that_leaves_lets_go_of_the_pipe(void **state)
{
    struct fixture *fixture = *state;
    struct peer peer;
    size_t files = count_open_files();
    int pipe;

    peer_open_unix(&peer, fixture);
    peer_send_text(&peer, GET("/hold"));
    pipe = answer_from_pipe(fixture, 10);
    peer_close(&peer);
    fixture_wait(fixture, !fixture->held);
    assert_int_equal(count_open_files(), files + 1);
    close(pipe);
}

/* --- request bodies ------------------------------------------------------------------------ */

static void a_big_body_streams_both_ways_unchanged(void **state)
{
    enum { PIECES = 400, PIECE = 50000 };
    scoped(free) uint8_t *piece = malloc(PIECE);
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(64 << 20);
    scoped(peer_close) struct peer peer;
    uint64_t hash = 1;
    char head[128];

    peer_open_tcp(&peer, *state);
    snprintf(head, sizeof(head), "POST /echo HTTP/1.1\r\n" H "Content-Length: %d\r\n\r\n",
             PIECES * PIECE);
    peer_send_text(&peer, head);
    for (int i = 0; i < PIECES; i++) {
        for (int j = 0; j < PIECE; j++)
            piece[j] = (uint8_t)(i * 31 + j * 7 + (j >> 8));
        hash = hash_bytes(hash, piece, PIECE);
        peer_send(&peer, piece, PIECE);
    }
    assert_int_equal(peer_read_response(&peer, &body), 200);
    assert_int_equal(body.length, PIECES * PIECE);
    assert_true(hash_bytes(1, body.data, body.length) == hash);
}

static void a_chunked_body_is_put_together(void **state)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(1024);
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, *state);
    peer_send_text(&peer, "POST /body HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
                          "3\r\nabc\r\n");
    loop_turn(((struct fixture *)*state)->loop, 5);
    peer_send_text(&peer, "2\r\nde\r\n0\r\n\r\n" GET("/next"));
    assert_int_equal(peer_read_response(&peer, &body), 200);
    assert_string_equal(buffer_text(&body), "abcde");
    peer_expect(&peer, "/next");
}

static void a_body_over_the_handlers_limit_is_413(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer by_length;
    scoped(peer_close) struct peer by_chunks;

    peer_open_tcp(&by_length, fixture);
    peer_open_tcp(&by_chunks, fixture);
    peer_send_text(&by_length, "POST /body HTTP/1.1\r\n" H "Content-Length: 1001\r\n\r\n");
    peer_expect(&by_length, "413 Content Too Large");
    peer_send_text(&by_chunks,
                   "POST /body HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3e9\r\n");
    for (int i = 0; i < 1001; i++)
        peer_send_text(&by_chunks, "x");
    peer_expect(&by_chunks, "413 Content Too Large");
    peer_expect_end(&by_chunks);
    assert_false(by_chunks.reset);
    assert_int_equal(fixture->closes, 2);
}

static void the_client_is_told_to_continue_when_the_body_is_wanted(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, fixture);
    peer_send_text(&peer,
                   "POST /body HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    peer_expect(&peer, "HTTP/1.1 100 Continue\r\n\r\n");
    peer_send_text(&peer, "abc");
    peer_expect(&peer, "200 OK");
    peer_expect(&peer, "\r\n\r\nabc");
    assert_int_equal(peer_count(&peer, "100 Continue"), 1);
}

static void a_refused_body_is_not_asked_for(void **state)
{
    scoped(peer_close) struct peer large;
    scoped(peer_close) struct peer unwanted;

    peer_open_unix(&large, *state);
    peer_open_unix(&unwanted, *state);
    peer_send_text(&large, "POST /body HTTP/1.1\r\n" H
                           "Expect: 100-continue\r\nContent-Length: 3000\r\n\r\n");
    peer_expect(&large, "413");
    peer_send_text(&unwanted,
                   "POST /x HTTP/1.1\r\n" H "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    peer_expect(&unwanted, "200 OK");
    peer_expect(&unwanted, "Connection: close");
    assert_false(peer_has(&large, "100 Continue") || peer_has(&unwanted, "100 Continue"));
}

static void a_short_body_that_nobody_read_is_skipped(void **state)
{
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, *state);
    peer_send_text(&peer, "POST /unread HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\n01234");
    peer_expect(&peer, "/unread");
    peer_send_text(&peer, "56789" GET("/next"));
    peer_expect(&peer, "/next");
}

static void a_malformed_body_is_refused_even_if_nobody_reads_it(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer now;
    scoped(peer_close) struct peer later;

    peer_open_unix(&now, fixture);
    peer_send_text(&now, "POST /x HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
                         "3;a=b\r\nabc\r\n0\r\n\r\n" GET("/next"));
    peer_expect(&now, "400 Bad Request");
    peer_expect_end(&now);
    assert_int_equal(peer_count(&now, "HTTP/1.1"), 1);

    peer_open_unix(&later, fixture);
    peer_send_text(&later, "POST /hold HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
                           "3\r\nabc\n0\r\n\r\n");
    fixture_wait(fixture, fixture->held);
    http_respond(fixture->held, 200, NULL, NULL, 0);
    peer_expect(&later, "400 Bad Request");
    assert_int_equal(fixture->closes, 2);
}

static void a_chunked_body_that_nobody_read_keeps_the_connection(void **state)
{
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, *state);
    peer_send_text(&peer, "POST /x HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n"
                          "3\r\nabc\r\n0\r\n\r\n" GET("/next"));
    peer_expect(&peer, "/next");
    assert_false(peer_has(&peer, "Connection: close"));
}

static void a_long_body_that_nobody_read_closes_without_a_reset(void **state)
{
    scoped(free) char *piece = calloc(1, 65536);
    scoped(peer_close) struct peer peer;

    peer_open_tcp(&peer, *state);
    peer_send_text(&peer, "POST /unread HTTP/1.1\r\n" H "Content-Length: 4000000\r\n\r\n");
    for (int i = 0; i < 61; i++)
        peer_send(&peer, piece, 65536);
    peer_expect(&peer, "/unread");
    peer_expect(&peer, "Connection: close");
    peer_expect_end(&peer);
    assert_false(peer.reset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_is_answered_on_both_kinds_of_socket, start, stop),
        cmocka_unit_test_setup_teardown(every_answer_has_a_fresh_request_id, start, stop),
        cmocka_unit_test_setup_teardown(pipelined_requests_are_answered_in_order, start, stop),
        cmocka_unit_test_setup_teardown(a_turn_serves_few_requests_of_one_connection, start, stop),
        cmocka_unit_test_setup_teardown(a_pipelined_request_waits_for_the_answer_before_it, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_bad_request_in_the_middle_ends_the_pipeline, start, stop),
        cmocka_unit_test_setup_teardown(an_error_has_the_json_shape, start, stop),
        cmocka_unit_test_setup_teardown(head_has_the_length_and_no_body, start, stop),
        cmocka_unit_test_setup_teardown(the_connection_closes_when_asked, start, stop),
        cmocka_unit_test_setup_teardown(the_peer_is_known_and_no_header_breaks_its_line, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_streamed_answer_is_chunked_or_has_its_length, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_streamed_answer_to_an_old_client_ends_with_the_connection,
                                        start, stop),
        cmocka_unit_test_setup_teardown(an_answer_shorter_than_promised_is_cut, start, stop),
        cmocka_unit_test_setup_teardown(an_aborted_answer_never_looks_complete, start, stop),
        cmocka_unit_test_setup_teardown(a_file_comes_out_byte_for_byte, start, stop),
        cmocka_unit_test_setup_teardown(content_of_a_file_is_the_rest_of_the_answer, start, stop),
        cmocka_unit_test_setup_teardown(
            content_of_a_pipe_is_sent_as_it_comes_and_the_connection_goes_on, start, stop),
        cmocka_unit_test_setup_teardown(content_that_ends_early_cuts_the_answer, start, stop),
        cmocka_unit_test_setup_teardown(content_for_head_is_not_read, start, stop),
        cmocka_unit_test_setup_teardown(a_client_that_does_not_read_holds_the_pipe_back, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_client_that_leaves_lets_go_of_the_pipe, start, stop),
        cmocka_unit_test_setup_teardown(a_big_body_streams_both_ways_unchanged, start, stop),
        cmocka_unit_test_setup_teardown(a_chunked_body_is_put_together, start, stop),
        cmocka_unit_test_setup_teardown(a_body_over_the_handlers_limit_is_413, start, stop),
        cmocka_unit_test_setup_teardown(the_client_is_told_to_continue_when_the_body_is_wanted,
                                        start, stop),
        cmocka_unit_test_setup_teardown(a_refused_body_is_not_asked_for, start, stop),
        cmocka_unit_test_setup_teardown(a_short_body_that_nobody_read_is_skipped, start, stop),
        cmocka_unit_test_setup_teardown(a_malformed_body_is_refused_even_if_nobody_reads_it, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_chunked_body_that_nobody_read_keeps_the_connection, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_long_body_that_nobody_read_closes_without_a_reset, start,
                                        stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
