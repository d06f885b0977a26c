/* SPDX-License-Identifier: Apache-2.0 */
/* Whole trees: what a process leaves behind, how all of it is reached, and init's own survival. */

#include "both.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Pids that the process has printed, as numbers of init's namespace. */
static unsigned read_numbers(struct run *run, long *numbers, unsigned maximum)
{
    const char *at = run_out(run);
    unsigned count = 0;

    while (count < maximum && *at) {
        char *end;
        long number = strtol(at, &end, 10);

        if (end == at)
            break;
        numbers[count++] = number;
        at = end + strspn(end, "\n ");
    }
    return count;
}

/* Asked inside, since the numbers are those of its namespace. */
static bool lives(struct box *box, long pid)
{
    char text[64];
    struct run run;
    bool result;

    snprintf(text, sizeof(text), "kill -0 %ld 2>/dev/null", pid);
    run_all(&run, box, &RUN_SHELL(text));
    result = box_find_end(box, run.number)->code == 0;
    run_finish(&run);
    return result;
}

static void a_child_in_the_background_does_not_delay_the_end(void **state)
{
    struct box *box = the_box(state);
    struct run run;

    run_all(&run, box, &RUN_SHELL("sleep 1000 & echo started; exit 5"));
    assert_string_equal(run_out(&run), "started\n");
    assert_int_equal(box_find_end(box, run.number)->code, 5);
    assert_int_equal(box_find_end(box, run.number)->survivors, 1);
    assert_int_equal(box_kill_tree(box, run.number, SIGKILL), 0);
    run_finish(&run);
}

static void children_that_changed_session_die_with_their_tree(void **state)
{
    static const char text[] = "setsid sleep 1000 & echo $!; "
                               "(setsid sh -c 'sleep 1000 & echo $!; sleep 1000' & echo $!) ; "
                               "nohup sleep 1000 >/dev/null 2>&1 & echo $!; sleep 1000";
    struct box *box = the_box(state);
    struct run run;
    long pids[4];

    run_begin(&run, box, &RUN_SHELL(text));
    run_wait_started(&run);
    box_wait(box, (run_read(&run), read_numbers(&run, pids, 4) == 4));
    assert_int_equal(box_kill_tree(box, run.number, SIGKILL), 0);
    run_wait_end(&run);
    assert_int_equal(box_find_end(box, run.number)->signal, SIGKILL);
    for (unsigned i = 0; i < 4; i++)
        assert_false(lives(box, pids[i]));
    run_finish(&run);
}

static void a_stopped_tree_dies_too(void **state)
{
    struct box *box = the_box(state);
    struct run run;
    long pids[2];

    run_begin(&run, box, &RUN_SHELL("sleep 1000 & echo $!; kill -STOP $!; echo $$; kill -STOP $$"));
    run_wait_started(&run);
    box_wait(box, (run_read(&run), read_numbers(&run, pids, 2) == 2));
    assert_int_equal(box_kill_tree(box, run.number, SIGKILL), 0);
    run_wait_end(&run);
    assert_false(lives(box, pids[0]));
    run_finish(&run);
}

static void a_signal_to_the_tree_reaches_everybody_and_one_to_the_process_only_it(void **state)
{
    static const char text[] = "trap 'echo outer; wait; exit 3' TERM; "
                               "sh -c 'trap \"echo inner; exit\" TERM; echo ready; "
                               "while :; do sleep 0.01; done' & "
                               "while :; do sleep 0.01; done";
    struct box *box = the_box(state);
    struct asked asked = { 0 };
    struct run run;

    run_begin(&run, box, &RUN_SHELL(text));
    run_wait_started(&run);
    box_wait(box, (run_read(&run), strstr(run_out(&run), "ready")));
    agent_signal(box->agent, run.number, SIGTERM, SCOPE_PROCESS, &asked.request, asked_done);
    box_wait(box, asked.answered);
    box_wait(box, (run_read(&run), strstr(run_out(&run), "outer")));
    assert_null(strstr(run_out(&run), "inner"));
    assert_int_equal(box_kill_tree(box, run.number, SIGTERM), 0);
    box_wait(box, (run_read(&run), strstr(run_out(&run), "inner")));
    run_wait_end(&run);
    assert_int_equal(box_find_end(box, run.number)->code, 3);
    run_finish(&run);
}

static void signals_to_what_is_gone_say_so(void **state)
{
    struct box *box = the_box(state);
    struct run run;
    struct asked asked = { 0 };

    assert_int_equal(box_kill_tree(box, 4711, SIGTERM), ESRCH);
    run_all(&run, box, &RUN_SHELL("exit 0"));
    agent_signal(box->agent, run.number, SIGTERM, SCOPE_PROCESS, &asked.request, asked_done);
    box_wait(box, asked.answered);
    assert_int_equal(asked.request.sys_errno, ESRCH);
    assert_int_equal(asked.request.err.code, ERR_GONE);
    assert_int_equal(box_kill_tree(box, run.number, SIGKILL), 0);
    run_finish(&run);
}

static void survivors_of_a_forgotten_process_die_at_shutdown(void **state)
{
    struct box *box = the_box(state);
    struct run run;
    long pid = 0;

    run_all(&run, box, &RUN_SHELL("setsid sleep 1000 >/dev/null 2>&1 & echo $!"));
    assert_int_equal(read_numbers(&run, &pid, 1), 1);
    run_finish(&run);
    assert_true(lives(box, pid));
    /* box_free() shuts down and waits; in direct mode the number is ours to look at after. */
    if (box->mode == BOX_DIRECT) {
        box_free(box);
        *state = NULL;
        assert_int_equal(kill((pid_t)pid, 0), -1);
    }
}

