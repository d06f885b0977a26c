/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/sandbox.h"
#include "core/session/background.h"
#include "core/session/clocks.h"
#include "core/stamp.h"
#include "harness/world.h"
#include "loop/worker.h"
#include "store/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MINUTE_MS = 60 * 1000 };

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

static struct session *open_with(struct world *world, int64_t lease_ms, int64_t idle_ms,
                                 int64_t lifetime_ms)
{
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.timeout_ms = lease_ms;
    request.idle_timeout_ms = idle_ms;
    request.max_lifetime_ms = lifetime_ms;
    return world_open(world, &request, &opened);
}

static void assert_ended(struct world *world, const char *id, const char *reason)
{
    struct world_record record;

    assert_null(world_find(world, id));
    assert_true(world_record(world, id, &record));
    assert_string_equal(record.state, "ended");
    assert_string_equal(record.end_reason, reason);
}

/* Its id, which outlives it. */
#define ID_OF(session)                                   \
    ({                                                   \
        static char id_[ID_SIZE];                        \
        memcpy(id_, session_id((session)), sizeof(id_)); \
        (const char *)id_;                               \
    })

/* --- idle ---------------------------------------------------------------------------------- */

static void a_session_that_was_never_used_ends_when_it_was_idle_for_long(void **state)
{
    struct world *world = *state;
    const char *id = ID_OF(open_with(world, 0, MINUTE_MS, 0));

    world_advance(world, MINUTE_MS - 1);
    assert_non_null(world_find(world, id));
    world_advance(world, 1);
    assert_ended(world, id, "idle");
}

static void idle_counts_from_the_end_of_the_last_use(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 0, MINUTE_MS, 0);
    const char *id = ID_OF(session);
    struct tried tried;

    world_use(world, session, &tried);
    world_advance(world, 10 * MINUTE_MS);
    assert_non_null(world_find(world, id));
    assert_int_equal(session_idle_remaining_ms(session), MINUTE_MS);
    session_hold_end(&tried.hold);
    world_advance(world, MINUTE_MS - 1);
    assert_int_equal(session_idle_remaining_ms(session), 1);
    world_advance(world, 1);
    assert_ended(world, id, "idle");
}

static void a_use_just_before_the_end_gives_a_full_timeout_again(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 0, MINUTE_MS, 0);
    struct tried tried;

    world_advance(world, MINUTE_MS - 1);
    world_use(world, session, &tried);
    session_hold_end(&tried.hold);
    assert_int_equal(session_idle_remaining_ms(session), MINUTE_MS);
}

static void looking_is_not_use(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 0, MINUTE_MS, 0);
    const char *id = ID_OF(session);

    for (int i = 0; i < 6; i++) {
        int64_t left_ms;

        world_advance(world, MINUTE_MS / 6 - 1);
        assert_non_null(session_find(world->core, "", false, id));
        session_next_end(session, &left_ms);
    }
    world_advance(world, 6);
    assert_ended(world, id, "idle");
}

static void idle_zero_is_off(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 0, 0, 0);
    int64_t left_ms;

    assert_int_equal(session_next_end(session, &left_ms), END_NONE);
    assert_int_equal(left_ms, -1);
    world_advance(world, 1000LL * 24 * 60 * MINUTE_MS);
    assert_int_equal(session_state(session), SESSION_OPEN);
}

static void two_uses_at_once_are_idle_only_after_the_second(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 0, MINUTE_MS, 0);
    struct tried first;
    struct tried second;

    world_use(world, session, &first);
    world_use(world, session, &second);
    session_hold_end(&first.hold);
    world_advance(world, 2 * MINUTE_MS);
    assert_int_equal(session_state(session), SESSION_OPEN);
    session_hold_end(&second.hold);
    assert_int_equal(session_idle_remaining_ms(session), MINUTE_MS);
}

static void waiting_for_the_sandbox_is_not_being_idle(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 0, 1000, 0);
    struct tried tried;

    fake_backend_hold(world->backend, FAKE_CREATE, true);
    world_use(world, session, &tried);
    world_advance(world, 5000);
    assert_int_equal(session_state(session), SESSION_OPEN);
    fake_backend_hold(world->backend, FAKE_CREATE, false);
    world_settle(world);
    assert_int_equal(tried.ready, 1);
    session_hold_end(&tried.hold);
}

