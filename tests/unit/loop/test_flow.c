/* SPDX-License-Identifier: Apache-2.0 */
#include "loop/flow.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SECOND_US = 1000 * 1000, SOURCES = 60 };

/* A source that never ends: it takes whatever it may. */
struct endless {
    struct flow_source source;
    uint64_t taken;
};

struct fixture {
    struct simulated_clock clock;
    struct loop *loop;
    struct flows *flows;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    simulated_clock_init(&fixture->clock, SECOND_US, SECOND_US);
    fixture->loop = loop_new(&fixture->clock.clock);
    fixture->flows = flows_new(fixture->loop);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    flows_free(fixture->flows);
    loop_free(fixture->loop);
    free(fixture);
    return 0;
}

/* Until those that wait are served. */
static void let_pass(struct fixture *fixture)
{
    loop_advance(fixture->loop, &fixture->clock, FLOWS_PAUSE_US);
}

static void take(struct endless *endless)
{
    uint64_t share = flow_ask(&endless->source);

    if (!share)
        return;
    endless->taken += share;
    (void)flow_took(&endless->source, share, true);
}

static void on_served(struct flow_source *source)
{
    take(container_of(source, struct endless, source));
}

static void join(struct fixture *fixture, struct endless *endless, const char *name)
{
    *endless = (struct endless){ 0 };
    flow_join(&endless->source, fixture->flows, name, on_served);
}

static void a_source_without_a_flow_has_no_limit(void **state UNUSED)
{
    struct flow_source source = { 0 };

    flow_join(&source, NULL, NULL, on_served);
    assert_true(flow_ask(&source) == UINT64_MAX);
    assert_false(flow_took(&source, 1 << 30, true));
    flow_leave(&source);
}

static void one_flow_takes_its_share_in_a_turn_however_many_sources_it_has(void **state)
{
    struct fixture *fixture = *state;
    struct endless sources[SOURCES];
    uint64_t taken = 0;

    for (unsigned i = 0; i < SOURCES; i++)
        join(fixture, &sources[i], "one");
    let_pass(fixture);
    for (unsigned i = 0; i < SOURCES; i++) {
        take(&sources[i]);
        taken += sources[i].taken;
    }
    assert_true(taken > 0 && taken <= FLOW_BYTES);
    for (unsigned i = 0; i < SOURCES; i++)
        flow_leave(&sources[i].source);
}

static void sources_of_a_flow_are_served_in_rotation(void **state)
{
    struct fixture *fixture = *state;
    struct endless sources[SOURCES];

    for (unsigned i = 0; i < SOURCES; i++) {
        join(fixture, &sources[i], "one");
        take(&sources[i]);
    }
    for (unsigned turn = 0; turn < 2 * SOURCES; turn++)
        let_pass(fixture);
    for (unsigned i = 0; i < SOURCES; i++) {
        assert_in_range(sources[i].taken, FLOW_BYTES, 3 * FLOW_BYTES);
        flow_leave(&sources[i].source);
    }
}

static void a_flow_with_one_source_has_as_much_as_one_with_many(void **state)
{
    struct fixture *fixture = *state;
    struct endless many[SOURCES], alone;
    uint64_t taken = 0;

    for (unsigned i = 0; i < SOURCES; i++) {
        join(fixture, &many[i], "many");
        take(&many[i]);
    }
    join(fixture, &alone, "alone");
    take(&alone);
    for (unsigned turn = 0; turn < SOURCES; turn++)
        let_pass(fixture);
    for (unsigned i = 0; i < SOURCES; i++) {
        taken += many[i].taken;
        flow_leave(&many[i].source);
    }
    assert_in_range(alone.taken, taken - 2 * FLOW_BYTES, taken + 2 * FLOW_BYTES);
    flow_leave(&alone.source);
}

static void all_flows_together_leave_most_of_a_turn_to_others(void **state)
{
    struct fixture *fixture = *state;
    struct endless sources[SOURCES];
    uint64_t before = 0, after = 0;
    char name[16];

    for (unsigned i = 0; i < SOURCES; i++) {
        snprintf(name, sizeof(name), "%u", i);
        join(fixture, &sources[i], name);
        take(&sources[i]);
        before += sources[i].taken;
    }
    assert_in_range(before, 1, FLOWS_BYTES);
    let_pass(fixture);
    for (unsigned i = 0; i < SOURCES; i++)
        after += sources[i].taken;
    assert_in_range(after - before, 1, FLOWS_BYTES);
    for (unsigned turn = 0; turn < 2 * SOURCES; turn++)
        let_pass(fixture);
    for (unsigned i = 0; i < SOURCES; i++) {
        assert_true(sources[i].taken > 0);
        flow_leave(&sources[i].source);
    }
}

static void a_source_may_leave_while_it_is_served(void **state)
{
    struct fixture *fixture = *state;
    struct endless first, second;

    join(fixture, &first, "one");
    join(fixture, &second, "one");
    take(&first);
    take(&second);
    flow_leave(&second.source);
    let_pass(fixture);
    flow_leave(&first.source);
    let_pass(fixture);
    assert_true(second.taken == 0);
}

/* Like a terminal, which has little at a time and is looked at again after a pause. */
static void on_looked_at(struct flow_source *source)
{
    container_of(source, struct endless, source)->taken++;
    assert_true(flow_ask(source) > 0);
    (void)flow_took(source, 1, true);
    assert_true(flow_wait(source));
}

static void a_source_that_waits_in_any_case_is_served_once_in_a_pause(void **state)
{
    struct fixture *fixture = *state;
    struct endless sources[3] = { 0 };

    for (unsigned i = 0; i < ARRAY_LENGTH(sources); i++) {
        flow_join(&sources[i].source, fixture->flows, i ? "two" : "one", on_looked_at);
        assert_true(flow_wait(&sources[i].source));
    }
    for (unsigned pause = 0; pause < 10; pause++)
        let_pass(fixture);
    assert_int_equal(sources[0].taken, 10);
    for (unsigned i = 0; i < ARRAY_LENGTH(sources); i++) {
        assert_in_range(sources[i].taken, 5, 10);
        flow_leave(&sources[i].source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_without_a_flow_has_no_limit),
        cmocka_unit_test_setup_teardown(
            one_flow_takes_its_share_in_a_turn_however_many_sources_it_has, setup, teardown),
        cmocka_unit_test_setup_teardown(sources_of_a_flow_are_served_in_rotation, setup, teardown),
        cmocka_unit_test_setup_teardown(a_flow_with_one_source_has_as_much_as_one_with_many, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(all_flows_together_leave_most_of_a_turn_to_others, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_source_that_waits_in_any_case_is_served_once_in_a_pause,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(a_source_may_leave_while_it_is_served, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
