/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that are slow, leave, come in crowds or never read. */

#include "../../harness/steady_clock.h"
#include "fixture.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define H "Host: a\r\n"
#define GET(path) "GET " path " HTTP/1.1\r\n" H "\r\n"

enum { ENDLESS_PIECE = 32 * 1024 };

static unsigned drains;
static size_t most_pending;
static size_t uploaded;

static void on_close(struct http_exchange *exchange)
{
    struct fixture *fixture = http_exchange_user(exchange);

    fixture->closes++;
    if (fixture->held == exchange)
        fixture->held = NULL;
}

/* Writes as long as it may, which is for ever if the client reads. */
static void endless_write(struct http_exchange *exchange)
{
    static const char piece[ENDLESS_PIECE];

    drains++;
    while (http_respond_pending(exchange) < HTTP_HIGH_WATER)
        http_respond_write(exchange, piece, sizeof(piece));
    most_pending = MAX(most_pending, http_respond_pending(exchange));
}

static void on_upload_data(struct http_exchange *exchange, const uint8_t *data UNUSED,
                           size_t length)
{
    uploaded += length;
    if (!length)
        http_respond(exchange, 200, NULL, NULL, 0);
}

static void on_upload_then_pause(struct http_exchange *exchange, const uint8_t *data UNUSED,
                                 size_t length)
{
    uploaded += length;
    http_exchange_pause_body(exchange);
}

static void on_request(void *context, struct http_exchange *exchange)
{
    struct fixture *fixture = context;
    const char *path = http_exchange_head(exchange)->path;

    fixture->requests++;
    http_exchange_set_user(exchange, fixture);
    http_exchange_on_close(exchange, on_close);
    if (strcmp(path, "/endless") == 0) {
        http_respond_start(exchange, 200, NULL, -1);
        http_respond_on_drain(exchange, endless_write);
        endless_write(exchange);
    } else if (strcmp(path, "/upload") == 0) {
        http_exchange_stream_body(exchange, on_upload_data);
    } else if (strcmp(path, "/paused") == 0) {
        fixture->held = exchange;
        http_exchange_stream_body(exchange, on_upload_then_pause);
    } else if (strcmp(path, "/hold") == 0) {
        fixture->held = exchange;
    } else if (strcmp(path, "/stream") == 0) {
        fixture->held = exchange;
        http_respond_start(exchange, 200, "text/event-stream", -1);
        http_respond_write(exchange, "one", 3);
    } else {
        http_respond(exchange, 200, "text/plain", path, strlen(path));
    }
}

static int start_with(void **state, const struct http_server_limits *limits)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    drains = 0;
    most_pending = 0;
    uploaded = 0;
    fixture_start_by(fixture, &steady_clock, limits, on_request);
    *state = fixture;
    return 0;
}

static int start(void **state)
{
    return start_with(state, NULL);
}

static int start_hasty(void **state)
{
    struct http_server_limits limits = http_server_default_limits;

    limits.head_timeout_ms = 100;
    limits.body_timeout_ms = 100;
    limits.idle_timeout_ms = 100;
    limits.write_timeout_ms = 100;
    return start_with(state, &limits);
}

/* For a client that keeps a timeout: a busy machine must not make it miss the timeout. */
static int start_patient(void **state)
{
    struct http_server_limits limits = http_server_default_limits;

    limits.body_timeout_ms = 1500;
    return start_with(state, &limits);
}

static int start_small(void **state)
{
    struct http_server_limits limits = http_server_default_limits;

    limits.connections = 4;
    return start_with(state, &limits);
}

static int stop(void **state)
{
    fixture_stop(*state);
    free(*state);
    return 0;
}

static void assert_served(struct fixture *fixture)
{
    scoped(peer_close) struct peer peer;
    int64_t before_us = loop_now_us(fixture->loop);

    peer_open_unix(&peer, fixture);
    peer_send_text(&peer, GET("/served"));
    peer_expect(&peer, "\r\n\r\n/served");
    assert_true(loop_now_us(fixture->loop) - before_us < 30 * 1000 * 1000);
}

