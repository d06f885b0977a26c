/* SPDX-License-Identifier: Apache-2.0 */
/* A supervisor that has nothing left to watch, and waits for the next program. */

#include "both.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void run_to(struct box *box, const char *text, int code)
{
    struct run run;

    run_all(&run, box, &RUN_SHELL(text));
    assert_int_equal(box_find_end(box, run.number)->code, code);
    run_finish(&run);
}

static bool is_init(pid_t pid)
{
    char path[64];
    char name[32] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    file = fopen(path, "r");
    if (!file)
        return false;
    (void)!fgets(name, sizeof(name), file);
    fclose(file);
    return strcmp(name, "sandglass-init\n") == 0;
}

/* The first child of that process which is no program; 0 without. */
static pid_t find_clone_of(pid_t parent)
{
    char path[64];
    FILE *file;
    int pid;
    pid_t found = 0;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
    file = fopen(path, "r");
    while (file && !found && fscanf(file, "%d", &pid) == 1)
        found = is_init(pid) ? pid : 0;
    if (file)
        fclose(file);
    return found;
}

/* The supervisor of the last program, if it has parked; 0 without. It stays for seconds: the next
 * program finds it. */
static pid_t find_parked(struct box *box)
{
    run_to(box, "exit 0", 0);
    return find_clone_of(box->init);
}

static bool is_gone(pid_t pid)
{
    return kill(pid, 0) < 0;
}

static void a_program_finds_with_it_what_the_first_one_found(void **state)
{
    static const char text[] =
        "cat /proc/self/oom_score_adj; ls /proc/self/fd; umask; pwd; env | sort; "
        "ps -o sid= -p $$ | grep -qwx \" *$$\" && echo leads; "
        "grep -E '^(Sig[BIC]|Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status";
    struct box *box = the_box(state);
    struct run first, second;

    run_all(&first, box, &RUN_SHELL(text));
    box_wait(box, find_parked(box));
    run_all(&second, box, &RUN_SHELL(text));
    assert_non_null(strstr(run_out(&first), "leads"));
    assert_string_equal(run_out(&second), run_out(&first));
    run_finish(&first);
    run_finish(&second);
}

static bool have_the_same_parent(struct box *box)
{
    struct run first, second;
    bool same;

    run_all(&first, box, &RUN_SHELL("echo $PPID"));
    run_all(&second, box, &RUN_SHELL("echo $PPID"));
    assert_int_not_equal(atoi(run_out(&first)), 0);
    same = strcmp(run_out(&first), run_out(&second)) == 0;
    run_finish(&first);
    run_finish(&second);
    return same;
}

/* A program that comes before the supervisor has parked gets another one. */
static void it_takes_the_next_program(void **state)
{
    struct box *box = the_box(state);

    box_wait(box, have_the_same_parent(box));
}

static void a_program_that_is_not_there_is_reported_by_it(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start = { .argv = (const char *const[]){ "/nowhere", NULL } };
    struct run run;

    box_wait(box, find_parked(box));
    run_begin(&run, box, &start);
    box_wait(box, run.answered);
    assert_int_equal(run.request.stage, STAGE_EXEC);
    run_finish(&run);
    run_to(box, "exit 7", 7);
}

static void programs_start_when_it_is_stopped_or_killed(void **state)
{
    struct box *box = the_box(state);
    pid_t parked;

    box_wait(box, (parked = find_parked(box)) && kill(parked, SIGSTOP) == 0);
    run_to(box, "exit 7", 7);
    box_wait(box, (parked = find_parked(box)) && kill(parked, SIGKILL) == 0);
    box_wait(box, is_gone(parked));
    run_to(box, "exit 8", 8);
}

/* Whether the program then runs, is killed or does not start: init knows which, and goes on. */
static void it_may_die_when_it_is_wanted(void **state)
{
    struct box *box = the_box(state);
    pid_t parked;
    struct run run;

    for (int i = 0; i < 40; i++) {
        box_wait(box, (parked = find_parked(box)));
        run_begin(&run, box, &RUN_SHELL("exit 0"));
        if (i % 2)
            usleep((useconds_t)i);
        (void)kill(parked, SIGKILL);
        box_wait(box, run.answered);
        if (run.request.err.code == ERR_NONE)
            box_wait(box, box_find_end(box, run.number));
        box_wait(box, is_gone(parked));
        run_finish(&run);
    }
    run_to(box, "exit 7", 7);
}

static void it_does_not_wait_for_ever(void **state)
{
    struct box *box = the_box(state);
    pid_t parked;

    box_wait(box, (parked = find_parked(box)));
    box_wait(box, is_gone(parked));
    run_to(box, "exit 7", 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_BOTH(a_program_finds_with_it_what_the_first_one_found),
        IN_BOTH(it_takes_the_next_program),
        IN_BOTH(a_program_that_is_not_there_is_reported_by_it),
        IN_BOTH(programs_start_when_it_is_stopped_or_killed),
        IN_BOTH(it_may_die_when_it_is_wanted),
        IN_DIRECT(it_does_not_wait_for_ever),
    };

    return cmocka_run_group_tests_name("init/parked", tests, NULL, NULL);
}
