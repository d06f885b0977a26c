/* SPDX-License-Identifier: Apache-2.0 */
#include "service/executions.h"

#include "base/str.h"
#include "core/core.h"
#include "harness/fake_store.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static struct world world;

static int setup(void **state)
{
    (void)state;
    world_init(&world);
    world_start(&world);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    world_fini(&world);
    return 0;
}

static void put_record(const char *session_id, const char *state)
{
    struct execution_record record = {
        .id = "exe_00000000000000000000000001",
        .key = "once",
        .request_json = "{}",
        .state = state,
        .number = 1,
        .exit_code = -1,
    };

    snprintf(record.session_id, sizeof(record.session_id), "%s", session_id);
    store_put_execution(world.store, &record);
}

struct searching {
    struct execution_search search;
    char state[16]; /* of the one that was found; empty without */
    unsigned answers;
};

static void on_found(struct execution_search *search, const struct found_execution *found)
{
    struct searching *searching = container_of(search, struct searching, search);

    assert_string_equal(searching->state, "");
    snprintf(searching->state, sizeof(searching->state), "%s", found_execution_state(found));
}

static void on_done(struct execution_search *search)
{
    container_of(search, struct searching, search)->answers++;
}

static void start(struct searching *searching, const char *session_id)
{
    *searching = (struct searching){ .search = { .on_found = on_found, .done = on_done } };
    execution_search_start(&searching->search, world.core, session_id, NULL, "once");
}

/* The record was read while it ran, and it has left memory when the answer comes. */
static void an_execution_that_ends_during_the_search_is_found_with_its_end(void **state)
{
    struct session *session = world_open_simple(&world, "ann", NULL);
    struct searching searching;

    (void)state;
    put_record(session_id(session), "running");
    fake_store_hold_queries(world.store, true);
    start(&searching, session_id(session));
    assert_true(fake_store_answer_query(world.store));
    world_settle(&world);
    assert_int_equal(searching.answers, 0);
    put_record(session_id(session), "exited");
    fake_store_hold_queries(world.store, false);
    world_settle(&world);
    assert_int_equal(searching.answers, 1);
    assert_string_equal(searching.state, "exited");
    execution_search_fini(&searching.search);
}

/* Such as that of a session on another node. */
static void a_record_that_stays_without_an_end_is_found_as_it_is(void **state)
{
    struct session *session = world_open_simple(&world, "ann", NULL);
    struct searching searching;

    (void)state;
    put_record(session_id(session), "running");
    start(&searching, session_id(session));
    world_settle(&world);
    assert_int_equal(searching.answers, 1);
    assert_string_equal(searching.state, "running");
    execution_search_fini(&searching.search);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(an_execution_that_ends_during_the_search_is_found_with_its_end),
        TEST(a_record_that_stays_without_an_end_is_found_as_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
