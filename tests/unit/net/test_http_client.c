/* SPDX-License-Identifier: Apache-2.0 */
/* The client against the real server, and against peers that misbehave. */

#include "fixture.h"
#include "net/http_client.h"

#include "base/str.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { BIG_BYTES = 8 * 1000 * 1000 };

/* --- a server to talk to ------------------------------------------------------------------- */

static char last_peer[64];

static void on_closed(struct http_exchange *exchange)
{
    struct fixture *fixture = http_exchange_user(exchange);

    fixture->closes++;
    if (fixture->held == exchange)
        fixture->held = NULL;
}

static void on_echo_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    if (length)
        http_respond_write(exchange, data, length);
    else
        http_respond_end(exchange);
}

static void on_whole_body(struct http_exchange *exchange, struct buffer *body)
{
    http_respond(exchange, 201, "text/plain", body->data, body->length);
}

static uint8_t pattern(size_t at)
{
    return (uint8_t)(at * 7 + (at >> 9));
}

static void big_write(struct http_exchange *exchange)
{
    uint8_t piece[40000];
    size_t *at = http_exchange_user(exchange);

    while (*at < BIG_BYTES && http_respond_pending(exchange) < HTTP_HIGH_WATER) {
        for (size_t i = 0; i < sizeof(piece); i++)
            piece[i] = pattern(*at + i);
        http_respond_write(exchange, piece, sizeof(piece));
        *at += sizeof(piece);
    }
    if (*at == BIG_BYTES)
        http_respond_end(exchange);
}

static void serve_big(struct http_exchange *exchange)
{
    static size_t at;

    at = 0;
    http_exchange_set_user(exchange, &at);
    http_exchange_on_close(exchange, NULL);
    http_respond_start(exchange, 200, NULL, -1);
    http_respond_on_drain(exchange, big_write);
    big_write(exchange);
}

/* After an upgrade: sends back what comes, in capitals, until the client closes its half. */
static void on_raw_data(struct http_exchange *exchange, const uint8_t *data, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char letter = (char)toupper(data[i]);

        http_respond_write(exchange, &letter, 1);
    }
    if (!length)
        http_respond_end(exchange);
}

/* After an upgrade to "half": says all it has to say at once, and goes on listening. */
static size_t heard_bytes;
static bool heard_end;

static void on_half_data(struct http_exchange *exchange, const uint8_t *data UNUSED, size_t length)
{
    heard_bytes += length;
    heard_end = !length;
    if (!length)
        http_respond_end(exchange);
}

static void serve_half(struct http_exchange *exchange)
{
    heard_bytes = 0;
    heard_end = false;
    http_respond_upgrade(exchange, "tcp", on_half_data);
    http_respond_write(exchange, "all of it", 9);
    http_respond_half_close(exchange);
    http_respond_write(exchange, "too late", 8);
}

static void on_request(void *context, struct http_exchange *exchange)
{
    struct fixture *fixture = context;
    const struct http_head *head = http_exchange_head(exchange);

    fixture->requests++;
    http_exchange_set_user(exchange, fixture);
    http_exchange_on_close(exchange, on_closed);
    snprintf(last_peer, sizeof(last_peer), "%s", http_exchange_peer(exchange)->address);
    if (strcmp(head->path, "/body") == 0) {
        http_exchange_read_body(exchange, 1 << 20, on_whole_body);
    } else if (strcmp(head->path, "/echo") == 0) {
        http_respond_start(exchange, 200, NULL, -1);
        http_exchange_stream_body(exchange, on_echo_data);
    } else if (strcmp(head->path, "/big") == 0) {
        serve_big(exchange);
    } else if (strcmp(head->path, "/upgrade") == 0 && head->upgrade) {
        http_respond_upgrade(exchange, "tcp", on_raw_data);
    } else if (strcmp(head->path, "/half") == 0 && head->upgrade) {
        serve_half(exchange);
    } else if (strcmp(head->path, "/length") == 0) {
        char text[32];
        int length = snprintf(text, sizeof(text), "%lld%s", (long long)head->content_length,
                              head->chunked ? " chunked" : "");

        http_respond(exchange, 200, "text/plain", text, (size_t)length);
    } else if (strcmp(head->path, "/hold") == 0) {
        fixture->held = exchange;
    } else if (strcmp(head->path, "/headers") == 0) {
        const char *value = http_head_header(head, "x-test");

        http_respond(exchange, 200, "text/plain", value, value ? strlen(value) : 0);
    } else {
        http_respond(exchange, 404, "text/plain", "no", 2);
    }
}

