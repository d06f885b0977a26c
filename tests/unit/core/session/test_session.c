/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/capacity.h"
#include "core/sandbox/sandbox.h"
#include "core/session/session_private.h"
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
    return 0;
}

/* --- opening ------------------------------------------------------------------------------- */

static void a_new_session_is_durable_when_it_is_answered(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    fake_store_hold(world->store, true);
    assert_null(world_open(world, &request, &opened));
    assert_false(opened.done);
    fake_store_hold(world->store, false);
    world_settle(world);
    assert_true(opened.done);
    assert_true(opened.op.created);
    assert_int_equal(fake_store_count(world->store, STORE_SESSIONS), 1);
}

static void a_new_session_tells_when_it_was_made_and_how_long_it_has(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    int64_t left_ms;

    assert_true(session_created(session).wall_us > 0);
    assert_true(session_last_activity(session).wall_us > 0);
    assert_int_equal(session_next_end(session, &left_ms), END_IDLE);
    assert_int_equal(left_ms, 30 * 60 * 1000);
}

static void the_same_owner_and_key_give_the_same_session(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened first;
    struct opened second;

    request.owner = "ann";
    request.key = "build";
    assert_non_null(world_open(world, &request, &first));
    assert_ptr_equal(world_open(world, &request, &second), first.op.session);
    assert_false(second.op.created);
    request.owner = "bob";
    assert_ptr_not_equal(world_open(world, &request, &second), first.op.session);
    assert_true(second.op.created);
}

static void concurrent_opens_of_one_key_make_one_session_and_all_wait_for_it(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened first;
    struct opened second;

    request.key = "build";
    fake_store_hold(world->store, true);
    world_open(world, &request, &first);
    world_open(world, &request, &second);
    assert_false(first.done || second.done);
    fake_store_hold(world->store, false);
    world_settle(world);
    assert_true(first.done && second.done);
    assert_ptr_equal(first.op.session, second.op.session);
    assert_true(first.op.created);
    assert_false(second.op.created);
}

static void a_key_with_other_limits_is_refused(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.key = "build";
    assert_non_null(world_open(world, &request, &opened));
    request.limits.memory_bytes = 1 << 30;
    assert_null(world_open(world, &request, &opened));
    assert_int_equal(opened.op.err.code, ERR_CONFLICT);
    assert_string_equal(opened.op.err.name, "parameters_differ");
    request.limits.memory_bytes = 2ULL << 30;
    assert_non_null(world_open(world, &request, &opened));
}

static void opening_again_and_keepalive_are_activity(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct error err = { 0 };
    struct session *session;

    request.key = "build";
    request.idle_timeout_ms = 1500;
    session = world_open(world, &request, &opened);
    for (int i = 0; i < 10; i++) {
        world_advance(world, 1000);
        assert_ptr_equal(world_open(world, &request, &opened), session);
        assert_int_equal(session_idle_remaining_ms(session), 1500);
    }
    for (int i = 0; i < 10; i++) {
        world_advance(world, 1000);
        assert_int_equal(session_keepalive(session, 0, false, &err), 0);
    }
    world_advance(world, 1499);
    assert_int_equal(session_state(session), SESSION_OPEN);
    world_advance(world, 2);
    assert_null(world_find(world, opened.op.id));
}

static void opening_again_changes_what_can_be_changed(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct session *session;

    request.key = "build";
    request.timeout_ms = 60 * 1000;
    session = world_open(world, &request, &opened);
    request.timeout_ms = 3600 * 1000;
    request.idle_timeout_ms = 7 * 1000;
    request.max_lifetime_ms = 8 * 3600 * 1000;
    request.labels_json = "{\"a\":\"b\"}";
    request.keep_files = request.auto_restart = 0;
    request.on_timeout = TIMEOUT_PAUSE;
    assert_ptr_equal(world_open(world, &request, &opened), session);
    assert_int_equal(session_lease_remaining_ms(session), 3600 * 1000);
    assert_int_equal(session_idle_timeout_ms(session), 7 * 1000);
    assert_int_equal(session_max_lifetime_ms(session), 8 * 3600 * 1000);
    assert_string_equal(session_labels_json(session), "{\"a\":\"b\"}");
    assert_false(session->policy.auto_restart);
    assert_int_equal(session->policy.on_timeout, TIMEOUT_PAUSE);
    request.timeout_ms = 60 * 1000; /* a lease is never made shorter by that */
    assert_ptr_equal(world_open(world, &request, &opened), session);
    assert_int_equal(session_lease_remaining_ms(session), 3600 * 1000);
}

