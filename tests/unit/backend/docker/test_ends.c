/* SPDX-License-Identifier: Apache-2.0 */
/* How a container ends, over an engine that the test plays. */

#include "backend/docker/docker_private.h"
#include "base/str.h"
#include "harness/docker_world.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct docker_world world;
static struct backend_sandbox sandbox;
static struct witness witness;

static int open_world(void **state)
{
    (void)state;
    docker_world_start(&world, "");
    sandbox = docker_world_make(&world);
    docker_world_watch(&world, &witness, sandbox.id);
    return 0;
}

/* The sentry is watched by its pid, as an init is; is_elsewhere hides both. */
static int open_elsewhere(void **state)
{
    (void)state;
    docker_world_init(&world, "gvisor", "");
    fake_engine_habits(world.engine)->is_elsewhere = true;
    docker_world_open(&world);
    docker_world_wait(&world, fake_engine_event_streams(world.engine) == 1);
    sandbox = docker_world_make(&world);
    docker_world_watch(&world, &witness, sandbox.id);
    /* One that is elsewhere is looked at once more when it is known to run. */
    docker_world_wait(&world, fake_engine_count(world.engine, "GET /containers/*/json") == 2);
    docker_world_idle(&world, 20);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    docker_world_close(&world);
    return 0;
}

static struct fake_container *container(void)
{
    return docker_world_container(&world, sandbox.id);
}

static const struct backend_end *wait_for_end(void)
{
    docker_world_wait(&world, witness.has_seen);
    return &witness.watch.end;
}

/* --- causes -------------------------------------------------------------------------------------- */

static void a_container_that_is_killed_through_the_engine_says_so(void **state)
{
    const struct backend_end *end;

    (void)state;
    fake_container_kill(container(), SIGKILL);
    end = wait_for_end();
    assert_true(end->is_known);
    assert_int_equal(end->signal, SIGKILL);
    assert_false(end->oom);
    assert_string_equal(end->detail, "killed through the engine");
}

/* docker kill --signal HUP is no cause of what follows. */
static void another_signal_through_the_engine_is_no_cause(void **state)
{
    const struct backend_end *end;

    (void)state;
    fake_container_kill(container(), SIGCONT);
    (void)kill(container()->pid, SIGKILL);
    end = wait_for_end();
    assert_int_equal(end->signal, SIGKILL);
    assert_string_equal(end->detail, "");
}

static void a_want_of_memory_is_a_cause(void **state)
{
    (void)state;
    fake_container_exhaust(container());
    assert_true(wait_for_end()->oom);
}

static void an_exit_has_its_code(void **state)
{
    const struct backend_end *end;

    (void)state;
    (void)kill(container()->pid, SIGTERM);
    end = wait_for_end();
    assert_true(end->is_known);
    assert_int_equal(end->code, 0);
    assert_int_equal(end->signal, 0);
}

static void a_container_that_was_removed_has_ended(void **state)
{
    (void)state;
    fake_container_remove(container());
    assert_string_equal(wait_for_end()->detail, "removed");
}

static void a_container_of_podman_that_was_removed_has_ended(void **state)
{
    (void)state;
    fake_engine_habits(world.engine)->is_podman = true;
    fake_container_remove(container());
    assert_string_equal(wait_for_end()->detail, "removed");
}

/* The engine is another one when it comes back. */
static void become_podman(void)
{
    unsigned infos = fake_engine_count(world.engine, "GET /info");

    fake_engine_habits(world.engine)->is_podman = true;
    fake_engine_cut_events(world.engine);
    docker_world_wait(&world, fake_engine_count(world.engine, "GET /info") > infos);
    docker_world_wait(&world, fake_engine_event_streams(world.engine) == 1);
    docker_world_idle(&world, 20);
}

static void a_container_that_is_killed_through_podman_says_so(void **state)
{
    (void)state;
    become_podman();
    fake_container_kill(container(), SIGKILL);
    assert_string_equal(wait_for_end()->detail, "killed through the engine");
}

static void another_signal_through_podman_is_no_cause(void **state)
{
    (void)state;
    become_podman();
    fake_container_kill(container(), SIGCONT);
    docker_world_idle(&world, 50);
    (void)kill(container()->pid, SIGKILL);
    assert_string_equal(wait_for_end()->detail, "signal 9 (perhaps memory)");
}

