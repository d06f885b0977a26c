/* SPDX-License-Identifier: Apache-2.0 */
#include "service/condition.h"

#include "harness/fake_programs.h"
#include "harness/world.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PORT = 8080, TIMEOUT_MS = 10 * 1000 };

static struct world world;
static char state_path[64];

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    snprintf(state_path, sizeof(state_path), "/tmp/test-condition-XXXXXX");
    assert_non_null(mkdtemp(state_path));
    world_init(&world);
    world.state_dir = open(state_path, O_DIRECTORY | O_CLOEXEC);
    world_start(&world);
    return 0;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    world_fini(&world);
    fake_programs_clear();
    fd_close(world.state_dir);
    snprintf(command, sizeof(command), "rm -rf %s", state_path);
    return system(command);
}

/* --- somebody who waits ----------------------------------------------------------------------- */

struct waiting {
    struct condition condition;
    unsigned answers;
};

static void on_over(struct condition *condition)
{
    container_of(condition, struct waiting, condition)->answers++;
}

static struct execution *start(void)
{
    static const char *const argv[] = { "/bin/true", NULL };
    struct session *session = world_open_simple(&world, "ann", NULL);
    bool is_repeated = true;
    struct error err = { 0 };
    struct execution *execution = start_execution(
        world.core, session_id(session),
        &(struct execution_request){ .argv = argv, .timeout_ms = -1 }, &is_repeated, &err);

    assert_non_null(execution);
    assert_false(is_repeated);
    execution_ref(execution);
    world_settle(&world);
    return execution;
}

/* In small steps: between two of them init's answer is read. */
static void pass(int64_t ms)
{
    for (int64_t i = 0; i < ms; i++) {
        world_advance(&world, 1);
        world_settle(&world);
    }
}

static void begin(struct waiting *waiting, struct execution *execution, int64_t timeout_ms)
{
    struct condition_wish wish = { .port = PORT, .timeout_ms = timeout_ms };

    waiting->answers = 0;
    condition_start(&waiting->condition,
                    &(struct found_execution){ .core = world.core, .live = execution }, &wish,
                    on_over);
}

static void end(struct waiting *waiting, struct execution *execution)
{
    condition_stop(&waiting->condition);
    execution_unref(execution);
}

