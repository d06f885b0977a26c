/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/sandbox/sandbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct front front;

static int setup(void **state)
{
    (void)state;
    front_start(&front);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    front_stop(&front);
    return 0;
}

static char *create(const char *body)
{
    scoped(answer_fini) struct answer answer = call(&front, "POST", "/api/v1/sessions", "", body);

    assert_int_equal(answer.status, 201);
    return xstrdup(json_string_value(json_object_get(answer.json, "id")));
}

static char *target(const char *session, const char *rest)
{
    return xasprintf("/api/v1/sessions/%s%s", session, rest);
}

static json_int_t total(void)
{
    scoped(answer_fini) struct answer answer = call(&front, "GET", "/api/v1/sessions", "", NULL);

    return json_integer_value(json_object_get(answer.json, "total"));
}

struct field_case {
    const char *body;
    const char *field;
};

static void a_wrong_field_is_named_and_changes_nothing(void **state)
{
    static const struct field_case cases[] = {
        { "{\"nonsense\":1}", "nonsense" },
        { "{\"memory\":\"much\"}", "memory" },
        { "{\"memory\":-1}", "memory" },
        { "{\"memory\":1}", "memory" },
        { "{\"memory\":1.5}", "memory" },
        { "{\"memory\":1e999}", "JSON" },
        { "{\"cpus\":0}", "cpus" },
        { "{\"cpus\":\"1\"}", "cpus" },
        { "{\"cpus\":-0.5}", "cpus" },
        { "{\"pids\":1.5}", "pids" },
        { "{\"pids\":9223372036854775807}", "pids" },
        { "{\"pids\":9223372036854775808}", "JSON" },
        { "{\"timeout\":-1}", "timeout" },
        { "{\"timeout\":\"soon\"}", "timeout" },
        { "{\"timeout\":9223372036854775807}", "timeout" },
        { "{\"idle_timeout\":1e300}", "idle_timeout" },
        { "{\"max_lifetime\":true}", "max_lifetime" },
        { "{\"labels\":{\"a\":1}}", "labels" },
        { "{\"labels\":[]}", "labels" },
        { "{\"labels\":{\"\":\"x\"}}", "labels" },
        { "{\"env\":[\"A=1\"]}", "env" },
        { "{\"env\":{\"A=B\":\"1\"}}", "env" },
        { "{\"network\":\"wide\"}", "network" },
        { "{\"on_timeout\":\"explode\"}", "on_timeout" },
        { "{\"template\":\"../../etc\"}", "template" },
        { "{\"template\":\"..\"}", "template" },
        { "{\"key\":\"\"}", "key" },
        { "{\"key\":5}", "key" },
        { "{\"key\":\"a\\u0000b\"}", "" },
        { "{\"preload\":\"yes\"}", "preload" },
        { "{\"flavor\":\"none-such\"}", "flavor" },
        { "{\"backend\":\"none-such\"}", "backend" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        scoped(answer_fini) struct answer answer =
            call(&front, "POST", "/api/v1/sessions", "", cases[i].body);

        if (answer.status != 400 || !strstr(error_message_of(&answer), cases[i].field))
            print_message("%s: %s\n", cases[i].body, answer.body);
        assert_int_equal(answer.status, 400);
        assert_non_null(strstr(error_message_of(&answer), cases[i].field));
    }
    assert_int_equal(total(), 0);
}

static void a_misspelt_field_comes_with_the_nearest_one(void **state)
{
    scoped(answer_fini) struct answer answer =
        call(&front, "POST", "/api/v1/sessions", "", "{\"memmory\":\"1g\"}");

    (void)state;
    assert_non_null(strstr(answer.body, "did you mean \\\"memory_bytes\\\""));
}

static void a_session_is_made_found_and_listed(void **state)
{
    scoped(free) char *id =
        create("{\"key\":\"nb\",\"labels\":{\"team\":\"red\"},\"memory\":\"64m\"}");
    scoped(free) char *path = target(id, "");
    scoped(answer_fini) struct answer one = call(&front, "GET", path, "", NULL);
    scoped(answer_fini) struct answer by_key =
        call(&front, "GET", "/api/v1/sessions/key:nb", "", NULL);
    scoped(answer_fini) struct answer red =
        call(&front, "GET", "/api/v1/sessions?label=team=red", "", NULL);
    scoped(answer_fini) struct answer blue =
        call(&front, "GET", "/api/v1/sessions?label=team=blue", "", NULL);

    (void)state;
    assert_int_equal(one.status, 200);
    assert_string_equal(json_string_value(json_object_get(by_key.json, "id")), id);
    assert_int_equal(json_array_size(json_object_get(red.json, "sessions")), 1);
    assert_int_equal(json_array_size(json_object_get(blue.json, "sessions")), 0);
}

static void the_same_key_gives_200_and_other_limits_409(void **state)
{
    scoped(free) char *id = create("{\"key\":\"nb\",\"memory\":\"64m\"}");
    scoped(answer_fini) struct answer same =
        call(&front, "POST", "/api/v1/sessions", "", "{\"key\":\"nb\"}");
    scoped(answer_fini) struct answer other =
        call(&front, "POST", "/api/v1/sessions", "", "{\"key\":\"nb\",\"memory\":\"65m\"}");

    (void)state;
    assert_int_equal(same.status, 200);
    assert_string_equal(json_string_value(json_object_get(same.json, "id")), id);
    assert_int_equal(other.status, 409);
    assert_string_equal(error_code_of(&other), "parameters_differ");
}

static void pages_follow_each_other_without_a_gap(void **state)
{
    char *cursor = xstrdup("0");
    size_t seen = 0;

    (void)state;
    for (int i = 0; i < 5; i++) {
        free(create("{}"));
        world_advance(&front.world, 1);
    }
    while (cursor) {
        scoped(free) char *path = xasprintf("/api/v1/sessions?limit=2&cursor=%s", cursor);
        scoped(answer_fini) struct answer page = call(&front, "GET", path, "", NULL);
        const char *next = json_string_value(json_object_get(page.json, "next_cursor"));

        seen += json_array_size(json_object_get(page.json, "sessions"));
        free(cursor);
        cursor = next ? xstrdup(next) : NULL;
        assert_true(seen <= 5);
    }
    assert_int_equal(seen, 5);
}

/* The last one of each page ends before the next page is asked for, and the clock is set meanwhile.
 */
static void pages_have_no_gap_when_the_clock_is_set_and_sessions_end(void **state)
{
    static const int64_t hours[] = { -48, 24, -1, 0, -3, 5 };
    char *ids[ARRAY_LENGTH(hours)];
    char *cursor = xstrdup("0");
    size_t seen = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(hours); i++) {
        front.world.clock.wall_us += hours[i] * 3600 * 1000 * 1000;
        ids[i] = create("{}");
        world_advance(&front.world, 1);
    }
    while (cursor) {
        scoped(free) char *path = xasprintf("/api/v1/sessions?limit=1&cursor=%s", cursor);
        scoped(answer_fini) struct answer page = call(&front, "GET", path, "", NULL);
        const char *next = json_string_value(json_object_get(page.json, "next_cursor"));
        json_t *shown = json_array_get(json_object_get(page.json, "sessions"), 0);
        scoped(free) char *ended = target(ids[seen], "");
        scoped(answer_fini) struct answer gone = { 0 };

        assert_string_equal(json_string_value(json_object_get(shown, "id")), ids[seen]);
        gone = call(&front, "DELETE", ended, "", NULL);
        assert_int_equal(gone.status, 200);
        free(cursor);
        cursor = next ? xstrdup(next) : NULL;
        free(ids[seen++]);
        assert_true(seen <= ARRAY_LENGTH(hours));
    }
    assert_int_equal(seen, ARRAY_LENGTH(hours));
}

