/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/sandbox.h"
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

static struct session *open_used(struct world *world, struct tried *tried)
{
    struct session *session = world_open_simple(world, "ann", NULL);

    world_use(world, session, tried);
    assert_int_equal(tried->hold.err.code, ERR_NONE);
    return session;
}

static void a_crash_is_seen_at_once_and_the_next_use_gets_a_new_generation(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);

    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    assert_int_equal(tried.lost, 1);
    assert_int_equal(tried.hold.lost.kind, END_CRASHED);
    assert_string_equal(tried.hold.lost.detail, "unknown");
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(session_state(session), SESSION_OPEN);
    assert_int_equal(world_events(world, session_id(session), "sandbox.crashed"), 1);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.generation, 2);
    assert_int_equal(session_generation(session), 2);
    assert_true(session_reset_is_pending(session));
    assert_int_equal(world_events(world, session_id(session), "sandbox.reset"), 1);
    session_hold_end(&tried.hold);
}

static void an_oom_kill_is_named(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);

    fake_backend_set_oom_kills(world->backend, sandbox_id(session_sandbox(session)), 1);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    assert_string_equal(tried.hold.lost.detail, "oom");
}

static void the_cause_is_what_the_backend_tells(void **state)
{
    static const struct {
        struct backend_end end;
        const char *cause;
    } cases[] = {
        { { .is_known = true, .code = 3 }, "exit 3" },
        { { .is_known = true, .code = -1, .signal = 9 }, "signal 9" },
        { { .is_known = true, .code = 137, .oom = true }, "oom" },
        { { .code = -1 }, "unknown" },
        { { .is_known = true, .code = 1, .detail = "evicted" }, "evicted" },
    };
    struct world *world = *state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tried tried;
        struct session *session = open_used(world, &tried);

        fake_backend_end(world->backend, sandbox_id(session_sandbox(session)), cases[i].end);
        world_settle(world);
        assert_int_equal(tried.lost, 1);
        assert_string_equal(tried.hold.lost.detail, cases[i].cause);
    }
}

static void oom_kills_of_earlier_executions_do_not_explain_a_crash(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);

    session_note_oom_kills(session, sandbox_id(session_sandbox(session)), 2);
    fake_backend_set_oom_kills(world->backend, sandbox_id(session_sandbox(session)), 2);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    assert_string_equal(tried.hold.lost.detail, "unknown");
}

static void concurrent_users_of_a_crashed_session_cause_one_restart(void **state)
{
    struct world *world = *state;
    struct tried first;
    struct tried tried[4];
    struct session *session = open_used(world, &first);

    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    for (int i = 0; i < 4; i++) {
        tried[i] = (struct tried){ 0 };
        world_use(world, session, &tried[i]);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tried[i].hold.err.code, ERR_NONE);
        assert_int_equal(tried[i].hold.generation, 2);
    }
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 2);
    for (int i = 0; i < 4; i++)
        session_hold_end(&tried[i].hold);
}

static void without_auto_restart_a_crash_is_told_until_somebody_restarts(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct session *session;
    struct tried tried;

    request.auto_restart = 0;
    session = world_open(world, &request, &opened);
    world_use(world, session, &tried);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    for (int i = 0; i < 3; i++) {
        world_use(world, session, &tried);
        assert_int_equal(tried.hold.err.code, ERR_CONFLICT);
        assert_string_equal(tried.hold.err.name, "sandbox_crashed");
        assert_true(*tried.hold.err.hint);
    }
    assert_int_equal(fake_backend_calls(world->backend, FAKE_CREATE), 1);
    world_restart(world);
    session = world_find(world, opened.op.id);
    world_use(world, session, &tried);
    assert_string_equal(tried.hold.err.name, "sandbox_crashed");
    session_teardown(session, END_TEARDOWN);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 2);
    session_hold_end(&tried.hold);
}

static void sandboxes_that_keep_crashing_are_not_restarted_without_pause(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;
    unsigned refused = 0;

    for (int i = 0; i < 30; i++) {
        world_use(world, session, &tried);
        if (tried.hold.err.code != ERR_NONE) {
            assert_string_equal(tried.hold.err.name, "sandbox_crashing");
            refused++;
        } else {
            fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
            world_settle(world);
        }
        world_advance(world, 500);
    }
    assert_in_range(fake_backend_calls(world->backend, FAKE_CREATE), 3, 9);
    assert_true(refused > 15);
    world_advance(world, 30 * 1000);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    session_hold_end(&tried.hold);
}

static void a_crash_during_a_delete_ends_it_as_deleted(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    struct world_record record;
    struct ended ended;

    session_hold_end(&tried.hold);
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    world_end(world, session, END_DELETED, &ended);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_settle(world);
    assert_int_equal(ended.done, 1);
    assert_true(world_record(world, ended.op.id, &record));
    assert_string_equal(record.end_reason, "deleted");
}