static int start(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

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

static struct http_client *client_for(struct fixture *fixture, bool over_unix)
{
    struct http_client *client;
    struct error err = { 0 };
    char url[128];

    if (over_unix)
        snprintf(url, sizeof(url), "unix:%s", fixture->socket_path);
    else
        snprintf(url, sizeof(url), "http://127.0.0.1:%u/", http_server_port(fixture->server));
    client = http_client_new(fixture->loop, url, &err);
    if (!client)
        fail_msg("%s", err.message);
    return client;
}

/* --- fetching ------------------------------------------------------------------------------ */

static void a_fetch_gives_status_and_body_on_both_kinds_of_socket(void **state)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(1024);
    struct error err = { 0 };

    for (int over_unix = 0; over_unix < 2; over_unix++) {
        scoped(http_client_free) struct http_client *client = client_for(*state, over_unix);

        assert_int_equal(
            http_client_fetch(client, HTTP_POST, "/body", "text/plain", "hello", 5, &body, &err),
            201);
        assert_string_equal(buffer_text(&body), "hello");
        assert_int_equal(http_client_fetch(client, HTTP_GET, "/none", NULL, NULL, 0, &body, &err),
                         404);
        assert_string_equal(buffer_text(&body), "no");
        assert_int_equal(http_client_fetch(client, HTTP_HEAD, "/none", NULL, NULL, 0, &body, &err),
                         404);
        assert_int_equal(body.length, 0);
    }
}

static void one_connection_serves_many_fetches(void **state)
{
    scoped(http_client_free) struct http_client *client = client_for(*state, false);
    char first[64];

    assert_int_equal(http_client_fetch(client, HTTP_GET, "/a", NULL, NULL, 0, NULL, NULL), 404);
    memcpy(first, last_peer, sizeof(first));
    for (int i = 0; i < 20; i++) {
        assert_int_equal(http_client_fetch(client, HTTP_POST, "/body", NULL, "x", 1, NULL, NULL),
                         201);
        assert_string_equal(last_peer, first);
    }
}

static void headers_of_the_client_go_out_on_one_line(void **state)
{
    scoped(http_client_free) struct http_client *client = client_for(*state, true);
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(1024);

    http_client_set_header(client, "X-Test", "a\r\nb");
    assert_int_equal(http_client_fetch(client, HTTP_GET, "/headers", NULL, NULL, 0, &body, NULL),
                     200);
    assert_string_equal(buffer_text(&body), "a??b");
}

