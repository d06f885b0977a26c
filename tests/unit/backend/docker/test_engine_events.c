/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of JSON: events and pulls. */

#include "fake_engine.h"

#include "../../../harness/steady_clock.h"
#include "base/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define STREAM \
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"

struct world {
    struct loop *loop;
    struct fake_engine fake;
    struct engine *engine;
    struct engine_events events;
    unsigned ups, downs, told;
    char seen[256]; /* the actions, each with a space */
    struct error last;
    unsigned stop_at; /* engine_events_stop() in this event; 0: never */
    const char *raw;  /* the answer; NULL: a stream is opened */
    struct engine_pull pull;
    unsigned progresses, dones;
};

static struct world *world;

static void on_request(struct fake_connection *connection, const char *method UNUSED,
                       const char *target, const char *body UNUSED)
{
    if (strcmp(target, "/_ping") == 0)
        fake_send_text(connection, "HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: 0\r\n"
                                   "Date: Fri, 31 Dec 9999 23:59:59 GMT\r\n\r\n");
    else
        fake_send_text(connection, world->raw ? world->raw : STREAM);
}

static int start(void **state UNUSED)
{
    struct engine_options options = { 0 };

    world = xnew(struct world);
    world->loop = loop_new(&steady_clock);
    fake_engine_start(&world->fake, world->loop, on_request);
    options.loop = world->loop;
    options.host = world->fake.host;
    world->engine = engine_new(&options, NULL);
    return 0;
}

static int stop(void **state UNUSED)
{
    engine_free(world->engine);
    fake_engine_stop(&world->fake);
    loop_free(world->loop);
    free(world);
    return 0;
}

static void send_chunk(const char *data, size_t length)
{
    char size[24];

    snprintf(size, sizeof(size), "%zx\r\n", length);
    fake_send_text(world->fake.last, size);
    fake_send(world->fake.last, data, length);
    fake_send_text(world->fake.last, "\r\n");
}

/* --- events ---------------------------------------------------------------------------------- */

static void on_up(struct engine_events *events UNUSED)
{
    world->ups++;
}

static void on_event(struct engine_events *events, json_t *event)
{
    strcat(world->seen, json_string_value(json_object_get(event, "Action")));
    strcat(world->seen, " ");
    if (++world->told == world->stop_at)
        engine_events_stop(events);
}

static void on_down(struct engine_events *events UNUSED, const struct error *err)
{
    world->downs++;
    world->last = *err;
}

static const struct engine_events_handler handler = { on_up, on_event, on_down };

static void open_events(void)
{
    engine_events_start(world->engine, &world->events, "label", "sandglass.instance=a b", &handler);
    fake_wait(world->loop, world->ups);
}

static void events_are_told_however_they_are_cut(void **state UNUSED)
{
    static const char lines[] =
        "{\"Action\":\"a\"}\n{\"Action\":\"b\"}\n\r\n{\"Action\":\"c\"}\r\n";
    char expected[256] = "";

    open_events();
    assert_string_equal(world->fake.last_target,
                        "/v1.41/events?since=1794913555.000000000&filters="
                        "%7B%22label%22%3A%5B%22sandglass.instance%3Da%20b%22%5D%7D");
    send_chunk(lines, sizeof(lines) - 1);
    fake_wait(world->loop, world->told == 3);
    for (size_t i = 0; i < sizeof(lines) - 1; i++) {
        send_chunk(lines + i, 1);
        loop_turn(world->loop, 0);
    }
    fake_wait(world->loop, world->told == 6);
    for (size_t step = 2; step < 12; step++) {
        for (size_t i = 0; i < sizeof(lines) - 1; i += step) {
            send_chunk(lines + i, MIN(step, sizeof(lines) - 1 - i));
            loop_turn(world->loop, 0);
        }
    }
    fake_wait(world->loop, world->told == 36);
    for (int i = 0; i < 12; i++)
        strcat(expected, "a b c ");
    assert_string_equal(world->seen, expected);
    assert_int_equal(world->ups, 1);
    assert_int_equal(world->downs, 0);
}

static void a_time_behind_which_no_other_comes_is_not_taken(void **state UNUSED)
{
    static const char lines[] = "{\"Action\":\"die\",\"timeNano\":1794913600121777094}\n"
                                "{\"Action\":\"die\",\"timeNano\":9223372036854775807}\n";

    open_events();
    send_chunk(lines, sizeof(lines) - 1);
    fake_wait(world->loop, world->told == 2);
    fake_hang_up(world->fake.last);
    fake_wait(world->loop, world->ups == 2);
    assert_non_null(strstr(world->fake.last_target, "since=1794913600.121777095&"));
}

