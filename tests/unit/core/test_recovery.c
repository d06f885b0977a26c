/* SPDX-License-Identifier: Apache-2.0 */
#include "core/metrics.h"
#include "core/sandbox/capacity.h"
#include "core/sandbox/sandbox.h"
#include "core/session/session_private.h"
#include "harness/fake_agent.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

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

static void on_controlled(struct session_op *op)
{
    container_of(op, struct ended, op)->done++;
}

static void on_committed(struct store_ticket *ticket)
{
    assert_int_equal(ticket->err->code, ERR_NONE);
}

static void commit_all(struct world *world)
{
    struct store_ticket ticket;

    store_commit(world->store, &ticket, on_committed);
    world_settle(world);
}

static void a_living_sandbox_is_adopted_and_keeps_its_generation(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];
    char sandbox[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    memcpy(sandbox, sandbox_id(session_sandbox(session)), sizeof(sandbox));
    for (int i = 0; i < 3; i++)
        world_restart(world);
    session = world_find(world, id);
    assert_string_equal(sandbox_id(session_sandbox(session)), sandbox);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(session_generation(session), 1);
    assert_int_equal(capacity_held(world->core->capacity), 1);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 1);
    assert_false(session_reset_is_pending(session));
    fake_backend_kill(world->backend, sandbox);
    world_settle(world);
    assert_int_equal(tried.lost, 1);
}

static void everything_about_a_session_survives(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct session *session;

    request.owner = "ann";
    request.key = "build";
    request.on_behalf_of = "carol";
    request.labels_json = "{\"team\":\"core\"}";
    request.env_json = "{\"A\":\"1\"}";
    request.limits.pids = 33;
    request.network = NETWORK_OPEN;
    request.timeout_ms = 100000;
    request.on_timeout = TIMEOUT_PAUSE;
    request.auto_restart = 0;
    request.auto_resume = 0;
    assert_non_null(world_open(world, &request, &opened));
    world_restart(world);
    session = session_find(world->core, "ann", false, "key:build");
    assert_non_null(session);
    assert_string_equal(session_id(session), opened.op.id);
    assert_string_equal(session_on_behalf_of(session), "carol");
    assert_string_equal(session_labels_json(session), "{\"team\":\"core\"}");
    assert_string_equal(session_env_json(session), "{\"A\":\"1\"}");
    assert_int_equal(session_limits(session)->pids, 33);
    assert_int_equal(session_limits(session)->memory_bytes, 2ULL << 30);
    assert_int_equal(session_network(session)->mode, NETWORK_OPEN);
    assert_int_equal(session_timeout_ms(session), 100000);
    assert_int_equal(session->policy.on_timeout, TIMEOUT_PAUSE);
    assert_false(session->policy.auto_restart);
    assert_false(session->policy.auto_resume);
    assert_int_equal(session_lease_remaining_ms(session), 100000);
}

static void a_sandbox_that_died_meanwhile_is_a_crash_and_the_session_stays(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_restart(world);
    session = world_find(world, id);
    assert_non_null(session);
    assert_null(session_sandbox(session));
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(world_events(world, id, "sandbox.crashed"), 1);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.generation, 2);
    session_hold_end(&tried.hold);
}

static void a_sandbox_that_cannot_be_asked_about_is_kept(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    fake_backend_refuse(world->backend, FAKE_ADOPT, 3, ERR_BACKEND);
    world_restart(world);
    session = world_find(world, id);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_UNKNOWN);
    assert_int_equal(fake_backend_count(world->backend), 1);
    world_advance(world, 5000);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(session_generation(session), 1);
}

/* Files are packed by init, which is not connected yet. */
static void a_session_that_keeps_files_ends_when_its_sandbox_is_known(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    session->policy.keep_files = true;
    session_changed(session);
    commit_all(world);
    fake_backend_refuse(world->backend, FAKE_ADOPT, 3, ERR_BACKEND);
    world_restart(world);
    session = world_find(world, id);
    assert_true(session->policy.keep_files);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_UNKNOWN);
    session_end(session, END_DELETED, NULL, NULL, NULL);
    world_settle(world);
    assert_int_equal(session_state(session), SESSION_ENDING);
    assert_int_equal(fake_backend_count(world->backend), 1);
    world_advance(world, 5000);
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(world_events(world, id, "session.ended"), 1);
}

