/* SPDX-License-Identifier: Apache-2.0 */
/* A session that comes from a lost node: two cores on one store. */

#include "core/metrics.h"
#include "core/rehome.h"
#include "core/session/session_private.h"
#include "harness/fake_agent.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <string.h>

enum { TURNS = 40 };

struct cluster {
    struct world host, a, b;
    char id[ID_SIZE]; /* of the session */
};

static int setup(void **state)
{
    static struct cluster cluster;

    cluster = (struct cluster){ 0 };
    world_init(&cluster.host);
    world_join(&cluster.a, &cluster.host, "a");
    world_join(&cluster.b, &cluster.host, "b");
    world_start(&cluster.a);
    world_start(&cluster.b);
    *state = &cluster;
    return 0;
}

static int teardown(void **state)
{
    struct cluster *cluster = *state;

    world_fini(&cluster->a);
    world_fini(&cluster->b);
    world_fini(&cluster->host);
    assert_int_equal(fake_agent_count(), 0);
    return 0;
}

struct reading {
    struct store_query query;
    struct session_record *record; /* owned */
};

static void on_session(struct store_query *query, const struct session_record *record)
{
    container_of(query, struct reading, query)->record = store_copy_record(STORE_SESSIONS, record);
}

static void on_read(struct store_query *query)
{
    assert_int_equal(query->err.code, ERR_NONE);
}

/* As rehome.lua does it: the record names the other node, and nothing else changes. */
static void move_record(struct cluster *cluster)
{
    struct reading reading = { .query = {
                                   .on_session = on_session, .done = on_read, .id = cluster->id } };

    store_query(cluster->b.store, STORE_SESSIONS, &reading.query);
    world_settle(&cluster->host);
    assert_non_null(reading.record);
    reading.record->node = "b";
    store_put_session(cluster->b.store, reading.record);
    world_settle(&cluster->host);
    free(reading.record);
}

/* A session that is used on node a, which is lost then. */
static void lose_node(struct cluster *cluster)
{
    struct session *session = world_open_simple(&cluster->a, "ann", "build");
    struct tried tried;

    assert_non_null(session);
    memcpy(cluster->id, session_id(session), sizeof(cluster->id));
    world_use(&cluster->a, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(session_generation(session), 1);
    world_settle(&cluster->host);
    world_kill(&cluster->a, false);
    move_record(cluster);
}

static void assert_complete(const struct session *session)
{
    assert_true(session->slot.crashed);
    assert_int_equal(session->slot.previous_end.kind, END_NODE_LOST);
    assert_int_equal(session_generation(session), 1);
    assert_int_equal(session->identity.claim.state, KEY_HELD);
}

/* Whoever asks for it meanwhile is told to come again: what they did would be undone. */
static void a_session_that_comes_is_found_only_when_it_is_complete(void **state)
{
    struct cluster *cluster = *state;
    unsigned answers = 0;

    lose_node(cluster);
    fake_store_hold_queries(cluster->b.store, true);
    core_take_session(cluster->b.core, cluster->id, "a");
    while (fake_store_answer_query(cluster->b.store)) {
        assert_null(world_find(&cluster->b, cluster->id));
        world_settle(&cluster->host);
        answers++;
    }
    fake_store_hold_queries(cluster->b.store, false);
    assert_true(answers > 3);
    assert_complete(world_find(&cluster->b, cluster->id));
}

static void what_comes_twice_is_taken_once(void **state)
{
    struct cluster *cluster = *state;

    lose_node(cluster);
    core_take_session(cluster->b.core, cluster->id, "a");
    core_take_session(cluster->b.core, cluster->id, "a");
    core_take_sessions(cluster->b.core);
    for (int i = 0; i < TURNS; i++)
        loop_turn(cluster->host.loop, 0);
    assert_complete(world_find(&cluster->b, cluster->id));
    assert_int_equal(world_events(&cluster->b, cluster->id, "session.moved"), 1);
    assert_true(list_is_empty(&cluster->b.core->rehomings));
}

static void a_session_that_came_gets_a_new_sandbox_and_ends_as_others_do(void **state)
{
    struct cluster *cluster = *state;
    struct session *session;
    struct tried tried;
    struct ended ended = { 0 };

    lose_node(cluster);
    core_take_session(cluster->b.core, cluster->id, "a");
    for (int i = 0; i < TURNS; i++)
        loop_turn(cluster->host.loop, 0);
    session = world_find(&cluster->b, cluster->id);
    world_use(&cluster->b, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 2);
    session_hold_end(&tried.hold);
    world_end(&cluster->b, session, END_DELETED, &ended);
    world_advance(&cluster->host, 1000);
    assert_null(world_find(&cluster->b, cluster->id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_session_that_comes_is_found_only_when_it_is_complete,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(what_comes_twice_is_taken_once, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_session_that_came_gets_a_new_sandbox_and_ends_as_others_do, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