static void assert_over(const struct waiting *waiting, bool is_met, const char *reason)
{
    assert_int_equal(waiting->answers, 1);
    assert_int_equal(waiting->condition.err.code, ERR_NONE);
    assert_int_equal(waiting->condition.is_met, is_met);
    if (reason)
        assert_string_equal(waiting->condition.reason, reason);
    else
        assert_null(waiting->condition.reason);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void a_port_that_is_served_is_found_at_once(void **state UNUSED)
{
    struct execution *execution = start();
    struct waiting waiting;

    fake_programs_serve(PORT);
    begin(&waiting, execution, TIMEOUT_MS);
    assert_int_equal(waiting.answers, 0);
    world_settle(&world);
    assert_over(&waiting, true, NULL);
    assert_int_equal(fake_programs_port_requests(), 1);
    end(&waiting, execution);
}

static void a_port_is_asked_for_with_growing_pauses(void **state UNUSED)
{
    struct execution *execution = start();
    struct waiting waiting;
    unsigned first, second;

    fake_programs_serve(PORT + 1);
    begin(&waiting, execution, TIMEOUT_MS);
    pass(1000);
    first = fake_programs_port_requests();
    assert_true(first >= 5 && first <= 20);
    pass(1000);
    second = fake_programs_port_requests() - first;
    assert_true(second >= 4 && second <= 6);
    assert_int_equal(waiting.answers, 0);
    fake_programs_serve(PORT);
    pass(300);
    assert_over(&waiting, true, NULL);
    end(&waiting, execution);
}

static void a_port_that_nobody_serves_is_not_awaited_for_ever(void **state UNUSED)
{
    struct execution *execution = start();
    struct waiting waiting;

    begin(&waiting, execution, TIMEOUT_MS);
    world_advance(&world, TIMEOUT_MS - 1);
    assert_int_equal(waiting.answers, 0);
    world_advance(&world, 2);
    assert_over(&waiting, false, "timeout");
    end(&waiting, execution);
}

static void without_any_time_the_ports_are_looked_at_once(void **state UNUSED)
{
    struct execution *execution = start();
    struct waiting waiting;

    begin(&waiting, execution, 0);
    world_advance(&world, 1);
    assert_over(&waiting, false, "timeout");
    condition_stop(&waiting.condition);
    fake_programs_serve(PORT);
    begin(&waiting, execution, 0);
    world_advance(&world, 1);
    assert_over(&waiting, true, NULL);
    end(&waiting, execution);
}

static void an_init_that_says_nothing_does_not_hold_a_waiter_up(void **state UNUSED)
{
    struct execution *execution = start();
    struct waiting waiting;

    fake_programs_hang(true);
    begin(&waiting, execution, 100);
    world_advance(&world, 100);
    assert_int_equal(waiting.answers, 0);
    world_advance(&world, 1001);
    assert_over(&waiting, false, "timeout");
    end(&waiting, execution);
    fake_programs_hang(false);
}

static void a_server_that_is_left_behind_is_found_when_the_execution_ends(void **state UNUSED)
{
    struct execution *execution = start();
    struct waiting waiting;

    begin(&waiting, execution, TIMEOUT_MS);
    world_settle(&world);
    fake_programs_serve(PORT);
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_over(&waiting, true, NULL);
    condition_stop(&waiting.condition);
    fake_programs_serve(0);
    begin(&waiting, execution, TIMEOUT_MS);
    world_settle(&world);
    assert_over(&waiting, false, "ended");
    end(&waiting, execution);
}

static void an_end_without_the_port_is_told_at_once(void **state UNUSED)
{
    struct execution *execution = start();
    struct waiting waiting;

    begin(&waiting, execution, TIMEOUT_MS);
    pass(500);
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_over(&waiting, false, "ended");
    end(&waiting, execution);
}

static void a_sandbox_that_cannot_tell_is_an_error(void **state UNUSED)
{
    static const struct {
        int number;
        const char *name;
    } cases[] = { { -1, "sandbox_too_old" }, { ENOSYS, "ports_unknown" } };
    struct execution *execution = start();
    struct waiting waiting;

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        fake_programs_refuse_ports(cases[i].number);
        begin(&waiting, execution, TIMEOUT_MS);
        world_settle(&world);
        assert_int_equal(waiting.answers, 1);
        assert_int_equal(waiting.condition.err.code, ERR_CONFLICT);
        assert_string_equal(waiting.condition.err.name, cases[i].name);
        condition_stop(&waiting.condition);
    }
    execution_unref(execution);
}

static void a_sandbox_that_is_busy_is_asked_again(void **state UNUSED)
{
    struct execution *execution = start();
    struct waiting waiting;

    fake_programs_refuse_ports(EAGAIN);
    fake_programs_serve(PORT);
    begin(&waiting, execution, TIMEOUT_MS);
    world_advance(&world, 100);
    assert_int_equal(waiting.answers, 0);
    fake_programs_refuse_ports(0);
    pass(300);
    assert_over(&waiting, true, NULL);
    end(&waiting, execution);
}

static void a_waiter_can_leave_at_any_time(void **state UNUSED)
{
    struct execution *execution = start();
    struct waiting waiting;

    begin(&waiting, execution, TIMEOUT_MS);
    condition_stop(&waiting.condition);
    begin(&waiting, execution, TIMEOUT_MS);
    world_advance(&world, 5);
    condition_stop(&waiting.condition);
    world_advance(&world, TIMEOUT_MS);
    assert_int_equal(waiting.answers, 0);
    execution_unref(execution);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_port_that_is_served_is_found_at_once),
        TEST(a_port_is_asked_for_with_growing_pauses),
        TEST(a_port_that_nobody_serves_is_not_awaited_for_ever),
        TEST(without_any_time_the_ports_are_looked_at_once),
        TEST(an_init_that_says_nothing_does_not_hold_a_waiter_up),
        TEST(a_server_that_is_left_behind_is_found_when_the_execution_ends),
        TEST(an_end_without_the_port_is_told_at_once),
        TEST(a_sandbox_that_cannot_tell_is_an_error),
        TEST(a_sandbox_that_is_busy_is_asked_again),
        TEST(a_waiter_can_leave_at_any_time),
    };

    return cmocka_run_group_tests_name("service/condition", tests, NULL, NULL);
}