static void a_killed_supervisor_is_reported_and_leaves_nothing(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start = RUN_SHELL("echo $$; read now; kill -9 $PPID; sleep 1000");
    struct run run;
    long pid = 0;

    start.wants_stdin = true;
    run_begin(&run, box, &start);
    run_wait_started(&run);
    assert_int_equal(write(run.pipes.input, "now\n", 4), 4);
    run_wait_end(&run);
    assert_int_equal(box_find_end(box, run.number)->signal, SIGKILL);
    assert_int_equal(read_numbers(&run, &pid, 1), 1);
    box_wait(box, !lives(box, pid));
    run_finish(&run);
}

static void a_stopped_supervisor_goes_on(void **state)
{
    struct box *box = the_box(state);
    struct run run;

    run_all(&run, box, &RUN_SHELL("kill -STOP $PPID; exit 7"));
    assert_int_equal(box_find_end(box, run.number)->code, 7);
    run_finish(&run);
}

static void a_flood_of_orphans_is_reaped(void **state)
{
    struct box *box = the_box(state);
    struct run run;

    run_all(&run, box,
            &RUN_SHELL("i=0; while [ $i -lt 500 ]; do (sh -c : &) ; i=$((i+1)); done; i=0; "
                       "while [ $(ps -o pid= --ppid $PPID | wc -l) -gt 1 ] && [ $i -lt 1000 ]; do "
                       "sleep 0.02; i=$((i+1)); done; ps -o stat= --ppid $PPID | grep -c Z"));
    assert_int_equal(atoi(run_out(&run)), 0);
    run_finish(&run);
}

/* Its own limit keeps it from taking the machine with it. */
#define BOMB "ulimit -u 150; trap '' TERM INT HUP; b() { b | b & }; echo go; b; b; sleep 1000"

/* A user whom no other test has at the same time, as its limit and its processes are counted. */
static unsigned bomber(void)
{
    return 100000000 + (unsigned)getpid();
}

static void begin_bomb(struct run *run, struct box *box)
{
    char user[32] = "";
    struct agent_start start = { .argv = (const char *const[]){ "/bin/bash", "-c", BOMB, NULL },
                                 .user = user,
                                 .cwd = "/" };

    if (geteuid() == 0)
        snprintf(user, sizeof(user), "%u:%u", bomber(), bomber());
    run_begin(run, box, &start);
    run_wait_started(run);
    box_wait(box, (run_read(run), strstr(run_out(run), "go")));
}

static void a_fork_bomb_dies_with_its_tree(void **state)
{
    struct box *box = the_box(state);
    struct run run;
    struct run after;
    char text[64];

    begin_bomb(&run, box);
    assert_int_equal(box_kill_tree(box, run.number, SIGKILL), 0);
    run_wait_end(&run);
    run_finish(&run);
    snprintf(text, sizeof(text), "ps -eo uid= | grep -c '^ *%u$'", bomber());
    run_all(&after, box, &RUN_SHELL(text));
    assert_int_equal(atoi(run_out(&after)), 0);
    run_finish(&after);
}

static void a_fork_bomb_dies_at_shutdown(void **state)
{
    struct box *box = the_box(state);
    struct run run;

    begin_bomb(&run, box);
    run_finish(&run);
}

static void init_in_direct_mode_ends_on_sigterm_with_all_it_started(void **state)
{
    struct box *box = the_box(state);
    struct run run;
    long pid = 0;
    int status;

    run_begin(&run, box, &RUN_SHELL("setsid sleep 1000 & echo $!; sleep 1000"));
    run_wait_started(&run);
    box_wait(box, (run_read(&run), read_numbers(&run, &pid, 1) == 1));
    assert_int_equal(kill(box->init, SIGTERM), 0);
    box_wait_for_exit(box, &status);
    assert_int_equal(status, 0);
    assert_int_equal(kill((pid_t)pid, 0), -1);
    run_finish(&run);
}

static bool is_gone(pid_t pid)
{
    return kill(pid, 0) < 0;
}

static void a_tree_does_not_outlive_a_killed_init(void **state)
{
    struct box *box = the_box(state);
    struct run run;
    long pid = 0;
    int status;

    run_begin(&run, box,
              &RUN_SHELL("setsid sh -c 'echo $$; sleep 1000 & sleep 1000' & sleep 1000"));
    run_wait_started(&run);
    box_wait(box, (run_read(&run), read_numbers(&run, &pid, 1) == 1));
    assert_int_equal(kill(box->init, SIGKILL), 0);
    box_wait_for_exit(box, &status);
    box_wait(box, is_gone((pid_t)pid));
    run_finish(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_BOTH(a_child_in_the_background_does_not_delay_the_end),
        IN_BOTH(children_that_changed_session_die_with_their_tree),
        IN_BOTH(a_stopped_tree_dies_too),
        IN_BOTH(a_signal_to_the_tree_reaches_everybody_and_one_to_the_process_only_it),
        IN_BOTH(signals_to_what_is_gone_say_so),
        IN_BOTH(survivors_of_a_forgotten_process_die_at_shutdown),
        IN_BOTH(a_killed_supervisor_is_reported_and_leaves_nothing),
        IN_BOTH(a_stopped_supervisor_goes_on),
        IN_BOTH(a_flood_of_orphans_is_reaped),
        IN_BOTH(a_fork_bomb_dies_with_its_tree),
        IN_BOTH(a_fork_bomb_dies_at_shutdown),
        IN_DIRECT(init_in_direct_mode_ends_on_sigterm_with_all_it_started),
        IN_DIRECT(a_tree_does_not_outlive_a_killed_init),
    };

    return cmocka_run_group_tests_name("init/trees", tests, NULL, NULL);
}
