/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/builds.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/sandbox.h"
#include "core/shares.h"
#include "harness/fake_agent.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
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

/* Started with these caps instead of the defaults. */
static void start_with(struct world *world, int64_t maximum, int64_t per_owner, int overflow)
{
    world->config.capacity.max_sandboxes = maximum;
    world->config.capacity.max_per_owner = per_owner;
    world->config.capacity.overflow = overflow;
    world_restart(world);
}

static struct session *open_used(struct world *world, const char *owner, struct tried *tried)
{
    struct session *session = world_open_simple(world, owner, NULL);

    world_use(world, session, tried);
    return session;
}

/* --- shares -------------------------------------------------------------------------------- */

static void the_cap_of_an_owner_holds_again_after_it_held_nothing(void **state)
{
    struct world *world = *state;
    static const char *const owners[] = { "ann", "ann", "bob", "ann", "cid" };
    struct share first = { 0 };
    struct share second = { 0 };
    struct share other = { 0 };

    world->config.capacity.shares[SHARE_REQUESTS] = 1;
    for (size_t i = 0; i < ARRAY_LENGTH(owners); i++) {
        struct error err = { 0 };
        struct shares *shares = world->core->shares;

        assert_int_equal(share_take(&first, shares, owners[i], SHARE_REQUESTS, &err), 0);
        assert_int_equal(share_take(&other, shares, "dan", SHARE_REQUESTS, &err), 0);
        assert_int_equal(share_take(&second, shares, owners[i], SHARE_REQUESTS, &err), -1);
        assert_string_equal(err.name, "too_many_requests");
        share_give(&other);
        share_give(&first);
    }
}

/* --- reject -------------------------------------------------------------------------------- */

static void the_third_of_two_is_refused_and_told_who_holds_the_slots(void **state)
{
    struct world *world = *state;
    struct tried tried[3];
    struct ended ended;
    struct session *first;
    struct session *third;

    start_with(world, 2, 0, OVERFLOW_REJECT);
    first = open_used(world, "ann", &tried[0]);
    open_used(world, "bob", &tried[1]);
    third = open_used(world, "bob", &tried[2]);
    assert_int_equal(tried[2].hold.err.code, ERR_LIMIT);
    assert_string_equal(tried[2].hold.err.name, "capacity");
    assert_non_null(strstr(tried[2].hold.err.message, "you hold 1"));
    assert_non_null(strstr(tried[2].hold.err.message, "2 of 2"));
    assert_true(tried[2].hold.err.retryable);
    assert_true(*tried[2].hold.err.hint);
    assert_int_equal(capacity_held(world->core->capacity), 2);
    session_hold_end(&tried[0].hold);
    world_end(world, first, END_DELETED, &ended);
    assert_int_equal(capacity_held(world->core->capacity), 1);
    world_use(world, third, &tried[2]);
    assert_int_equal(tried[2].hold.err.code, ERR_NONE);
}

/* Evicting comes first; the pool keeps to the cap. */
static void burst_is_for_those_who_would_be_refused(void **state)
{
    struct world *world = *state;
    struct tried tried[4];
    struct session *first;

    world->config.capacity.burst = 1;
    start_with(world, 2, 0, OVERFLOW_EVICT);
    first = open_used(world, "ann", &tried[0]);
    open_used(world, "bob", &tried[1]);
    assert_false(capacity_has_spare(world->core->capacity));
    open_used(world, "bob", &tried[2]);
    assert_int_equal(tried[2].hold.err.code, ERR_NONE);
    assert_int_equal(capacity_held(world->core->capacity), 3);
    open_used(world, "bob", &tried[3]);
    assert_int_equal(tried[3].hold.err.code, ERR_LIMIT);
    session_hold_end(&tried[0].hold);
    world_settle(world);
    open_used(world, "cid", &tried[3]);
    assert_int_equal(tried[3].hold.err.code, ERR_NONE);
    assert_null(session_sandbox(first));
    assert_int_equal(capacity_held(world->core->capacity), 3);
}