/* --- lease --------------------------------------------------------------------------------- */

static void a_lease_ends_the_session_even_if_it_is_used(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, MINUTE_MS, 0, 0);
    const char *id = ID_OF(session);
    struct tried tried;

    world_use(world, session, &tried);
    world_advance(world, MINUTE_MS - 1);
    assert_int_equal(tried.lost, 0);
    world_advance(world, 1);
    assert_int_equal(tried.lost, 1);
    assert_int_equal(tried.hold.lost.kind, END_LEASE);
    assert_ended(world, id, "lease");
}

static void keepalive_extends_and_never_shortens_unless_exact(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 10 * MINUTE_MS, 0, 0);

    assert_int_equal(session_keepalive(session, MINUTE_MS, false, NULL), 0);
    assert_int_equal(session_lease_remaining_ms(session), 10 * MINUTE_MS);
    assert_int_equal(session_keepalive(session, 20 * MINUTE_MS, false, NULL), 0);
    assert_int_equal(session_lease_remaining_ms(session), 20 * MINUTE_MS);
    assert_int_equal(session_keepalive(session, MINUTE_MS, true, NULL), 0);
    assert_int_equal(session_lease_remaining_ms(session), MINUTE_MS);
    assert_int_equal(session_keepalive(session, 0, true, NULL), 0);
    assert_int_equal(session_lease_remaining_ms(session), -1);
}

static void a_lease_of_one_tick_ends_a_session_before_it_was_recorded(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;

    request.timeout_ms = 1;
    request.preload = 1;
    fake_store_hold(world->store, true);
    world_open(world, &request, &opened);
    world_advance(world, 10);
    fake_store_hold(world->store, false);
    world_settle(world);
    assert_true(opened.done);
    assert_ended(world, opened.op.id, "lease");
    assert_int_equal(fake_backend_count(world->backend), 0);
}

static void renewing_at_the_last_moment_keeps_it_alive(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, MINUTE_MS, 0, 0);
    const char *id = ID_OF(session);

    world_advance(world, MINUTE_MS - 1);
    assert_int_equal(session_keepalive(session, MINUTE_MS, false, NULL), 0);
    world_advance(world, 1);
    assert_non_null(world_find(world, id));
    world_advance(world, MINUTE_MS - 1);
    assert_ended(world, id, "lease");
}

static void keepalive_of_an_ending_session_is_refused(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, MINUTE_MS, 0, 0);
    struct tried tried;
    struct error err = { 0 };

    world_use(world, session, &tried);
    session_hold_end(&tried.hold);
    fake_backend_hold(world->backend, FAKE_DESTROY, true);
    world_advance(world, MINUTE_MS);
    assert_int_equal(session_state(session), SESSION_ENDING);
    assert_int_equal(session_keepalive(session, MINUTE_MS, true, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
}

/* --- lifetime ------------------------------------------------------------------------------ */

static void a_lifetime_ends_an_unused_session_at_once(void **state)
{
    struct world *world = *state;
    const char *id = ID_OF(open_with(world, 0, 0, MINUTE_MS));

    world_advance(world, MINUTE_MS);
    assert_ended(world, id, "lifetime");
}

static void running_work_gets_the_grace_and_new_work_is_refused(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 0, 0, MINUTE_MS);
    const char *id = ID_OF(session);
    struct tried running;
    struct tried late;
    int64_t left_ms;

    world_use(world, session, &running);
    world_advance(world, MINUTE_MS);
    assert_int_equal(running.lost, 0);
    assert_int_equal(session_lifetime_remaining_ms(session), 0);
    assert_int_equal(session_next_end(session, &left_ms), END_LIFETIME);
    assert_int_equal(left_ms, world->config.session.grace_ms);
    world_use(world, session, &late);
    assert_int_equal(late.hold.err.code, ERR_GONE);
    assert_string_equal(late.hold.err.name, "session_ending");
    world_advance(world, world->config.session.grace_ms);
    assert_int_equal(running.lost, 1);
    assert_int_equal(running.hold.lost.kind, END_LIFETIME);
    assert_ended(world, id, "lifetime");
}