/* A daemon that is killed between the record of a sandbox and the answer of its init. */
static void the_first_daemon_that_reaches_a_new_sandbox_says_that_it_is_ready(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct session *session;
    char id[ID_SIZE];

    request.preload = 1;
    fake_agent_be_silent(true);
    session = world_open(world, &request, &opened);
    memcpy(id, session_id(session), sizeof(id));
    commit_all(world);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_CREATING);
    world_kill(world, false);
    world_start(world); /* still silent: this one cannot say it either */
    assert_int_equal(world_events(world, id, "sandbox.ready"), 0);
    world_kill(world, false);
    fake_agent_be_silent(false);
    for (int i = 0; i < 2; i++) {
        world_start(world);
        session = world_find(world, id);
        assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
        assert_int_equal(session_generation(session), 1);
        assert_int_equal(world_events(world, id, "sandbox.creating"), 1);
        assert_int_equal(world_events(world, id, "sandbox.ready"), 1);
        world_kill(world, false);
    }
    world_start(world);
}

/* --- a sandbox that does not answer concerns its session alone ------------------------------- */

/* The daemon comes back, and the init of the only sandbox does not answer. */
static struct session *restart_with_silent_init(struct world *world)
{
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    session_hold_end(&tried.hold);
    commit_all(world);
    world_kill(world, false);
    fake_agent_be_silent(true);
    world_start(world);
    fake_agent_be_silent(false);
    session = world_find(world, id);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_UNKNOWN);
    return session;
}

static void a_silent_sandbox_delays_nobody_and_its_uses_are_answered(void **state)
{
    struct world *world = *state;
    struct session *session = restart_with_silent_init(world);
    struct tried tried;

    (void)open_used(world, &tried);
    session_hold_end(&tried.hold);
    for (int i = 0; i < 2; i++) {
        world_use(world, session, &tried);
        assert_int_equal(tried.ready, 0);
        world_advance(world, 11 * 1000);
        assert_int_equal(tried.ready, 1);
        assert_int_equal(tried.hold.err.code, ERR_TIMEOUT);
        assert_string_equal(tried.hold.err.name, "sandbox_unknown");
        assert_true(tried.hold.err.retryable);
    }
    assert_int_equal(fake_backend_count(world->backend), 2);
}

static void a_sandbox_that_stays_silent_is_replaced(void **state)
{
    struct world *world = *state;
    struct session *session = restart_with_silent_init(world);
    struct tried tried;

    world_advance(world, world->config.sandbox.silence_timeout_ms + 1);
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(world_events(world, session_id(session), "sandbox.crashed"), 1);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 2);
    session_hold_end(&tried.hold);
}

static void a_silent_sandbox_can_be_paused_resumed_and_torn_down(void **state)
{
    struct world *world = *state;
    struct session *session = restart_with_silent_init(world);
    struct ended paused = { 0 };
    struct tried tried;

    session_pause(session, &paused.op, on_controlled);
    world_settle(world);
    assert_int_equal(paused.done, 1);
    assert_int_equal(paused.op.err.code, ERR_NONE);
    assert_true(fake_backend_is_frozen(world->backend, sandbox_id(session_sandbox(session))));
    world_use(world, session, &tried); /* resumes it, and its init answers now */
    world_settle(world);
    assert_int_equal(tried.ready, 1);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 1);
    session_hold_end(&tried.hold);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

struct asked {
    struct agent_request request;
    unsigned answers;
};

static void on_asked(struct agent_request *request)
{
    container_of(request, struct asked, request)->answers++;
}

/* It was asked for something while it is not known whether it answers; then nobody waits for it. */
static void what_a_paused_sandbox_was_asked_fails(void **state)
{
    struct world *world = *state;
    struct asked asked = { 0 };
    struct ended paused = { 0 };
    struct tried tried;
    struct session *session = open_used(world, &tried);

    fake_agent_be_silent(true);
    fake_agent_lose(sandbox_agent(session_sandbox(session)));
    world_advance(world, 100);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_UNKNOWN);
    assert_non_null(tried.hold.agent);
    agent_signal(tried.hold.agent, 1, 9, SCOPE_PROCESS, &asked.request, on_asked);
    session_pause(session, &paused.op, on_controlled);
    fake_agent_be_silent(false);
    world_settle(world);
    assert_int_equal(paused.op.err.code, ERR_NONE);
    assert_int_equal(asked.answers, 1);
    assert_int_equal(asked.request.err.code, ERR_BACKEND);
    session_hold_end(&tried.hold);
}