static void burst_does_not_widen_the_cap_of_an_owner(void **state)
{
    struct world *world = *state;
    struct tried tried[2];

    world->config.capacity.burst = 5;
    start_with(world, 2, 1, OVERFLOW_REJECT);
    open_used(world, "ann", &tried[0]);
    open_used(world, "ann", &tried[1]);
    assert_int_equal(tried[1].hold.err.code, ERR_LIMIT);
}

static void a_cap_of_zero_is_none(void **state)
{
    struct world *world = *state;
    static struct tried tried[50];

    start_with(world, 0, 0, OVERFLOW_REJECT);
    for (int i = 0; i < 50; i++) {
        open_used(world, "ann", &tried[i]);
        assert_int_equal(tried[i].hold.err.code, ERR_NONE);
    }
    assert_int_equal(fake_backend_count(world->backend), 50);
}

static void the_cap_of_an_owner_holds_for_that_owner_alone(void **state)
{
    struct world *world = *state;
    struct tried tried[3];

    start_with(world, 10, 1, OVERFLOW_REJECT);
    open_used(world, "ann", &tried[0]);
    open_used(world, "ann", &tried[1]);
    open_used(world, "bob", &tried[2]);
    assert_int_equal(tried[0].hold.err.code, ERR_NONE);
    assert_int_equal(tried[1].hold.err.code, ERR_LIMIT);
    assert_int_equal(tried[2].hold.err.code, ERR_NONE);
}

static void a_storm_of_creations_at_the_cap_succeeds_exactly_cap_times(void **state)
{
    struct world *world = *state;
    static struct tried tried[40];
    struct session *sessions[40];
    unsigned granted = 0;

    start_with(world, 7, 0, OVERFLOW_REJECT);
    for (int i = 0; i < 40; i++)
        sessions[i] = world_open_simple(world, "ann", NULL);
    fake_backend_hold(world->backend, FAKE_CREATE, true);
    for (int i = 0; i < 40; i++)
        world_use(world, sessions[i], &tried[i]);
    assert_int_equal(capacity_held(world->core->capacity), 7);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    for (int i = 0; i < 40; i++)
        granted += tried[i].hold.granted;
    assert_int_equal(granted, 7);
    assert_int_equal(fake_backend_count(world->backend), 7);
}

static void a_removal_that_fails_keeps_its_slot(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct tried other;
    struct session *session;

    start_with(world, 1, 0, OVERFLOW_REJECT);
    session = open_used(world, "ann", &tried);
    session_hold_end(&tried.hold);
    fake_backend_refuse(world->backend, FAKE_DESTROY, 100, ERR_BACKEND);
    session_teardown(session, END_TEARDOWN);
    world_advance(world, 5000);
    assert_int_equal(capacity_held(world->core->capacity), 1);
    open_used(world, "bob", &other);
    assert_int_equal(other.hold.err.code, ERR_LIMIT);
    fake_backend_refuse(world->backend, FAKE_DESTROY, 0, ERR_NONE);
    world_advance(world, 60 * 1000);
    assert_int_equal(capacity_held(world->core->capacity), 0);
}

static void creations_that_fail_give_their_slots_back_once(void **state)
{
    struct world *world = *state;
    struct tried tried;

    start_with(world, 2, 0, OVERFLOW_REJECT);
    for (int i = 0; i < 10; i++) {
        fake_backend_refuse(world->backend, FAKE_CREATE, 1, ERR_BACKEND);
        open_used(world, "ann", &tried);
        assert_int_equal(tried.hold.err.code, ERR_BACKEND);
        assert_int_equal(capacity_held(world->core->capacity), 0);
    }
}

/* --- evict --------------------------------------------------------------------------------- */

