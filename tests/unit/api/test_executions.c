/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/run/execution.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct front front;
static struct session *session;

static int setup(void **state)
{
    (void)state;
    front_start(&front);
    session = world_open_simple(&front.world, "", NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    front_stop(&front);
    return 0;
}

static char *executions(const char *rest)
{
    return xasprintf("/api/v1/sessions/%s/executions%s", session_id(session), rest);
}

/* Sends a POST of an execution and leaves it open. */
static void begin(struct caller *caller, const char *query, const char *headers, const char *body)
{
    scoped(free) char *path = executions(query);
    scoped(free) char *text =
        xasprintf("POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/json\r\n"
                  "Content-Length: %zu\r\n\r\n%s",
                  path, headers, strlen(body), body);

    caller_send(&front, caller, false, text, strlen(text));
}

static char *run_in_background(const char *body)
{
    scoped(free) char *path = executions("");
    scoped(answer_fini) struct answer answer = call(&front, "POST", path, "", body);

    assert_int_equal(answer.status, 201);
    world_settle(&front.world);
    return xstrdup(json_string_value(json_object_get(answer.json, "id")));
}

static struct answer get(const char *id, const char *rest)
{
    scoped(free) char *tail = xasprintf("/%s%s", id, rest);
    scoped(free) char *path = executions(tail);

    return call(&front, "GET", path, "", NULL);
}

static struct answer post(const char *id, const char *rest, const char *headers, const char *body)
{
    scoped(free) char *tail = xasprintf("/%s%s", id, rest);
    scoped(free) char *path = executions(tail);

    return call(&front, "POST", path, headers, body);
}

static const char *text_of(const struct answer *answer, const char *name)
{
    const char *text = json_string_value(json_object_get(answer->json, name));

    return text ? text : "";
}

static const char *error_of(const struct answer *answer)
{
    return json_string_value(json_object_get(json_object_get(answer->json, "error"), "message"));
}

/* --- waiting --------------------------------------------------------------------------------- */

static void a_waiting_caller_gets_the_end_with_the_output(void **state)
{
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    begin(&caller, "", "", "{\"argv\":[\"/bin/echo\"]}");
    assert_false(caller_poll(&front, &caller, &answer));
    fake_program_write(fake_programs_last(), "hello\n");
    fake_program_exit(fake_programs_last(), 5);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_int_equal(answer.status, 201);
    assert_string_equal(text_of(&answer, "state"), "exited");
    assert_string_equal(text_of(&answer, "stdout"), "hello\n");
    assert_int_equal(json_integer_value(json_object_get(answer.json, "exit_code")), 5);
    assert_int_equal(json_integer_value(json_object_get(answer.json, "stdout_bytes")), 6);
    assert_true(json_is_false(json_object_get(answer.json, "truncated")));
    caller_close(&front, &caller);
}

static void a_caller_who_is_to_come_back_does_not_stop_the_program(void **state)
{
    static const char *const bodies[] = {
        "{\"argv\":[\"/bin/echo\"],\"cancel_on_disconnect\":false}",
        "{\"argv\":[\"/bin/echo\"],\"key\":\"mine\"}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
        struct caller caller;
        struct answer answer;

        begin(&caller, "", "", bodies[i]);
        assert_false(caller_poll(&front, &caller, &answer));
        caller_close(&front, &caller);
        assert_int_equal(fake_programs_last()->signal_count, 0);
        assert_int_equal(session_active_holds(session), i + 1);
    }
}

static void a_caller_stops_the_program_by_leaving(void **state)
{
    static const char *const bodies[] = {
        "{\"argv\":[\"/bin/echo\"]}",
        "{\"argv\":[\"/bin/echo\"],\"cancel_on_disconnect\":null}",
        "{\"argv\":[\"/bin/echo\"],\"key\":\"mine\",\"cancel_on_disconnect\":true}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
        struct caller caller;
        struct answer answer;

        begin(&caller, "", "", bodies[i]);
        assert_false(caller_poll(&front, &caller, &answer));
        caller_close(&front, &caller);
        assert_int_equal(fake_programs_last()->signals[0], SIGTERM);
    }
}

static void a_failed_start_is_an_error_with_its_status(void **state)
{
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    begin(&caller, "", "", "{\"argv\":[\"/bin/echo\"],\"generation\":9}");
    assert_true(caller_poll(&front, &caller, &answer));
    assert_int_equal(answer.status, 409);
    assert_string_equal(error_code_of(&answer), "generation_moved");
    caller_close(&front, &caller);
}

static void what_is_not_found_is_an_execution_not_an_error(void **state)
{
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    fake_programs_fail_next(STAGE_EXEC, ENOENT);
    begin(&caller, "", "", "{\"argv\":[\"nosuch\"]}");
    assert_true(caller_poll(&front, &caller, &answer));
    assert_int_equal(answer.status, 201);
    assert_int_equal(json_integer_value(json_object_get(answer.json, "exit_code")), 127);
    assert_non_null(strstr(error_of(&answer), "nosuch"));
    caller_close(&front, &caller);
}

struct body_case {
    const char *body;
    const char *word;
};

static void wrong_bodies_are_refused_with_the_field(void **state)
{
    static const struct body_case cases[] = {
        { "{}", "argv" },
        { "{\"argv\":[]}", "argv" },
        { "{\"argv\":\"ls\"}", "argv" },
        { "{\"argv\":[1]}", "argv" },
        { "{\"argv\":[\"a\"],\"command\":\"b\"}", "argv" },
        { "{\"command\":\"\"}", "command" },
        { "{\"code\":\"\"}", "code" },
        { "{\"code\":\"1\",\"language\":\"cobol\"}", "language" },
        { "{\"command\":\"a\",\"timeout\":-1}", "timeout" },
        { "{\"command\":\"a\",\"timeout\":\"x\"}", "timeout" },
        { "{\"command\":\"a\",\"env\":{\"A\":1}}", "env" },
        { "{\"command\":\"a\",\"env\":{\"\":\"1\"}}", "env" },
        { "{\"command\":\"a\",\"tty\":5}", "tty" },
        { "{\"command\":\"a\",\"tty\":{\"cols\":0}}", "cols" },
        { "{\"command\":\"a\",\"stdin\":5}", "stdin" },
        { "{\"command\":\"a\",\"generation\":-1}", "generation" },
        { "{\"command\":\"a\",\"generation\":1.5}", "generation" },
        { "{\"command\":\"a\",\"bakground\":true}", "bakground" },
    };
    scoped(free) char *path = executions("");

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        scoped(answer_fini) struct answer answer = call(&front, "POST", path, "", cases[i].body);

        if (answer.status != 400 || !strstr(error_message_of(&answer), cases[i].word))
            print_message("%s: %s\n", cases[i].body, answer.body);
        assert_int_equal(answer.status, 400);
        assert_non_null(strstr(error_message_of(&answer), cases[i].word));
    }
    assert_null(fake_programs_last());
}

