/* SPDX-License-Identifier: Apache-2.0 */
/* Processes in a real init: what they get, how they end, what the daemon is told. */

#include "both.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What init adds in every case: the storage socket, and without a namespace of its own a place for
 * temporary files. */
static void assert_environment(const char *text, const char *expected)
{
    size_t length = strlen(expected);
    const char *added = text + length;

    assert_int_equal(strncmp(text, expected, length), 0);
    if (strncmp(added, "TMPDIR=/", strlen("TMPDIR=/")) == 0)
        added = strchr(added, '\n') + 1;
    /* Boxes share the network of the host, where another test may have the name at the moment. */
    if (!*added)
        return;
    assert_int_equal(strncmp(added, "SANDGLASS_STORAGE=sandglass-storage", 35), 0);
    assert_string_equal(strchr(added, '\n'), "\n");
}

/* Without a namespace of its own the home of every user is init's working directory. */
static const char *home_of(const struct box *box, const char *home)
{
    static char directory[4096];

    return box->mode == BOX_DIRECT ? getcwd(directory, sizeof(directory)) : home;
}

/* The line of the environment, or "". */
static const char *temporary_of(const struct box *box)
{
    static char line[4096 + 16];
    char directory[4096];

    if (box->mode != BOX_DIRECT)
        return "";
    assert_non_null(getcwd(directory, sizeof(directory)));
    *strrchr(directory, '/') = '\0';
    snprintf(line, sizeof(line), "TMPDIR=%s/tmp\n", directory);
    return line;
}

static void argv_env_and_cwd_arrive_exactly(void **state)
{
    struct box *box = the_box(state);
    const char *argv[] = { "/usr/bin/printf", "[%s]", "", "two words", "\xff\x01", "-n", NULL };
    const char *env[] = { "PATH=/bin", "HOME=/nowhere", "USER=u", "LOGNAME=l",
                          "SHELL=s",   "A=b=c",         NULL };
    struct agent_start words = { .argv = argv, .env = env };
    struct agent_start environment = { .argv = (const char *const[]){ "/usr/bin/env", NULL },
                                       .env = env };
    struct agent_start place = RUN_SHELL("pwd");
    struct run run;

    run_all(&run, box, &words);
    assert_string_equal(run_out(&run), "[][two words][\xff\x01][-n]");
    run_finish(&run);

    run_all(&run, box, &environment);
    assert_environment(run_out(&run),
                       "PATH=/bin\nHOME=/nowhere\nUSER=u\nLOGNAME=l\nSHELL=s\nA=b=c\n");
    run_finish(&run);

    place.cwd = "/usr/lib";
    run_all(&run, box, &place);
    assert_string_equal(run_out(&run), "/usr/lib\n");
    run_finish(&run);
}

static void what_the_environment_lacks_is_added(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start = { .argv = (const char *const[]){ "env", NULL }, .user = "0" };
    char expected[16 * 1024];
    struct run run;

    if (geteuid() != 0)
        skip();
    snprintf(expected, sizeof(expected),
             "PATH=%s/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nHOME=%s\n%s"
             "USER=root\nLOGNAME=root\nSHELL=/bin/bash\n",
             box->mode == BOX_DIRECT ? "" : "/root/.local/bin:", home_of(box, "/root"),
             temporary_of(box));
    run_all(&run, box, &start);
    assert_environment(run_out(&run), expected);
    run_finish(&run);
}

static void exit_codes_and_signals_are_told_apart(void **state)
{
    static const struct {
        const char *text;
        int code;
        int signal;
    } cases[] = {
        { "exit 0", 0, 0 },      { "exit 1", 1, 0 },          { "exit 255", 255, 0 },
        { "kill -9 $$", -1, 9 }, { "kill -TERM $$", -1, 15 }, { "kill -SEGV $$", -1, 11 },
    };
    struct box *box = the_box(state);

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct run run;

        run_all(&run, box, &RUN_SHELL(cases[i].text));
        assert_int_equal(box_find_end(box, run.number)->code, cases[i].code);
        assert_int_equal(box_find_end(box, run.number)->signal, cases[i].signal);
        run_finish(&run);
    }
}