/* --- slow ones ----------------------------------------------------------------------------- */

static void a_head_that_trickles_in_is_408(void **state)
{
    static const char head[] = "GET / HTTP/1.1\r\nHost: aaaaaaaaaaaa";
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;

    peer_open_tcp(&peer, fixture);
    for (size_t i = 0; !peer_poll(&peer) && i < 2000; i++) {
        (void)!send(peer.fd, &head[MIN(i, sizeof(head) - 2)], 1, MSG_NOSIGNAL);
        loop_turn(fixture->loop, 10);
    }
    peer_expect(&peer, "408 Request Timeout");
    peer_expect_end(&peer);
    assert_int_equal(fixture->requests, 0);
}

static void a_body_that_stops_is_408(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;

    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, "POST /upload HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\n12345");
    peer_expect(&peer, "408 Request Timeout");
    assert_int_equal(uploaded, 5);
    fixture_wait(fixture, fixture->closes == 1);
}

static void a_body_that_is_slow_but_moves_is_taken(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;
    int64_t since_us = loop_now_us(fixture->loop);

    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, "POST /upload HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\n");
    for (size_t i = 0; i < 10; i++) {
        size_t before = uploaded;
        int64_t pause_us = loop_now_us(fixture->loop) + 160 * 1000;

        fixture_wait(fixture, loop_now_us(fixture->loop) >= pause_us);
        peer_send_text(&peer, "x");
        fixture_wait(fixture, uploaded > before);
    }
    peer_expect(&peer, "200 OK");
    assert_true(loop_now_us(fixture->loop) - since_us > 1500 * 1000);
}

static void a_client_that_does_not_read_is_dropped(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, fixture);
    peer_send_text(&peer, GET("/endless"));
    fixture_wait(fixture, fixture->closes == 1);
}

static void an_idle_connection_is_closed_and_a_silent_one_too(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer silent;
    scoped(peer_close) struct peer idle;

    peer_open_tcp(&silent, fixture);
    peer_open_tcp(&idle, fixture);
    peer_send_text(&idle, GET("/a"));
    peer_expect(&idle, "/a");
    peer_expect_end(&idle);
    peer_expect_end(&silent);
    assert_int_equal(silent.received.length, 0);
}

static void an_answer_may_take_its_time(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;
    int64_t until_us = loop_now_us(fixture->loop) + 300 * 1000;

    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, GET("/hold"));
    fixture_wait(fixture, loop_now_us(fixture->loop) >= until_us);
    assert_non_null(fixture->held);
    http_respond(fixture->held, 200, NULL, "late", 4);
    peer_expect(&peer, "late");
}

/* --- ones that leave ----------------------------------------------------------------------- */

static void open_kind(struct peer *peer, struct fixture *fixture, int over_unix)
{
    if (over_unix)
        peer_open_unix(peer, fixture);
    else
        peer_open_tcp(peer, fixture);
}

static void a_half_closed_client_still_gets_its_answer(void **state)
{
    struct fixture *fixture = *state;

    for (int over_unix = 0; over_unix < 2; over_unix++) {
        scoped(peer_close) struct peer now;
        scoped(peer_close) struct peer later;
        scoped(peer_close) struct peer streamed;

        open_kind(&now, fixture, over_unix);
        peer_send_text(&now, GET("/a") GET("/b"));
        shutdown(now.fd, SHUT_WR);
        peer_expect_end(&now);
        assert_true(peer_has(&now, "\r\n\r\n/a") && peer_has(&now, "\r\n\r\n/b"));

        open_kind(&later, fixture, over_unix);
        peer_send_text(&later, GET("/hold"));
        shutdown(later.fd, SHUT_WR);
        fixture_wait(fixture, fixture->held);
        loop_turn(fixture->loop, 20);
        assert_non_null(fixture->held);
        http_respond(fixture->held, 200, "text/plain", "late", 4);
        peer_expect_end(&later);
        assert_int_equal(peer_count(&later, "HTTP/1.1 200 OK\r\n"), 1);
        assert_int_equal(peer_read_response(&later, NULL), 200);

        open_kind(&streamed, fixture, over_unix);
        peer_send_text(&streamed, GET("/stream"));
        shutdown(streamed.fd, SHUT_WR);
        peer_expect(&streamed, "one");
        loop_turn(fixture->loop, 20);
        assert_non_null(fixture->held);
        http_respond_write(fixture->held, "two", 3);
        http_respond_end(fixture->held);
        peer_expect_end(&streamed);
        assert_int_equal(peer_read_response(&streamed, NULL), 200);
    }
}