/* --- in the background ----------------------------------------------------------------------- */

static void a_background_execution_is_answered_once_it_is_durable(void **state)
{
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    fake_store_hold(front.world.store, true);
    begin(&caller, "", "", "{\"argv\":[\"/bin/sleep\"],\"background\":true}");
    assert_false(caller_poll(&front, &caller, &answer));
    fake_store_hold(front.world.store, false);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_int_equal(answer.status, 201);
    caller_close(&front, &caller);
}

static void a_stream_begins_when_its_execution_is_recorded(void **state)
{
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    fake_store_hold(front.world.store, true);
    begin(&caller, "", "Accept: text/event-stream\r\n", "{\"argv\":[\"/bin/sleep\"]}");
    assert_false(caller_poll(&front, &caller, &answer));
    assert_int_equal(caller.length, 0);
    fake_store_hold(front.world.store, false);
    (void)caller_poll(&front, &caller, &answer);
    assert_non_null(caller.bytes);
    assert_non_null(strstr(caller.bytes, "X-Sandglass-Execution-Id"));
    caller_close(&front, &caller);
}

static void a_result_is_told_when_it_is_recorded(void **state)
{
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    begin(&caller, "", "", "{\"argv\":[\"/bin/true\"]}");
    assert_false(caller_poll(&front, &caller, &answer));
    fake_store_hold(front.world.store, true);
    fake_program_exit(fake_programs_last(), 0);
    assert_false(caller_poll(&front, &caller, &answer));
    fake_store_hold(front.world.store, false);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_int_equal(answer.status, 201);
    caller_close(&front, &caller);
}