/* It stops before it goes, and the engine is asked in between. */
static void a_container_that_podman_is_removing_is_not_just_dead(void **state)
{
    unsigned looks;

    (void)state;
    become_podman();
    fake_engine_habits(world.engine)->is_slow_to_clean = true;
    looks = fake_engine_count(world.engine, "GET /containers/*/json");
    (void)kill(container()->pid, SIGKILL);
    docker_world_wait(&world, fake_engine_count(world.engine, "GET /containers/*/json") > looks &&
                                  container()->state == FAKE_STOPPED);
    fake_container_remove(container());
    assert_string_equal(wait_for_end()->detail, "removed");
}

/* Its parent, which cleans up, was killed. */
static void a_container_that_podman_never_cleans_up_has_ended(void **state)
{
    (void)state;
    become_podman();
    fake_engine_habits(world.engine)->is_slow_to_clean = true;
    (void)kill(container()->pid, SIGTERM);
    assert_int_equal(wait_for_end()->code, 0);
}

static void podman_does_not_say_whether_it_was_for_memory(void **state)
{
    const struct backend_end *end;

    (void)state;
    become_podman();
    fake_container_exhaust(container());
    end = wait_for_end();
    assert_false(end->oom);
    assert_int_equal(end->signal, SIGKILL);
    assert_string_equal(end->detail, "signal 9 (perhaps memory)");
}

static void a_container_that_was_restarted_has_ended(void **state)
{
    struct question question;

    (void)state;
    fake_container_restart(container());
    assert_string_equal(wait_for_end()->detail, "restarted");
    assert_int_equal(docker_world_connect(&world, sandbox.id), ERR_GONE);
    assert_int_equal(docker_world_adopt(&world, &sandbox, &question), ERR_GONE);
}

/* --- the same kill, in several acts of the engine --------------------------------------------------- */

static void wait_for_exit(void)
{
    docker_world_wait(&world, container()->state == FAKE_EXITED);
}

/* It takes longer than the engine needs to tell of a kill. */
static void a_restart_that_takes_its_time_is_no_kill(void **state)
{
    (void)state;
    fake_container_kill(container(), SIGKILL);
    wait_for_exit();
    docker_world_idle(&world, 150);
    fake_container_tell_stop(container());
    docker_world_idle(&world, 1200);
    assert_false(witness.has_seen);
    fake_container_start(container());
    assert_string_equal(wait_for_end()->detail, "restarted");
}

static void a_container_that_is_stopped_for_good_was_killed(void **state)
{
    int64_t began_us;

    (void)state;
    fake_container_kill(container(), SIGKILL);
    wait_for_exit();
    began_us = loop_now_us(world.loop);
    fake_container_tell_stop(container());
    assert_string_equal(wait_for_end()->detail, "killed through the engine");
    assert_true(loop_now_us(world.loop) - began_us < 30 * 1000 * 1000);
}

/* The kernel has told of the end, the engine has been asked, and only then its event comes. */
static void a_kill_that_is_told_after_the_end_is_the_cause(void **state)
{
    struct fake_habits *habits = fake_engine_habits(world.engine);

    (void)state;
    habits->keeps_silent = true;
    (void)kill(container()->pid, SIGKILL);
    wait_for_exit();
    docker_world_idle(&world, 50);
    habits->keeps_silent = false;
    fake_container_tell_kill(container(), SIGKILL);
    assert_string_equal(wait_for_end()->detail, "killed through the engine");
}

/* From the time when it is dead. */
static void expect_engine_stopped_at_once(void)
{
    int64_t began_us;

    wait_for_exit();
    began_us = loop_now_us(world.loop);
    assert_string_equal(wait_for_end()->detail, "engine stopped");
    assert_true(loop_now_us(world.loop) - began_us < 1000 * 1000);
}

/* It answers on the connections that it has, and its stream of events goes on for a while. */
static void an_engine_that_stops_kills_its_containers(void **state)
{
    (void)state;
    fake_engine_stop_listening(world.engine);
    fake_container_kill(container(), SIGKILL);
    expect_engine_stopped_at_once();
}

