/* SPDX-License-Identifier: Apache-2.0 */
#include "core/events.h"
#include "core/metrics.h"
#include "core/sandbox/sandbox.h"
#include "harness/fake_agent.h"
#include "harness/world.h"
#include "wire/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static int setup(void **state)
{
    static struct world world;

    world_init(&world);
    world_start(&world);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    fake_agent_be_silent(false);
    assert_int_equal(fake_agent_count(), 0);
    return 0;
}

enum { SEEN = 32 };

struct seen {
    struct events_watcher watcher;
    unsigned count;
    char types[SEEN][32];
    uint64_t sequences[SEEN];
    uint64_t session_sequences[SEEN];
    unsigned leave_after;
};

static void on_event(struct events_watcher *watcher, const struct event_record *event)
{
    struct seen *seen = container_of(watcher, struct seen, watcher);

    assert_true(seen->count < SEEN);
    snprintf(seen->types[seen->count], sizeof(seen->types[0]), "%s", event->type);
    seen->sequences[seen->count] = event->sequence;
    seen->session_sequences[seen->count++] = event->session_sequence;
    if (seen->leave_after == seen->count)
        events_unwatch(watcher);
}

static void watch(struct world *world, struct seen *seen)
{
    *seen = (struct seen){ .watcher.on_event = on_event };
    events_watch(world->core->events, &seen->watcher);
}

static void a_life_is_told_in_order_with_growing_numbers(void **state)
{
    static const char *const expected[] = { "session.created", "sandbox.creating", "sandbox.ready",
                                            "sandbox.destroyed", "session.ended" };
    struct world *world = *state;
    struct session *session;
    struct tried tried;
    struct ended ended;
    struct seen seen;

    watch(world, &seen);
    session = world_open_simple(world, "ann", NULL);
    world_use(world, session, &tried);
    session_hold_end(&tried.hold);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(seen.count, ARRAY_LENGTH(expected));
    for (unsigned i = 0; i < seen.count; i++) {
        assert_string_equal(seen.types[i], expected[i]);
        assert_int_equal(seen.session_sequences[i], i + 1);
        assert_true(i == 0 || seen.sequences[i] > seen.sequences[i - 1]);
    }
    events_unwatch(&seen.watcher);
}

static void an_event_is_durable_before_it_is_told(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct seen seen;

    watch(world, &seen);
    fake_store_hold(world->store, true);
    world_open(world, &request, &opened);
    assert_int_equal(seen.count, 0);
    fake_store_hold(world->store, false);
    world_settle(world);
    assert_int_equal(seen.count, 1);
    events_unwatch(&seen.watcher);
}

static void an_event_that_could_not_be_recorded_is_not_told(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct seen seen;

    watch(world, &seen);
    fake_store_fail_next(world->store, ERR_NO_SPACE);
    world_open(world, &request, &opened);
    assert_int_equal(seen.count, 0);
    events_unwatch(&seen.watcher);
}

static void a_watcher_hears_only_its_session_and_its_owner(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct seen one;
    struct seen anns;
    struct tried tried;

    watch(world, &one);
    memcpy(one.watcher.session_id, session_id(session), ID_SIZE);
    watch(world, &anns);
    anns.watcher.owner = "ann";
    world_open_simple(world, "bob", NULL);
    world_open_simple(world, "ann", NULL);
    assert_int_equal(one.count, 0);
    assert_int_equal(anns.count, 1);
    world_use(world, session, &tried);
    assert_int_equal(one.count, 2);
    assert_int_equal(anns.count, 3);
    events_unwatch(&one.watcher);
    events_unwatch(&anns.watcher);
    session_hold_end(&tried.hold);
}

static void a_watcher_may_leave_while_it_is_told(void **state)
{
    struct world *world = *state;
    struct seen leaving;
    struct seen staying;

    watch(world, &leaving);
    leaving.leave_after = 1;
    watch(world, &staying);
    world_open_simple(world, "ann", NULL);
    world_open_simple(world, "ann", NULL);
    assert_int_equal(leaving.count, 1);
    assert_int_equal(staying.count, 2);
    events_unwatch(&staying.watcher);
}

static void numbers_go_on_after_a_restart(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    uint64_t last = events_last(world->core->events);
    char id[ID_SIZE];
    struct tried tried;
    struct seen seen;

    memcpy(id, session_id(session), sizeof(id));
    world_restart(world);
    watch(world, &seen);
    world_use(world, world_find(world, id), &tried);
    assert_true(seen.sequences[0] > last);
    assert_int_equal(seen.session_sequences[0], 2);
    events_unwatch(&seen.watcher);
    session_hold_end(&tried.hold);
}

/* --- metrics ------------------------------------------------------------------------------- */