static void whatever_was_changed_is_written_before_an_answer(void **state)
{
    scoped(free) char *id = run_in_background("{\"argv\":[\"/bin/sleep\"],\"background\":true}");
    scoped(free) char *path = xasprintf("/api/v1/sessions/%s", session_id(session));
    scoped(free) char *text = xasprintf(
        "POST %s/executions/%s/signal HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"signal\":\"USR1\"}",
        path, id);
    scoped(answer_fini) struct answer answer = { 0 }, look = { 0 };
    struct caller caller;

    (void)state;
    fake_store_hold(front.world.store, true);
    session_emit(session, "test.changed", "{}");
    caller_send(&front, &caller, false, text, strlen(text));
    assert_false(caller_poll(&front, &caller, &answer));
    look = call(&front, "GET", path, "", NULL); /* looking waits for nothing */
    assert_int_equal(look.status, 200);
    fake_store_hold(front.world.store, false);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_int_equal(answer.status, 200);
    caller_close(&front, &caller);
}

static void a_long_poll_ends_with_the_program_or_the_time(void **state)
{
    scoped(free) char *id = run_in_background("{\"argv\":[\"/bin/sleep\"],\"background\":true}");
    scoped(free) char *text = xasprintf(
        "GET /api/v1/sessions/%s/executions/%s?wait=5 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        session_id(session), id);
    struct caller first, second;
    struct answer answer = { 0 };

    (void)state;
    caller_send(&front, &first, false, text, strlen(text));
    assert_false(caller_poll(&front, &first, &answer));
    world_advance(&front.world, 5001);
    assert_true(caller_poll(&front, &first, &answer));
    assert_string_equal(text_of(&answer, "state"), "running");
    answer_fini(&answer);
    caller_close(&front, &first);

    caller_send(&front, &second, false, text, strlen(text));
    assert_false(caller_poll(&front, &second, &answer));
    fake_program_exit(fake_programs_last(), 0);
    assert_true(caller_poll(&front, &second, &answer));
    assert_string_equal(text_of(&answer, "state"), "exited");
    answer_fini(&answer);
    caller_close(&front, &second);
}

static void an_ended_execution_is_answered_from_its_record(void **state)
{
    scoped(free) char *id = run_in_background("{\"argv\":[\"/bin/echo\"],\"background\":true}");
    struct answer answer;

    (void)state;
    fake_program_write(fake_programs_last(), "kept");
    fake_program_exit(fake_programs_last(), 2);
    world_settle(&front.world);
    assert_null(execution_find(front.world.core, session_id(session), id));
    answer = get(id, "");
    assert_int_equal(answer.status, 200);
    assert_string_equal(text_of(&answer, "stdout"), "kept");
    assert_int_equal(json_integer_value(json_object_get(answer.json, "exit_code")), 2);
    answer_fini(&answer);
}

static void a_repeated_key_gives_the_same_execution_also_after_its_end(void **state)
{
    static const char body[] = "{\"argv\":[\"/bin/echo\"],\"background\":true,\"key\":\"once\"}";
    scoped(free) char *id = run_in_background(body);
    scoped(free) char *path = executions("");
    scoped(answer_fini) struct answer running = { 0 };
    scoped(answer_fini) struct answer ended = { 0 };

    (void)state;
    running = call(&front, "POST", path, "", body);
    assert_int_equal(running.status, 200);
    assert_string_equal(text_of(&running, "id"), id);
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&front.world);
    ended = call(&front, "POST", path, "", body);
    assert_int_equal(ended.status, 200);
    assert_string_equal(text_of(&ended, "id"), id);
}