static void opening_again_with_another_environment_is_refused(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.key = "build";
    request.env_json = "{\"A\":\"1\",\"B\":\"2\"}";
    assert_non_null(world_open(world, &request, &opened));
    request.env_json = "{\"B\":\"2\",\"A\":\"1\"}";
    assert_non_null(world_open(world, &request, &opened));
    request.env_json = NULL;
    assert_non_null(world_open(world, &request, &opened));
    request.env_json = "{\"A\":\"1\"}";
    request.idle_timeout_ms = 1;
    assert_null(world_open(world, &request, &opened));
    assert_string_equal(opened.op.err.name, "parameters_differ");
    assert_non_null(strstr(opened.op.err.message, "env"));
    world_advance(world, 1000); /* what is refused changes nothing */
    request.env_json = NULL;
    request.idle_timeout_ms = -1;
    assert_non_null(world_open(world, &request, &opened));
    assert_false(opened.op.created);
}

static void a_repeated_idempotency_key_gives_the_same_session_even_after_a_restart(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    char id[ID_SIZE];

    request.owner = "ann";
    request.idempotency_key = "4f1";
    assert_non_null(world_open(world, &request, &opened));
    memcpy(id, opened.op.id, sizeof(id));
    world_restart(world);
    assert_non_null(world_open(world, &request, &opened));
    assert_string_equal(session_id(opened.op.session), id);
    assert_false(opened.op.created);
    request.limits.pids = 7;
    assert_null(world_open(world, &request, &opened));
    assert_int_equal(opened.op.err.code, ERR_CONFLICT);
}

static void an_idempotency_key_is_forgotten_after_a_day(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    char id[ID_SIZE];

    request.idempotency_key = "4f1";
    request.idle_timeout_ms = request.max_lifetime_ms = 0;
    assert_non_null(world_open(world, &request, &opened));
    memcpy(id, opened.op.id, sizeof(id));
    world_advance(world, 24LL * 3600 * 1000 + 1);
    assert_non_null(world_open(world, &request, &opened));
    assert_string_not_equal(session_id(opened.op.session), id);
}

/* How long it is kept is how long that is, whatever the wall clock says meanwhile. */
static void an_idempotency_key_outlives_a_wall_clock_that_is_set(void **state)
{
    static const int64_t hours[] = { 25, -50, 24 * 400, -24 * 500 };
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    char id[ID_SIZE];

    request.idempotency_key = "4f1";
    request.idle_timeout_ms = request.max_lifetime_ms = 0;
    assert_non_null(world_open(world, &request, &opened));
    memcpy(id, opened.op.id, sizeof(id));
    for (size_t i = 0; i < ARRAY_LENGTH(hours); i++) {
        world->clock.wall_us += hours[i] * 3600 * 1000 * 1000;
        world_advance(world, 1000);
        assert_non_null(world_open(world, &request, &opened));
        assert_string_equal(session_id(opened.op.session), id);
        world_restart(world);
        assert_non_null(world_open(world, &request, &opened));
        assert_string_equal(session_id(opened.op.session), id);
        assert_false(opened.op.created);
    }
}

static void an_idempotency_key_of_an_ended_session_says_so(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct ended ended;

    request.idempotency_key = "4f1";
    assert_non_null(world_open(world, &request, &opened));
    world_end(world, opened.op.session, END_DELETED, &ended);
    assert_null(world_open(world, &request, &opened));
    assert_int_equal(opened.op.err.code, ERR_GONE);
    assert_string_equal(opened.op.id, ended.op.id);
}