static void what_cannot_run_says_at_which_stage(void **state)
{
    const struct {
        struct agent_start start;
        enum protocol_stage stage;
        int error;
    } cases[] = {
        { { .argv = (const char *const[]){ "/no/such/program", NULL } }, STAGE_EXEC, ENOENT },
        { { .argv = (const char *const[]){ "no-such-program", NULL } }, STAGE_EXEC, ENOENT },
        { { .argv = (const char *const[]){ "", NULL } }, STAGE_EXEC, ENOENT },
        { { .argv = (const char *const[]){ "/etc/passwd/x", NULL } }, STAGE_EXEC, ENOTDIR },
        { { .argv = (const char *const[]){ "/etc/passwd", NULL } }, STAGE_EXEC, EACCES },
        { { .argv = (const char *const[]){ "/etc", NULL } }, STAGE_EXEC, EACCES },
        { { .argv = (const char *const[]){ "/proc/self/exe", NULL } }, STAGE_EXEC, ELOOP },
        { { .argv = (const char *const[]){ "true", NULL }, .cwd = "/no/such" }, STAGE_CWD, ENOENT },
        { { .argv = (const char *const[]){ "true", NULL }, .cwd = "/etc/passwd" },
          STAGE_CWD,
          ENOTDIR },
        { { .argv = (const char *const[]){ "true", NULL }, .cwd = "/proc/self/cwd" },
          STAGE_CWD,
          ELOOP },
        { { .argv = (const char *const[]){ "true", NULL }, .user = "nosuchuser" },
          STAGE_USER,
          EINVAL },
        { { .argv = (const char *const[]){ "true", NULL }, .user = "12x" }, STAGE_USER, EINVAL },
    };
    struct box *box = the_box(state);
    size_t before;

    box_list(box);
    before = box_count_descriptors(box);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct agent_start start = cases[i].start;
        struct run run;

        run_begin(&run, box, &start);
        box_wait(box, run.answered);
        assert_int_not_equal(run.request.err.code, ERR_NONE);
        assert_int_equal(run.request.stage, cases[i].stage);
        assert_int_equal(run.request.sys_errno, cases[i].error);
        run_finish(&run);
    }
    box_list(box);
    box_wait(box,
             box_count_descriptors(box) == before); /* supervisors tell first, then init lets go */
    assert_int_equal(box->listed_count, 0);
}

static void input_reaches_the_program_until_it_is_closed(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start = RUN_SHELL("cat; echo end");
    struct run run;

    start.wants_stdin = true;
    run_begin(&run, box, &start);
    run_wait_started(&run);
    assert_int_equal(write(run.pipes.input, "hello\n", 6), 6);
    box_wait(box, (run_read(&run), run.out.length == 6));
    close(run.pipes.input);
    run.pipes.input = -1;
    agent_close_stdin(box->agent, run.number, NULL, NULL);
    run_wait_end(&run);
    assert_string_equal(run_out(&run), "hello\nend\n");
    run_finish(&run);
}

static void without_input_the_program_reads_nothing(void **state)
{
    struct box *box = the_box(state);
    struct run run;

    run_all(&run, box, &RUN_SHELL("cat; echo $?"));
    assert_string_equal(run_out(&run), "0\n");
    run_finish(&run);
}

static void a_terminal_has_the_size_asked_for_and_follows_resizes(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start = RUN_SHELL("stty -echo; stty size; read x; stty size; tty");
    struct asked asked = { 0 };
    struct run run;

    start.terminal = true;
    start.columns = 101;
    start.rows = 37;
    run_begin(&run, box, &start);
    run_wait_started(&run);
    assert_true(run.pipes.terminal);
    assert_int_equal(run.pipes.errors, -1);
    box_wait(box, (run_read(&run), strstr(run_out(&run), "37 101\r\n")));
    agent_resize(box->agent, run.number, 120, 50, &asked.request, asked_done);
    box_wait(box, asked.answered);
    assert_int_equal(write(run.pipes.input, "x\n", 2), 2);
    run_wait_end(&run);
    assert_non_null(strstr(run_out(&run), "50 120\r\n"));
    assert_non_null(strstr(run_out(&run), "/dev/pts/"));
    run_finish(&run);
}

