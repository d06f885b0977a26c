/* SPDX-License-Identifier: Apache-2.0 */
#include "core/session/session_private.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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
    return 0;
}

static void on_claimed(struct store_claim *claim)
{
    assert_int_equal(claim->outcome, CLAIM_WON);
}

/* As another node does. */
static void claim_elsewhere(struct world *world, struct store_claim *claim, const char *kind,
                            const char *id, const char *json)
{
    store_claim(world->store, claim, 0,
                &(struct document_record){ .kind = kind, .id = id, .json = json }, on_claimed);
    world_settle(world);
}

static void put_elsewhere(struct world *world, const char *id, const char *state)
{
    struct session_record record = { .owner = "ann", .key = "build", .state = state };

    snprintf(record.id, sizeof(record.id), "%s", id);
    store_put_session(world->store, &record);
    world_settle(world);
}

static void a_session_whose_key_another_one_holds_is_refused_and_leaves_no_record(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct store_claim claim;
    struct opened opened;

    request.owner = "ann";
    request.key = "build";
    request.preload = 1;
    put_elsewhere(world, "ses_elsewhere", "open");
    claim_elsewhere(world, &claim, SESSION_KEY_KIND, "ann\nbuild",
                    "{\"session\":\"ses_elsewhere\"}");
    assert_null(world_open(world, &request, &opened));
    assert_string_equal(opened.op.err.name, "key_taken");
    assert_non_null(strstr(opened.op.err.message, "ses_elsewhere"));
    assert_true(opened.op.err.retryable);
    world_advance(world, 1000);
    assert_int_equal(fake_store_count(world->store, STORE_SESSIONS), 1);
    assert_int_equal(fake_store_count(world->store, STORE_EVENTS), 0);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
    assert_null(world_open(world, &request, &opened));
    assert_string_equal(opened.op.err.name, "key_taken");
}

static void a_key_whose_session_is_gone_is_free_at_the_second_try(void **state)
{
    static const char *const holders[] = { "", "ended" };

    for (size_t i = 0; i < ARRAY_LENGTH(holders); i++) {
        struct world *world = *state;
        struct session_request request = SESSION_REQUEST_INIT;
        struct store_claim claim;
        struct opened opened;

        request.owner = "ann";
        request.key = i ? "second" : "first";
        if (*holders[i])
            put_elsewhere(world, "ses_elsewhere", holders[i]);
        claim_elsewhere(world, &claim, SESSION_KEY_KIND, i ? "ann\nsecond" : "ann\nfirst",
                        "{\"session\":\"ses_elsewhere\"}");
        assert_null(world_open(world, &request, &opened));
        assert_string_equal(opened.op.err.name, "key_taken");
        assert_non_null(world_open(world, &request, &opened));
    }
}

static void a_lost_idempotency_key_refuses_the_session_and_frees_its_key(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct store_claim claim;
    struct opened opened;

    request.owner = "ann";
    request.key = "build";
    request.idempotency_key = "4f1";
    claim_elsewhere(world, &claim, "idempotency", "ann\n4f1", "{}");
    assert_null(world_open(world, &request, &opened));
    assert_string_equal(opened.op.err.name, "idempotency_key_taken");
    request.idempotency_key = NULL;
    assert_non_null(world_open(world, &request, &opened));
    assert_int_equal(fake_store_count(world->store, STORE_SESSIONS), 1);
}

static void a_key_is_held_over_a_restart_and_released_by_the_end(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", "build");
    char id[ID_SIZE];

    assert_int_equal(session->identity.claim.state, KEY_HELD);
    memcpy(id, session->identity.id, sizeof(id));
    assert_int_equal(fake_store_count(world->store, STORE_DOCUMENTS), 1);
    world_restart(world);
    session = world_find(world, id);
    assert_int_equal(session->identity.claim.state, KEY_HELD);
    session_end(session, END_DELETED, NULL, NULL, NULL);
    world_settle(world);
    assert_int_equal(fake_store_count(world->store, STORE_DOCUMENTS), 0);
}

/* A daemon from before claims has left it. */
static void a_restored_session_without_a_claim_claims_its_key(void **state)
{
    struct world *world = *state;
    struct session *session;

    world_kill(world, false);
    put_elsewhere(world, "ses_00000000000000000000000000", "open");
    world_start(world);
    world_settle(world);
    session = world_find(world, "ses_00000000000000000000000000");
    assert_non_null(session);
    assert_int_equal(session->identity.claim.state, KEY_HELD);
    assert_int_equal(fake_store_count(world->store, STORE_DOCUMENTS), 1);
}

static void a_session_that_ends_before_its_claim_is_answered_releases_it(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened first, second;

    request.key = "build";
    fake_store_hold(world->store, true);
    world_open(world, &request, &first);
    session_end(first.op.session, END_DELETED, NULL, NULL, NULL);
    fake_store_hold(world->store, false);
    world_settle(world);
    assert_int_equal(fake_store_count(world->store, STORE_DOCUMENTS), 0);
    assert_non_null(world_open(world, &request, &second));
}

static void on_gone(struct store_claim *claim)
{
    assert_int_equal(claim->outcome, CLAIM_WON);
}

/* As a failover does. */
static void lose_claim(struct world *world, const struct session *session)
{
    struct store_claim claim;

    store_release(world->store, &claim, session->identity.claim.version, SESSION_KEY_KIND,
                  "ann\nbuild", on_gone);
    world_settle(world);
}

static void a_key_that_the_store_has_lost_is_claimed_again(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", "build");

    for (unsigned i = 0; i < 2; i++) {
        if (i)
            lose_claim(world, session);
        world->store->on_lost(world->store, STORE_SESSIONS, "");
        world_advance(world, 2000);
        assert_int_equal(session->identity.claim.state, KEY_HELD);
        assert_int_equal(fake_store_count(world->store, STORE_DOCUMENTS), 1);
    }
}

static void a_session_whose_lost_key_another_one_has_taken_ends(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", "build");
    struct store_claim claim;
    char id[ID_SIZE];

    memcpy(id, session->identity.id, sizeof(id));
    lose_claim(world, session);
    put_elsewhere(world, "ses_elsewhere", "open");
    claim_elsewhere(world, &claim, SESSION_KEY_KIND, "ann\nbuild",
                    "{\"session\":\"ses_elsewhere\"}");
    world->store->on_lost(world->store, STORE_SESSIONS, "");
    world_advance(world, 2000);
    assert_null(world_find(world, id));
}

static void a_release_that_fails_is_made_again_with_the_record_of_the_end(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", "build");

    fake_store_fail_next(world->store, ERR_NO_SPACE);
    session_end(session, END_DELETED, NULL, NULL, NULL);
    world_settle(world);
    world_advance(world, 10 * 1000);
    assert_int_equal(fake_store_count(world->store, STORE_DOCUMENTS), 0);
    assert_non_null(world_open_simple(world, "ann", "build"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_session_whose_key_another_one_holds_is_refused_and_leaves_no_record),
        TEST(a_key_whose_session_is_gone_is_free_at_the_second_try),
        TEST(a_lost_idempotency_key_refuses_the_session_and_frees_its_key),
        TEST(a_key_is_held_over_a_restart_and_released_by_the_end),
        TEST(a_restored_session_without_a_claim_claims_its_key),
        TEST(a_session_that_ends_before_its_claim_is_answered_releases_it),
        TEST(a_key_that_the_store_has_lost_is_claimed_again),
        TEST(a_session_whose_lost_key_another_one_has_taken_ends),
        TEST(a_release_that_fails_is_made_again_with_the_record_of_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