static void nobody_listening_is_unavailable_with_the_reason(void **state)
{
    struct fixture *fixture = *state;
    scoped(http_client_free) struct http_client *missing = NULL;
    scoped(http_client_free) struct http_client *refused = NULL;
    struct error err = { 0 };

    missing = http_client_new(fixture->loop, "unix:/nowhere/at/all", &err);
    assert_int_equal(http_client_fetch(missing, HTTP_GET, "/", NULL, NULL, 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_int_equal(err.sys_errno, ENOENT);

    refused = http_client_new(fixture->loop, "127.0.0.1:1", &err);
    assert_int_equal(http_client_fetch(refused, HTTP_GET, "/", NULL, NULL, 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_int_equal(err.sys_errno, ECONNREFUSED);
    assert_true(err.retryable);
}

static void an_answer_that_never_comes_times_out(void **state)
{
    struct fixture *fixture = *state;
    scoped(http_client_free) struct http_client *client = client_for(fixture, true);
    struct error err = { 0 };

    http_client_set_timeout(client, 50);
    assert_int_equal(http_client_fetch(client, HTTP_GET, "/hold", NULL, NULL, 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_TIMEOUT);
    fixture_wait(fixture, fixture->closes == 1);
    assert_null(fixture->held);
}

static void an_answer_larger_than_the_buffer_is_an_error(void **state)
{
    scoped(http_client_free) struct http_client *client = client_for(*state, true);
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(3);
    struct error err = { 0 };

    assert_int_equal(http_client_fetch(client, HTTP_POST, "/body", NULL, "hello", 5, &body, &err),
                     -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
}

static void bad_addresses_and_targets_are_refused(void **state)
{
    struct fixture *fixture = *state;
    scoped(http_client_free) struct http_client *client = client_for(fixture, true);
    static const char *const urls[] = { "",        "unix:",        "host",
                                        ":80",     "a:b",          "127.0.0.1:65536",
                                        "[::1:80", "https://a:80", "127.0.0.1:" };
    struct error err = { 0 };

    for (size_t i = 0; i < ARRAY_LENGTH(urls); i++) {
        assert_null(http_client_new(fixture->loop, urls[i], &err));
        assert_int_equal(err.code, ERR_INVALID);
    }
    assert_int_equal(http_client_fetch(client, HTTP_GET, "/a b", NULL, NULL, 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_int_equal(http_client_fetch(client, HTTP_GET, "a", NULL, NULL, 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
}

/* --- streaming ----------------------------------------------------------------------------- */

struct stream {
    size_t sent;
    size_t received;
    bool wrong;
    bool ended;
    bool pauses;
    unsigned paused;
    struct error err;
    struct buffer text;
};

static void on_stream_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct stream *stream = http_call_user(call);

    for (size_t i = 0; i < length; i++)
        stream->wrong |= data[i] != pattern(stream->received + i);
    stream->received += length;
    if (stream->pauses) {
        stream->paused++;
        http_call_pause(call);
    }
}

static void on_stream_writable(struct http_call *call)
{
    struct stream *stream = http_call_user(call);
    uint8_t piece[10000];

    assert_true(http_call_pending(call) < 1 << 20);
    for (size_t i = 0; i < sizeof(piece); i++)
        piece[i] = pattern(stream->sent + i);
    http_call_write(call, piece, sizeof(piece));
    stream->sent += sizeof(piece);
    if (stream->sent == BIG_BYTES)
        http_call_end(call);
}

static void on_stream_end(struct http_call *call, const struct error *err)
{
    struct stream *stream = http_call_user(call);

    stream->ended = true;
    if (err)
        stream->err = *err;
}

static const struct http_call_handler stream_handler = {
    .on_data = on_stream_data,
    .on_writable = on_stream_writable,
    .on_end = on_stream_end,
};

static void a_big_body_streams_both_ways_unchanged(void **state)
{
    struct fixture *fixture = *state;
    scoped(http_client_free) struct http_client *client = client_for(fixture, true);
    struct stream stream = { 0 };

    http_client_request(client, HTTP_POST, "/echo", NULL, NULL, -1, NULL, &stream_handler, &stream);
    fixture_wait(fixture, stream.ended);
    assert_int_equal(stream.err.code, ERR_NONE);
    assert_int_equal(stream.received, BIG_BYTES);
    assert_false(stream.wrong);
}

static void a_paused_answer_waits_in_the_server(void **state)
{
    struct fixture *fixture = *state;
    scoped(http_client_free) struct http_client *client = client_for(fixture, true);
    struct stream stream = { .pauses = true };
    struct http_call *call = http_client_request(client, HTTP_GET, "/big", NULL, NULL, 0, NULL,
                                                 &stream_handler, &stream);

    fixture_wait(fixture, stream.paused == 1);
    for (int i = 0; i < 50; i++)
        loop_turn(fixture->loop, 0);
    assert_int_equal(stream.paused, 1);
    assert_true(stream.received <= 64 * 1024);
    while (!stream.ended) {
        unsigned before = stream.paused;

        http_call_resume(call);
        fixture_wait(fixture, stream.paused > before || stream.ended);
    }
    assert_int_equal(stream.received, BIG_BYTES);
    assert_false(stream.wrong);
}

static void a_cancelled_call_closes_and_says_nothing(void **state)
{
    struct fixture *fixture = *state;
    scoped(http_client_free) struct http_client *client = client_for(fixture, false);
    struct stream stream = { 0 };
    struct http_call *call = http_client_request(client, HTTP_GET, "/hold", NULL, NULL, 0, NULL,
                                                 &stream_handler, &stream);

    fixture_wait(fixture, fixture->held);
    http_call_cancel(call);
    fixture_wait(fixture, fixture->closes == 1);
    assert_false(stream.ended);
}

static void freeing_the_client_drops_its_calls(void **state)
{
    struct fixture *fixture = *state;
    struct http_client *client = client_for(fixture, true);
    struct stream stream = { 0 };

    for (int i = 0; i < 3; i++)
        http_client_request(client, HTTP_GET, "/hold", NULL, NULL, 0, NULL, &stream_handler,
                            &stream);
    fixture_wait(fixture, fixture->requests == 3);
    http_client_free(client);
    fixture_wait(fixture, fixture->closes == 3);
    assert_false(stream.ended);
}

/* --- peers that misbehave ------------------------------------------------------------------ */

/* Answers each connection with the next text, as soon as something was sent, and closes. */
struct liar {
    struct fixture *fixture;
    int listener;
    struct io_watch watch;
    struct io_watch victim;
    const char *const *texts;
    unsigned accepted;
};

static void on_victim_ready(struct io_watch *watch, unsigned events UNUSED)
{
    struct liar *liar = container_of(watch, struct liar, victim);
    const char *text = liar->texts[liar->accepted - 1];
    char request[4096];

    assert_true(recv(watch->fd, request, sizeof(request), 0) > 0);
    assert_int_equal(send(watch->fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    io_watch_stop(watch);
    close(watch->fd);
}

static void on_liar_ready(struct io_watch *watch, unsigned events UNUSED)
{
    struct liar *liar = container_of(watch, struct liar, watch);
    int fd = accept4(liar->listener, NULL, NULL, SOCK_CLOEXEC);

    assert_true(fd >= 0);
    liar->accepted++;
    io_watch_start(&liar->victim, watch->loop, fd, IO_READ, on_victim_ready);
}

static struct http_client *liar_start(struct liar *liar, struct fixture *fixture,
                                      const char *const *texts)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(address);
    struct http_client *client;
    char url[64];

    *liar = (struct liar){ .fixture = fixture, .texts = texts };
    liar->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(liar->listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(liar->listener, 8), 0);
    assert_int_equal(getsockname(liar->listener, (struct sockaddr *)&address, &length), 0);
    io_watch_start(&liar->watch, fixture->loop, liar->listener, IO_READ, on_liar_ready);
    snprintf(url, sizeof(url), "127.0.0.1:%u", ntohs(address.sin_port));
    client = http_client_new(fixture->loop, url, NULL);
    assert_non_null(client);
    return client;
}

static void liar_stop(struct liar *liar)
{
    io_watch_stop(&liar->watch);
    close(liar->listener);
}

static void a_malformed_or_cut_answer_is_a_backend_error(void **state)
{
    static const char *const texts[] = {
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200",
    };
    struct error err = { 0 };
    struct liar liar;
    scoped(http_client_free) struct http_client *client = liar_start(&liar, *state, texts);

    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        assert_int_equal(http_client_fetch(client, HTTP_GET, "/", NULL, NULL, 0, NULL, &err), -1);
        assert_int_equal(err.code, i ? ERR_BACKEND : ERR_UNAVAILABLE);
    }
    liar_stop(&liar);
}

static void an_answer_without_a_length_ends_with_the_connection(void **state)
{
    static const char *const texts[] = {
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nall"
    };
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(64);
    struct liar liar;
    scoped(http_client_free) struct http_client *client = liar_start(&liar, *state, texts);

    assert_int_equal(http_client_fetch(client, HTTP_GET, "/", NULL, NULL, 0, &body, NULL), 200);
    assert_string_equal(buffer_text(&body), "all");
    liar_stop(&liar);
}

static void a_connection_that_died_idle_is_replaced(void **state)
{
    static const char *const texts[] = { "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                                         "HTTP/1.1 201 OK\r\nContent-Length: 0\r\n\r\n" };
    struct liar liar;
    scoped(http_client_free) struct http_client *client = liar_start(&liar, *state, texts);

    assert_int_equal(http_client_fetch(client, HTTP_POST, "/", NULL, "x", 1, NULL, NULL), 200);
    assert_int_equal(http_client_fetch(client, HTTP_POST, "/", NULL, "x", 1, NULL, NULL), 201);
    assert_int_equal(liar.accepted, 2);
    liar_stop(&liar);
}

static void on_text_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct stream *stream = http_call_user(call);

    buffer_append(&stream->text, data, length);
}

static void after_an_upgrade_the_connection_is_a_plain_stream(void **state)
{
    static const char *const texts[] = {
        "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nraw \r\n bytes"
    };
    static const char *const headers[] = { "Connection", "Upgrade", "Upgrade", "tcp", NULL };
    static const struct http_call_handler handler = { .on_data = on_text_data,
                                                      .on_end = on_stream_end };
    struct stream stream = { .text = BUFFER_INIT(64) };
    struct liar liar;
    scoped(http_client_free) struct http_client *client = liar_start(&liar, *state, texts);

    http_client_request(client, HTTP_POST, "/", NULL, NULL, 0, headers, &handler, &stream);
    fixture_wait(liar.fixture, stream.ended);
    assert_int_equal(stream.err.code, ERR_NONE);
    assert_string_equal(buffer_text(&stream.text), "raw \r\n bytes");
    buffer_fini(&stream.text);
    liar_stop(&liar);
}

/* One word now, one after the first came back, then the end. */
static void on_upgraded_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct stream *stream = http_call_user(call);
    bool is_first = stream->text.length < 5;

    buffer_append(&stream->text, data, length);
    if (is_first && stream->text.length >= 5) {
        http_call_write(call, " second", 7);
        http_call_end(call);
    }
}

static void on_upgraded_writable(struct http_call *call)
{
    struct stream *stream = http_call_user(call);

    if (!stream->sent)
        http_call_write(call, "first", 5);
    stream->sent = 5;
}

static void an_upgraded_connection_carries_bytes_both_ways(void **state)
{
    static const char *const headers[] = { "Connection", "Upgrade", "Upgrade", "tcp", NULL };
    static const struct http_call_handler handler = {
        .on_data = on_upgraded_data,
        .on_writable = on_upgraded_writable,
        .on_end = on_stream_end,
    };
    struct fixture *fixture = *state;

    for (int over_unix = 0; over_unix < 2; over_unix++) {
        scoped(http_client_free) struct http_client *client = client_for(fixture, over_unix);
        struct stream stream = { .text = BUFFER_INIT(64) };

        http_client_request(client, HTTP_GET, "/upgrade", NULL, NULL, 0, headers, &handler,
                            &stream);
        fixture_wait(fixture, stream.ended);
        assert_int_equal(stream.err.code, ERR_NONE);
        assert_string_equal(buffer_text(&stream.text), "FIRST SECOND");
        buffer_fini(&stream.text);
    }
    fixture_wait(fixture, fixture->closes == 2);
}

/* --- connections that are given and taken ----------------------------------------------------- */

static void on_length_writable(struct http_call *call)
{
    struct stream *stream = http_call_user(call);

    if (stream->sent == 12)
        return;
    http_call_write(call, &"twelve bytes"[stream->sent], 6);
    stream->sent += 6;
    if (stream->sent == 12)
        http_call_end(call);
}

static void a_streamed_body_of_known_length_is_not_chunked(void **state)
{
    static const struct http_call_handler handler = { .on_data = on_text_data,
                                                      .on_writable = on_length_writable,
                                                      .on_end = on_stream_end };
    scoped(http_client_free) struct http_client *client = client_for(*state, false);
    static const struct {
        const char *target, *answer;
    } rows[] = { { "/length", "12" }, { "/body", "twelve bytes" } };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct stream stream = { .text = BUFFER_INIT(64) };

        http_client_request(client, HTTP_POST, rows[i].target, NULL, NULL, 12, NULL, &handler,
                            &stream);
        fixture_wait((struct fixture *)*state, stream.ended);
        assert_int_equal(stream.err.code, ERR_NONE);
        assert_string_equal(buffer_text(&stream.text), rows[i].answer);
        buffer_fini(&stream.text);
    }
}

static int given_connection(struct fixture *fixture)
{
    int ends[2];

    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
                       errno);
    http_server_adopt(fixture->server, ends[0], "group", "member", 10);
    return ends[1];
}

static void a_given_connection_serves_one_request_and_is_never_replaced(void **state)
{
    struct fixture *fixture = *state;
    scoped(http_client_free) struct http_client *client =
        http_client_new_on(fixture->loop, given_connection(fixture), "port 80", "localhost:80");
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(64);
    struct error err = { 0 };

    assert_int_equal(http_client_fetch(client, HTTP_POST, "/body", NULL, "hello", 5, &body, &err),
                     201);
    assert_string_equal(buffer_text(&body), "hello");
    assert_int_equal(http_client_fetch(client, HTTP_GET, "/body", NULL, NULL, 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
}

static void a_given_connection_that_dies_fails_the_request(void **state)
{
    struct fixture *fixture = *state;
    struct error err = { 0 };
    int ends[2];
    scoped(http_client_free) struct http_client *client = NULL;

    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends),
                       errno);
    close(ends[0]);
    client = http_client_new_on(fixture->loop, ends[1], "port 80", "localhost:80");
    assert_int_equal(http_client_fetch(client, HTTP_GET, "/", NULL, NULL, 0, NULL, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
}

static int released_fd;
static struct buffer released_rest;

static void on_release_writable(struct http_call *call)
{
    released_fd = http_call_release(call, &released_rest);
}

static int release_after_upgrade(struct fixture *fixture, struct http_client *client,
                                 const char *target)
{
    static const char *const headers[] = { "Connection", "Upgrade", "Upgrade", "tcp", NULL };
    static const struct http_call_handler handler = { .on_data = on_text_data,
                                                      .on_writable = on_release_writable,
                                                      .on_end = on_stream_end };
    static struct stream unused;

    released_fd = -1;
    released_rest = BUFFER_INIT(4096);
    http_client_request(client, HTTP_GET, target, NULL, NULL, 0, headers, &handler, &unused);
    fixture_wait(fixture, released_fd >= 0);
    return released_fd;
}

/* The server has closed its half: what the client sends arrives all the same. */
static void each_half_of_an_upgraded_connection_ends_by_itself(void **state)
{
    struct fixture *fixture = *state;

    for (unsigned over_unix = 0; over_unix < 2; over_unix++) {
        scoped(http_client_free) struct http_client *client = client_for(fixture, over_unix);
        scoped(fd_close) int fd = release_after_upgrade(fixture, client, "/half");
        uint8_t bytes[64];
        ssize_t count = 1;

        while (count > 0) {
            do {
                loop_turn(fixture->loop, 10);
                count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
            } while (count < 0 && errno == EAGAIN);
            (void)buffer_append(&released_rest, bytes, count > 0 ? (size_t)count : 0);
        }
        assert_int_equal(count, 0);
        assert_string_equal(buffer_text(&released_rest), "all of it");
        assert_int_equal(send(fd, "still here", 10, MSG_NOSIGNAL), 10);
        fixture_wait(fixture, heard_bytes == 10);
        assert_false(heard_end);
        shutdown(fd, SHUT_WR);
        fixture_wait(fixture, heard_end || fixture->closes == over_unix + 1);
        buffer_fini(&released_rest);
        fixture_wait(fixture, fixture->closes == over_unix + 1);
    }
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(a_fetch_gives_status_and_body_on_both_kinds_of_socket),
        WITH_SERVER(one_connection_serves_many_fetches),
        WITH_SERVER(headers_of_the_client_go_out_on_one_line),
        WITH_SERVER(nobody_listening_is_unavailable_with_the_reason),
        WITH_SERVER(an_answer_that_never_comes_times_out),
        WITH_SERVER(an_answer_larger_than_the_buffer_is_an_error),
        WITH_SERVER(bad_addresses_and_targets_are_refused),
        WITH_SERVER(a_big_body_streams_both_ways_unchanged),
        WITH_SERVER(a_paused_answer_waits_in_the_server),
        WITH_SERVER(a_cancelled_call_closes_and_says_nothing),
        WITH_SERVER(freeing_the_client_drops_its_calls),
        WITH_SERVER(a_malformed_or_cut_answer_is_a_backend_error),
        WITH_SERVER(an_answer_without_a_length_ends_with_the_connection),
        WITH_SERVER(a_connection_that_died_idle_is_replaced),
        WITH_SERVER(after_an_upgrade_the_connection_is_a_plain_stream),
        WITH_SERVER(an_upgraded_connection_carries_bytes_both_ways),
        WITH_SERVER(a_streamed_body_of_known_length_is_not_chunked),
        WITH_SERVER(a_given_connection_serves_one_request_and_is_never_replaced),
        WITH_SERVER(a_given_connection_that_dies_fails_the_request),
        WITH_SERVER(each_half_of_an_upgraded_connection_ends_by_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