static void check_second_page(const char *cursor, const char *id)
{
    scoped(free) char *query = xasprintf("?limit=1&cursor=%s", cursor);
    scoped(free) char *path = executions(query);
    struct answer page = call(&front, "GET", path, "", NULL);
    json_t *items = json_object_get(page.json, "executions");

    assert_int_equal(json_array_size(items), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(items, 0), "id")), id);
    assert_true(json_is_null(json_object_get(page.json, "next_cursor")));
    answer_fini(&page);
}

static void executions_are_listed_newest_first_in_pages(void **state)
{
    scoped(free) char *first = run_in_background("{\"argv\":[\"a\"],\"background\":true}");
    scoped(free) char *second = NULL;
    scoped(free) char *path = executions("?limit=1");
    scoped(answer_fini) struct answer page = { 0 };
    json_t *items;

    (void)state;
    assert_non_null(first);
    world_advance(&front.world, 10);
    second = run_in_background("{\"argv\":[\"b\"],\"background\":true}");
    page = call(&front, "GET", path, "", NULL);
    items = json_object_get(page.json, "executions");
    assert_int_equal(json_array_size(items), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(items, 0), "id")), second);
    check_second_page(text_of(&page, "next_cursor"), first);
}

static void an_unknown_execution_is_not_found(void **state)
{
    struct answer wrong = get("nonsense", ""), missing = get("exe_00000000000000000000000000", "");

    (void)state;
    assert_int_equal(wrong.status, 404);
    assert_int_equal(missing.status, 404);
    assert_string_equal(error_code_of(&missing), "execution_not_found");
    answer_fini(&wrong);
    answer_fini(&missing);
}

static void delete_cancels_and_answers_when_it_has_ended(void **state)
{
    scoped(free) char *id = run_in_background("{\"argv\":[\"a\"],\"background\":true}");
    scoped(free) char *tail = xasprintf("/%s", id);
    scoped(free) char *path = executions(tail);
    scoped(answer_fini) struct answer answer = call(&front, "DELETE", path, "", NULL);

    (void)state;
    assert_int_equal(answer.status, 200);
    assert_string_equal(text_of(&answer, "state"), "cancelled");
}

static void a_cancellation_that_is_not_waited_for_is_answered_once_it_is_durable(void **state)
{
    scoped(free) char *id = run_in_background("{\"argv\":[\"a\"],\"background\":true}");
    scoped(free) char *text = xasprintf("DELETE /api/v1/sessions/%s/executions/%s?wait_seconds=0 "
                                        "HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                        session_id(session), id);
    scoped(answer_fini) struct answer answer = { 0 };
    struct caller caller;

    (void)state;
    fake_programs_last()->ignores_term = true;
    fake_store_hold(front.world.store, true);
    caller_send(&front, &caller, false, text, strlen(text));
    assert_false(caller_poll(&front, &caller, &answer));
    fake_store_hold(front.world.store, false);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_int_equal(answer.status, 200);
    assert_string_equal(text_of(&answer, "state"), "running");
    caller_close(&front, &caller);
}

/* --- output ---------------------------------------------------------------------------------- */

static void output_is_read_by_offset_while_it_runs_and_after(void **state)
{
    scoped(free) char *id = run_in_background("{\"argv\":[\"a\"],\"background\":true}");
    struct answer part, rest, beyond, other, after, wrong;

    (void)state;
    fake_program_write(fake_programs_last(), "0123456789");
    world_settle(&front.world);
    part = get(id, "/output?offset=2&limit=3");
    rest = get(id, "/output?stream=stdout&offset=5");
    beyond = get(id, "/output?offset=11");
    other = get(id, "/output?stream=stderr");
    wrong = get(id, "/output?stream=stdlog");
    assert_string_equal(part.body, "234");
    assert_string_equal(rest.body, "56789");
    assert_non_null(strstr(rest.head, "X-Sandglass-Offset: 5"));
    assert_int_equal(beyond.status, 416);
    assert_int_equal(other.status, 200);
    assert_int_equal(other.length, 0);
    assert_int_equal(wrong.status, 400);
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&front.world);
    after = get(id, "/output?follow=1");
    assert_string_equal(after.body, "0123456789");
    answer_fini(&part);
    answer_fini(&rest);
    answer_fini(&beyond);
    answer_fini(&other);
    answer_fini(&after);
    answer_fini(&wrong);
}

