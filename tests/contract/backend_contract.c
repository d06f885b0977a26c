/* SPDX-License-Identifier: Apache-2.0 */
#include "backend_contract.h"

#include "base/str.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_MS = 60000 };

static const struct backend_contract *contract;
static struct loop *loop;
static struct backend *backend;

static int open_backend(void **state)
{
    (void)state;
    backend = contract->open(&loop);
    return 0;
}

static int close_backend(void **state)
{
    (void)state;
    contract->close();
    return 0;
}

/* --- waiting -------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* An emulated machine is given more time. */
static int64_t deadline_ms(void)
{
    const char *factor = getenv("SANDGLASS_TEST_PATIENCE");

    return now_ms() + WAIT_MS * (factor ? atoi(factor) : 1);
}

static void wait_until(const bool *flag)
{
    int64_t deadline = deadline_ms();

    while (!*flag) {
        if (now_ms() > deadline)
            fail_msg("it does not come");
        loop_turn(loop, 10);
    }
}

struct asked {
    struct backend_op op;
    bool answered;
};

static void on_answer(struct backend_op *op)
{
    struct asked *asked = container_of(op, struct asked, op);

    assert_false(asked->answered); /* once */
    asked->answered = true;
}

static struct asked question(void)
{
    return (struct asked){ .op.done = on_answer };
}

/* Never inside the call, always later. */
static enum error_code answer(struct asked *asked)
{
    assert_false(asked->answered);
    wait_until(&asked->answered);
    return asked->op.err.code;
}

static enum error_code create(const struct sandbox_spec *spec, struct asked *asked)
{
    *asked = question();
    backend_create(backend, spec, &asked->op);
    return answer(asked);
}

/* At once or from the loop, and never both. */
static enum error_code connect_to(const char *id, struct asked *asked)
{
    *asked = question();
    if (!backend_connect(backend, id, &asked->op))
        return answer(asked);
    assert_false(asked->answered);
    loop_turn(loop, 0);
    assert_false(asked->answered);
    return asked->op.err.code;
}

static enum error_code report_of(const char *id, struct asked *asked)
{
    *asked = question();
    if (!backend_report(backend, id, &asked->op))
        return answer(asked);
    loop_turn(loop, 0);
    assert_false(asked->answered);
    return asked->op.err.code;
}

static enum error_code adopt(const struct backend_sandbox *sandbox, struct asked *asked)
{
    *asked = question();
    backend_adopt(backend, sandbox, &asked->op);
    return answer(asked);
}

static enum error_code destroy(const char *id)
{
    struct asked asked = question();

    backend_destroy(backend, id, &asked.op);
    return answer(&asked);
}

static enum error_code freeze(const char *id, bool frozen)
{
    struct asked asked = question();

    backend_freeze(backend, id, frozen, &asked.op);
    return answer(&asked);
}

static size_t count_listed(const char *id)
{
    struct asked asked = question();
    size_t count = 0;

    backend_list(backend, &asked.op);
    assert_int_equal(answer(&asked), ERR_NONE);
    for (size_t i = 0; i < asked.op.result.list.count; i++)
        count += !id || str_equal(asked.op.result.list.ids[i], id);
    free(asked.op.result.list.ids);
    return count;
}

static struct sandbox_spec sample(void)
{
    struct sandbox_spec spec = {
        .source = { SOURCE_TEMPLATE, contract->template ? contract->template : "host" },
        .limits = { .memory_bytes = 256 << 20,
                    .disk_bytes = 64 << 20,
                    .cpu_millis = 1000,
                    .pids = 64 },
    };

    id_make(spec.id, ID_SANDBOX);
    return spec;
}

/* Made; the test destroys it. */
static struct backend_sandbox make(void)
{
    struct sandbox_spec spec = sample();
    struct asked asked;

    if (create(&spec, &asked) != ERR_NONE)
        fail_msg("create: %s", asked.op.err.message);
    assert_string_equal(asked.op.result.made.sandbox.id, spec.id);
    return asked.op.result.made.sandbox;
}

/* --- the contract ----------------------------------------------------------------------------- */