static void a_failed_commit_fails_the_request_and_leaves_nothing(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.key = "build";
    request.preload = 1;
    fake_store_fail_next(world->store, ERR_NO_SPACE);
    assert_null(world_open(world, &request, &opened));
    assert_true(opened.done);
    assert_int_equal(opened.op.err.code, ERR_NO_SPACE);
    assert_int_equal(world->core->sessions_by_id.count, 0);
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(fake_store_count(world->store, STORE_SESSIONS), 0);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
    assert_non_null(world_open(world, &request, &opened));
}

static void preload_starts_the_sandbox_before_the_first_use(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.preload = 1;
    assert_non_null(world_open(world, &request, &opened));
    assert_int_equal(sandbox_state(session_sandbox(opened.op.session)), SANDBOX_READY);
    assert_int_equal(fake_backend_count(world->backend), 1);
}

static void a_stranger_finds_nothing(void **state)
{
    struct world *world = *state;
    const struct session *session = world_open_simple(world, "ann", "build");

    assert_null(session_find(world->core, "bob", false, session_id(session)));
    assert_null(session_find(world->core, "", false, session_id(session)));
    assert_null(session_find(world->core, "bob", false, "key:build"));
    assert_ptr_equal(session_find(world->core, "ann", false, "key:build"), session);
    assert_ptr_equal(session_find(world->core, "ann", false, session_id(session)), session);
    assert_ptr_equal(session_find(world->core, "bob", true, session_id(session)), session);
}

/* --- ends ---------------------------------------------------------------------------------- */

static struct session *open_used(struct world *world)
{
    struct session *session = world_open_simple(world, "ann", "build");
    struct tried tried;

    world_use(world, session, &tried);
    assert_int_equal(tried.ready, 1);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    session_hold_end(&tried.hold);
    return session;
}

static void an_end_is_answered_only_when_the_sandbox_is_gone_and_the_record_written(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct world_record record;
    struct ended ended;

    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(ended.done, 0);
    assert_int_equal(session_state(session), SESSION_ENDING);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_DESTROYING);
    fake_store_hold(world->store, true);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_settle(world);
    assert_int_equal(ended.done, 0);
    fake_store_hold(world->store, false);
    world_settle(world);
    assert_int_equal(ended.done, 1);
    assert_null(world_find(world, ended.op.id));
    assert_true(world_record(world, ended.op.id, &record));
    assert_string_equal(record.state, "ended");
    assert_string_equal(record.end_reason, "deleted");
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
    assert_int_equal(capacity_held(world->core->capacity), 0);
}

static void callers_that_end_it_at_once_share_one_end_and_the_first_reason(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct ended first;
    struct ended second;
    struct ended third;
    struct world_record record;

    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    world_end(world, session, END_BUDGET, &first);
    world_end(world, session, END_DELETED, &second);
    world_end(world, session, END_IDLE, &third);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_settle(world);
    assert_int_equal(first.done + second.done + third.done, 3);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_DESTROY), 1);
    assert_true(world_record(world, first.op.id, &record));
    assert_string_equal(record.end_reason, "budget");
    assert_int_equal(world_events(world, first.op.id, "session.ended"), 1);
}

static void a_failing_removal_is_visible_and_retried_until_it_works(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct ended ended;

    fake_backend_refuse(world->backend, FAKE_DESTROY, 3, ERR_BACKEND);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(ended.done, 0);
    assert_int_equal(sandbox_attempts(session_sandbox(session)), 1);
    assert_string_equal(sandbox_last_error(session_sandbox(session))->message,
                        "refused, as the test asked");
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 1);
    assert_int_equal(capacity_held(world->core->capacity), 1);
    world_advance(world, 60 * 1000);
    assert_int_equal(ended.done, 1);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_DESTROY), 4);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void a_removal_that_never_works_is_tried_at_a_bounded_rate(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct ended ended;
    unsigned before;

    fake_backend_refuse(world->backend, FAKE_DESTROY, 1000000, ERR_BACKEND);
    world_end(world, session, END_DELETED, &ended);
    world_advance(world, 10 * 60 * 1000);
    before = fake_backend_calls(world->backend, FAKE_DESTROY);
    world_advance(world, 10 * 60 * 1000);
    assert_in_range(fake_backend_calls(world->backend, FAKE_DESTROY) - before, 19, 21);
    assert_int_equal(ended.op.err.code, ERR_TIMEOUT);
    world_end(world, session, END_DELETED, &ended);
    fake_backend_refuse(world->backend, FAKE_DESTROY, 0, ERR_NONE);
    world_advance(world, 30 * 1000);
    assert_int_equal(ended.done, 1);
    assert_null(world_find(world, ended.op.id));
}

