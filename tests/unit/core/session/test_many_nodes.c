/* SPDX-License-Identifier: Apache-2.0 */
/* Idempotency-Keys and scopes, where two nodes share a store. */

#include "core/session/idempotency.h"
#include "core/session/scopes.h"
#include "core/session/session_private.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NODES = 2 };

#define MINTED "scp_0123456789abcdefghjkmnpqrs"

struct pair {
    struct world host; /* has the clock, the loop and the server; no daemon */
    struct world nodes[NODES];
};

static const char *const names[NODES] = { "a", "b" };

static void settle(struct pair *pair)
{
    for (int i = 0; i < 20; i++)
        loop_turn(pair->host.loop, 0);
}

static void advance(struct pair *pair, int64_t ms)
{
    loop_advance(pair->host.loop, &pair->host.clock, ms * 1000);
    settle(pair);
}

static int setup(void **state)
{
    static struct pair pair;

    pair = (struct pair){ 0 };
    world_init(&pair.host);
    pair.host.config.session.idle_timeout_ms = 0;
    pair.host.config.session.max_lifetime_ms = 0;
    for (size_t i = 0; i < NODES; i++) {
        world_join(&pair.nodes[i], &pair.host, names[i]);
        world_start(&pair.nodes[i]);
    }
    *state = &pair;
    return 0;
}

static int teardown(void **state)
{
    struct pair *pair = *state;

    for (size_t i = 0; i < NODES; i++)
        world_fini(&pair->nodes[i]);
    world_fini(&pair->host);
    return 0;
}

static struct session *open_with(struct pair *pair, size_t node, const char *owner, const char *key,
                                 struct opened *opened)
{
    struct session_request request = SESSION_REQUEST_INIT;
    struct session *session;

    request.owner = owner;
    request.idempotency_key = key;
    session = world_open(&pair->nodes[node], &request, opened);
    settle(pair);
    return session ? session : opened->op.err.code == ERR_NONE ? opened->op.session : NULL;
}

/* --- Idempotency-Keys ------------------------------------------------------------------------- */

static void a_key_makes_one_session_whichever_node_is_asked(void **state)
{
    struct pair *pair = *state;
    struct opened opened;
    struct session *session = open_with(pair, 0, "ann", "4f1", &opened);

    assert_non_null(session);
    assert_null(open_with(pair, 1, "ann", "4f1", &opened));
    assert_string_equal(opened.op.err.name, "idempotency_key_taken");
    assert_true(opened.op.err.retryable);
    assert_string_equal(opened.op.id, session_id(session));
    assert_ptr_equal(open_with(pair, 0, "ann", "4f1", &opened), session);
    assert_non_null(open_with(pair, 1, "bob", "4f1", &opened));
    assert_int_equal(fake_store_count(pair->host.store, STORE_SESSIONS), 2);
}

static void on_opened(struct session_op *op)
{
    container_of(op, struct opened, op)->done = true;
}

static void two_nodes_that_are_asked_at_once_make_one_session(void **state)
{
    struct pair *pair = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened[NODES] = { 0 };
    unsigned made = 0;

    request.owner = "ann";
    request.idempotency_key = "4f1";
    for (size_t i = 0; i < NODES; i++)
        session_open(pair->nodes[i].core, &request, &opened[i].op, on_opened);
    settle(pair);
    for (size_t i = 0; i < NODES; i++) {
        assert_true(opened[i].done);
        made += opened[i].op.err.code == ERR_NONE;
        if (opened[i].op.err.code != ERR_NONE)
            assert_string_equal(opened[i].op.err.name, "idempotency_key_taken");
    }
    assert_int_equal(made, 1);
    assert_int_equal(fake_store_count(pair->host.store, STORE_SESSIONS), 1);
}

static void another_request_with_the_key_is_refused_on_each_node(void **state)
{
    struct pair *pair = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    assert_non_null(open_with(pair, 0, "ann", "4f1", &opened));
    request.owner = "ann";
    request.idempotency_key = "4f1";
    request.labels_json = "{\"a\":\"b\"}";
    for (size_t i = 0; i < NODES; i++) {
        assert_null(world_open(&pair->nodes[i], &request, &opened));
        settle(pair);
        assert_string_equal(opened.op.err.name, "idempotency_key_reused");
    }
}