static void work_that_ends_during_the_grace_ends_the_session(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 0, 0, MINUTE_MS);
    const char *id = ID_OF(session);
    struct tried tried;

    world_use(world, session, &tried);
    world_advance(world, MINUTE_MS + 1000);
    session_hold_end(&tried.hold);
    world_settle(world);
    assert_ended(world, id, "lifetime");
}

static void a_longer_lifetime_during_the_grace_saves_it(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 0, 0, MINUTE_MS);
    struct session_patch patch = { .timeout_ms = -1,
                                   .idle_timeout_ms = -1,
                                   .max_lifetime_ms = 10 * MINUTE_MS,
                                   .auto_restart = -1,
                                   .auto_resume = -1,
                                   .on_timeout = -1 };
    struct tried running;
    struct tried late;

    world_use(world, session, &running);
    world_advance(world, MINUTE_MS + 1000);
    assert_int_equal(session_patch(session, &patch, NULL), 0);
    world_advance(world, MINUTE_MS);
    assert_int_equal(running.lost, 0);
    world_use(world, session, &late);
    assert_int_equal(late.hold.err.code, ERR_NONE);
    session_hold_end(&running.hold);
    session_hold_end(&late.hold);
}

/* --- pause at timeout ---------------------------------------------------------------------- */

static void on_timeout_pause_freezes_instead_of_ending(void **state)
{
    struct world *world = *state;
    struct session_request request = SESSION_REQUEST_INIT;
    struct opened opened;
    struct session *session;
    struct tried tried;
    int64_t left_ms;

    request.timeout_ms = MINUTE_MS;
    request.idle_timeout_ms = 0;
    request.preload = 1;
    request.on_timeout = TIMEOUT_PAUSE;
    session = world_open(world, &request, &opened);
    world_advance(world, MINUTE_MS);
    assert_int_equal(session_state(session), SESSION_PAUSED);
    assert_true(fake_backend_is_frozen(world->backend, sandbox_id(session_sandbox(session))));
    assert_int_equal(session_next_end(session, &left_ms), END_LIFETIME);
    world_advance(world, 60 * MINUTE_MS);
    world_use(world, session, &tried);
    assert_int_equal(tried.hold.err.code, ERR_NONE);
    assert_int_equal(session_lease_remaining_ms(session), MINUTE_MS);
    session_hold_end(&tried.hold);
}

static void a_paused_session_is_not_idle_but_its_lease_and_lifetime_count(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 20 * MINUTE_MS, MINUTE_MS, 0);
    const char *id = ID_OF(session);

    session_pause(session, NULL, NULL);
    world_advance(world, 10 * MINUTE_MS);
    assert_int_equal(session_state(session), SESSION_PAUSED);
    world_advance(world, 10 * MINUTE_MS);
    assert_ended(world, id, "lease");
}

/* --- restarts and wrong clocks -------------------------------------------------------------- */

static void clocks_go_on_where_they_were_after_a_restart(void **state)
{
    struct world *world = *state;
    const char *lease = ID_OF(open_with(world, 10 * MINUTE_MS, 0, 0));
    const char *idle = ID_OF(open_with(world, 0, 12 * MINUTE_MS, 0));
    const char *lifetime = ID_OF(open_with(world, 0, 0, 14 * MINUTE_MS));

    world_advance(world, 4 * MINUTE_MS);
    world_kill(world, false);
    simulated_clock_advance(&world->clock, 5 * MINUTE_MS * 1000LL);
    world_start(world);
    assert_int_equal(session_lease_remaining_ms(world_find(world, lease)), MINUTE_MS);
    assert_int_equal(session_idle_remaining_ms(world_find(world, idle)), 3 * MINUTE_MS);
    assert_int_equal(session_lifetime_remaining_ms(world_find(world, lifetime)), 5 * MINUTE_MS);
    world_advance(world, 10 * MINUTE_MS);
    assert_ended(world, lease, "lease");
    assert_ended(world, idle, "idle");
    assert_ended(world, lifetime, "lifetime");
}