static void a_store_that_fails_does_not_keep_the_sandbox_alive(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct ended ended;

    fake_store_fail_next(world->store, ERR_NO_SPACE);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(fake_backend_count(world->backend), 0);
    world_advance(world, 5000);
    assert_int_equal(ended.done, 1);
    assert_null(world_find(world, ended.op.id));
}

static void an_end_that_cannot_be_recorded_fails_the_request_and_is_recorded_later(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct world_record record;
    struct ended ended;
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    fake_store_fail_next(world->store, ERR_NO_SPACE);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(ended.done, 1);
    assert_int_equal(ended.op.err.code, ERR_NO_SPACE);
    assert_non_null(world_find(world, id));
    world_advance(world, 5000);
    assert_null(world_find(world, id));
    assert_true(world_record(world, id, &record));
    assert_string_equal(record.state, "ended");
}

/* The record of the end is asked for as written, because that of the decision will be synced. */
static void end_with_both_records_on_their_way(struct world *world, struct ended *ended)
{
    struct session *session = world_open_simple(world, "ann", NULL);

    fake_store_hold(world->store, true);
    world_end(world, session, END_DELETED, ended);
    assert_int_equal(fake_store_waiting(world->store, STORE_SYNCED), 1);
    assert_int_equal(fake_store_waiting(world->store, STORE_WRITTEN), 1);
}

static void assert_end_is_recorded_again_as_synced(struct world *world, struct ended *ended)
{
    struct world_record record;

    world_settle(world);
    assert_int_equal(ended->done, 0);
    assert_non_null(world_find(world, ended->op.id));
    assert_int_equal(fake_store_waiting(world->store, STORE_SYNCED), 1);
    assert_int_equal(fake_store_waiting(world->store, STORE_WRITTEN), 0);
    fake_store_hold(world->store, false);
    world_settle(world);
    assert_int_equal(ended->done, 1);
    assert_int_equal(ended->op.err.code, ERR_NONE);
    assert_null(world_find(world, ended->op.id));
    assert_true(world_record(world, ended->op.id, &record));
    assert_string_equal(record.state, "ended");
    assert_int_equal(world_events(world, ended->op.id, "session.ended"), 1);
}

static void an_end_is_synced_when_its_decision_was_lost_before_the_end_was_recorded(void **state)
{
    struct world *world = *state;
    struct ended ended;

    end_with_both_records_on_their_way(world, &ended);
    fake_store_answer(world->store, STORE_SYNCED, ERR_NO_SPACE);
    assert_int_equal(ended.done, 0);
    fake_store_answer(world->store, STORE_WRITTEN, ERR_NONE);
    assert_end_is_recorded_again_as_synced(world, &ended);
}

static void an_end_is_synced_when_its_decision_is_lost_after_the_end_was_recorded(void **state)
{
    struct world *world = *state;
    struct ended ended;

    end_with_both_records_on_their_way(world, &ended);
    fake_store_answer(world->store, STORE_WRITTEN, ERR_NONE);
    assert_int_equal(ended.done, 0);
    fake_store_answer(world->store, STORE_SYNCED, ERR_NO_SPACE);
    assert_end_is_recorded_again_as_synced(world, &ended);
}

/* Otherwise one synced record is enough: that of the decision. */
static void an_end_whose_decision_is_synced_is_recorded_once(void **state)
{
    struct world *world = *state;
    struct ended ended;

    end_with_both_records_on_their_way(world, &ended);
    fake_store_answer(world->store, STORE_WRITTEN, ERR_NONE);
    assert_int_equal(ended.done, 0);
    fake_store_answer(world->store, STORE_SYNCED, ERR_NONE);
    assert_int_equal(fake_store_waiting(world->store, STORE_SYNCED), 0);
    assert_int_equal(fake_store_waiting(world->store, STORE_WRITTEN), 0);
    fake_store_hold(world->store, false);
    world_settle(world);
    assert_int_equal(ended.done, 1);
    assert_int_equal(ended.op.err.code, ERR_NONE);
}