static void a_backend_that_does_not_answer_delays_no_start(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    world_kill(world, false);
    fake_backend_hold(world->backend, FAKE_ADOPT, true);
    fake_backend_hold(world->backend, FAKE_LIST, true);
    world_start(world);
    assert_int_equal(sandbox_state(session_sandbox(world_find(world, id))), SANDBOX_UNKNOWN);
    (void)open_used(world, &tried);
    fake_backend_hold(world->backend, FAKE_LIST, false);
    fake_backend_hold(world->backend, FAKE_ADOPT, false);
    world_settle(world);
    assert_int_equal(sandbox_state(session_sandbox(world_find(world, id))), SANDBOX_READY);
    assert_int_equal(fake_backend_count(world->backend), 2);
    session_hold_end(&tried.hold);
}

/* --- pausing, and a kill at any moment of it -------------------------------------------------- */

static void a_pause_that_was_not_answered_holds_after_a_restart(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];
    char sandbox[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    memcpy(sandbox, sandbox_id(session_sandbox(session)), sizeof(sandbox));
    session_hold_end(&tried.hold);
    commit_all(world);
    fake_backend_hold(world->backend, FAKE_FREEZE, true);
    session_pause(session, NULL, NULL);
    world_settle(world);
    world_kill(world, true);
    assert_true(fake_backend_is_frozen(world->backend, sandbox));
    fake_backend_hold(world->backend, FAKE_FREEZE, false);
    world_start(world);
    world_settle(world);
    session = world_find(world, id);
    assert_int_equal(session_state(session), SESSION_PAUSED);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_FROZEN);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 1);
    assert_false(fake_backend_is_frozen(world->backend, sandbox));
    session_hold_end(&tried.hold);
}

/* Otherwise the next daemon would take its own freeze for one of others. */
static void a_sandbox_is_frozen_only_when_that_is_recorded(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char sandbox[ID_SIZE];

    memcpy(sandbox, sandbox_id(session_sandbox(session)), sizeof(sandbox));
    session_hold_end(&tried.hold);
    commit_all(world);
    session_pause(session, NULL, NULL);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_FREEZE), 0);
    world_kill(world, true);
    assert_false(fake_backend_is_frozen(world->backend, sandbox));
    world_start(world);
}

static void a_recorded_pause_that_did_not_reach_the_kernel_is_made_true(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    session_hold_end(&tried.hold);
    fake_backend_hold(world->backend, FAKE_FREEZE, true);
    session_pause(session, NULL, NULL);
    commit_all(world);
    world_kill(world, false);
    fake_backend_hold(world->backend, FAKE_FREEZE, false);
    fake_agent_be_silent(true); /* a pause does not need its init */
    world_start(world);
    world_settle(world);
    session = world_find(world, id);
    assert_int_equal(session_state(session), SESSION_PAUSED);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_FROZEN);
    assert_true(fake_backend_is_frozen(world->backend, sandbox_id(session_sandbox(session))));
}

static void a_session_paused_before_a_restart_is_resumed_when_asked(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct ended resumed = { 0 };
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    session_hold_end(&tried.hold);
    session_pause(session, NULL, NULL);
    commit_all(world);
    world_restart(world);
    session = world_find(world, id);
    session_resume(session, &resumed.op, on_controlled);
    world_settle(world);
    assert_int_equal(resumed.done, 1);
    assert_int_equal(resumed.op.err.code, ERR_NONE);
    assert_int_equal(session_state(session), SESSION_OPEN);
    world_settle(world);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
}