static void a_half_close_in_the_head_or_the_body_is_400(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer in_head;
    scoped(peer_close) struct peer in_body;

    peer_open_tcp(&in_head, fixture);
    peer_open_tcp(&in_body, fixture);
    peer_send_text(&in_head, "GET / HTTP/1.1\r\nHost:");
    shutdown(in_head.fd, SHUT_WR);
    peer_expect(&in_head, "400 Bad Request");
    peer_send_text(&in_body, "POST /upload HTTP/1.1\r\n" H "Content-Length: 10\r\n\r\n12345");
    shutdown(in_body.fd, SHUT_WR);
    peer_expect(&in_body, "400 Bad Request");
    fixture_wait(fixture, fixture->closes == 1);
}

static void a_client_that_leaves_is_noticed_before_the_answer(void **state)
{
    struct fixture *fixture = *state;

    for (int over_unix = 0; over_unix < 2; over_unix++) {
        struct peer peer;

        fixture->closes = 0;
        open_kind(&peer, fixture, over_unix);
        peer_send_text(&peer, GET("/hold"));
        fixture_wait(fixture, fixture->held);
        peer_close(&peer);
        fixture_wait(fixture, fixture->closes == 1);
    }
}

static void a_client_that_leaves_is_noticed_while_a_stream_is_idle(void **state)
{
    struct fixture *fixture = *state;

    for (int over_unix = 0; over_unix < 2; over_unix++) {
        struct peer peer;

        fixture->closes = 0;
        open_kind(&peer, fixture, over_unix);
        peer_send_text(&peer, GET("/stream"));
        peer_expect(&peer, "one");
        peer_close(&peer);
        fixture_wait(fixture, fixture->closes == 1);
    }
}

static void a_client_that_half_closes_and_leaves_later_is_noticed(void **state)
{
    struct fixture *fixture = *state;
    struct peer peer;

    peer_open_unix(&peer, fixture);
    peer_send_text(&peer, GET("/hold"));
    shutdown(peer.fd, SHUT_WR);
    fixture_wait(fixture, fixture->held);
    loop_turn(fixture->loop, 20);
    assert_int_equal(fixture->closes, 0);
    peer_close(&peer);
    fixture_wait(fixture, fixture->closes == 1);
}

static void a_client_that_leaves_during_a_paused_upload_is_noticed(void **state)
{
    scoped(free) char *piece = calloc(1, 300 * 1000);
    struct fixture *fixture = *state;
    struct peer peer;
    struct linger now = { .l_onoff = 1 };

    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, "POST /paused HTTP/1.1\r\n" H "Content-Length: 90000000\r\n\r\n");
    peer_send(&peer, piece, 300 * 1000);
    fixture_wait(fixture, fixture->held);
    setsockopt(peer.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    peer_close(&peer);
    fixture_wait(fixture, fixture->closes == 1);
}

static void a_reset_in_the_middle_of_an_answer_frees_the_exchange(void **state)
{
    struct fixture *fixture = *state;
    struct linger now = { .l_onoff = 1 };
    struct peer peer;

    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, GET("/endless"));
    fixture_wait(fixture, peer_poll(&peer));
    setsockopt(peer.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    peer_close(&peer);
    fixture_wait(fixture, fixture->closes == 1);
    assert_served(fixture);
}

/* --- ones that never read, and crowds ------------------------------------------------------ */

static void a_client_that_never_reads_costs_little_and_hinders_nobody(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;

    peer_open_tcp(&peer, fixture);
    peer_send_text(&peer, GET("/endless"));
    fixture_wait(fixture, fixture->requests == 1);
    for (int i = 0; i < 20; i++)
        assert_served(fixture);
    assert_true(most_pending < HTTP_HIGH_WATER + ENDLESS_PIECE + 64);
    assert_int_equal(fixture->closes, 20);
}