static void a_deleted_session_can_be_looked_at_and_deleted_again(void **state)
{
    scoped(free) char *id = create("{}");
    scoped(free) char *path = target(id, "");
    scoped(answer_fini) struct answer gone = call(&front, "DELETE", path, "", NULL);
    scoped(answer_fini) struct answer after = call(&front, "GET", path, "", NULL);
    scoped(answer_fini) struct answer again = call(&front, "DELETE", path, "", NULL);
    scoped(free) char *use = target(id, "/keepalive");
    scoped(answer_fini) struct answer used =
        call(&front, "POST", use, "Content-Type: application/json\r\n", "{}");
    json_t *session = json_object_get(used.json, "session");

    (void)state;
    assert_int_equal(gone.status, 200);
    assert_string_equal(json_string_value(json_object_get(gone.json, "state")), "ended");
    assert_int_equal(after.status, 200);
    assert_true(json_equal(after.json, gone.json));
    assert_int_equal(again.status, 200);
    assert_true(json_equal(again.json, gone.json));
    assert_int_equal(used.status, 410);
    assert_string_equal(error_code_of(&used), "session_ended");
    assert_non_null(strstr(error_message_of(&used), "deleted"));
    assert_string_equal(json_string_value(json_object_get(session, "id")), id);
}

static void delete_answers_only_when_the_sandbox_is_gone(void **state)
{
    scoped(free) char *id = create("{\"preload\":true}");
    scoped(free) char *text =
        xasprintf("DELETE /api/v1/sessions/%s HTTP/1.1\r\nHost: localhost\r\n\r\n", id);
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    world_settle(&front.world);
    fake_backend_hold(front.world.backend, FAKE_DESTROY, true);
    caller_send(&front, &caller, false, text, strlen(text));
    assert_false(caller_poll(&front, &caller, &answer));
    fake_backend_hold(front.world.backend, FAKE_DESTROY, false);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_int_equal(answer.status, 200);
    caller_close(&front, &caller);
}