static void what_ran_out_while_the_daemon_was_down_ends_at_start(void **state)
{
    struct world *world = *state;
    const char *id = ID_OF(open_with(world, MINUTE_MS, 0, 0));

    world_kill(world, false);
    simulated_clock_advance(&world->clock, 60 * MINUTE_MS * 1000LL);
    world_start(world);
    assert_ended(world, id, "lease");
}

static void setting_the_wall_clock_changes_no_deadline(void **state)
{
    static const int64_t jumps_us[] = { 86400LL * 1000000, -2 * 86400LL * 1000000,
                                        10 * 365 * 86400LL * 1000000 };
    struct world *world = *state;
    struct session *session = open_with(world, 10 * MINUTE_MS, 8 * MINUTE_MS, 12 * MINUTE_MS);
    const char *id = ID_OF(session);
    struct stamp expires;

    for (size_t i = 0; i < ARRAY_LENGTH(jumps_us); i++) {
        world->clock.wall_us += jumps_us[i];
        world_advance(world, MINUTE_MS);
    }
    world_restart(world);
    session = world_find(world, id);
    assert_int_equal(session_idle_remaining_ms(session), 5 * MINUTE_MS);
    assert_int_equal(session_lease_remaining_ms(session), 7 * MINUTE_MS);
    assert_int_equal(session_lifetime_remaining_ms(session), 9 * MINUTE_MS);
    expires = session_expires(session);
    assert_int_equal(stamp_wall_us(world->core, &expires),
                     world->clock.wall_us + 7 * MINUTE_MS * 1000LL);
}

static void a_use_that_was_running_when_the_daemon_died_counts_until_then(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 0, MINUTE_MS, 0);
    const char *id = ID_OF(session);
    struct tried tried;

    world_use(world, session, &tried);
    world_advance(world, 40 * MINUTE_MS);
    world_restart(world);
    assert_int_equal(session_idle_remaining_ms(world_find(world, id)), MINUTE_MS);
}

static void a_record_without_stamps_still_expires(void **state)
{
    struct world *world = *state;
    struct session_record record = {
        .owner = "", .spec_json = "{}", .state = "open", .idle_timeout_ms = MINUTE_MS
    };
    char id[ID_SIZE];

    id_make(id, ID_SESSION);
    memcpy(record.id, id, sizeof(id));
    store_put_session(world->store, &record);
    world_settle(world);
    world_restart(world);
    assert_non_null(world_find(world, id));
    world_advance(world, MINUTE_MS);
    assert_ended(world, id, "idle");
}

static void a_damaged_record_lives_on_with_defaults_and_ends(void **state)
{
    struct world *world = *state;
    struct session_record record = { .owner = "ann",
                                     .spec_json = "{\"memory_bytes\":\"much\",\"pids\":7,",
                                     .state = "open",
                                     .max_lifetime_ms = MINUTE_MS,
                                     .created = stamp_now(world->core) };
    char id[ID_SIZE];

    id_make(id, ID_SESSION);
    memcpy(record.id, id, sizeof(id));
    store_put_session(world->store, &record);
    world_settle(world);
    world_restart(world);
    assert_int_equal(session_limits(world_find(world, id))->memory_bytes,
                     world->config.sandbox.memory_bytes);
    world_advance(world, MINUTE_MS);
    assert_ended(world, id, "lifetime");
}

static void put_odd(struct world *world, struct session_record record, char id[ID_SIZE])
{
    id_make(id, ID_SESSION);
    memcpy(record.id, id, ID_SIZE);
    record.owner = "ann";
    store_put_session(world->store, &record);
    world_settle(world);
    world_restart(world);
}

static void a_record_with_an_unknown_state_is_a_live_session_and_expires(void **state)
{
    struct world *world = *state;
    struct session_record record = { .state = "hibernating",
                                     .idle_timeout_ms = MINUTE_MS,
                                     .created = stamp_now(world->core),
                                     .retain_until_wall_us = 1 };
    struct world_record found;
    char id[ID_SIZE];

    put_odd(world, record, id);
    assert_int_equal(session_state(world_find(world, id)), SESSION_OPEN);
    world_advance(world, 1000);
    assert_true(world_record(world, id, &found));
    assert_string_equal(found.state, "open");
    world_advance(world, MINUTE_MS);
    assert_ended(world, id, "idle");
}

