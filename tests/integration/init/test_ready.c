/* The child that waits for the next program, made by a supervisor that has started several. */

#include "both.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOMENT_US = 2000 };

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

/* It waits for a second: if we are late, there has to be another. */
static bool find_ready(struct box *box, pid_t *out_supervisor, pid_t *out_ready)
{
    run_to(box, "exit 0", 0);
    usleep(MOMENT_US);
    *out_supervisor = find_clone_of(box->init);
    *out_ready = *out_supervisor ? find_clone_of(*out_supervisor) : 0;
    return *out_ready != 0;
}

static bool is_gone(pid_t pid)
{
    return kill(pid, 0) < 0;
}

static void a_program_finds_in_it_what_others_find(void **state)
{
    static const char text[] =
        "cat /proc/self/oom_score_adj; ls /proc/self/fd; umask; pwd; env | sort; "
        "ps -o sid= -p $$ | grep -qwx \" *$$\" && echo leads; "
        "grep -E '^(Sig[BIC]|Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status";
    struct box *box = the_box(state);
    pid_t supervisor, ready;
    struct run first, second;

    run_all(&first, box, &RUN_SHELL(text));
    box_wait(box, find_ready(box, &supervisor, &ready));
    run_all(&second, box, &RUN_SHELL(text));
    assert_non_null(strstr(run_out(&first), "leads"));
    assert_string_equal(run_out(&second), run_out(&first));
    run_finish(&first);
    run_finish(&second);
}

static void a_program_that_is_not_there_is_reported_from_it(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start = { .argv = (const char *const[]){ "/nowhere", NULL },
                                 .script_fd = -1 };
    pid_t supervisor, ready;
    struct run run;

    box_wait(box, find_ready(box, &supervisor, &ready));
    run_begin(&run, box, &start);
    box_wait(box, run.answered);
    assert_int_equal(run.request.stage, STAGE_EXEC);
    run_finish(&run);
    run_to(box, "exit 7", 7);
}

static void programs_start_when_it_is_stopped_or_killed(void **state)
{
    struct box *box = the_box(state);
    pid_t supervisor, ready;

    box_wait(box, find_ready(box, &supervisor, &ready));
    (void)kill(ready, SIGSTOP);
    run_to(box, "exit 7", 7);
    box_wait(box, find_ready(box, &supervisor, &ready));
    (void)kill(ready, SIGKILL);
    run_to(box, "exit 8", 8);
}

static void it_goes_with_its_supervisor(void **state)
{
    struct box *box = the_box(state);
    pid_t supervisor, ready;

    box_wait(box, find_ready(box, &supervisor, &ready));
    assert_int_equal(kill(supervisor, SIGKILL), 0);
    box_wait(box, is_gone(ready) && is_gone(supervisor));
    run_to(box, "exit 7", 7);
}

/* Whether it then runs, is killed or does not start: init knows which, and goes on. */
static void a_supervisor_may_die_when_it_is_wanted(void **state)
{
    struct box *box = the_box(state);
    pid_t supervisor, ready;
    struct run run;

    for (int i = 0; i < 40; i++) {
        box_wait(box, find_ready(box, &supervisor, &ready));
        run_begin(&run, box, &RUN_SHELL("exit 0"));
        if (i % 2)
            usleep((useconds_t)i);
        (void)kill(supervisor, SIGKILL);
        box_wait(box, run.answered);
        if (run.request.err.code == ERR_NONE)
            box_wait(box, box_find_end(box, run.number));
        box_wait(box, is_gone(supervisor) && is_gone(ready));
        run_finish(&run);
    }
    run_to(box, "exit 7", 7);
}

static void it_does_not_wait_for_long(void **state)
{
    struct box *box = the_box(state);
    pid_t supervisor, ready;

    box_wait(box, find_ready(box, &supervisor, &ready));
    box_wait(box, is_gone(ready));
    run_to(box, "exit 7", 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_BOTH(a_program_finds_in_it_what_others_find),
        IN_BOTH(a_program_that_is_not_there_is_reported_from_it),
        IN_BOTH(programs_start_when_it_is_stopped_or_killed),
        IN_BOTH(it_goes_with_its_supervisor),
        IN_BOTH(a_supervisor_may_die_when_it_is_wanted),
        IN_DIRECT(it_does_not_wait_for_long),
    };

    return cmocka_run_group_tests_name("init/ready", tests, NULL, NULL);
}