static void metrics_count_creates_and_ends_by_reason(void **state)
{
    struct world *world = *state;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;
    struct ended ended;

    world_use(world, session, &tried);
    session_hold_end(&tried.hold);
    world_end(world, session, END_DELETED, &ended);
    world_open_simple(world, "ann", NULL);
    metrics_write(world->core, &text);
    assert_non_null(strstr(buffer_text(&text), "\nsandglass_sessions_created_total 2\n"));
    assert_non_null(
        strstr(buffer_text(&text), "\nsandglass_sessions_ended_total{reason=\"deleted\"} 1\n"));
    assert_non_null(strstr(buffer_text(&text), "\nsandglass_sandboxes_created_total 1\n"));
    assert_non_null(strstr(buffer_text(&text), "\nsandglass_sessions{state=\"open\"} 1\n"));
    assert_non_null(strstr(buffer_text(&text), "\nprocess_resident_memory_bytes "));
    assert_false(text.overflowed);
}

/* --- JSON ---------------------------------------------------------------------------------- */

static json_t *json_of(const struct session *session)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    json_t *document;

    session_write_json(session, &json, NULL);
    assert_false(text.overflowed);
    document = json_read(buffer_text(&text), text.length, NULL);
    assert_non_null(document);
    return document;
}

static void the_json_of_a_session_agrees_with_its_clocks(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct session *session;

    request.owner = "ann";
    request.timeout_ms = 60000;
    request.idle_timeout_ms = 90000;
    request.preload = 1;
    session = world_open(world, &request, &opened);
    world_advance(world, 10000);
    {
        scoped(json_decref) json_t *json = json_of(session);
        const json_t *next = json_object_get(json, "next_end");
        const json_t *sandbox = json_object_get(json, "sandbox");

        assert_string_equal(json_string_value(json_object_get(json, "id")), session_id(session));
        assert_string_equal(json_string_value(json_object_get(json, "state")), "open");
        assert_true(json_is_null(json_object_get(json, "end_reason")));
        assert_string_equal(json_string_value(json_object_get(next, "reason")), "lease");
        assert_float_equal(json_number_value(json_object_get(next, "in_seconds")), 50, 0.01);
        assert_float_equal(json_number_value(json_object_get(json, "time_remaining")), 50, 0.01);
        assert_float_equal(json_number_value(json_object_get(json, "idle_remaining")), 80, 0.01);
        assert_float_equal(json_number_value(json_object_get(json, "lifetime_remaining")), 86390,
                           0.01);
        assert_string_equal(json_string_value(json_object_get(json, "expires_at")),
                            "2026-01-01T00:01:00.000Z");
        assert_string_equal(json_string_value(json_object_get(sandbox, "state")), "ready");
        assert_true(json_is_null(json_object_get(sandbox, "isolation")));
        assert_true(json_is_object(json_object_get(json, "limits")));
    }
    assert_true(session_read_report(session, NULL, NULL));
    {
        scoped(json_decref) json_t *json = json_of(session);
        const json_t *sandbox = json_object_get(json, "sandbox");

        assert_true(json_is_object(json_object_get(sandbox, "isolation")));
    }
}

struct found {
    struct store_query query;
    json_t *json;
};

static void on_found(struct store_query *query, const struct session_record *record)
{
    struct found *found = container_of(query, struct found, query);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    session_record_write_json(record, &json, NULL);
    found->json = json_read(buffer_text(&text), text.length, NULL);
}

static void on_query_done(struct store_query *query)
{
    (void)query;
}

static void an_ended_session_has_the_same_shape(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", "build");
    struct found found = { 0 };
    struct ended ended;
    const char *name;
    json_t *value;
    scoped(json_decref) json_t *live = json_of(session);

    world_end(world, session, END_DELETED, &ended);
    found.query = (struct store_query){ .on_session = on_found, .done = on_query_done };
    found.query.id = ended.op.id;
    store_query(world->store, STORE_SESSIONS, &found.query);
    world_settle(world);
    assert_non_null(found.json);
    json_object_foreach(live, name, value) assert_non_null(json_object_get(found.json, name));
    assert_int_equal(json_object_size(live), json_object_size(found.json));
    assert_string_equal(json_string_value(json_object_get(found.json, "end_reason")), "deleted");
    assert_string_equal(json_string_value(json_object_get(found.json, "key")), "build");
    json_decref(found.json);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_life_is_told_in_order_with_growing_numbers),
        TEST(an_event_is_durable_before_it_is_told),
        TEST(an_event_that_could_not_be_recorded_is_not_told),
        TEST(a_watcher_hears_only_its_session_and_its_owner),
        TEST(a_watcher_may_leave_while_it_is_told),
        TEST(numbers_go_on_after_a_restart),
        TEST(metrics_count_creates_and_ends_by_reason),
        TEST(the_json_of_a_session_agrees_with_its_clocks),
        TEST(an_ended_session_has_the_same_shape),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