static void the_coldest_idle_sandbox_makes_room_and_its_session_comes_back(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *cold;
    struct session *warm;
    struct session *new;

    start_with(world, 2, 0, OVERFLOW_EVICT);
    cold = open_used(world, "ann", &tried);
    session_hold_end(&tried.hold);
    world_advance(world, 1000);
    warm = open_used(world, "ann", &tried);
    session_hold_end(&tried.hold);
    world_advance(world, 1000);
    new = open_used(world, "bob", &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_null(session_sandbox(cold));
    assert_non_null(session_sandbox(warm));
    assert_int_equal(session_state(cold), SESSION_OPEN);
    assert_int_equal(world_events(world, session_id(cold), "sandbox.evicted"), 1);
    session_hold_end(&tried.hold);
    world_use(world, cold, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 2);
    assert_null(session_sandbox(warm));
    assert_non_null(session_sandbox(new));
    assert_int_equal(fake_backend_count(world->backend), 2);
    session_hold_end(&tried.hold);
}

static void recently_used_is_warm(void **state)
{
    struct world *world = *state;
    struct session *sessions[3];
    struct tried tried;

    start_with(world, 3, 0, OVERFLOW_EVICT);
    for (int i = 0; i < 3; i++) {
        sessions[i] = open_used(world, "ann", &tried);
        session_hold_end(&tried.hold);
        world_advance(world, 10);
    }
    world_use(world, sessions[0], &tried);
    session_hold_end(&tried.hold);
    open_used(world, "bob", &tried);
    session_hold_end(&tried.hold);
    assert_non_null(session_sandbox(sessions[0]));
    assert_null(session_sandbox(sessions[1]));
    assert_non_null(session_sandbox(sessions[2]));
}

static void what_is_used_is_never_evicted(void **state)
{
    struct world *world = *state;
    struct tried held;
    struct tried tried;
    struct session *session;

    start_with(world, 1, 0, OVERFLOW_EVICT);
    session = open_used(world, "ann", &held);
    open_used(world, "bob", &tried);
    assert_int_equal(tried.hold.err.code, ERR_LIMIT);
    assert_int_equal(held.lost, 0);
    assert_non_null(session_sandbox(session));
    session_hold_end(&held.hold);
}

static void what_is_paused_is_never_evicted(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session;

    start_with(world, 1, 0, OVERFLOW_EVICT);
    session = open_used(world, "ann", &tried);
    session_hold_end(&tried.hold);
    session_pause(session, NULL, NULL);
    world_settle(world);
    open_used(world, "bob", &tried);
    assert_int_equal(tried.hold.err.code, ERR_LIMIT);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_FROZEN);
}