static void a_record_without_any_time_expires_counted_from_loading(void **state)
{
    struct world *world = *state;
    char id[ID_SIZE];

    put_odd(world, (struct session_record){ .state = "open", .idle_timeout_ms = MINUTE_MS }, id);
    world_advance(world, MINUTE_MS - 1);
    assert_non_null(world_find(world, id));
    world_advance(world, 1);
    assert_ended(world, id, "idle");
}

static void a_record_with_impossible_numbers_takes_the_settings_and_expires(void **state)
{
    struct world *world = *state;
    struct session_record record = { .state = "paused",
                                     .idle_timeout_ms = INT64_MIN,
                                     .max_lifetime_ms = INT64_MAX,
                                     .created = { INT64_MIN, INT64_MAX },
                                     .last_activity = { INT64_MAX, INT64_MIN },
                                     .expires = { INT64_MAX, INT64_MAX } };
    char id[ID_SIZE];

    put_odd(world, record, id);
    assert_int_equal(session_idle_timeout_ms(world_find(world, id)),
                     world->config.session.idle_timeout_ms);
    world_advance(world, world->config.session.max_lifetime_ms);
    assert_ended(world, id, "lifetime");
}

static void a_record_of_a_sandbox_that_cannot_exist_is_dropped(void **state)
{
    struct world *world = *state;
    struct sandbox_record record = { .id = "../../etc", .state = "ready" };

    store_put_sandbox(world->store, &record);
    world_settle(world);
    world_restart(world);
    world_settle(world);
    assert_int_equal(fake_store_count(world->store, STORE_SANDBOXES), 0);
    assert_int_equal(world->core->sandboxes_by_id.count, 0);
}

/* --- retention ----------------------------------------------------------------------------- */

static void an_ended_session_is_readable_until_retention_is_over(void **state)
{
    struct world *world = *state;
    struct session *session = open_with(world, 0, MINUTE_MS, 0);
    const char *id = ID_OF(session);

    world_advance(world, MINUTE_MS);
    assert_ended(world, id, "idle");
    world_advance(world, world->config.session.retention_ms - 1000);
    assert_ended(world, id, "idle");
    world_advance(world, 2000);
    assert_int_equal(fake_store_count(world->store, STORE_SESSIONS), 0);
    assert_int_equal(fake_store_count(world->store, STORE_EVENTS), 0);
}

static void retention_goes_on_after_a_restart_and_takes_all_that_is_over(void **state)
{
    struct world *world = *state;

    for (int i = 0; i < 150; i++)
        assert_non_null(open_with(world, MINUTE_MS + i, 0, 0));
    world_advance(world, 2 * MINUTE_MS);
    assert_int_equal(fake_store_count(world->store, STORE_SESSIONS), 150);
    world_restart(world);
    world_advance(world, world->config.session.retention_ms + MINUTE_MS);
    assert_int_equal(fake_store_count(world->store, STORE_SESSIONS), 0);
}

/* A store that takes its time to remove records: the question behind them waits for that. */
static struct {
    struct store_ops ops;
    const struct store_ops *real;
    struct simulated_clock *clock;
    int64_t takes_us;
    unsigned forgotten;   /* sessions since the last question */
    unsigned slices[128]; /* sessions at once */
    size_t count;
} slow;

static void slow_change(struct store *store, struct change *change)
{
    if (change->forget && change->table == STORE_SESSIONS)
        slow.forgotten++;
    slow.real->change(store, change);
}

static void slow_query_expired(struct store *store, int64_t now_wall_us, struct store_query *query)
{
    slow.real->query_expired(store, now_wall_us, query);
    if (!slow.forgotten)
        return;
    assert_true(slow.count < ARRAY_LENGTH(slow.slices));
    slow.slices[slow.count++] = slow.forgotten;
    slow.forgotten = 0;
    simulated_clock_advance(slow.clock, slow.takes_us);
}