static void no_pause_is_said_to_have_worked_that_was_overtaken(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct ended paused = { 0 };
    struct ended resumed = { 0 };
    struct session *session = open_used(world, &tried);

    fake_backend_hold(world->backend, FAKE_FREEZE, true);
    session_pause(session, &paused.op, on_controlled);
    session_resume(session, &resumed.op, on_controlled);
    world_settle(world);
    assert_int_equal(paused.done + resumed.done, 0);
    fake_backend_hold(world->backend, FAKE_FREEZE, false);
    world_settle(world);
    assert_int_equal(session_state(session), SESSION_OPEN);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
    assert_int_equal(resumed.op.err.code, ERR_NONE);
    assert_int_equal(paused.done + resumed.done, 2);
    assert_int_equal(paused.op.err.code, ERR_CONFLICT);
    session_hold_end(&tried.hold);
}

static void resume_behind_the_creation_of_a_session_is_answered(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct ended resumed = { 0 };
    struct tried tried;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    world_use(world, session, &tried);
    session_resume(session, &resumed.op, on_controlled);
    world_settle(world);
    assert_int_equal(resumed.done, 1);
    assert_int_equal(resumed.op.err.code, ERR_NONE);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    session_hold_end(&tried.hold);
}

static void a_pause_that_takes_too_long_is_answered(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct ended paused = { 0 };
    struct session *session = open_used(world, &tried);

    session_hold_end(&tried.hold);
    fake_backend_hold(world->backend, FAKE_FREEZE, true);
    session_pause(session, &paused.op, on_controlled);
    world_advance(world, 11 * 1000);
    assert_int_equal(paused.done, 1);
    assert_int_equal(paused.op.err.code, ERR_TIMEOUT);
    assert_true(paused.op.err.retryable);
    fake_backend_hold(world->backend, FAKE_FREEZE, false);
    world_settle(world);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_FROZEN);
}

/* --- death that nobody has told yet ------------------------------------------------------------
 */

static void a_use_right_behind_a_death_gets_a_new_sandbox(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    struct tried second = { 0 };

    session_hold_end(&tried.hold);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    world_use(world, session, &second);
    world_settle(world);
    assert_int_equal(second.ready, 1);
    assert_int_equal(second.hold.err.code, ERR_NONE);
    assert_int_equal(second.hold.generation, 2);
    assert_int_equal(second.lost, 0);
    session_hold_end(&second.hold);
}

static void a_refused_connection_fails_no_use(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct tried second;
    struct session *session = open_used(world, &tried);

    session_hold_end(&tried.hold);
    fake_backend_refuse_connect(world->backend, true);
    fake_agent_lose(sandbox_agent(session_sandbox(session)));
    world_use(world, session, &second);
    world_advance(world, 50);
    assert_int_equal(second.ready, 0);
    fake_backend_kill(world->backend, sandbox_id(session_sandbox(session)));
    fake_backend_refuse_connect(world->backend, false);
    world_advance(world, 1000);
    assert_int_equal(second.ready, 1);
    assert_int_equal(second.hold.err.code, ERR_NONE);
    assert_int_equal(second.hold.generation, 2);
    session_hold_end(&second.hold);
}

static void a_sandbox_that_cannot_be_removed_refuses_each_use_with_the_reason(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);

    session_hold_end(&tried.hold);
    fake_backend_refuse(world->backend, FAKE_DESTROY, 3, ERR_BACKEND);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    for (int i = 0; i < 2; i++) {
        world_use(world, session, &tried);
        assert_int_equal(tried.ready, 1);
        assert_int_equal(tried.hold.err.code, ERR_UNAVAILABLE);
        assert_string_equal(tried.hold.err.name, "sandbox_not_removed");
        assert_true(tried.hold.err.retryable);
    }
    world_advance(world, 60 * 1000);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    session_hold_end(&tried.hold);
}

static void a_removal_without_an_answer_keeps_no_use_waiting(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);

    session_hold_end(&tried.hold);
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    session_teardown(session, END_TEARDOWN);
    world_use(world, session, &tried);
    world_advance(world, 11 * 1000);
    assert_int_equal(tried.ready, 1);
    assert_int_equal(tried.hold.err.code, ERR_TIMEOUT);
    assert_string_equal(tried.hold.err.name, "sandbox_not_removed");
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_settle(world);
}