static void a_follower_gets_bytes_as_they_come_until_the_end(void **state)
{
    scoped(free) char *id = run_in_background("{\"argv\":[\"a\"],\"background\":true}");
    scoped(free) char *text = xasprintf(
        "GET /api/v1/sessions/%s/executions/%s/output?follow=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        session_id(session), id);
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    caller_send(&front, &caller, false, text, strlen(text));
    fake_program_write(fake_programs_last(), "one ");
    assert_false(caller_poll(&front, &caller, &answer));
    assert_non_null(strstr(caller.bytes, "one "));
    fake_program_write(fake_programs_last(), "two");
    fake_program_exit(fake_programs_last(), 0);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_string_equal(answer.body, "one two");
    caller_close(&front, &caller);
}

static void a_dropped_middle_is_announced_and_left_out(void **state)
{
    scoped(free) char *id = run_in_background("{\"argv\":[\"a\"],\"background\":true}");
    static char block[65536];
    struct answer all, inside;
    unsigned long long start, end;
    const char *gap;

    (void)state;
    memset(block, 'x', sizeof(block) - 1);
    for (int i = 0; i < 80; i++) {
        fake_program_write(fake_programs_last(), block);
        world_settle(&front.world);
    }
    all = get(id, "/output");
    gap = strstr(all.head, "X-Sandglass-Gap: ");
    assert_non_null(gap);
    assert_int_equal(sscanf(gap + 17, "%llu-%llu", &start, &end), 2);
    assert_int_equal(all.length, 80 * 65535 - (end - start));
    inside = get(id, "/output?offset=600000");
    assert_int_equal(inside.length, 80 * 65535 - end);
    answer_fini(&all);
    answer_fini(&inside);
}

static void a_running_execution_is_followed_from_offsets(void **state)
{
    scoped(free) char *id = run_in_background("{\"argv\":[\"a\"],\"background\":true}");
    scoped(free) char *tail = xasprintf("/%s/stream?stdout=2", id);
    scoped(free) char *path = executions(tail);
    scoped(free) char *text = xasprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    scoped(answer_fini) struct answer answer = { 0 };
    struct answer beyond;
    struct caller caller;

    (void)state;
    fake_program_write(fake_programs_last(), "hello");
    world_settle(&front.world);
    beyond = get(id, "/stream?stderr=1");
    assert_int_equal(beyond.status, 416);
    answer_fini(&beyond);

    caller_send(&front, &caller, false, text, strlen(text));
    assert_false(caller_poll(&front, &caller, &answer));
    fake_program_write(fake_programs_last(), "!");
    assert_false(caller_poll(&front, &caller, &answer));
    fake_program_exit(fake_programs_last(), 0);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_non_null(strstr(answer.body, "{\"offset\":2,\"text\":\"llo\"}"));
    assert_non_null(strstr(answer.body, "{\"offset\":5,\"text\":\"!\"}"));
    assert_non_null(strstr(answer.body, "event: exit"));
    caller_close(&front, &caller);
}

static void live_events_tell_bytes_and_the_end(void **state)
{
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };
    struct fake_program *program;

    (void)state;
    begin(&caller, "", "Accept: text/event-stream\r\n", "{\"argv\":[\"a\"]}");
    assert_false(caller_poll(&front, &caller, &answer));
    program = fake_programs_last();
    fake_program_write(program, "gr\xc3");
    assert_false(caller_poll(&front, &caller, &answer));
    fake_program_write(program, "\xbc\xc3\x9f");
    assert_false(caller_poll(&front, &caller, &answer));
    assert_int_equal(write(program->errors, "\xff", 1), 1);
    assert_false(caller_poll(&front, &caller, &answer));
    fake_program_exit(program, 4);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_non_null(strstr(answer.head, "text/event-stream"));
    assert_non_null(strstr(answer.body, "event: started"));
    assert_non_null(strstr(answer.body, "event: stdout\ndata: {\"offset\":0,\"text\":\"gr\"}"));
    assert_non_null(strstr(answer.body, "{\"offset\":2,\"text\":\"üß\"}"));
    assert_non_null(strstr(answer.body, "event: stderr\ndata: {\"offset\":0,\"base64\":\"/w==\"}"));
    assert_non_null(strstr(answer.body, "event: exit"));
    assert_non_null(strstr(answer.body, "\"exit_code\":4"));
    caller_close(&front, &caller);
}