static char *get_request(const char *id)
{
    return xasprintf("GET /api/v1/sessions/%s HTTP/1.1\r\nHost: localhost\r\n\r\n", id);
}

/* A backend that has to ask another machine for it. */
static void a_session_is_shown_when_its_report_has_come(void **state)
{
    scoped(free) char *id = create("{\"preload\":true}");
    scoped(free) char *text = get_request(id);
    scoped(answer_fini) struct answer answer = { 0 };
    struct caller caller;

    (void)state;
    world_settle(&front.world);
    fake_backend_answer_later(front.world.backend);
    fake_backend_hold(front.world.backend, FAKE_REPORT, true);
    caller_send(&front, &caller, false, text, strlen(text));
    assert_false(caller_poll(&front, &caller, &answer));
    fake_backend_hold(front.world.backend, FAKE_REPORT, false);
    assert_true(caller_poll(&front, &caller, &answer));
    assert_int_equal(answer.status, 200);
    assert_true(
        json_is_object(json_object_get(json_object_get(answer.json, "sandbox"), "isolation")));
    caller_close(&front, &caller);
}

static void a_session_whose_sandbox_ends_meanwhile_is_shown_without_a_report(void **state)
{
    scoped(free) char *id = create("{\"preload\":true}");
    scoped(free) char *text = get_request(id);
    scoped(answer_fini) struct answer answer = { 0 };
    const struct session *session;
    struct caller caller;

    (void)state;
    world_settle(&front.world);
    session = world_find(&front.world, id);
    fake_backend_answer_later(front.world.backend);
    fake_backend_hold(front.world.backend, FAKE_REPORT, true);
    caller_send(&front, &caller, false, text, strlen(text));
    assert_false(caller_poll(&front, &caller, &answer));
    fake_backend_kill(front.world.backend, sandbox_id(session_sandbox(session)));
    assert_true(caller_poll(&front, &caller, &answer));
    assert_int_equal(answer.status, 200);
    assert_true(
        json_is_null(json_object_get(json_object_get(answer.json, "sandbox"), "isolation")));
    caller_close(&front, &caller);
}

/* Whoever left is not answered, and what was begun for them ends. */
static void a_client_that_leaves_does_not_wait_for_a_report(void **state)
{
    scoped(free) char *id = create("{\"preload\":true}");
    scoped(free) char *text = get_request(id);
    struct answer answer = { 0 };
    struct caller caller;

    (void)state;
    world_settle(&front.world);
    fake_backend_answer_later(front.world.backend);
    fake_backend_hold(front.world.backend, FAKE_REPORT, true);
    caller_send(&front, &caller, false, text, strlen(text));
    assert_false(caller_poll(&front, &caller, &answer));
    caller_close(&front, &caller);
    fake_backend_hold(front.world.backend, FAKE_REPORT, false);
    world_settle(&front.world);
}

static void many_are_deleted_by_label_and_counted(void **state)
{
    scoped(free) char *red = create("{\"labels\":{\"team\":\"red\"}}");
    scoped(free) char *blue = create("{\"labels\":{\"team\":\"blue\"}}");
    scoped(answer_fini) struct answer dry =
        call(&front, "DELETE", "/api/v1/sessions?label=team=red&dry_run=1", "", NULL);
    scoped(answer_fini) struct answer idle =
        call(&front, "DELETE", "/api/v1/sessions?idle_longer_than=1h", "", NULL);
    scoped(answer_fini) struct answer wet =
        call(&front, "DELETE", "/api/v1/sessions?label=team=red", "", NULL);

    (void)state;
    assert_int_equal(json_array_size(json_object_get(dry.json, "destroyed")), 1);
    assert_int_equal(json_array_size(json_object_get(idle.json, "destroyed")), 0);
    assert_int_equal(json_array_size(json_object_get(idle.json, "skipped")), 2);
    assert_int_equal(json_array_size(json_object_get(wet.json, "destroyed")), 1);
    assert_int_equal(total(), 1);
    assert_null(world_find(&front.world, red));
    assert_non_null(world_find(&front.world, blue));
}