static void an_owner_at_its_own_cap_displaces_only_its_own(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *bobs;
    struct session *anns;

    start_with(world, 10, 1, OVERFLOW_EVICT);
    bobs = open_used(world, "bob", &tried);
    session_hold_end(&tried.hold);
    world_advance(world, 10);
    anns = open_used(world, "ann", &tried);
    session_hold_end(&tried.hold);
    open_used(world, "ann", &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_non_null(session_sandbox(bobs));
    assert_null(session_sandbox(anns));
}

static void the_cap_holds_while_the_evicted_one_is_still_going(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct tried waiting;

    start_with(world, 1, 0, OVERFLOW_EVICT);
    open_used(world, "ann", &tried);
    session_hold_end(&tried.hold);
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    open_used(world, "bob", &waiting);
    assert_int_equal(waiting.ready, 0);
    assert_int_equal(fake_backend_count(world->backend), 1);
    assert_int_equal(capacity_held(world->core->capacity), 1);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_settle(world);
    assert_int_equal(waiting.ready, 1);
    assert_int_equal(waiting.hold.err.code, ERR_NONE);
    session_hold_end(&waiting.hold);
}

static void two_that_need_room_evict_two(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct tried first;
    struct tried second;
    struct tried third;

    start_with(world, 2, 0, OVERFLOW_EVICT);
    for (int i = 0; i < 2; i++) {
        open_used(world, "ann", &tried);
        session_hold_end(&tried.hold);
    }
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    open_used(world, "bob", &first);
    open_used(world, "bob", &second);
    open_used(world, "bob", &third);
    assert_int_equal(third.hold.err.code, ERR_LIMIT);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_settle(world);
    assert_true(first.hold.granted && second.hold.granted);
    session_hold_end(&first.hold);
    session_hold_end(&second.hold);
}

/* --- wait ---------------------------------------------------------------------------------- */

static void waiting_is_in_order_of_arrival(void **state)
{
    struct world *world = *state;
    struct tried held;
    struct tried waiting[3];
    struct session *session;
    struct ended ended;

    start_with(world, 1, 0, OVERFLOW_WAIT);
    session = open_used(world, "ann", &held);
    for (int i = 0; i < 3; i++)
        open_used(world, "bob", &waiting[i]);
    assert_int_equal(capacity_waiting(world->core->capacity), 3);
    for (int i = 0; i < 3; i++) {
        world_end(world, session, END_DELETED, &ended);
        assert_int_equal(ended.done, 1);
        for (int k = 0; k < 3; k++)
            assert_int_equal(waiting[k].ready, k <= i);
        session = waiting[i].hold.session;
    }
}

static void waiting_ends_with_its_timeout(void **state)
{
    struct world *world = *state;
    struct tried held;
    struct tried waiting;

    start_with(world, 1, 0, OVERFLOW_WAIT);
    open_used(world, "ann", &held);
    open_used(world, "bob", &waiting);
    world_advance(world, world->config.capacity.wait_timeout_ms - 1);
    assert_int_equal(waiting.ready, 0);
    world_advance(world, 1);
    assert_int_equal(waiting.ready, 1);
    assert_int_equal(waiting.hold.err.code, ERR_LIMIT);
    assert_int_equal(capacity_waiting(world->core->capacity), 0);
    session_hold_end(&held.hold);
}

static void who_leaves_the_queue_lets_the_next_one_through(void **state)
{
    struct world *world = *state;
    struct tried held;
    struct tried leaving;
    struct tried staying;
    struct session *session;
    struct ended ended;

    start_with(world, 1, 0, OVERFLOW_WAIT);
    session = open_used(world, "ann", &held);
    open_used(world, "bob", &leaving);
    open_used(world, "cid", &staying);
    session_hold_end(&leaving.hold);
    world_settle(world);
    assert_int_equal(capacity_waiting(world->core->capacity), 1);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(leaving.ready, 0);
    assert_int_equal(staying.ready, 1);
    session_hold_end(&staying.hold);
}

static void an_owner_at_its_cap_does_not_hold_up_the_others(void **state)
{
    struct world *world = *state;
    struct tried anns[2];
    struct tried bobs;
    struct tried cids;
    struct session *cid;
    struct ended ended;

    start_with(world, 2, 1, OVERFLOW_WAIT);
    open_used(world, "ann", &anns[0]);
    cid = open_used(world, "cid", &cids);
    open_used(world, "ann", &anns[1]);
    open_used(world, "bob", &bobs);
    world_end(world, cid, END_DELETED, &ended);
    assert_int_equal(anns[1].ready, 0);
    assert_int_equal(bobs.ready, 1);
    session_hold_end(&anns[0].hold);
    session_hold_end(&bobs.hold);
}

static void the_owner_who_has_fewest_is_served_first(void **state)
{
    struct world *world = *state;
    struct session *sessions[2];
    static struct tried anns[8];
    struct tried bobs;
    struct ended ended;

    start_with(world, 2, 0, OVERFLOW_WAIT);
    for (int i = 0; i < 8; i++) {
        struct session *session = open_used(world, "ann", &anns[i]);

        if (i < 2)
            sessions[i] = session;
    }
    open_used(world, "bob", &bobs);
    session_hold_end(&anns[0].hold);
    world_end(world, sessions[0], END_DELETED, &ended);
    assert_int_equal(bobs.ready, 1);
    assert_int_equal(anns[2].ready, 0);
    session_hold_end(&anns[1].hold);
    world_end(world, sessions[1], END_DELETED, &ended);
    assert_int_equal(anns[2].ready, 1);
    assert_int_equal(anns[3].ready, 0);
}

/* --- turns to build ------------------------------------------------------------------------ */

enum { MANY = 3 * BUILDS_AT_ONCE };

/* Opened while nothing that is built becomes ready. */
static void open_many(struct world *world, struct session *sessions[MANY], struct tried tried[MANY])
{
    fake_backend_hold(world->backend, FAKE_CREATE, true);
    for (int i = 0; i < MANY; i++)
        sessions[i] = open_used(world, "ann", &tried[i]);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), BUILDS_AT_ONCE);
}