/* --- input, signals -------------------------------------------------------------------------- */

static void input_reaches_the_program_and_is_closed(void **state)
{
    scoped(free) char *id =
        run_in_background("{\"argv\":[\"cat\"],\"background\":true,\"stdin\":true}");
    static const char octets[] = "Content-Type: application/octet-stream\r\n";
    struct answer first = post(id, "/stdin", octets, "one ");
    struct answer last = post(id, "/stdin?eof=1", octets, "two");
    struct answer late = post(id, "/stdin", octets, "three");
    struct answer wrong_type = post(id, "/stdin", "Content-Type: text/plain\r\n", "x");
    char text[32] = "";

    (void)state;
    assert_int_equal(first.status, 200);
    assert_int_equal(json_integer_value(json_object_get(first.json, "written")), 4);
    assert_int_equal(last.status, 200);
    assert_int_equal(late.status, 409);
    assert_string_equal(error_code_of(&late), "stdin_closed");
    assert_int_equal(wrong_type.status, 415);
    assert_int_equal(read(fake_programs_last()->input, text, sizeof(text) - 1), 7);
    assert_string_equal(text, "one two");
    assert_int_equal(read(fake_programs_last()->input, text, sizeof(text)), 0);
    answer_fini(&first);
    answer_fini(&last);
    answer_fini(&late);
    answer_fini(&wrong_type);
}

static void more_input_than_the_pipe_holds_waits_for_the_program(void **state)
{
    scoped(free) char *id =
        run_in_background("{\"argv\":[\"cat\"],\"background\":true,\"stdin\":true}");
    enum { SIZE = 1 << 20 };
    scoped(free) char *head = xasprintf(
        "POST /api/v1/sessions/%s/executions/%s/stdin?eof=1 HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n",
        session_id(session), id, SIZE);
    scoped(free) char *body = xcalloc(1, SIZE);
    scoped(answer_fini) struct answer answer = { 0 };
    struct caller caller;
    size_t sent = 0, got = 0;
    bool answered = false;

    (void)state;
    caller_send(&front, &caller, false, head, strlen(head));
    fcntl(fake_programs_last()->input, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 5000 && !answered; i++) {
        static char bytes[65536];
        ssize_t count = sent < SIZE ? write(caller.fd, body + sent, SIZE - sent) : 0;

        sent += count > 0 ? (size_t)count : 0;
        if (i > 20 && (count = read(fake_programs_last()->input, bytes, sizeof(bytes))) > 0)
            got += (size_t)count;
        answered = caller_poll(&front, &caller, &answer);
    }
    for (ssize_t count = 1; count > 0;) {
        static char bytes[65536];

        count = read(fake_programs_last()->input, bytes, sizeof(bytes));
        got += count > 0 ? (size_t)count : 0;
    }
    assert_int_equal(got, SIZE);
    assert_int_equal(answer.status, 200);
    assert_int_equal(json_integer_value(json_object_get(answer.json, "written")), SIZE);
    caller_close(&front, &caller);
}