static void deleting_a_session_whose_sandbox_is_being_made_undoes_it(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct tried tried;
    struct ended ended;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    world_use(world, session, &tried);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(tried.ready, 1);
    assert_int_equal(tried.hold.err.code, ERR_GONE);
    assert_int_equal(ended.done, 0);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_int_equal(ended.done, 1);
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(capacity_held(world->core->capacity), 0);
}

static void a_key_is_free_again_while_the_old_session_still_ends(void **state)
{
    struct world *world = *state;
    struct session *old = open_used(world);
    struct session *new;
    struct ended ended;

    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    world_end(world, old, END_DELETED, &ended);
    new = world_open_simple(world, "ann", "build");
    assert_non_null(new);
    assert_ptr_not_equal(new, old);
    world_restart(world);
    assert_int_equal(world->core->sessions_by_id.count, 2);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_settle(world);
    assert_int_equal(world->core->sessions_by_id.count, 1);
    assert_non_null(session_find(world->core, "ann", false, "key:build"));
}

static void an_ended_session_keeps_all_its_times(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct world_record record;
    struct ended ended;

    world_end(world, session, END_DELETED, &ended);
    assert_true(world_record(world, ended.op.id, &record));
    assert_true(record.created.wall_us && record.started.wall_us && record.last_activity.wall_us &&
                record.ended.wall_us);
}

/* --- teardown and replacement -------------------------------------------------------------- */

static void teardown_removes_the_sandbox_and_the_next_use_gets_a_new_generation(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct tried tried;

    session_teardown(session, END_TEARDOWN);
    session_teardown(session, END_TEARDOWN);
    world_settle(world);
    assert_null(session_sandbox(session));
    assert_int_equal(fake_backend_count(world->backend), 0);
    assert_int_equal(fake_backend_calls(world->backend, FAKE_DESTROY), 1);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.generation, 2);
    assert_true(session_reset_is_pending(session));
    assert_int_equal(world_events(world, session_id(session), "sandbox.reset"), 1);
    session_hold_end(&tried.hold);
}

static void a_replacement_has_the_new_limits(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct sandbox_limits limits = *session_limits(session);

    limits.memory_bytes = 8ULL << 30;
    session_replace(session, CHOICE_FREE, "cpu-basic", &limits);
    world_settle(world);
    assert_int_equal(session_generation(session), 2);
    assert_int_equal(fake_backend_memory(world->backend, sandbox_id(session_sandbox(session))),
                     8ULL << 30);
    assert_int_equal(fake_backend_count(world->backend), 1);
}

/* --- pause --------------------------------------------------------------------------------- */

struct control {
    struct session_op op;
    unsigned done;
};

static void on_control(struct session_op *op)
{
    container_of(op, struct control, op)->done++;
}

static void pausing_freezes_and_the_next_use_thaws(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct control control = { 0 };
    struct tried tried;

    session_pause(session, &control.op, on_control);
    world_settle(world);
    assert_int_equal(control.done, 1);
    assert_int_equal(session_state(session), SESSION_PAUSED);
    assert_true(fake_backend_is_frozen(world->backend, sandbox_id(session_sandbox(session))));
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(tried.hold.generation, 1);
    assert_int_equal(session_state(session), SESSION_OPEN);
    assert_false(fake_backend_is_frozen(world->backend, sandbox_id(session_sandbox(session))));
    assert_int_equal(world_events(world, session_id(session), "session.paused"), 1);
    assert_int_equal(world_events(world, session_id(session), "session.resumed"), 1);
    session_hold_end(&tried.hold);
}

static void a_paused_session_without_auto_resume_refuses_uses(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct session_patch patch = { .timeout_ms = -1,
                                   .idle_timeout_ms = -1,
                                   .max_lifetime_ms = -1,
                                   .auto_restart = -1,
                                   .auto_resume = 0,
                                   .on_timeout = -1 };
    struct tried tried;

    assert_int_equal(session_patch(session, &patch, NULL), 0);
    session_pause(session, NULL, NULL);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_CONFLICT);
    assert_string_equal(tried.hold.err.name, "paused");
}