static void an_engine_that_does_not_know_the_date_is_asked_for_all_that_comes(void **state UNUSED)
{
    world->fake.version = NULL;
    open_events();
    assert_null(strstr(world->fake.last_target, "since="));
}

static void a_stream_that_ends_is_opened_again_behind_the_last_event(void **state UNUSED)
{
    static const char line[] = "{\"Action\":\"die\",\"timeNano\":1794913600121777094}\n{\"Act";

    open_events();
    send_chunk(line, sizeof(line) - 1);
    fake_wait(world->loop, world->told == 1);
    fake_hang_up(world->fake.last);
    fake_wait(world->loop, world->downs == 1);
    fake_wait(world->loop, world->ups == 2);
    assert_non_null(strstr(world->fake.last_target, "since=1794913600.121777095&"));
    /* The half line before it is forgotten. */
    send_chunk("{\"Action\":\"start\"}\n", 19);
    fake_wait(world->loop, world->told == 2);
    assert_string_equal(world->seen, "die start ");
    fake_send_text(world->fake.last, "0\r\n\r\n");
    fake_wait(world->loop, world->ups == 3);
    assert_int_equal(world->downs, 2);
    assert_int_equal(world->last.code, ERR_UNAVAILABLE);
    assert_int_equal(world->fake.pings, 3);
}

static void an_engine_that_is_away_is_tried_until_it_is_back(void **state UNUSED)
{
    fake_engine_close_door(&world->fake);
    engine_events_start(world->engine, &world->events, "label", "a=b", &handler);
    fake_wait(world->loop, world->downs == 3);
    assert_int_equal(world->last.code, ERR_UNAVAILABLE);
    assert_true(*world->last.hint);
    world->fake.version = "1.39";
    fake_engine_open_door(&world->fake);
    fake_wait(world->loop, world->ups == 1);
    assert_memory_equal(world->fake.last_target, "/v1.39/", 7);
}

static void a_line_that_is_no_event_ends_the_stream(void **state UNUSED)
{
    static char piece[8192];

    open_events();
    memset(piece, 'x', sizeof(piece));
    send_chunk("nonsense\n", 9);
    fake_wait(world->loop, world->downs == 1);
    assert_int_equal(world->last.code, ERR_BACKEND);
    fake_wait(world->loop, world->ups == 2);
    send_chunk("[1]\n", 4);
    fake_wait(world->loop, world->downs == 2);
    fake_wait(world->loop, world->ups == 3);
    while (world->downs == 2) {
        send_chunk(piece, sizeof(piece));
        loop_turn(world->loop, 0);
    }
    assert_non_null(strstr(world->last.message, "65536"));
    fake_wait(world->loop, world->ups == 4);
}

static void a_refused_stream_is_told_with_the_words_of_the_engine(void **state UNUSED)
{
    world->raw = "HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n"
                 "{\"message\":\"bad\"}";
    engine_events_start(world->engine, &world->events, "label", "a=b", &handler);
    fake_wait(world->loop, world->downs == 2);
    assert_string_equal(world->last.message, "bad");
    assert_int_equal(world->ups, 0);
}

static void a_stream_can_be_stopped_by_an_event(void **state UNUSED)
{
    static const char lines[] = "{\"Action\":\"a\"}\n{\"Action\":\"b\"}\n{\"Action\":\"c\"}\n";

    world->stop_at = 2;
    open_events();
    send_chunk(lines, sizeof(lines) - 1);
    fake_wait(world->loop, world->told == 2);
    for (int i = 0; i < 10; i++)
        loop_turn(world->loop, 5);
    assert_string_equal(world->seen, "a b ");
    assert_null(world->events.private);
    assert_int_equal(world->downs, 0);
    engine_events_stop(&world->events);
    world->ups = 0;
    open_events();
}

/* --- pulls ----------------------------------------------------------------------------------- */

static void on_progress(struct engine_pull *pull UNUSED)
{
    world->progresses++;
}

static void on_pulled(struct engine_pull *pull UNUSED)
{
    world->dones++;
}

static void begin_pull(int64_t stall_timeout_ms)
{
    engine_pull_start(world->engine, &world->pull, "docker.io/library/python", "3.12",
                      stall_timeout_ms, on_progress, on_pulled);
    fake_wait(world->loop, world->fake.requests);
}

static void line(const char *text)
{
    unsigned before = world->progresses;

    send_chunk(text, strlen(text));
    fake_wait(world->loop, world->progresses > before);
}