static void a_client_that_reads_as_fast_as_it_can_hinders_nobody(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, fixture);
    peer_send_text(&peer, GET("/endless"));
    for (int i = 0; i < 200; i++) {
        peer_poll(&peer);
        loop_turn(fixture->loop, 0);
    }
    assert_true(peer.received.length > 1000 * 1000);
    assert_true(drains > 2);
    assert_served(fixture);
}

static void pipelining_without_reading_stops_at_the_low_water_mark(void **state)
{
    static const char request[] = "GET /0123456789012345678901234567890123456789 HTTP/1.1\r\n" H
                                  "\r\n";
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;
    size_t sent = 0;

    peer_open_unix(&peer, fixture);
    for (int tries = 0; tries < 200; loop_turn(fixture->loop, 0)) {
        ssize_t length = send(peer.fd, request, sizeof(request) - 1, MSG_NOSIGNAL);

        tries = length > 0 ? 0 : tries + 1;
        sent += length > 0;
        assert_true(sent < 100 * 1000);
    }
    assert_true(fixture->requests < sent);
    assert_served(fixture);
}

static void an_upload_stops_while_it_is_paused(void **state)
{
    scoped(free) char *piece = calloc(1, 65536);
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer peer;

    peer_open_unix(&peer, fixture);
    peer_send_text(&peer, "POST /paused HTTP/1.1\r\n" H "Content-Length: 90000000\r\n\r\n");
    for (int tries = 0; tries < 100; loop_turn(fixture->loop, 0))
        tries = send(peer.fd, piece, 65536, MSG_NOSIGNAL) > 0 ? 0 : tries + 1;
    assert_true(uploaded <= HTTP_HIGH_WATER);
    assert_served(fixture);
    assert_int_equal(fixture->closes, 1);
}

static void an_idle_connection_makes_room_for_a_new_one(void **state)
{
    struct fixture *fixture = *state;
    struct peer idle[4];

    for (int i = 0; i < 4; i++) {
        peer_open_tcp(&idle[i], fixture);
        peer_send_text(&idle[i], GET("/a"));
        peer_expect(&idle[i], "/a");
    }
    assert_served(fixture);
    peer_expect_end(&idle[0]);
    assert_false(idle[3].ended);
    for (int i = 0; i < 4; i++)
        peer_close(&idle[i]);
}

static void with_all_connections_busy_one_more_is_503(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer extra;
    struct peer busy[4];

    for (int i = 0; i < 4; i++) {
        peer_open_tcp(&busy[i], fixture);
        peer_send_text(&busy[i], GET("/hold"));
    }
    fixture_wait(fixture, fixture->requests == 4);
    peer_open_tcp(&extra, fixture);
    peer_send_text(&extra, GET("/a"));
    peer_expect(&extra, "503 Service Unavailable");
    peer_expect(&extra, "Retry-After: 1\r\n");
    peer_expect(&extra, "\"retryable\":true");
    peer_expect_end(&extra);
    assert_false(extra.reset);
    peer_close(&busy[0]);
    fixture_wait(fixture, fixture->closes == 1);
    assert_served(fixture);
    for (int i = 1; i < 4; i++)
        peer_close(&busy[i]);
}

static void out_of_descriptors_the_server_waits_instead_of_spinning(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer waiting;
    scoped(peer_close) struct peer idle;
    struct rlimit before;
    struct rlimit tight;

    getrlimit(RLIMIT_NOFILE, &before);
    peer_open_tcp(&idle, fixture);
    peer_send_text(&idle, GET("/a"));
    peer_expect(&idle, "/a");
    peer_open_tcp(&waiting, fixture);
    tight = before;
    tight.rlim_cur = (rlim_t)waiting.fd + 1;
    setrlimit(RLIMIT_NOFILE, &tight);
    peer_send_text(&waiting, GET("/b"));
    fixture_wait(fixture, (peer_poll(&idle), idle.ended) && peer_has(&waiting, "/b"));
    setrlimit(RLIMIT_NOFILE, &before);
}