static void slow_down(struct world *world, int64_t takes_us)
{
    slow.real = world->store->ops;
    slow.ops = *slow.real;
    slow.ops.change = slow_change;
    slow.ops.query_expired = slow_query_expired;
    slow.clock = &world->clock;
    slow.takes_us = takes_us;
    slow.count = slow.forgotten = 0;
    world->store->ops = &slow.ops;
}

static void retain_all(struct world *world, int count, int64_t takes_us)
{
    for (int i = 0; i < count; i++)
        assert_non_null(open_with(world, MINUTE_MS, 0, 0));
    world_advance(world, 2 * MINUTE_MS);
    slow_down(world, takes_us);
    world_advance(world, world->config.session.retention_ms + MINUTE_MS);
    world->store->ops = slow.real;
    assert_int_equal(fake_store_count(world->store, STORE_SESSIONS), 0);
}

static void retention_takes_fewer_at_once_from_a_slow_store(void **state)
{
    retain_all(*state, 200, 20 * 1000);
    assert_int_equal(slow.slices[0], 64);
    for (size_t i = 1; i < slow.count; i++)
        assert_true(slow.slices[i] <= slow.slices[i - 1]);
    assert_true(slow.count > 10);
    assert_int_equal(slow.slices[slow.count - 2], 4);
}

static void retention_takes_many_at_once_from_a_quick_store(void **state)
{
    retain_all(*state, 200, 1000);
    assert_int_equal(slow.count, 4);
    assert_int_equal(slow.slices[0], 64);
    assert_int_equal(slow.slices[1], 64);
    assert_int_equal(slow.slices[2], 64);
    assert_int_equal(slow.slices[3], 8);
}

/* While the store is behind with its files it gets no more to do that can wait. */
static void retention_waits_for_a_store_that_is_behind(void **state)
{
    struct world *world = *state;

    for (int i = 0; i < 10; i++)
        assert_non_null(open_with(world, MINUTE_MS, 0, 0));
    world_advance(world, 2 * MINUTE_MS);
    world->store->is_behind = true;
    world_advance(world, world->config.session.retention_ms + MINUTE_MS);
    assert_int_equal(fake_store_count(world->store, STORE_SESSIONS), 10);
    world->store->is_behind = false;
    world_advance(world, MINUTE_MS);
    assert_int_equal(fake_store_count(world->store, STORE_SESSIONS), 0);
}