static void signals_come_by_name_and_by_number(void **state)
{
    static const char *const bodies[] = { "{\"signal\":\"SIGUSR1\"}", "{\"signal\":\"usr1\"}",
                                          "{\"signal\":10}", "{\"signal\":\"10\"}" };
    static const char *const wrong[] = { "{}",
                                         "{\"signal\":\"SIGNONE\"}",
                                         "{\"signal\":0}",
                                         "{\"signal\":4000}",
                                         "{\"signal\":true}",
                                         "{\"signal\":10,\"odd\":1}" };
    scoped(free) char *id = run_in_background("{\"argv\":[\"a\"],\"background\":true}");

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bodies); i++) {
        struct answer answer = post(id, "/signal", "", bodies[i]);

        assert_int_equal(answer.status, 200);
        world_settle(&front.world);
        assert_int_equal(fake_programs_last()->signals[i], SIGUSR1);
        answer_fini(&answer);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        struct answer answer = post(id, "/signal", "", wrong[i]);

        assert_int_equal(answer.status, 400);
        answer_fini(&answer);
    }
}

/* --- execute --------------------------------------------------------------------------------- */

static void begin_execute(struct caller *caller, const char *body)
{
    scoped(free) char *text =
        xasprintf("POST /api/v1/execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                  "application/json\r\nContent-Length: %zu\r\n\r\n%s",
                  strlen(body), body);

    caller_send(&front, caller, false, text, strlen(text));
}

static void execute_makes_a_session_and_keeps_it(void **state)
{
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    begin_execute(&caller, "{\"code\":\"print(1)\"}");
    assert_false(caller_poll(&front, &caller, &answer));
    assert_string_equal(fake_programs_last()->script, "print(1)");
    fake_program_write(fake_programs_last(), "1\n");
    fake_program_exit(fake_programs_last(), 1);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_int_equal(answer.status, 200);
    assert_string_equal(text_of(&answer, "stdout"), "1\n");
    assert_int_equal(json_integer_value(json_object_get(answer.json, "exit_code")), 1);
    assert_non_null(world_find(&front.world, text_of(&answer, "session_id")));
    assert_true(json_number_value(json_object_get(answer.json, "session_ttl_remaining")) > 0);
    caller_close(&front, &caller);
}

static void execute_that_times_out_says_so_and_takes_its_session_away(void **state)
{
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    begin_execute(&caller, "{\"code\":\"loop\",\"timeout\":2}");
    assert_false(caller_poll(&front, &caller, &answer));
    world_advance(&front.world, 2001);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_string_equal(text_of(&answer, "state"), "timeout");
    assert_non_null(strstr(error_of(&answer), "timed out"));
    assert_true(json_is_true(json_object_get(answer.json, "session_ended")));
    assert_null(world_find(&front.world, text_of(&answer, "session_id")));
    caller_close(&front, &caller);
}

static void an_ephemeral_execute_is_answered_when_its_session_is_gone(void **state)
{
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    begin_execute(&caller, "{\"code\":\"print(1)\",\"ephemeral\":true}");
    assert_false(caller_poll(&front, &caller, &answer));
    assert_int_equal(front.world.core->sessions_by_id.count, 2);
    fake_program_write(fake_programs_last(), "1\n");
    fake_program_exit(fake_programs_last(), 0);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_string_equal(text_of(&answer, "stdout"), "1\n");
    assert_true(json_is_true(json_object_get(answer.json, "session_ended")));
    assert_true(json_is_null(json_object_get(answer.json, "session_ttl_remaining")));
    assert_int_equal(front.world.core->sessions_by_id.count, 1);
    caller_close(&front, &caller);
}

static void execute_in_a_session_keeps_it_whatever_happens(void **state)
{
    scoped(free) char *body =
        xasprintf("{\"code\":\"loop\",\"timeout\":2,\"session_id\":\"%s\"}", session_id(session));
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    begin_execute(&caller, body);
    assert_false(caller_poll(&front, &caller, &answer));
    world_advance(&front.world, 2001);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_string_equal(text_of(&answer, "state"), "timeout");
    assert_non_null(world_find(&front.world, session_id(session)));
    caller_close(&front, &caller);
}