static void deleting_nothing_is_fine(void **state)
{
    scoped(answer_fini) struct answer answer = call(&front, "DELETE", "/api/v1/sessions", "", NULL);

    (void)state;
    assert_int_equal(answer.status, 200);
    assert_int_equal(json_array_size(json_object_get(answer.json, "destroyed")), 0);
}

static void a_lease_is_extended_and_never_shortened_unless_exact(void **state)
{
    scoped(free) char *id = create("{\"timeout\":100}");
    scoped(free) char *path = target(id, "/keepalive");
    scoped(answer_fini) struct answer shorter = call(&front, "POST", path, "", "{\"timeout\":10}");
    scoped(answer_fini) struct answer exact =
        call(&front, "POST", path, "", "{\"timeout\":10,\"exact\":true}");

    (void)state;
    assert_true(json_number_value(json_object_get(shorter.json, "time_remaining")) > 90);
    assert_true(json_number_value(json_object_get(exact.json, "time_remaining")) <= 10);
}

static void policy_is_patched_and_unknown_fields_are_refused(void **state)
{
    scoped(free) char *id = create("{}");
    scoped(free) char *path = target(id, "");
    scoped(answer_fini) struct answer changed =
        call(&front, "PATCH", path, "", "{\"labels\":{\"a\":\"b\"},\"idle_timeout\":60}");
    scoped(answer_fini) struct answer refused =
        call(&front, "PATCH", path, "", "{\"memory\":\"1g\"}");

    (void)state;
    assert_int_equal(changed.status, 200);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(changed.json, "labels"), "a")), "b");
    assert_int_equal(refused.status, 400);
    assert_string_equal(error_code_of(&refused), "unknown_field");
}

static void events_of_a_session_are_replayed_from_a_number(void **state)
{
    scoped(free) char *id = create("{}");
    scoped(free) char *all_path = target(id, "/events?follow=0");
    scoped(answer_fini) struct answer all = call(&front, "GET", all_path, "", NULL);
    scoped(answer_fini) struct answer rest =
        call(&front, "GET", all_path, "Last-Event-ID: 100000\r\n", NULL);
    scoped(answer_fini) struct answer wrong =
        call(&front, "GET", all_path, "Last-Event-ID: x\r\n", NULL);

    (void)state;
    assert_int_equal(all.status, 200);
    assert_non_null(strstr(all.head, "text/event-stream"));
    assert_non_null(strstr(all.body, "event: session.created"));
    assert_null(strstr(rest.body, "event:"));
    assert_int_equal(wrong.status, 400);
}

static void live_events_arrive_as_they_happen(void **state)
{
    static const char text[] = "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct caller caller;
    scoped(answer_fini) struct answer answer = { 0 };

    (void)state;
    caller_send(&front, &caller, false, text, strlen(text));
    assert_false(caller_poll(&front, &caller, &answer));
    free(create("{}"));
    assert_false(caller_poll(&front, &caller, &answer));
    assert_non_null(strstr(caller.bytes, "event: session.created"));
    caller_close(&front, &caller);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(a_wrong_field_is_named_and_changes_nothing),
        TEST(a_misspelt_field_comes_with_the_nearest_one),
        TEST(a_session_is_made_found_and_listed),
        TEST(the_same_key_gives_200_and_other_limits_409),
        TEST(pages_follow_each_other_without_a_gap),
        TEST(pages_have_no_gap_when_the_clock_is_set_and_sessions_end),
        TEST(a_deleted_session_can_be_looked_at_and_deleted_again),
        TEST(delete_answers_only_when_the_sandbox_is_gone),
        TEST(a_session_is_shown_when_its_report_has_come),
        TEST(a_session_whose_sandbox_ends_meanwhile_is_shown_without_a_report),
        TEST(a_client_that_leaves_does_not_wait_for_a_report),
        TEST(many_are_deleted_by_label_and_counted),
        TEST(deleting_nothing_is_fine),
        TEST(a_lease_is_extended_and_never_shortened_unless_exact),
        TEST(policy_is_patched_and_unknown_fields_are_refused),
        TEST(events_of_a_session_are_replayed_from_a_number),
        TEST(live_events_arrive_as_they_happen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