/* The ids of one execution and its spool file in a state directory. */
static void put_execution(struct world *world, const char *session_id, char file[64])
{
    struct execution_record record = { .state = "exited" };

    id_make(record.id, ID_EXECUTION);
    memcpy(record.session_id, session_id, sizeof(record.session_id));
    store_put_execution(world->store, &record);
    snprintf(file, 64, "output/%s.out", record.id);
    fd_close(openat(world->state_dir, file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(faccessat(world->state_dir, file, F_OK, 0), 0);
}

static void the_output_of_an_ended_session_goes_with_its_record(void **state)
{
    struct world *world = *state;
    char directory[] = "/tmp/sandglass-retention-XXXXXX";
    int64_t deadline_us = clock_now_us(&clock_system) + 60 * 1000000;
    struct ended ended;
    char file[64];

    assert_non_null(mkdtemp(directory));
    world->state_dir = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    world->worker = worker_new(world->loop, 1, "test");
    assert_int_equal(mkdirat(world->state_dir, "output", 0700), 0);
    world_restart(world);
    world_end(world, open_with(world, 0, 0, 0), END_DELETED, &ended);
    put_execution(world, ended.op.id, file);
    world_advance(world, world->config.session.retention_ms + 1000);
    while (fake_store_count(world->store, STORE_SESSIONS) &&
           clock_now_us(&clock_system) < deadline_us)
        loop_turn(world->loop, 10);
    assert_int_equal(faccessat(world->state_dir, file, F_OK, 0), -1);
    assert_int_equal(fake_store_count(world->store, STORE_SESSIONS), 0);
    assert_int_equal(fake_store_count(world->store, STORE_EXECUTIONS), 0);
    world_settle(world);
    worker_free(world->worker);
    assert_int_equal(unlinkat(world->state_dir, "output", AT_REMOVEDIR), 0);
    fd_close(world->state_dir);
    assert_int_equal(rmdir(directory), 0);
}

/* --- cost ---------------------------------------------------------------------------------- */

static void the_next_end_always_agrees_with_what_happens(void **state)
{
    static const struct {
        int64_t lease_ms, idle_ms, lifetime_ms;
    } rows[] = { { 1000, 2000, 3000 }, { 3000, 1000, 2000 }, { 3000, 2000, 1000 },
                 { 0, 500, 700 },      { 700, 0, 500 },      { 500, 0, 0 } };
    struct world *world = *state;

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct session *session =
            open_with(world, rows[i].lease_ms, rows[i].idle_ms, rows[i].lifetime_ms);
        const char *id = ID_OF(session);
        int64_t left_ms;
        enum end_kind kind = session_next_end(session, &left_ms);

        world_advance(world, left_ms - 1);
        assert_non_null(world_find(world, id));
        world_advance(world, 1);
        assert_ended(world, id, end_kind_name(kind));
    }
}

/* --- work in the background, and what idle takes --------------------------------------------- */

/* A session with a sandbox that nobody uses, with an idle timeout of 30 minutes. */
static struct session *open_with_sandbox(struct world *world, int64_t limit_ms)
{
    struct session *session;

    world->config.session.background_limit_ms = limit_ms;
    session = world_open_simple(world, "ann", NULL);
    session_preload(session);
    world_settle(world);
    assert_non_null(session_sandbox(session));
    return session;
}

static void work_in_the_background_keeps_a_session(void **state)
{
    struct world *world = *state;
    struct session *session = open_with_sandbox(world, 240 * MINUTE_MS);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    for (uint64_t minute = 1; minute < 120; minute++) {
        fake_backend_set_cpu(world->backend, sandbox_id(session_sandbox(session)), minute * 100000);
        world_advance(world, MINUTE_MS);
        assert_ptr_equal(world_find(world, id), session);
        assert_false(minute > 35 && sandbox_is_evictable(session_sandbox(session)));
    }
    world_advance(world, 31 * MINUTE_MS); /* it stands still: one more period, and then the end */
    world_advance(world, 31 * MINUTE_MS);
    assert_null(world_find(world, id));
}

static void a_busy_loop_does_not_keep_a_session_for_ever(void **state)
{
    struct world *world = *state;
    struct session *session = open_with_sandbox(world, 60 * MINUTE_MS);
    uint64_t minute = 0;
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    while (world_find(world, id)) {
        fake_backend_set_cpu(world->backend, sandbox_id(session_sandbox(session)),
                             ++minute * 50000000);
        world_advance(world, MINUTE_MS);
        assert_true(minute < 130);
    }
    assert_true(minute >= 60);
}

static void work_is_seen_although_the_first_look_comes_late(void **state)
{
    struct world *world = *state;
    struct session *session = open_with_sandbox(world, 60 * MINUTE_MS);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    simulated_clock_advance(&world->clock,
                            31 * MINUTE_MS * 1000); /* the daemon was stopped meanwhile */
    world_settle(world);
    assert_ptr_equal(world_find(world, id), session);
    fake_backend_set_cpu(world->backend, sandbox_id(session_sandbox(session)), 100000);
    world_advance(world, 6000);
    assert_ptr_equal(world_find(world, id), session);
    assert_true(background_works(session));
}

static void what_only_sleeps_is_idle_although_the_first_look_comes_late(void **state)
{
    struct world *world = *state;
    struct session *session = open_with_sandbox(world, 60 * MINUTE_MS);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    simulated_clock_advance(&world->clock, 31 * MINUTE_MS * 1000);
    world_settle(world);
    world_advance(world, 6000);
    assert_null(world_find(world, id));
}

static void what_only_sleeps_is_idle(void **state)
{
    struct world *world = *state;
    struct session *session = open_with_sandbox(world, 60 * MINUTE_MS);
    char id[ID_SIZE];

    memcpy(id, session_id(session), sizeof(id));
    fake_backend_set_cpu(world->backend, sandbox_id(session_sandbox(session)),
                         10000000); /* before the first look */
    world_advance(world, 30 * MINUTE_MS + 1000);
    assert_null(world_find(world, id));
}

static void idle_may_release_the_sandbox_and_keep_the_session(void **state)
{
    struct world *world = *state;
    struct session *session;
    struct tried tried;
    int64_t left_ms;

    world->config.session.on_idle = IDLE_RELEASE;
    session = open_with_sandbox(world, 0);
    assert_int_equal(session_next_end(session, &left_ms), END_LIFETIME);
    world_advance(world, 31 * MINUTE_MS);
    assert_null(session_sandbox(session));
    assert_int_equal(session_state(session), SESSION_OPEN);
    world_advance(world, 300 * MINUTE_MS);
    assert_int_equal(session_state(session), SESSION_OPEN);
    world_use(world, session, &tried);
    assert_int_equal(tried.ready, 1);
    assert_int_equal(tried.hold.generation, 2);
    session_hold_end(&tried.hold);
    world_advance(world, 31 * MINUTE_MS);
    assert_null(session_sandbox(session));
    world_advance(world, 24 * 60 * MINUTE_MS);
    assert_int_equal(world->core->sessions_by_id.count, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_session_that_was_never_used_ends_when_it_was_idle_for_long),
        TEST(idle_counts_from_the_end_of_the_last_use),
        TEST(a_use_just_before_the_end_gives_a_full_timeout_again),
        TEST(looking_is_not_use),
        TEST(idle_zero_is_off),
        TEST(two_uses_at_once_are_idle_only_after_the_second),
        TEST(waiting_for_the_sandbox_is_not_being_idle),
        TEST(a_lease_ends_the_session_even_if_it_is_used),
        TEST(keepalive_extends_and_never_shortens_unless_exact),
        TEST(a_lease_of_one_tick_ends_a_session_before_it_was_recorded),
        TEST(renewing_at_the_last_moment_keeps_it_alive),
        TEST(keepalive_of_an_ending_session_is_refused),
        TEST(a_lifetime_ends_an_unused_session_at_once),
        TEST(running_work_gets_the_grace_and_new_work_is_refused),
        TEST(work_that_ends_during_the_grace_ends_the_session),
        TEST(a_longer_lifetime_during_the_grace_saves_it),
        TEST(on_timeout_pause_freezes_instead_of_ending),
        TEST(a_paused_session_is_not_idle_but_its_lease_and_lifetime_count),
        TEST(clocks_go_on_where_they_were_after_a_restart),
        TEST(what_ran_out_while_the_daemon_was_down_ends_at_start),
        TEST(setting_the_wall_clock_changes_no_deadline),
        TEST(a_use_that_was_running_when_the_daemon_died_counts_until_then),
        TEST(a_record_without_stamps_still_expires),
        TEST(a_damaged_record_lives_on_with_defaults_and_ends),
        TEST(a_record_with_an_unknown_state_is_a_live_session_and_expires),
        TEST(a_record_without_any_time_expires_counted_from_loading),
        TEST(a_record_with_impossible_numbers_takes_the_settings_and_expires),
        TEST(a_record_of_a_sandbox_that_cannot_exist_is_dropped),
        TEST(an_ended_session_is_readable_until_retention_is_over),
        TEST(retention_goes_on_after_a_restart_and_takes_all_that_is_over),
        TEST(retention_takes_fewer_at_once_from_a_slow_store),
        TEST(retention_takes_many_at_once_from_a_quick_store),
        TEST(retention_waits_for_a_store_that_is_behind),
        TEST(the_output_of_an_ended_session_goes_with_its_record),
        TEST(the_next_end_always_agrees_with_what_happens),
        TEST(work_in_the_background_keeps_a_session),
        TEST(work_is_seen_although_the_first_look_comes_late),
        TEST(what_only_sleeps_is_idle_although_the_first_look_comes_late),
        TEST(a_busy_loop_does_not_keep_a_session_for_ever),
        TEST(what_only_sleeps_is_idle),
        TEST(idle_may_release_the_sandbox_and_keep_the_session),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