static void progress_is_the_sum_of_the_layers(void **state UNUSED)
{
    begin_pull(5000);
    assert_string_equal(world->fake.last_target, "/v1.41/images/create?fromImage=docker.io"
                                                 "%2Flibrary%2Fpython&tag=3.12");
    line("{\"status\":\"Pulling from library/python\",\"id\":\"3.12\"}\r\n");
    line("{\"status\":\"Downloading\",\"progressDetail\":{\"current\":10,\"total\":100},\"id\":"
         "\"aa\"}\r\n");
    line("{\"status\":\"Downloading\",\"progressDetail\":{\"current\":5,\"total\":50},\"id\":"
         "\"bb\"}\r\n");
    assert_int_equal(world->pull.done_bytes, 15);
    assert_int_equal(world->pull.total_bytes, 150);
    line("{\"status\":\"Download complete\",\"progressDetail\":{},\"id\":\"aa\"}\r\n");
    line("{\"status\":\"Extracting\",\"progressDetail\":{\"current\":1,\"total\":100},\"id\":"
         "\"aa\"}\r\n");
    assert_int_equal(world->pull.done_bytes, 105);
    line("{\"status\":\"Pull complete\",\"progressDetail\":{},\"id\":\"bb\"}\r\n");
    assert_int_equal(world->pull.done_bytes, 150);
    line("{\"status\":\"Status: Downloaded newer image\"}\r\n");
    fake_send_text(world->fake.last, "0\r\n\r\n");
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->pull.err.code, ERR_NONE);
    assert_null(world->pull.private);
}

static void a_line_with_an_error_fails_the_pull(void **state UNUSED)
{
    begin_pull(5000);
    line("{\"errorDetail\":{\"message\":\"x\"},\"error\":\"unauthorized:\\u001b denied\"}\r\n");
    fake_send_text(world->fake.last, "0\r\n\r\n");
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->pull.err.code, ERR_BACKEND);
    assert_string_equal(world->pull.err.message, "unauthorized:  denied");
}

static void an_image_that_does_not_exist_is_not_found(void **state UNUSED)
{
    begin_pull(5000);
    line("{\"error\":\"reading manifest 9 in docker.io/library/python: manifest unknown\"}\n");
    fake_send_text(world->fake.last, "0\r\n\r\n");
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->pull.err.code, ERR_NOT_FOUND);
}

static void a_pull_that_is_cut_off_has_failed(void **state UNUSED)
{
    begin_pull(5000);
    line("{\"status\":\"Pulling from library/python\",\"id\":\"3.12\"}\r\n");
    fake_hang_up(world->fake.last);
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->pull.err.code, ERR_BACKEND);
}

static void a_pull_that_stands_still_has_failed(void **state UNUSED)
{
    begin_pull(300);
    for (int i = 0; i < 5; i++) {
        int64_t until_us = loop_now_us(world->loop) + 100 * 1000;

        while (loop_now_us(world->loop) < until_us)
            loop_turn(world->loop, 5);
        line("{\"status\":\"Waiting\",\"id\":\"aa\"}\r\n");
    }
    fake_wait(world->loop, world->dones);
    assert_int_equal(world->pull.err.code, ERR_UNAVAILABLE);
}

static void a_pull_can_be_cancelled(void **state UNUSED)
{
    begin_pull(300);
    line("{\"status\":\"Waiting\",\"id\":\"aa\"}\r\n");
    engine_pull_cancel(&world->pull);
    engine_pull_cancel(&world->pull);
    for (int i = 0; i < 10; i++)
        loop_turn(world->loop, 5);
    assert_int_equal(world->dones, 0);
    assert_int_equal(world->fake.last->socket.fd, -1);
}

#define ROW(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROW(events_are_told_however_they_are_cut),
        ROW(a_stream_that_ends_is_opened_again_behind_the_last_event),
        ROW(a_time_behind_which_no_other_comes_is_not_taken),
        ROW(an_engine_that_does_not_know_the_date_is_asked_for_all_that_comes),
        ROW(an_engine_that_is_away_is_tried_until_it_is_back),
        ROW(a_line_that_is_no_event_ends_the_stream),
        ROW(a_refused_stream_is_told_with_the_words_of_the_engine),
        ROW(a_stream_can_be_stopped_by_an_event),
        ROW(progress_is_the_sum_of_the_layers),
        ROW(a_line_with_an_error_fails_the_pull),
        ROW(an_image_that_does_not_exist_is_not_found),
        ROW(a_pull_that_is_cut_off_has_failed),
        ROW(a_pull_that_stands_still_has_failed),
        ROW(a_pull_can_be_cancelled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