static void a_terminal_delivers_control_c(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start = {
        .argv = (const char *const[]){ "/bin/cat", NULL },
        .terminal = true,
    };
    struct run run;

    run_begin(&run, box, &start);
    run_wait_started(&run);
    assert_int_equal(write(run.pipes.input, "x\n", 2), 2);
    box_wait(box, (run_read(&run), strstr(run_out(&run), "x\r\nx\r\n")));
    assert_int_equal(write(run.pipes.input, "\x03", 1), 1);
    run_wait_end(&run);
    assert_int_equal(box_find_end(box, run.number)->signal, SIGINT);
    run_finish(&run);
}

static void the_end_tells_time_and_memory(void **state)
{
    struct box *box = the_box(state);
    struct run run;
    const struct agent_exit *end;

    run_all(&run, box, &RUN_SHELL("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"));
    end = box_find_end(box, run.number);
    assert_true(end->cpu_us > 10000);
    assert_true(end->wall_us >= end->cpu_us / 2);
    assert_true(end->max_rss_bytes > 256 * 1024);
    assert_true(end->max_rss_bytes < 64 * 1024 * 1024);
    run_finish(&run);
}

static void a_process_starts_with_nothing_of_init(void **state)
{
    static const char text[] =
        "ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status; "
        "cat /proc/self/oom_score_adj; ulimit -c; umask; "
        "[ $(ps -o sid= -p $$) = $$ ] && echo own session";
    struct box *box = the_box(state);
    struct run run;

    run_all(&run, box, &RUN_SHELL(text));
    assert_string_equal(run_out(&run), "4\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"
                                       "500\n0\n0022\nown session\n");
    run_finish(&run);
}

static void limits_are_those_asked_for(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start = RUN_SHELL("ulimit -n; ulimit -Hn; ulimit -f");
    struct run run;

    start.nofile = 64;
    start.file_size_bytes = 512 * 1000;
    run_all(&run, box, &start);
    assert_string_equal(run_out(&run), "64\n64\n1000\n");
    run_finish(&run);
}

static void another_user_has_its_ids_groups_and_no_privilege(void **state)
{
    static const char text[] =
        "id -u; id -g; id -G; echo $HOME $USER; "
        "grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs' /proc/self/status | tr -d '\\n\\t'";
    struct box *box = the_box(state);
    struct agent_start start = RUN_SHELL(text);
    char expected[8 * 1024];
    struct run run;

    if (geteuid() != 0)
        skip();
    start.user = "daemon";
    run_all(&run, box, &start);
    snprintf(expected, sizeof(expected),
             "1\n1\n1\n%s daemon\n"
             "CapInh:0000000000000000CapPrm:0000000000000000"
             "CapEff:0000000000000000CapBnd:0000000000000000"
             "CapAmb:0000000000000000NoNewPrivs:1",
             home_of(box, "/usr/sbin"));
    assert_string_equal(run_out(&run), expected);
    run_finish(&run);

    start = RUN_SHELL("id -u; id -g; id -G; echo $HOME");
    start.user = "4242:4343";
    run_all(&run, box, &start);
    snprintf(expected, sizeof(expected), "4242\n4343\n4343\n%s\n", home_of(box, "/"));
    assert_string_equal(run_out(&run), expected);
    run_finish(&run);
}