/* --- the end of the server ----------------------------------------------------------------- */

static void draining_closes_idle_connections_and_finishes_the_rest(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer idle;
    scoped(peer_close) struct peer busy;

    peer_open_unix(&idle, fixture);
    peer_send_text(&idle, GET("/a"));
    peer_expect(&idle, "/a");
    peer_open_unix(&busy, fixture);
    peer_send_text(&busy, GET("/hold"));
    fixture_wait(fixture, fixture->held);
    http_server_drain(fixture->server);
    peer_expect_end(&idle);
    assert_int_equal(access(fixture->socket_path, F_OK), -1);
    http_respond(fixture->held, 200, "text/plain", "done", 4);
    peer_expect(&busy, "Connection: close");
    peer_expect(&busy, "done");
    peer_expect_end(&busy);
}

static void freeing_the_server_tells_what_still_runs(void **state)
{
    struct fixture *fixture = *state;
    scoped(peer_close) struct peer held;
    scoped(peer_close) struct peer uploading;

    peer_open_unix(&held, fixture);
    peer_open_unix(&uploading, fixture);
    peer_send_text(&held, GET("/hold"));
    peer_send_text(&uploading, "POST /paused HTTP/1.1\r\n" H "Content-Length: 9\r\n\r\n1");
    fixture_wait(fixture, fixture->requests == 2);
    http_server_free(fixture->server);
    fixture->server = NULL;
    assert_int_equal(fixture->closes, 2);
}

static void nothing_stays_open_after_many_connections(void **state)
{
    struct fixture *fixture = *state;
    size_t before = count_open_files();

    for (int i = 0; i < 200; i++) {
        struct peer peer;

        open_kind(&peer, fixture, i % 2);
        peer_send_text(&peer, i % 3 ? GET("/stream") : "BAD\r\n");
        peer_expect(&peer, "HTTP/1.1");
        peer_close(&peer);
    }
    fixture_wait(fixture, count_open_files() == before);
}

#define USUAL(test) cmocka_unit_test_setup_teardown(test, start, stop)
#define HASTY(test) cmocka_unit_test_setup_teardown(test, start_hasty, stop)
#define PATIENT(test) cmocka_unit_test_setup_teardown(test, start_patient, stop)
#define SMALL(test) cmocka_unit_test_setup_teardown(test, start_small, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HASTY(a_head_that_trickles_in_is_408),
        HASTY(a_body_that_stops_is_408),
        PATIENT(a_body_that_is_slow_but_moves_is_taken),
        HASTY(a_client_that_does_not_read_is_dropped),
        HASTY(an_idle_connection_is_closed_and_a_silent_one_too),
        HASTY(an_answer_may_take_its_time),
        USUAL(a_half_closed_client_still_gets_its_answer),
        USUAL(a_half_close_in_the_head_or_the_body_is_400),
        USUAL(a_client_that_leaves_is_noticed_before_the_answer),
        USUAL(a_client_that_leaves_is_noticed_while_a_stream_is_idle),
        USUAL(a_client_that_half_closes_and_leaves_later_is_noticed),
        USUAL(a_client_that_leaves_during_a_paused_upload_is_noticed),
        USUAL(a_reset_in_the_middle_of_an_answer_frees_the_exchange),
        USUAL(a_client_that_never_reads_costs_little_and_hinders_nobody),
        USUAL(a_client_that_reads_as_fast_as_it_can_hinders_nobody),
        USUAL(pipelining_without_reading_stops_at_the_low_water_mark),
        USUAL(an_upload_stops_while_it_is_paused),
        SMALL(an_idle_connection_makes_room_for_a_new_one),
        SMALL(with_all_connections_busy_one_more_is_503),
        USUAL(out_of_descriptors_the_server_waits_instead_of_spinning),
        USUAL(draining_closes_idle_connections_and_finishes_the_rest),
        USUAL(freeing_the_server_tells_what_still_runs),
        USUAL(nothing_stays_open_after_many_connections),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