static void what_was_half_made_is_undone(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;
    char id[ID_SIZE];

    for (int effect = 0; effect < 2; effect++) {
        memcpy(id, session_id(session), sizeof(id));
        fake_backend_hold(world->backend, FAKE_CREATE, true);
        world_use(world, session, &tried);
        world_kill(world, effect);
        assert_int_equal(fake_backend_count(world->backend), effect);
        fake_backend_hold(world->backend, FAKE_CREATE, false);
        world_start(world);
        assert_int_equal(fake_backend_count(world->backend), 0);
        assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
        assert_int_equal(capacity_held(world->core->capacity), 0);
        session = world_find(world, id);
    }
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 1);
    session_hold_end(&tried.hold);
}

static void what_was_half_removed_is_finished(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    struct world_record record;
    struct ended ended;

    session_hold_end(&tried.hold);
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    world_end(world, session, END_BUDGET, &ended);
    world_kill(world, false);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_start(world);
    assert_null(world_find(world, ended.op.id));
    assert_true(world_record(world, ended.op.id, &record));
    assert_string_equal(record.state, "ended");
    assert_string_equal(record.end_reason, "budget");
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
    assert_int_equal(world_events(world, ended.op.id, "session.ended"), 1);
}

static void a_teardown_that_was_under_way_is_finished_and_the_session_stays(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    session_hold_end(&tried.hold);
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    world_kill(world, false);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_start(world);
    session = world_find(world, id);
    assert_non_null(session);
    assert_null(session_sandbox(session));
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.generation, 2);
    session_hold_end(&tried.hold);
}

static void orphans_of_this_instance_are_removed(void **state)
{
    struct world *world = *state;
    struct tried tried;
    char id[ID_SIZE];

    open_used(world, &tried);
    id_make(id, ID_SANDBOX);
    world_kill(world, false);
    fake_backend_add(world->backend, id);
    world_start(world);
    assert_false(fake_backend_has(world->backend, id));
    assert_int_equal(fake_backend_count(world->backend), 1);
    assert_int_equal(world->core->metrics->values[METRIC_SWEEP_REMOVED][0], 1);
    assert_int_equal(capacity_held(world->core->capacity), 1);
}

static void a_backend_that_cannot_list_does_not_stop_the_start(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    fake_backend_refuse(world->backend, FAKE_LIST, 1, ERR_BACKEND);
    world_restart(world);
    assert_int_equal(sandbox_state(session_sandbox(world_find(world, id))), SANDBOX_READY);
}

static void a_paused_session_stays_paused_and_thaws_later(void **state)
{
    struct world *world = *state;
    struct tried tried;
    struct session *session = open_used(world, &tried);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    session_hold_end(&tried.hold);
    session_pause(session, NULL, NULL);
    world_settle(world);
    world_restart(world);
    session = world_find(world, id);
    assert_int_equal(session_state(session), SESSION_PAUSED);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_FROZEN);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 1);
    assert_false(fake_backend_is_frozen(world->backend, sandbox_id(session_sandbox(session))));
    session_hold_end(&tried.hold);
}

static void a_create_that_was_not_durable_is_gone_and_one_that_was_is_there(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened durable;
    struct opened lost;

    request.preload = 1;
    assert_non_null(world_open(world, &request, &durable));
    fake_store_hold(world->store, true);
    world_open(world, &request, &lost);
    assert_false(lost.done);
    world_restart(world);
    assert_non_null(world_find(world, durable.op.id));
    assert_null(world_find(world, lost.op.id));
    assert_int_equal(fake_backend_count(world->backend), 1);
}

/* One of an early version, or of another program. */
static void put_record_without_times(struct world *world, const char *id, int64_t duration_ms)
{
    struct session_record record = { .owner = "ann", .state = "open", .spec_json = "{}" };

    snprintf(record.id, sizeof(record.id), "%s", id);
    record.idle_timeout_ms = record.max_lifetime_ms = duration_ms;
    store_put_session(world->store, &record);
}