static void a_script_is_written_for_the_user_and_removed_after(void **state)
{
    struct box *box = the_box(state);
    char path[128];
    const char *argv[] = { "/bin/sh", path, NULL };
    const char *script = "stat -c '%a %u' $0; echo ran";
    struct agent_start start = {
        .argv = argv, .script_path = path, .script = script, .script_length = strlen(script)
    };
    char expected[64];
    char parent[128];
    struct run run;

    snprintf(path, sizeof(path), "%s/made/on/demand.sh", box->dir);
    run_all(&run, box, &start);
    snprintf(expected, sizeof(expected), "600 %u\nran\n", (unsigned)geteuid());
    assert_string_equal(run_out(&run), expected);
    assert_int_equal(access(path, F_OK), -1);
    run_finish(&run);
    snprintf(parent, sizeof(parent), "%s/made/on", box->dir);
    assert_int_equal(rmdir(parent), 0);
    snprintf(parent, sizeof(parent), "%s/made", box->dir);
    assert_int_equal(rmdir(parent), 0);
}

static void a_script_never_replaces_or_follows_what_is_there(void **state)
{
    struct box *box = the_box(state);
    char path[128];
    const char *argv[] = { "/bin/sh", path, NULL };
    struct agent_start start = {
        .argv = argv, .script_path = path, .script = "echo ran", .script_length = 8
    };
    struct run run;

    snprintf(path, sizeof(path), "%s/link", box->dir);
    assert_int_equal(symlink("/tmp/sandglass-must-not-appear", path), 0);
    run_begin(&run, box, &start);
    box_wait(box, run.answered);
    assert_int_equal(run.request.stage, STAGE_SCRIPT);
    assert_int_equal(run.request.sys_errno, EEXIST);
    assert_int_equal(access("/tmp/sandglass-must-not-appear", F_OK), -1);
    assert_int_equal(unlink(path), 0);
    run_finish(&run);
}

static void sixty_four_run_in_parallel(void **state)
{
    enum { COUNT = 64 };
    struct box *box = the_box(state);
    struct run runs[COUNT];
    char texts[COUNT][64];

    for (int i = 0; i < COUNT; i++) {
        snprintf(texts[i], sizeof(texts[i]), "cat; echo %d; exit %d", i, i);
        run_begin(
            &runs[i], box,
            &(struct agent_start){ .argv = (const char *const[]){ "/bin/sh", "-c", texts[i], NULL },
                                   .wants_stdin = true });
    }
    for (int i = 0; i < COUNT; i++)
        run_wait_started(&runs[i]);
    for (int i = 0; i < COUNT; i++) {
        close(runs[i].pipes.input);
        runs[i].pipes.input = -1;
        agent_close_stdin(box->agent, runs[i].number, NULL, NULL);
    }
    for (int i = 0; i < COUNT; i++) {
        run_wait_end(&runs[i]);
        assert_int_equal(atoi(run_out(&runs[i])), i);
        assert_int_equal(box_find_end(box, runs[i].number)->code, i);
        run_finish(&runs[i]);
    }
}

static void a_thousand_in_a_row_leave_no_descriptor(void **state)
{
    struct box *box = the_box(state);
    struct agent_start start = { .argv = (const char *const[]){ "/bin/true", NULL } };
    size_t before;

    box_list(box);
    before = box_count_descriptors(box);
    for (int i = 0; i < 1000; i++) {
        struct run run;

        run_all(&run, box, &start);
        assert_int_equal(box_find_end(box, run.number)->code, 0);
        run_finish(&run);
    }
    box_list(box);
    assert_int_equal(box->listed_count, 0);
    box_wait(box,
             box_count_descriptors(box) == before); /* supervisors tell first, then init lets go */
}

static void a_number_is_used_once_while_it_is_remembered(void **state)
{
    struct box *box = the_box(state);
    struct run first;
    struct run second;

    run_all(&first, box, &RUN_SHELL("exit 3"));
    box->last_number--;
    run_begin(&second, box, &RUN_SHELL("exit 4"));
    box_wait(box, second.answered);
    assert_int_equal(second.request.stage, STAGE_REQUEST);
    assert_int_equal(second.request.sys_errno, EEXIST);
    buffer_fini(&second.out);
    run_finish(&first);
}