static void a_pause_that_fails_leaves_the_session_open_and_says_why(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct control control = { 0 };

    fake_backend_refuse(world->backend, FAKE_FREEZE, 1, ERR_BACKEND);
    session_pause(session, &control.op, on_control);
    world_settle(world);
    assert_int_equal(control.done, 1);
    assert_int_equal(control.op.err.code, ERR_BACKEND);
    assert_int_equal(session_state(session), SESSION_OPEN);
}

static void a_pause_during_creation_holds_when_the_sandbox_is_there(void **state)
{
    struct world *world = *state;
    struct session *session = world_open_simple(world, "ann", NULL);
    struct control control = { 0 };

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    session_preload(session);
    session_pause(session, &control.op, on_control);
    world_settle(world);
    assert_int_equal(control.done, 0);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_int_equal(control.done, 1);
    assert_true(fake_backend_is_frozen(world->backend, sandbox_id(session_sandbox(session))));
}

static void deleting_a_paused_session_works(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct ended ended;

    session_pause(session, NULL, NULL);
    world_settle(world);
    world_end(world, session, END_DELETED, &ended);
    assert_int_equal(ended.done, 1);
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void a_delete_that_hangs_is_answered_in_time_and_goes_on(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct ended first;
    struct ended second;
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    world_end(world, session, END_DELETED, &first);
    world_advance(world, 29000);
    assert_int_equal(first.done, 0);
    world_advance(world, 1000);
    assert_int_equal(first.done, 1);
    assert_int_equal(first.op.err.code, ERR_TIMEOUT);
    assert_int_equal(session_state(world_find(world, id)), SESSION_ENDING);
    assert_int_equal(sandbox_state(session_sandbox(world_find(world, id))), SANDBOX_DESTROYING);
    world_end(world, session, END_DELETED, &second);
    fake_backend_hold(world->backend, FAKE_DESTROY, false);
    world_settle(world);
    assert_int_equal(second.done, 1);
    assert_int_equal(second.op.err.code, ERR_NONE);
    assert_null(world_find(world, id));
}

/* --- shutdown ------------------------------------------------------------------------------ */

struct stopped {
    unsigned done;
    enum error_code code;
};

static void on_stopped(struct core *core, const struct error *err, void *user)
{
    struct stopped *stopped = user;

    (void)core;
    stopped->done++;
    stopped->code = err ? err->code : ERR_NONE;
}

static void a_shutdown_that_destroys_ends_everything_with_its_reason(void **state)
{
    struct world *world = *state;
    struct stopped stopped = { 0 };
    struct world_record record;
    char ids[3][ID_SIZE];

    for (int i = 0; i < 3; i++) {
        struct session *session = world_open_simple(world, "ann", NULL);
        struct tried tried;

        memcpy(ids[i], session_id(session), ID_SIZE);
        world_use(world, session, &tried);
        session_hold_end(&tried.hold);
    }
    core_stop(world->core, true, 10000, on_stopped, &stopped);
    world_advance(world, 100);
    assert_int_equal(stopped.done, 1);
    assert_int_equal(stopped.code, ERR_NONE);
    assert_int_equal(fake_backend_count(world->backend), 0);
    for (int i = 0; i < 3; i++) {
        assert_true(world_record(world, ids[i], &record));
        assert_string_equal(record.end_reason, "shutdown");
    }
}

static void a_shutdown_that_destroys_gives_up_after_its_timeout(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct stopped stopped = { 0 };

    (void)session;
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    core_stop(world->core, true, 2000, on_stopped, &stopped);
    world_advance(world, 1000);
    assert_int_equal(stopped.done, 0);
    world_advance(world, 1500);
    assert_int_equal(stopped.done, 1);
    assert_int_equal(stopped.code, ERR_TIMEOUT);
}

static void a_shutdown_that_keeps_leaves_sandboxes_for_the_next_daemon(void **state)
{
    struct world *world = *state;
    struct session *session = open_used(world);
    struct stopped stopped = { 0 };
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    core_stop(world->core, false, 2000, on_stopped, &stopped);
    world_advance(world, 100);
    assert_int_equal(stopped.done, 1);
    assert_null(world_open(world, &request, &opened));
    assert_int_equal(opened.op.err.code, ERR_UNAVAILABLE);
    assert_int_equal(fake_backend_alive(world->backend), 1);
    world_restart(world);
    assert_int_equal(sandbox_state(session_sandbox(world_find(world, id))), SANDBOX_READY);
    assert_int_equal(session_generation(world_find(world, id)), 1);
}

/* --- tables -------------------------------------------------------------------------------- */

static void every_state_of_a_sandbox_leads_to_its_end(void **state)
{
    (void)state;
    for (unsigned from = SANDBOX_CREATING; from < SANDBOX_DESTROYING; from++)
        assert_true(sandbox_may_become(from, SANDBOX_DESTROYING));
    assert_true(sandbox_may_become(SANDBOX_DESTROYING, SANDBOX_NONE));
    assert_false(sandbox_may_become(SANDBOX_DESTROYING, SANDBOX_READY));
    assert_false(session_may_become(SESSION_ENDED, SESSION_OPEN));
    for (unsigned named = 0; named < SANDBOX_STATES; named++)
        assert_int_equal(sandbox_state_parse(sandbox_state_name(named)), named);
}

static void every_reason_reads_back(void **state)
{
    (void)state;
    for (unsigned kind = END_IDLE; kind < END_KINDS; kind++) {
        struct end_reason reason = { .kind = kind, .detail = "signal 9" };
        struct end_reason parsed;
        char text[END_TEXT_SIZE];

        end_reason_text(&reason, text);
        parsed = end_reason_parse(text);
        assert_int_equal(parsed.kind, kind);
        assert_string_equal(parsed.detail, "signal 9");
    }
    assert_int_equal(end_reason_parse("").kind, END_NONE);
    assert_int_equal(end_reason_parse("idleness").kind, END_NONE);
}

/* --- a source that others are asked for --------------------------------------------------------- */

static struct session_request request_of_image(void)
{
    struct session_request request = SESSION_REQUEST_INIT;

    request.owner = "ann";
    request.key = "build";
    request.template_name = "tool:1";
    return request;
}

static void on_opened(struct session_op *op)
{
    container_of(op, struct opened, op)->done = true;
}

static void a_source_that_does_not_exist_is_the_answer_and_no_session(void **state)
{
    struct world *world = *state;
    struct session_request request = request_of_image();
    struct opened opened;

    fake_backend_ask_for_sources(world->backend);
    fake_backend_refuse(world->backend, FAKE_FIND_SOURCE, 1, ERR_INVALID);
    assert_null(world_open(world, &request, &opened));
    assert_int_equal(opened.op.err.code, ERR_INVALID);
    assert_int_equal(world->core->sessions_by_id.count, 0);
    assert_non_null(world_open(world, &request, &opened)); /* the key is free */
    assert_true(opened.op.created);
}

static void requests_that_waited_for_one_source_share_the_session_of_their_key(void **state)
{
    struct world *world = *state;
    struct session_request request = request_of_image();
    struct opened first = { 0 }, second = { 0 };

    fake_backend_ask_for_sources(world->backend);
    fake_backend_hold(world->backend, FAKE_FIND_SOURCE, true);
    session_open(world->core, &request, &first.op, on_opened);
    session_open(world->core, &request, &second.op, on_opened);
    world_settle(world);
    assert_false(first.done || second.done);
    assert_int_equal(world->core->sessions_by_id.count, 0);
    fake_backend_hold(world->backend, FAKE_FIND_SOURCE, false);
    world_settle(world);
    assert_true(first.done && second.done);
    assert_ptr_equal(first.op.session, second.op.session);
    assert_true(first.op.created && !second.op.created);
}

static void a_request_that_waits_for_its_source_can_be_given_up(void **state)
{
    struct world *world = *state;
    struct session_request request = request_of_image();
    struct opened opened = { 0 };

    fake_backend_ask_for_sources(world->backend);
    fake_backend_hold(world->backend, FAKE_FIND_SOURCE, true);
    session_open(world->core, &request, &opened.op, on_opened);
    world_settle(world);
    session_op_cancel(&opened.op);
    fake_backend_hold(world->backend, FAKE_FIND_SOURCE, false);
    world_settle(world);
    assert_false(opened.done);
    assert_int_equal(world->core->sessions_by_id.count, 0);
}

static void a_shutdown_answers_requests_that_wait_for_their_source(void **state)
{
    struct world *world = *state;
    struct session_request request = request_of_image();
    struct opened opened = { 0 };
    struct stopped stopped = { 0 };

    fake_backend_ask_for_sources(world->backend);
    fake_backend_hold(world->backend, FAKE_FIND_SOURCE, true);
    session_open(world->core, &request, &opened.op, on_opened);
    world_settle(world);
    core_stop(world->core, false, 1000, on_stopped, &stopped);
    world_settle(world);
    assert_true(opened.done);
    assert_string_equal(opened.op.err.name, "shutting_down");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_session_is_durable_when_it_is_answered),
        TEST(a_new_session_tells_when_it_was_made_and_how_long_it_has),
        TEST(the_same_owner_and_key_give_the_same_session),
        TEST(concurrent_opens_of_one_key_make_one_session_and_all_wait_for_it),
        TEST(a_key_with_other_limits_is_refused),
        TEST(opening_again_and_keepalive_are_activity),
        TEST(opening_again_changes_what_can_be_changed),
        TEST(opening_again_with_another_environment_is_refused),
        TEST(a_repeated_idempotency_key_gives_the_same_session_even_after_a_restart),
        TEST(an_idempotency_key_is_forgotten_after_a_day),
        TEST(an_idempotency_key_outlives_a_wall_clock_that_is_set),
        TEST(an_idempotency_key_of_an_ended_session_says_so),
        TEST(a_source_that_does_not_exist_is_the_answer_and_no_session),
        TEST(requests_that_waited_for_one_source_share_the_session_of_their_key),
        TEST(a_request_that_waits_for_its_source_can_be_given_up),
        TEST(a_shutdown_answers_requests_that_wait_for_their_source),
        TEST(a_failed_commit_fails_the_request_and_leaves_nothing),
        TEST(preload_starts_the_sandbox_before_the_first_use),
        TEST(a_stranger_finds_nothing),
        TEST(an_end_is_answered_only_when_the_sandbox_is_gone_and_the_record_written),
        TEST(callers_that_end_it_at_once_share_one_end_and_the_first_reason),
        TEST(a_failing_removal_is_visible_and_retried_until_it_works),
        TEST(a_removal_that_never_works_is_tried_at_a_bounded_rate),
        TEST(a_store_that_fails_does_not_keep_the_sandbox_alive),
        TEST(an_end_that_cannot_be_recorded_fails_the_request_and_is_recorded_later),
        TEST(an_end_is_synced_when_its_decision_was_lost_before_the_end_was_recorded),
        TEST(an_end_is_synced_when_its_decision_is_lost_after_the_end_was_recorded),
        TEST(an_end_whose_decision_is_synced_is_recorded_once),
        TEST(deleting_a_session_whose_sandbox_is_being_made_undoes_it),
        TEST(a_key_is_free_again_while_the_old_session_still_ends),
        TEST(an_ended_session_keeps_all_its_times),
        TEST(teardown_removes_the_sandbox_and_the_next_use_gets_a_new_generation),
        TEST(a_replacement_has_the_new_limits),
        TEST(pausing_freezes_and_the_next_use_thaws),
        TEST(a_paused_session_without_auto_resume_refuses_uses),
        TEST(a_pause_that_fails_leaves_the_session_open_and_says_why),
        TEST(a_pause_during_creation_holds_when_the_sandbox_is_there),
        TEST(deleting_a_paused_session_works),
        TEST(a_delete_that_hangs_is_answered_in_time_and_goes_on),
        TEST(a_shutdown_that_destroys_ends_everything_with_its_reason),
        TEST(a_shutdown_that_destroys_gives_up_after_its_timeout),
        TEST(a_shutdown_that_keeps_leaves_sandboxes_for_the_next_daemon),
        TEST(every_state_of_a_sandbox_leads_to_its_end),
        TEST(every_reason_reads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