static void who_asks_for_many_sandboxes_has_others_wait_for_one_turn_only(void **state)
{
    struct world *world = *state;
    static struct session *sessions[MANY];
    static struct tried anns[MANY];
    struct tried bobs, cys;
    struct session *bob, *cy;

    open_many(world, sessions, anns);
    bob = open_used(world, "bob", &bobs);
    cy = open_used(world, "cy", &cys);
    assert_true(sandbox_waits_to_build(session_sandbox(bob)));
    /* Those that are being built take long, and are not waited for. */
    world_advance(world, 1000);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 2 * BUILDS_AT_ONCE);
    assert_true(sandbox_is_building(session_sandbox(bob)));
    assert_true(sandbox_is_building(session_sandbox(cy)));
    assert_true(sandbox_is_building(session_sandbox(sessions[2 * BUILDS_AT_ONCE - 3])));
    assert_true(sandbox_waits_to_build(session_sandbox(sessions[2 * BUILDS_AT_ONCE - 2])));
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(anns[i].ready, 1);
    assert_int_equal(bobs.ready + cys.ready, 2);
}

static void a_session_that_ends_leaves_the_turns_to_others(void **state)
{
    struct world *world = *state;
    static struct session *sessions[MANY];
    static struct tried anns[MANY];
    struct ended ended[MANY];

    open_many(world, sessions, anns);
    for (int i = MANY - 1; i >= BUILDS_AT_ONCE; i--) {
        world_end(world, sessions[i], END_DELETED, &ended[i]);
        assert_int_equal(ended[i].done, 1);
    }
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), BUILDS_AT_ONCE);
    assert_int_equal(fake_backend_count(world->backend), BUILDS_AT_ONCE);
}

/* --- for people ---------------------------------------------------------------------------- */

static void retry_after_points_at_the_next_end(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct tried tried;

    start_with(world, 1, 0, OVERFLOW_REJECT);
    request.timeout_ms = 12 * 1000;
    world_use(world, world_open(world, &request, &opened), &tried);
    assert_int_equal(capacity_retry_after_s(world->core->capacity), 12);
    world_advance(world, 11500);
    assert_int_equal(capacity_retry_after_s(world->core->capacity), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_cap_of_an_owner_holds_again_after_it_held_nothing),
        TEST(the_third_of_two_is_refused_and_told_who_holds_the_slots),
        TEST(a_cap_of_zero_is_none),
        TEST(burst_is_for_those_who_would_be_refused),
        TEST(burst_does_not_widen_the_cap_of_an_owner),
        TEST(the_cap_of_an_owner_holds_for_that_owner_alone),
        TEST(a_storm_of_creations_at_the_cap_succeeds_exactly_cap_times),
        TEST(a_removal_that_fails_keeps_its_slot),
        TEST(creations_that_fail_give_their_slots_back_once),
        TEST(the_coldest_idle_sandbox_makes_room_and_its_session_comes_back),
        TEST(recently_used_is_warm),
        TEST(what_is_used_is_never_evicted),
        TEST(what_is_paused_is_never_evicted),
        TEST(an_owner_at_its_own_cap_displaces_only_its_own),
        TEST(the_cap_holds_while_the_evicted_one_is_still_going),
        TEST(two_that_need_room_evict_two),
        TEST(waiting_is_in_order_of_arrival),
        TEST(waiting_ends_with_its_timeout),
        TEST(who_leaves_the_queue_lets_the_next_one_through),
        TEST(an_owner_at_its_cap_does_not_hold_up_the_others),
        TEST(the_owner_who_has_fewest_is_served_first),
        TEST(who_asks_for_many_sandboxes_has_others_wait_for_one_turn_only),
        TEST(a_session_that_ends_leaves_the_turns_to_others),
        TEST(retry_after_points_at_the_next_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