static void execute_refuses_what_it_cannot_do_before_it_makes_a_session(void **state)
{
    static const struct body_case cases[] = {
        { "{}", "code" },
        { "{\"code\":\"\"}", "code" },
        { "{\"code\":\"1\",\"language\":\"cobol\"}", "language" },
        { "{\"code\":\"1\",\"timeout\":-1}", "timeout" },
        { "{\"code\":\"1\",\"session_id\":\"x\",\"key\":\"y\"}", "session_id" },
        { "{\"code\":\"1\",\"argv\":[]}", "argv" },
        { "{\"code\":\"1\",\"env\":{\"A=B\":\"c\"}}", "env" },
        { "{\"code\":\"1\",\"secrets\":{\"\":\"c\"}}", "secrets" },
        { "{\"code\":\"1\",\"ephemeral\":1}", "ephemeral" },
        { "{\"code\":\"1\",\"ephemeral\":true,\"key\":\"y\"}", "ephemeral" },
    };
    scoped(answer_fini) struct answer unknown =
        call(&front, "POST", "/api/v1/execute", "",
             "{\"code\":\"1\",\"session_id\":\"ses_00000000000000000000000000\"}");

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct answer answer = call(&front, "POST", "/api/v1/execute", "", cases[i].body);

        assert_int_equal(answer.status, 400);
        assert_non_null(strstr(error_message_of(&answer), cases[i].word));
        answer_fini(&answer);
        assert_int_equal(front.world.core->sessions_by_id.count, 1);
    }
    assert_int_equal(unknown.status, 404);
    assert_non_null(strstr(error_message_of(&unknown), "not found"));
    assert_int_equal(front.world.core->sessions_by_id.count, 1);
}

static void a_client_that_leaves_takes_the_session_of_its_execute_along(void **state)
{
    struct caller caller;
    struct answer answer;

    (void)state;
    begin_execute(&caller, "{\"code\":\"loop\"}");
    assert_false(caller_poll(&front, &caller, &answer));
    assert_int_equal(front.world.core->sessions_by_id.count, 2);
    caller_close(&front, &caller);
    world_settle(&front.world);
    assert_int_equal(front.world.core->sessions_by_id.count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(a_waiting_caller_gets_the_end_with_the_output),
        TEST(a_caller_who_is_to_come_back_does_not_stop_the_program),
        TEST(a_caller_stops_the_program_by_leaving),
        TEST(a_failed_start_is_an_error_with_its_status),
        TEST(what_is_not_found_is_an_execution_not_an_error),
        TEST(wrong_bodies_are_refused_with_the_field),
        TEST(a_background_execution_is_answered_once_it_is_durable),
        TEST(a_stream_begins_when_its_execution_is_recorded),
        TEST(a_result_is_told_when_it_is_recorded),
        TEST(whatever_was_changed_is_written_before_an_answer),
        TEST(a_long_poll_ends_with_the_program_or_the_time),
        TEST(an_ended_execution_is_answered_from_its_record),
        TEST(a_repeated_key_gives_the_same_execution_also_after_its_end),
        TEST(executions_are_listed_newest_first_in_pages),
        TEST(an_unknown_execution_is_not_found),
        TEST(delete_cancels_and_answers_when_it_has_ended),
        TEST(a_cancellation_that_is_not_waited_for_is_answered_once_it_is_durable),
        TEST(output_is_read_by_offset_while_it_runs_and_after),
        TEST(a_follower_gets_bytes_as_they_come_until_the_end),
        TEST(a_dropped_middle_is_announced_and_left_out),
        TEST(a_running_execution_is_followed_from_offsets),
        TEST(live_events_tell_bytes_and_the_end),
        TEST(input_reaches_the_program_and_is_closed),
        TEST(more_input_than_the_pipe_holds_waits_for_the_program),
        TEST(signals_come_by_name_and_by_number),
        TEST(execute_makes_a_session_and_keeps_it),
        TEST(execute_that_times_out_says_so_and_takes_its_session_away),
        TEST(an_ephemeral_execute_is_answered_when_its_session_is_gone),
        TEST(execute_in_a_session_keeps_it_whatever_happens),
        TEST(execute_refuses_what_it_cannot_do_before_it_makes_a_session),
        TEST(a_client_that_leaves_takes_the_session_of_its_execute_along),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