static void a_delete_while_the_cause_of_a_crash_is_looked_for_works(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    struct ended ended;

    fake_backend_hold(world->backend, FAKE_INSPECT, true);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_CRASHED);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(tried.lost, 1);
    fake_backend_hold(world->backend, FAKE_INSPECT, false);
    world_settle(world);
    assert_int_equal(ended.done, 1);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

/* --- a lost connection says nothing about life ---------------------------------------------- */

static void a_lost_connection_to_a_living_init_is_made_again(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    struct agent *old = tried.hold.agent;

    fake_agent_lose(old);
    world_advance(world, 100);
    assert_int_equal(tried.lost, 0);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_ptr_equal(tried.hold.agent, sandbox_agent(session_sandbox(session)));
    assert_int_equal(session_generation(session), 1);
    assert_int_equal(fake_agent_count(), 1);
    session_hold_end(&tried.hold);
}

static void what_cannot_be_told_is_never_taken_for_dead(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct tried late;
    struct session *session = open_used(world, &tried);

    fake_backend_refuse(world->backend, FAKE_ADOPT, 5, ERR_BACKEND);
    fake_agent_lose(tried.hold.agent);
    world_advance(world, 1000);
    assert_int_equal(tried.lost, 0);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_UNKNOWN);
    world_use(world, session, &late);
    world_advance(world, 60 * 1000);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(tried.lost, 0);
    assert_int_equal(session_generation(session), 1);
    assert_int_equal(late.ready, 1);
    session_hold_end(&late.hold);
    session_hold_end(&tried.hold);
}

static void a_lost_connection_to_a_dead_init_is_a_crash(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);

    fake_backend_set_capabilities(world->backend, (struct backend_capabilities){ .freeze = true });
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    fake_agent_lose(tried.hold.agent);
    world_advance(world, 1000);
    assert_int_equal(tried.lost, 1);
    assert_int_equal(tried.hold.lost.kind, END_CRASHED);
    assert_null(session_sandbox(session));
}

/* Asked again, the backend says that it is dead; the cause comes later. */
static void a_backend_that_is_about_to_tell_a_cause_is_waited_for(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    const char *id = sandbox_id(session_sandbox(session));

    fake_backend_begin_end(world->backend, id);
    fake_agent_lose(tried.hold.agent);
    world_advance(world, 3000);
    assert_int_equal(tried.lost, 0);
    fake_backend_end(world->backend, id, (struct backend_end){ .detail = "restarted" });
    world_advance(world, 100);
    assert_int_equal(tried.lost, 1);
    assert_string_equal(tried.hold.lost.detail, "restarted");
}

/* A backend without news of ends: the lost connection makes the core ask. */
static void an_end_that_the_backend_does_not_report_is_found_by_asking(void **state)
{
    struct world *world = *state;
    struct session *session;
    struct tried tried;

    fake_backend_see_no_ends(world->backend);
    session = open_used(world, &tried);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_advance(world, 1000);
    assert_int_equal(tried.lost, 0);
    fake_agent_lose(tried.hold.agent);
    world_advance(world, 100);
    assert_int_equal(tried.lost, 1);
    assert_int_equal(tried.hold.lost.kind, END_CRASHED);
}

static void a_frozen_sandbox_that_dies_is_noticed(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);

    session_hold_end(&tried.hold);
    session_pause(session, NULL, NULL);
    world_settle(world);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_settle(world);
    assert_null(session_sandbox(session));
    assert_int_equal(session_state(session), SESSION_PAUSED);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 2);
    session_hold_end(&tried.hold);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_crash_is_seen_at_once_and_the_next_use_gets_a_new_generation),
        TEST(an_oom_kill_is_named),
        TEST(the_cause_is_what_the_backend_tells),
        TEST(oom_kills_of_earlier_executions_do_not_explain_a_crash),
        TEST(concurrent_users_of_a_crashed_session_cause_one_restart),
        TEST(without_auto_restart_a_crash_is_told_until_somebody_restarts),
        TEST(sandboxes_that_keep_crashing_are_not_restarted_without_pause),
        TEST(a_crash_during_a_delete_ends_it_as_deleted),
        TEST(a_delete_while_the_cause_of_a_crash_is_looked_for_works),
        TEST(a_lost_connection_to_a_living_init_is_made_again),
        TEST(what_cannot_be_told_is_never_taken_for_dead),
        TEST(a_lost_connection_to_a_dead_init_is_a_crash),
        TEST(a_backend_that_is_about_to_tell_a_cause_is_waited_for),
        TEST(an_end_that_the_backend_does_not_report_is_found_by_asking),
        TEST(a_frozen_sandbox_that_dies_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