static void records_without_times_or_durations_get_those_of_the_settings_and_end(void **state)
{
    struct world *world = *state;
    const struct session *session;

    put_record_without_times(world, "ses_00000000000000000000000001", 0);
    put_record_without_times(world, "ses_00000000000000000000000002", -1);
    put_record_without_times(world, "ses_00000000000000000000000003", INT64_MAX);
    commit_all(world);
    world_restart(world);
    assert_int_equal(world->core->sessions_by_id.count, 3);
    session_for_each (session, world->core) {
        assert_int_equal(session_idle_timeout_ms(session), world->config.session.idle_timeout_ms);
        assert_int_equal(session_max_lifetime_ms(session), world->config.session.max_lifetime_ms);
        assert_true(session_created(session).wall_us > 0 &&
                    session_last_activity(session).wall_us > 0);
    }
    world_restart(world); /* the clocks do not begin anew each time */
    world_advance(world, world->config.session.idle_timeout_ms + 1000);
    world_settle(world);
    assert_int_equal(world->core->sessions_by_id.count, 0);
}

static void a_storm_of_restarts_leaks_nothing(void **state)
{
    struct world *world = *state;
    struct tried tried;
    char ids[5][ID_SIZE];

    for (int i = 0; i < 5; i++) {
        struct session *session = open_used(world, &tried);

        memcpy(ids[i], session_id(session), ID_SIZE);
    }
    for (int i = 0; i < 20; i++)
        world_restart(world);
    assert_int_equal(fake_backend_count(world->backend), 5);
    assert_int_equal(capacity_held(world->core->capacity), 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(session_generation(world_find(world, ids[i])), 1);
}

static void a_thousand_live_sandboxes_are_adopted_without_waiting_for_each_other(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;

    world->config.capacity.max_per_owner = 0;
    request.preload = 1;
    for (int i = 0; i < 1000; i++) {
        struct opened opened;

        assert_non_null(world_open(world, &request, &opened));
    }
    assert_int_equal(fake_backend_alive(world->backend), 1000);
    world_kill(world, false);
    world_start(world); /* in a few turns, while the clock stands still */
    assert_int_equal(world->core->sessions_by_id.count, 1000);
    assert_int_equal(capacity_held(world->core->capacity), 1000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_living_sandbox_is_adopted_and_keeps_its_generation),
        TEST(the_first_daemon_that_reaches_a_new_sandbox_says_that_it_is_ready),
        TEST(everything_about_a_session_survives),
        TEST(a_sandbox_that_died_meanwhile_is_a_crash_and_the_session_stays),
        TEST(a_sandbox_that_cannot_be_asked_about_is_kept),
        TEST(a_session_that_keeps_files_ends_when_its_sandbox_is_known),
        TEST(a_silent_sandbox_delays_nobody_and_its_uses_are_answered),
        TEST(a_sandbox_that_stays_silent_is_replaced),
        TEST(a_silent_sandbox_can_be_paused_resumed_and_torn_down),
        TEST(what_a_paused_sandbox_was_asked_fails),
        TEST(a_backend_that_does_not_answer_delays_no_start),
        TEST(a_pause_that_was_not_answered_holds_after_a_restart),
        TEST(a_sandbox_is_frozen_only_when_that_is_recorded),
        TEST(a_recorded_pause_that_did_not_reach_the_kernel_is_made_true),
        TEST(a_session_paused_before_a_restart_is_resumed_when_asked),
        TEST(no_pause_is_said_to_have_worked_that_was_overtaken),
        TEST(resume_behind_the_creation_of_a_session_is_answered),
        TEST(a_pause_that_takes_too_long_is_answered),
        TEST(a_use_right_behind_a_death_gets_a_new_sandbox),
        TEST(a_refused_connection_fails_no_use),
        TEST(a_sandbox_that_cannot_be_removed_refuses_each_use_with_the_reason),
        TEST(a_removal_without_an_answer_keeps_no_use_waiting),
        TEST(what_was_half_made_is_undone),
        TEST(what_was_half_removed_is_finished),
        TEST(a_teardown_that_was_under_way_is_finished_and_the_session_stays),
        TEST(orphans_of_this_instance_are_removed),
        TEST(a_backend_that_cannot_list_does_not_stop_the_start),
        TEST(a_paused_session_stays_paused_and_thaws_later),
        TEST(a_create_that_was_not_durable_is_gone_and_one_that_was_is_there),
        TEST(records_without_times_or_durations_get_those_of_the_settings_and_end),
        TEST(a_storm_of_restarts_leaks_nothing),
        TEST(a_thousand_live_sandboxes_are_adopted_without_waiting_for_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