static void a_session_of_a_key_that_has_ended_is_gone_on_each_node(void **state)
{
    struct pair *pair = *state;
    struct opened opened;
    struct ended ended;
    struct session *session = open_with(pair, 0, "ann", "4f1", &opened);

    world_end(&pair->nodes[0], session, END_DELETED, &ended);
    settle(pair);
    for (size_t i = 0; i < NODES; i++) {
        assert_null(open_with(pair, i, "ann", "4f1", &opened));
        assert_string_equal(opened.op.err.name, "session_ended");
    }
    advance(pair, 25LL * 3600 * 1000);
    assert_non_null(open_with(pair, 1, "ann", "4f1", &opened));
}

static void a_key_is_known_after_a_restart(void **state)
{
    struct pair *pair = *state;
    struct opened opened;
    char id[ID_SIZE];

    memcpy(id, session_id(open_with(pair, 0, "ann", "4f1", &opened)), ID_SIZE);
    world_restart(&pair->nodes[0]);
    settle(pair);
    assert_string_equal(session_id(open_with(pair, 0, "ann", "4f1", &opened)), id);
    assert_null(open_with(pair, 1, "ann", "4f1", &opened));
    assert_string_equal(opened.op.id, id);
}

/* --- scopes ----------------------------------------------------------------------------------- */

struct taken {
    struct scope_lease lease;
    unsigned answers;
    struct error err;
};

static void on_taken(struct scope_lease *lease, const struct error *err)
{
    struct taken *taken = container_of(lease, struct taken, lease);

    taken->answers++;
    taken->err = err ? *err : (struct error){ 0 };
}

static void take(struct pair *pair, size_t node, const char *owner, struct taken *taken)
{
    struct error err = { 0 };

    *taken = (struct taken){ 0 };
    assert_int_equal(
        scope_lease_ask(&taken->lease, pair->nodes[node].core->scopes, owner, on_taken, &err), 0);
    settle(pair);
}

static void assert_ended(struct pair *pair, size_t node, const char *id)
{
    struct world_record record;

    assert_null(world_find(&pair->nodes[node], id));
    assert_true(world_record(&pair->nodes[node], id, &record));
    assert_string_equal(record.end_reason, "deleted: scope");
}

static void the_end_of_a_scope_ends_its_sessions_on_all_nodes(void **state)
{
    struct pair *pair = *state;
    char ids[NODES][ID_SIZE];
    struct opened opened;
    struct taken taken;

    take(pair, 0, MINTED, &taken);
    assert_int_equal(taken.answers, 1);
    assert_int_equal(taken.err.code, ERR_NONE);
    for (size_t i = 0; i < NODES; i++)
        memcpy(ids[i], session_id(open_with(pair, i, MINTED, NULL, &opened)), ID_SIZE);
    assert_non_null(open_with(pair, 1, "ann", NULL, &opened));
    scope_lease_release(&taken.lease);
    settle(pair);
    for (size_t i = 0; i < NODES; i++) {
        assert_ended(pair, i, ids[i]);
        assert_int_equal(world_events(&pair->nodes[i], ids[i], "session.ended"), 1);
        assert_null(open_with(pair, i, MINTED, NULL, &opened));
        assert_string_equal(opened.op.err.name, "scope_ended");
    }
    assert_int_equal(pair->nodes[1].core->sessions_by_id.count, 1);
}

static void an_owner_has_one_scope_over_all_nodes(void **state)
{
    struct pair *pair = *state;
    struct taken first, second;
    struct opened opened;

    take(pair, 0, "ann", &first);
    assert_non_null(open_with(pair, 1, "ann", NULL, &opened));
    take(pair, 1, "ann", &second);
    assert_int_equal(second.answers, 1);
    assert_string_equal(second.err.name, "scope_taken");
    scope_lease_release(&second.lease); /* was not held: nothing ends */
    settle(pair);
    assert_int_equal(pair->nodes[1].core->sessions_by_id.count, 1);
    scope_lease_release(&first.lease);
    settle(pair);
    assert_int_equal(pair->nodes[1].core->sessions_by_id.count, 0);
    advance(pair, 1);
    take(pair, 1, "ann", &second);
    assert_int_equal(second.err.code, ERR_NONE);
    assert_non_null(open_with(pair, 0, "ann", NULL, &opened));
    settle(pair);
    assert_int_equal(pair->nodes[0].core->sessions_by_id.count, 1);
    scope_lease_release(&second.lease);
    settle(pair);
    assert_int_equal(pair->nodes[0].core->sessions_by_id.count, 0);
}