static void a_made_sandbox_is_listed_and_can_be_connected_to(void **state)
{
    struct backend_sandbox sandbox = make();
    struct asked asked;

    (void)state;
    assert_int_equal(connect_to(sandbox.id, &asked), ERR_NONE);
    fd_close(asked.op.result.fd);
    assert_int_equal(count_listed(sandbox.id), 1);
    assert_true(backend_is_whole(backend, sandbox.id));
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void an_id_is_not_made_twice(void **state)
{
    struct sandbox_spec spec = sample();
    struct asked first;
    struct asked second;

    (void)state;
    assert_int_equal(create(&spec, &first), ERR_NONE);
    assert_int_not_equal(create(&spec, &second), ERR_NONE);
    assert_int_equal(count_listed(spec.id), 1);
    assert_int_equal(adopt(&first.op.result.made.sandbox, &second), ERR_NONE);
    assert_int_equal(destroy(spec.id), ERR_NONE);
}

/* Each gets one of its own. */
static void it_is_connected_to_again(void **state)
{
    struct backend_sandbox sandbox = make();
    struct asked first;
    struct asked second;

    (void)state;
    assert_int_equal(connect_to(sandbox.id, &first), ERR_NONE);
    assert_int_equal(connect_to(sandbox.id, &second), ERR_NONE);
    assert_int_not_equal(first.op.result.fd, second.op.result.fd);
    fd_close(first.op.result.fd);
    fd_close(second.op.result.fd);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void a_connect_that_is_given_up_is_not_answered(void **state)
{
    struct backend_sandbox sandbox = make();
    struct asked given_up = question();
    struct asked asked;

    (void)state;
    if (backend_connect(backend, sandbox.id, &given_up.op))
        fd_close(given_up.op.result.fd);
    else
        backend_cancel(backend, &given_up.op);
    assert_int_equal(connect_to(sandbox.id, &asked), ERR_NONE);
    fd_close(asked.op.result.fd);
    assert_false(given_up.answered);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void what_is_no_id_is_refused(void **state)
{
    (void)state;
    assert_int_equal(destroy("../etc"), ERR_INVALID);
    assert_int_equal(freeze("../etc", true), ERR_INVALID);
}

static void a_restarted_daemon_adopts_it(void **state)
{
    struct backend_sandbox sandbox = make();
    struct asked asked;

    (void)state;
    backend = contract->restart();
    assert_int_equal(count_listed(sandbox.id), 1);
    assert_int_equal(adopt(&sandbox, &asked), ERR_NONE);
    assert_false(asked.op.result.made.frozen);
    assert_int_equal(connect_to(sandbox.id, &asked), ERR_NONE);
    fd_close(asked.op.result.fd);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

/* The pid of a record may belong to another process by now. */
static void another_one_in_its_place_is_not_adopted(void **state)
{
    struct backend_sandbox sandbox = make();
    struct backend_sandbox stale = sandbox;
    struct asked asked;

    (void)state;
    contract->make_stale(&stale);
    backend = contract->restart();
    assert_int_equal(adopt(&stale, &asked), ERR_GONE);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void an_unknown_one_is_gone(void **state)
{
    /* Also a record that was damaged, or is of another backend. */
    static const char *const handles[] = { "",     "1:1:0",  "0:0:0",       "4711:1:0",
                                           "4711", "-5:1:0", "4711:1:0:\n", "99999999999:1:0",
                                           "::",   " ",      "docker://0a" };
    struct backend_sandbox never = { 0 };
    struct asked asked;

    (void)state;
    id_make(never.id, ID_SANDBOX);
    for (size_t i = 0; i < ARRAY_LENGTH(handles); i++) {
        strcpy(never.handle, handles[i]);
        assert_int_equal(adopt(&never, &asked), ERR_GONE);
    }
    snprintf(never.handle, sizeof(never.handle), "%d:1:0", (int)getpid());
    assert_int_equal(adopt(&never, &asked), ERR_GONE);
    assert_int_not_equal(connect_to(never.id, &asked), ERR_NONE);
    assert_int_equal(report_of(never.id, &asked), ERR_GONE);
    assert_int_equal(count_listed(never.id), 0);
}

struct witness {
    struct backend_watch watch;
    bool has_seen;
};

static void on_end(struct backend_watch *watch)
{
    container_of(watch, struct witness, watch)->has_seen = true;
}

static void watch(struct witness *witness, const struct backend_sandbox *sandbox)
{
    *witness = (struct witness){ 0 };
    backend_watch_start(backend, sandbox->id, &witness->watch, on_end);
}

/* Its remains are listed until it is destroyed. */
static void its_end_is_noticed_with_the_cause(void **state)
{
    struct backend_sandbox sandbox = make();
    struct witness witness;
    struct asked asked;

    (void)state;
    watch(&witness, &sandbox);
    assert_false(backend_watch_is_ending(&witness.watch));
    contract->kill(&sandbox);
    wait_until(&witness.has_seen);
    assert_int_equal(witness.watch.state, BACKEND_ENDED);
    if (witness.watch.end.is_known)
        assert_int_equal(witness.watch.end.signal, SIGKILL);
    assert_int_equal(adopt(&sandbox, &asked), ERR_GONE);
    assert_int_equal(connect_to(sandbox.id, &asked), ERR_GONE);
    assert_int_equal(report_of(sandbox.id, &asked), ERR_GONE);
    assert_int_equal(count_listed(sandbox.id), 1);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
    assert_int_equal(count_listed(sandbox.id), 0);
}

static void an_exit_is_told_from_a_kill(void **state)
{
    struct backend_sandbox sandbox = make();
    struct witness witness;

    (void)state;
    watch(&witness, &sandbox);
    contract->shut_down(&sandbox);
    wait_until(&witness.has_seen);
    assert_int_equal(witness.watch.end.signal, 0);
    assert_false(witness.watch.end.oom);
    if (witness.watch.end.is_known)
        assert_int_equal(witness.watch.end.code, 0);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

/* The end tells it itself, or its usage does, also when it is over. */
static void a_want_of_memory_can_be_told(void **state)
{
    struct backend_sandbox sandbox;
    const struct sandbox_limits limits = sample().limits;
    struct asked asked = question();
    struct witness witness;

    (void)state;
    if (!contract->exhaust || !backend->ops->capabilities.usage ||
        !backend_limits_in_force(backend, &limits).memory_bytes)
        return;
    sandbox = make();
    watch(&witness, &sandbox);
    contract->exhaust(&sandbox);
    if (!witness.has_seen)
        contract->kill(&sandbox);
    wait_until(&witness.has_seen);
    backend_inspect(backend, sandbox.id, &asked.op);
    assert_int_equal(answer(&asked), ERR_NONE);
    assert_true(witness.watch.end.oom || asked.op.result.usage.oom_kills > 0);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

/* It is asked again until it knows; that it does not know now says nothing of the sandbox. */
static void what_cannot_be_told_is_never_dead(void **state)
{
    struct backend_sandbox sandbox = make();
    int64_t deadline = now_ms() + WAIT_MS;
    struct witness witness;
    struct asked asked;

    (void)state;
    watch(&witness, &sandbox);
    contract->make_blind();
    while (adopt(&sandbox, &asked) != ERR_NONE) {
        assert_int_not_equal(asked.op.err.code, ERR_GONE);
        assert_true(now_ms() < deadline);
    }
    assert_false(witness.has_seen);
    assert_int_equal(connect_to(sandbox.id, &asked), ERR_NONE);
    fd_close(asked.op.result.fd);
    contract->kill(&sandbox);
    wait_until(&witness.has_seen);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

/* One daemon after the other learns of it. */
static void the_end_of_an_adopted_one_is_noticed(void **state)
{
    struct backend_sandbox sandbox = make();
    struct witness witness;
    struct asked asked;

    (void)state;
    backend = contract->restart();
    assert_int_equal(adopt(&sandbox, &asked), ERR_NONE);
    assert_string_equal(asked.op.result.made.sandbox.handle, sandbox.handle);
    watch(&witness, &sandbox);
    contract->kill(&sandbox);
    wait_until(&witness.has_seen);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void one_that_ended_between_two_daemons_is_gone(void **state)
{
    struct backend_sandbox sandbox = make();
    int64_t deadline = now_ms() + WAIT_MS;
    struct asked asked;

    (void)state;
    contract->kill(&sandbox);
    backend = contract->restart();
    while (adopt(&sandbox, &asked) == ERR_NONE)
        assert_true(now_ms() < deadline); /* it is still dying */
    assert_int_equal(asked.op.err.code, ERR_GONE);
    assert_int_equal(count_listed(sandbox.id), 1);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

/* With version 1 of control groups it dies when it is thawed. */
static void the_end_of_a_frozen_one_is_noticed(void **state)
{
    struct backend_sandbox sandbox;
    struct witness witness;

    (void)state;
    if (!backend->ops->capabilities.freeze)
        return;
    sandbox = make();
    watch(&witness, &sandbox);
    assert_int_equal(freeze(sandbox.id, true), ERR_NONE);
    assert_false(witness.has_seen);
    contract->kill(&sandbox);
    (void)freeze(sandbox.id, false);
    wait_until(&witness.has_seen);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

/* The core may be busy with another step of its life when it ends. */
static void an_end_that_came_before_the_watch_is_told(void **state)
{
    struct backend_sandbox sandbox = make();
    struct witness first;
    struct witness second;

    (void)state;
    watch(&first, &sandbox);
    contract->kill(&sandbox);
    wait_until(&first.has_seen);
    watch(&second, &sandbox);
    assert_false(second.has_seen);
    wait_until(&second.has_seen);
    assert_int_equal(second.watch.end.is_known, first.watch.end.is_known);
    assert_int_equal(second.watch.end.signal, first.watch.end.signal);
    backend_watch_stop(&second.watch);
    assert_int_equal(second.watch.state, BACKEND_ENDED);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void a_watch_that_was_stopped_is_told_nothing(void **state)
{
    struct backend_sandbox sandbox = make();
    struct witness stopped;
    struct witness witness;

    (void)state;
    watch(&stopped, &sandbox);
    backend_watch_stop(&stopped.watch);
    assert_int_equal(stopped.watch.state, BACKEND_UNWATCHED);
    assert_false(backend_watch_is_ending(&stopped.watch));
    watch(&witness, &sandbox);
    contract->kill(&sandbox);
    wait_until(&witness.has_seen);
    assert_false(stopped.has_seen);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

/* Its connection was lost, say: nothing that is watched is forgotten by asking. */
static void one_that_is_adopted_again_stays_watched(void **state)
{
    struct backend_sandbox sandbox = make();
    struct witness witness;
    struct asked asked;

    (void)state;
    watch(&witness, &sandbox);
    assert_int_equal(adopt(&sandbox, &asked), ERR_NONE);
    assert_int_equal(witness.watch.state, BACKEND_WATCHED);
    contract->kill(&sandbox);
    wait_until(&witness.has_seen);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

/* Its end was asked for: that is told by the answer. */
static void one_that_is_destroyed_is_not_watched_any_more(void **state)
{
    struct backend_sandbox sandbox = make();
    struct witness witness;

    (void)state;
    watch(&witness, &sandbox);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
    assert_int_not_equal(witness.watch.state, BACKEND_WATCHED);
    backend_watch_stop(&witness.watch);
}

static void destroying_twice_is_fine(void **state)
{
    struct backend_sandbox sandbox = make();
    struct asked asked;

    (void)state;
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
    assert_int_equal(adopt(&sandbox, &asked), ERR_GONE);
}

/* Both answer when it is gone. */
static void destroying_it_twice_at_once_is_fine(void **state)
{
    struct backend_sandbox sandbox = make();
    struct asked first = question();
    struct asked second = question();

    (void)state;
    backend_destroy(backend, sandbox.id, &first.op);
    backend_destroy(backend, sandbox.id, &second.op);
    assert_int_equal(answer(&first), ERR_NONE);
    wait_until(&second.answered);
    assert_int_equal(second.op.err.code, ERR_NONE);
    assert_int_equal(count_listed(sandbox.id), 0);
}

static void one_goes_and_the_others_stay(void **state)
{
    struct backend_sandbox sandboxes[3];
    struct asked asked;

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        sandboxes[i] = make();
    assert_int_equal(count_listed(NULL), 3);
    assert_int_equal(destroy(sandboxes[1].id), ERR_NONE);
    assert_int_equal(count_listed(NULL), 2);
    for (unsigned i = 0; i < 3; i += 2) {
        assert_int_equal(adopt(&sandboxes[i], &asked), ERR_NONE);
        assert_int_equal(destroy(sandboxes[i].id), ERR_NONE);
    }
    assert_int_equal(count_listed(NULL), 0);
}

static void assert_told(uint64_t told, uint64_t asked)
{
    if (told)
        assert_int_equal(told, asked);
}

static void limits_that_are_told_are_those_asked_for(void **state)
{
    struct sandbox_spec spec = sample();
    const struct sandbox_limits *told;
    struct asked asked;

    (void)state;
    assert_int_equal(create(&spec, &asked), ERR_NONE);
    told = &asked.op.result.made.limits;
    assert_told(told->memory_bytes, spec.limits.memory_bytes);
    assert_told(told->disk_bytes, spec.limits.disk_bytes);
    assert_told(told->cpu_millis, spec.limits.cpu_millis);
    assert_told(told->pids, spec.limits.pids);
    assert_int_equal(report_of(spec.id, &asked), ERR_NONE);
    assert_int_equal(*asked.op.result.report, '{');
    free(asked.op.result.report);
    assert_int_equal(destroy(spec.id), ERR_NONE);
}

/* What does not hold is not accepted, and what is accepted holds. */
static void a_limit_that_would_not_hold_is_refused(void **state)
{
    const struct sandbox_limits all = sample().limits;
    const struct sandbox_limits single[] = { { .memory_bytes = all.memory_bytes },
                                             { .cpu_millis = all.cpu_millis },
                                             { .pids = all.pids } };
    struct sandbox_limits holds = backend_limits_in_force(backend, &all);
    const bool in_force[] = { holds.memory_bytes, holds.cpu_millis, holds.pids };
    struct error err = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(single); i++)
        assert_int_equal(backend_check_limits(backend, &single[i], &err), in_force[i] ? 0 : -1);
}

static void limits_of_a_running_one_change(void **state)
{
    struct backend_sandbox sandbox = make();
    struct sandbox_limits wanted = sample().limits;
    struct sandbox_limits holds = backend_limits_in_force(backend, &wanted);
    struct asked asked = question();

    (void)state;
    wanted.memory_bytes *= 2;
    backend_update(backend, sandbox.id, &wanted, &asked.op);
    if (backend->ops->capabilities.limits && !backend->ops->capabilities.fixed_limits &&
        holds.memory_bytes)
        assert_int_equal(answer(&asked), ERR_NONE);
    else
        (void)answer(&asked);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void assert_adopted_as(const struct backend_sandbox *sandbox, bool frozen)
{
    struct asked asked;

    assert_int_equal(adopt(sandbox, &asked), ERR_NONE);
    assert_int_equal(asked.op.result.made.frozen, frozen);
}

/* A daemon that comes later sees what it is, however often it was asked for. */
static void it_is_frozen_and_thawed(void **state)
{
    struct backend_sandbox sandbox;

    (void)state;
    if (!backend->ops->capabilities.freeze)
        return;
    sandbox = make();
    assert_int_equal(freeze(sandbox.id, true), ERR_NONE);
    assert_int_equal(freeze(sandbox.id, true), ERR_NONE);
    backend = contract->restart();
    assert_adopted_as(&sandbox, true);
    assert_int_equal(freeze(sandbox.id, false), ERR_NONE);
    assert_adopted_as(&sandbox, false);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

static void a_frozen_one_is_destroyed(void **state)
{
    struct backend_sandbox sandbox;

    (void)state;
    if (!backend->ops->capabilities.freeze)
        return;
    sandbox = make();
    assert_int_equal(freeze(sandbox.id, true), ERR_NONE);
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
    assert_int_equal(count_listed(sandbox.id), 0);
}

static void its_usage_is_measured(void **state)
{
    struct backend_sandbox sandbox = make();
    struct asked asked = question();
    struct asked connected;

    (void)state;
    if (backend->ops->capabilities.usage) {
        /* The sandbox itself may be what knows. */
        assert_int_equal(connect_to(sandbox.id, &connected), ERR_NONE);
        backend_inspect(backend, sandbox.id, &asked.op);
        assert_int_equal(answer(&asked), ERR_NONE);
        assert_int_equal(asked.op.result.usage.oom_kills, 0);
        fd_close(connected.op.result.fd);
    }
    assert_int_equal(destroy(sandbox.id), ERR_NONE);
}

/* --- the suite ------------------------------------------------------------------------------- */

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_backend, close_backend)

int backend_contract_run(const struct backend_contract *subject)
{
    const struct CMUnitTest tests[] = {
        TEST(a_made_sandbox_is_listed_and_can_be_connected_to),
        TEST(an_id_is_not_made_twice),
        TEST(it_is_connected_to_again),
        TEST(a_connect_that_is_given_up_is_not_answered),
        TEST(what_is_no_id_is_refused),
        TEST(a_restarted_daemon_adopts_it),
        TEST(another_one_in_its_place_is_not_adopted),
        TEST(an_unknown_one_is_gone),
        TEST(its_end_is_noticed_with_the_cause),
        TEST(an_exit_is_told_from_a_kill),
        TEST(a_want_of_memory_can_be_told),
        TEST(what_cannot_be_told_is_never_dead),
        TEST(the_end_of_an_adopted_one_is_noticed),
        TEST(one_that_ended_between_two_daemons_is_gone),
        TEST(the_end_of_a_frozen_one_is_noticed),
        TEST(an_end_that_came_before_the_watch_is_told),
        TEST(a_watch_that_was_stopped_is_told_nothing),
        TEST(one_that_is_adopted_again_stays_watched),
        TEST(one_that_is_destroyed_is_not_watched_any_more),
        TEST(destroying_twice_is_fine),
        TEST(destroying_it_twice_at_once_is_fine),
        TEST(one_goes_and_the_others_stay),
        TEST(limits_that_are_told_are_those_asked_for),
        TEST(a_limit_that_would_not_hold_is_refused),
        TEST(limits_of_a_running_one_change),
        TEST(it_is_frozen_and_thawed),
        TEST(a_frozen_one_is_destroyed),
        TEST(its_usage_is_measured),
    };

    contract = subject;
    return _cmocka_run_group_tests(subject->name, tests, ARRAY_LENGTH(tests), NULL, NULL);
}