/* Another process listens in its place, and starts it again when it is connected to. */
static void an_engine_that_stops_ends_its_events(void **state)
{
    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /containers/*/json",
                                                        .kind = FAULT_HOLD,
                                                        .times = 9 });
    fake_container_kill(container(), SIGKILL);
    wait_for_exit();
    docker_world_idle(&world, 50);
    assert_false(witness.has_seen);
    fake_engine_cut_events(world.engine);
    expect_engine_stopped_at_once();
}

/* An engine that was killed, and keeps no containers, kills them before it listens again. */
static void an_end_while_the_engine_was_away_is_its_doing(void **state)
{
    struct error err = { 0 };

    (void)state;
    fake_engine_leave(world.engine);
    docker_world_wait(&world, backend_check(world.backend, &err) < 0);
    (void)kill(container()->pid, SIGKILL);
    docker_world_wait(&world, backend_watch_is_ending(&witness.watch));
    fake_engine_return(world.engine);
    assert_string_equal(wait_for_end()->detail, "engine stopped");
    assert_int_equal(witness.watch.end.signal, SIGKILL);
}

/* It tells of that when it is back. */
static void what_the_engine_tells_of_an_end_while_it_was_away_is_no_act_of_others(void **state)
{
    struct error err = { 0 };

    (void)state;
    fake_engine_leave(world.engine);
    docker_world_wait(&world, backend_check(world.backend, &err) < 0);
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /containers/*/json",
                                                        .kind = FAULT_HOLD });
    (void)kill(container()->pid, SIGKILL);
    docker_world_wait(&world, backend_watch_is_ending(&witness.watch));
    fake_engine_return(world.engine);
    docker_world_wait(&world, fake_engine_event_streams(world.engine) == 1);
    fake_container_tell_kill(container(), SIGKILL);
    fake_container_tell_stop(container());
    docker_world_idle(&world, 50);
    fake_engine_release(world.engine);
    assert_string_equal(wait_for_end()->detail, "engine stopped");
}

/* --- the engine is away ---------------------------------------------------------------------------- */

static void an_engine_that_is_away_says_nothing_about_its_containers(void **state)
{
    struct error err = { 0 };

    (void)state;
    fake_engine_leave(world.engine);
    docker_world_wait(&world, backend_check(world.backend, &err) < 0);
    docker_world_idle(&world, 500);
    assert_false(witness.has_seen);
    assert_false(backend_watch_is_ending(&witness.watch));
    assert_int_equal(docker_world_connect(&world, sandbox.id), ERR_NONE);
    fake_engine_return(world.engine);
    docker_world_wait(&world, fake_engine_event_streams(world.engine) == 1);
    docker_world_wait(&world, backend_check(world.backend, &err) == 0);
    docker_world_idle(&world, 50);
    assert_false(witness.has_seen);
}

/* Without an engine the kernel still tells; only the cause is not known for sure. */
static void an_end_is_noticed_without_an_engine(void **state)
{
    (void)state;
    fake_engine_leave(world.engine);
    (void)kill(container()->pid, SIGKILL);
    assert_string_equal(wait_for_end()->detail, "engine stopped");
}

/* A sign of its end has come, and nobody can be asked: its process lives, and so does it. */
static void an_engine_that_has_left_ends_nothing_that_lives(void **state)
{
    struct container *known = container_find(docker_from(world.backend), sandbox.id);

    (void)state;
    fake_engine_leave(world.engine);
    container_suspect(known);
    docker_world_wait(&world, known->looks > 2 || witness.has_seen);
    assert_false(witness.has_seen);
}

static void an_engine_that_is_slow_to_notice_is_waited_for(void **state)
{
    (void)state;
    fake_engine_habits(world.engine)->is_slow_to_note = true;
    (void)kill(container()->pid, SIGTERM);
    docker_world_wait(&world, backend_watch_is_ending(&witness.watch));
    docker_world_idle(&world, 150);
    assert_false(witness.has_seen);
    fake_engine_note(world.engine);
    assert_int_equal(wait_for_end()->code, 0);
    assert_true(witness.watch.end.is_known);
}

/* Another engine has no such container; the process of ours lives. */
static void another_engine_at_its_address_says_nothing(void **state)
{
    (void)state;
    fake_engine_fail(
        world.engine,
        (struct fake_fault){ .requests = "GET /containers/json", .status = 200, .body = "[]" });
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /containers/*/json",
                                                        .times = 2,
                                                        .status = 404,
                                                        .message = "No such container" });
    fake_engine_cut_events(world.engine);
    docker_world_wait(&world, fake_engine_count(world.engine, "GET /containers/[0-9a-f]*") >= 4);
    docker_world_idle(&world, 50);
    assert_false(witness.has_seen);
    (void)kill(container()->pid, SIGKILL);
    assert_int_equal(wait_for_end()->signal, SIGKILL);
}

/* --- elsewhere: only the engine can tell ------------------------------------------------------------ */

static void the_end_of_a_container_elsewhere_is_told_by_an_event(void **state)
{
    (void)state;
    fake_container_kill(container(), SIGKILL);
    assert_int_equal(wait_for_end()->signal, SIGKILL);
}

static void ends_that_were_missed_while_the_events_were_away_are_noticed(void **state)
{
    (void)state;
    fake_engine_leave(world.engine);
    (void)kill(container()->pid, SIGKILL);
    docker_world_idle(&world, 300);
    assert_false(witness.has_seen);
    fake_engine_return(world.engine);
    assert_int_equal(wait_for_end()->signal, SIGKILL);
}

static void a_removal_that_was_missed_is_noticed(void **state)
{
    (void)state;
    fake_engine_habits(world.engine)->keeps_silent = true;
    fake_container_remove(container());
    docker_world_idle(&world, 50);
    assert_false(witness.has_seen);
    fake_engine_cut_events(world.engine);
    assert_string_equal(wait_for_end()->detail, "removed");
}

/* The answer that describes it as running was written before. */
static void an_end_that_is_told_before_it_is_known_to_run_is_noticed(void **state)
{
    struct sandbox_spec spec = docker_world_spec();
    struct question question = question_new();

    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /containers/*/json",
                                                        .kind = FAULT_HOLD_AFTER });
    backend_create(world.backend, &spec, &question.op);
    docker_world_wait(&world, fake_engine_held(world.engine) == 1);
    fake_container_kill(docker_world_container(&world, spec.id), SIGKILL);
    docker_world_idle(&world, 50);
    fake_engine_release(world.engine);
    assert_int_equal(question_wait(&world, &question), ERR_NONE);
    docker_world_watch(&world, &witness, spec.id);
    assert_int_equal(wait_for_end()->signal, SIGKILL);
}

static void an_engine_elsewhere_that_does_not_answer_is_asked_until_it_does(void **state)
{
    (void)state;
    fake_engine_fail(world.engine, (struct fake_fault){ .requests = "GET /containers/*/json",
                                                        .times = 3,
                                                        .status = 500,
                                                        .message = "busy" });
    fake_container_kill(container(), SIGKILL);
    docker_world_idle(&world, 60);
    assert_false(witness.has_seen);
    assert_int_equal(wait_for_end()->signal, SIGKILL);
}

#define HERE(function) cmocka_unit_test_setup_teardown(function, open_world, close_world)
#define ELSEWHERE(function) cmocka_unit_test_setup_teardown(function, open_elsewhere, close_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HERE(a_container_that_is_killed_through_the_engine_says_so),
        HERE(another_signal_through_the_engine_is_no_cause),
        HERE(a_want_of_memory_is_a_cause),
        HERE(an_exit_has_its_code),
        HERE(a_container_that_was_removed_has_ended),
        HERE(a_container_of_podman_that_was_removed_has_ended),
        HERE(a_container_that_is_killed_through_podman_says_so),
        HERE(another_signal_through_podman_is_no_cause),
        HERE(a_container_that_podman_is_removing_is_not_just_dead),
        HERE(a_container_that_podman_never_cleans_up_has_ended),
        HERE(podman_does_not_say_whether_it_was_for_memory),
        HERE(a_container_that_was_restarted_has_ended),
        HERE(a_restart_that_takes_its_time_is_no_kill),
        HERE(a_container_that_is_stopped_for_good_was_killed),
        HERE(a_kill_that_is_told_after_the_end_is_the_cause),
        HERE(an_engine_that_stops_kills_its_containers),
        HERE(an_engine_that_stops_ends_its_events),
        HERE(an_end_while_the_engine_was_away_is_its_doing),
        HERE(what_the_engine_tells_of_an_end_while_it_was_away_is_no_act_of_others),
        ELSEWHERE(a_restart_that_takes_its_time_is_no_kill),
        ELSEWHERE(an_engine_that_stops_kills_its_containers),
        ELSEWHERE(an_engine_that_stops_ends_its_events),
        HERE(an_engine_that_is_away_says_nothing_about_its_containers),
        HERE(an_end_is_noticed_without_an_engine),
        HERE(an_engine_that_has_left_ends_nothing_that_lives),
        HERE(an_engine_that_is_slow_to_notice_is_waited_for),
        HERE(another_engine_at_its_address_says_nothing),
        ELSEWHERE(the_end_of_a_container_elsewhere_is_told_by_an_event),
        ELSEWHERE(ends_that_were_missed_while_the_events_were_away_are_noticed),
        ELSEWHERE(a_removal_that_was_missed_is_noticed),
        ELSEWHERE(an_end_that_is_told_before_it_is_known_to_run_is_noticed),
        ELSEWHERE(an_engine_elsewhere_that_does_not_answer_is_asked_until_it_does),
    };

    return cmocka_run_group_tests_name("docker/ends", tests, NULL, NULL);
}