static void a_scope_of_a_lost_node_can_be_taken_again_on_another(void **state)
{
    struct pair *pair = *state;
    struct taken taken;
    struct opened opened;
    char id[ID_SIZE];

    take(pair, 0, MINTED, &taken);
    memcpy(id, session_id(open_with(pair, 1, MINTED, NULL, &opened)), ID_SIZE);
    world_kill(&pair->nodes[0], false);
    free(taken.lease.owner);
    scopes_drop_node(pair->nodes[1].core, "a");
    settle(pair);
    advance(pair, 20 * 1000);
    take(pair, 1, MINTED, &taken);
    assert_int_equal(taken.err.code, ERR_NONE);
    advance(pair, 100 * 1000);
    assert_non_null(world_find(&pair->nodes[1], id));
    scope_lease_release(&taken.lease);
    settle(pair);
    assert_ended(pair, 1, id);
    world_start(&pair->nodes[0]);
}

static void a_scope_that_nobody_takes_again_ends_everywhere(void **state)
{
    struct pair *pair = *state;
    struct taken taken;
    struct opened opened;
    char id[ID_SIZE];

    take(pair, 0, MINTED, &taken);
    memcpy(id, session_id(open_with(pair, 1, MINTED, NULL, &opened)), ID_SIZE);
    world_restart(&pair->nodes[0]);
    free(taken.lease.owner);
    settle(pair);
    advance(pair, 20 * 1000);
    assert_non_null(world_find(&pair->nodes[1], id));
    advance(pair, 11 * 1000);
    assert_ended(pair, 1, id);
}

static void an_end_that_could_not_be_written_is_written_later(void **state)
{
    struct pair *pair = *state;
    struct taken taken;
    struct opened opened;
    char id[ID_SIZE];

    take(pair, 0, MINTED, &taken);
    memcpy(id, session_id(open_with(pair, 1, MINTED, NULL, &opened)), ID_SIZE);
    fake_store_fail_next(pair->nodes[0].store, ERR_UNAVAILABLE);
    scope_lease_release(&taken.lease);
    settle(pair);
    assert_non_null(world_find(&pair->nodes[1], id));
    advance(pair, 1100);
    assert_ended(pair, 1, id);
}

static void a_node_that_did_not_hear_of_an_end_finds_out(void **state)
{
    struct pair *pair = *state;
    struct taken taken;
    struct opened opened;
    char id[ID_SIZE];

    take(pair, 0, MINTED, &taken);
    memcpy(id, session_id(open_with(pair, 1, MINTED, NULL, &opened)), ID_SIZE);
    world_kill(&pair->nodes[1], false);
    scope_lease_release(&taken.lease);
    settle(pair);
    world_start(&pair->nodes[1]);
    settle(pair);
    advance(pair, 61 * 1000);
    assert_ended(pair, 1, id);
}

static void keys_and_scopes_that_the_server_has_lost_are_claimed_again(void **state)
{
    struct pair *pair = *state;
    struct taken taken, second;
    struct opened opened;

    take(pair, 0, "ann", &taken);
    assert_non_null(open_with(pair, 0, "ann", "4f1", &opened));
    fake_store_lose_claims(pair->nodes[0].store);
    advance(pair, 1100);
    take(pair, 1, "ann", &second);
    assert_string_equal(second.err.name, "scope_taken");
    scope_lease_release(&second.lease);
    assert_null(open_with(pair, 1, "ann", "4f1", &opened));
    assert_string_equal(opened.op.err.name, "idempotency_key_taken");
    scope_lease_release(&taken.lease);
    settle(pair);
    assert_int_equal(pair->nodes[0].core->sessions_by_id.count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_key_makes_one_session_whichever_node_is_asked),
        TEST(two_nodes_that_are_asked_at_once_make_one_session),
        TEST(another_request_with_the_key_is_refused_on_each_node),
        TEST(a_session_of_a_key_that_has_ended_is_gone_on_each_node),
        TEST(a_key_is_known_after_a_restart),
        TEST(the_end_of_a_scope_ends_its_sessions_on_all_nodes),
        TEST(an_owner_has_one_scope_over_all_nodes),
        TEST(a_scope_of_a_lost_node_can_be_taken_again_on_another),
        TEST(a_scope_that_nobody_takes_again_ends_everywhere),
        TEST(an_end_that_could_not_be_written_is_written_later),
        TEST(a_node_that_did_not_hear_of_an_end_finds_out),
        TEST(keys_and_scopes_that_the_server_has_lost_are_claimed_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