static void more_than_the_table_holds_is_refused(void **state)
{
    struct box *box = the_box(state);
    static struct run runs[PROTOCOL_MAX_PROCESSES];
    struct run extra;

    for (int i = 0; i < PROTOCOL_MAX_PROCESSES; i++) {
        run_begin(&runs[i], box, &RUN_SHELL("exit 0"));
        run_wait_started(&runs[i]);
        close(runs[i].pipes.output);
        close(runs[i].pipes.errors);
        runs[i].pipes.output = runs[i].pipes.errors = -1;
    }
    run_begin(&extra, box, &RUN_SHELL("exit 0"));
    box_wait(box, extra.answered);
    assert_int_equal(extra.request.stage, STAGE_LIMIT);
    assert_int_equal(extra.request.sys_errno, EAGAIN);
    for (int i = 0; i < PROTOCOL_MAX_PROCESSES; i++) {
        run_wait_end(&runs[i]);
        run_finish(&runs[i]);
    }
    run_all(&extra, box, &RUN_SHELL("exit 7"));
    assert_int_equal(box_find_end(box, extra.number)->code, 7);
    run_finish(&extra);
}

/* The other program opens the first one's pipe before that ends, and has said nothing yet. */
static void what_somebody_else_writes_into_its_pipe_arrives(void **state)
{
    struct box *box = the_box(state);
    char dir[] = "/tmp/sandglass-pipes-XXXXXX";
    struct agent_start start = RUN_SHELL("mkfifo asked given; echo made; read pid < asked; "
                                         "exec 3>/proc/$pid/fd/4; echo > given; read line; "
                                         "rm asked given; echo late >&3");
    /* Its first descriptor is something else while it writes its number. */
    struct agent_start quick = RUN_SHELL("exec 4>&1; echo $$ > asked; read line < given");
    struct run other, run;

    assert_non_null(mkdtemp(dir));
    start.cwd = quick.cwd = dir;
    start.wants_stdin = true;
    run_begin(&other, box, &start);
    run_wait_started(&other);
    box_wait(box, (run_read(&other), other.out.length == 5));
    run_all(&run, box, &quick);
    assert_int_equal(write(other.pipes.input, "\n", 1), 1);
    run_wait_end(&other);
    box_wait(box, (run_read(&run), run.out.length == 5));
    assert_string_equal(run_out(&run), "late\n");
    run_finish(&other);
    run_finish(&run);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_BOTH(argv_env_and_cwd_arrive_exactly),
        IN_BOTH(what_the_environment_lacks_is_added),
        IN_BOTH(exit_codes_and_signals_are_told_apart),
        IN_BOTH(what_cannot_run_says_at_which_stage),
        IN_BOTH(what_somebody_else_writes_into_its_pipe_arrives),
        IN_BOTH(input_reaches_the_program_until_it_is_closed),
        IN_BOTH(without_input_the_program_reads_nothing),
        IN_BOTH(a_terminal_has_the_size_asked_for_and_follows_resizes),
        IN_BOTH(a_terminal_delivers_control_c),
        IN_BOTH(the_end_tells_time_and_memory),
        IN_BOTH(a_process_starts_with_nothing_of_init),
        IN_BOTH(limits_are_those_asked_for),
        IN_BOTH(another_user_has_its_ids_groups_and_no_privilege),
        IN_BOTH(a_script_is_written_for_the_user_and_removed_after),
        IN_BOTH(a_script_never_replaces_or_follows_what_is_there),
        IN_BOTH(sixty_four_run_in_parallel),
        IN_BOTH(a_thousand_in_a_row_leave_no_descriptor),
        IN_BOTH(a_number_is_used_once_while_it_is_remembered),
        IN_BOTH(more_than_the_table_holds_is_refused),
    };

    return cmocka_run_group_tests_name("init/processes", tests, NULL, NULL);
}
