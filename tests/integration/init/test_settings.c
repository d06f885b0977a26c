/* SPDX-License-Identifier: Apache-2.0 */
/* What the launcher gives init on its command line, and what init keeps to itself. */

#include "box.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct box *the_namespace(const char *const *arguments, int filter_fd)
{
    if (!box_can_have(BOX_NAMESPACE))
        skip();
    return box_new(BOX_NAMESPACE, arguments, filter_fd);
}

static void the_default_user_is_used_when_none_is_asked_for(void **state UNUSED)
{
    struct box *box = the_namespace((const char *const[]){ "--user=daemon", NULL }, -1);
    struct agent_start start = RUN_SHELL("id -un");
    struct run run;

    run_all(&run, box, &start);
    assert_string_equal(run_out(&run), "daemon\n");
    run_finish(&run);
    start.user = "0";
    run_all(&run, box, &start);
    assert_string_equal(run_out(&run), "root\n");
    run_finish(&run);
    box_free(box);
}

static void root_inside_has_no_more_than_the_bounding_set(void **state UNUSED)
{
    struct box *box = the_namespace((const char *const[]){ "--bounding=1c3", NULL }, -1);
    struct run run;

    assert_int_equal(agent_hello(box->agent)->bounding, 0x1c3);
    run_all(&run, box,
            &RUN_SHELL("grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status | tr -d '\n\t'; "
                       "cat /proc/1/environ /proc/1/maps; echo $?"));
    assert_string_equal(run_out(&run), "CapPrm:00000000000001c3CapEff:00000000000001c3"
                                       "CapBnd:00000000000001c31\n");
    run_finish(&run);
    box_free(box);
}

static void a_prepared_init_believes_what_it_is_told(void **state UNUSED)
{
    struct box *box =
        the_namespace((const char *const[]){ "--prepared", "--bounding=1c3", NULL }, -1);
    struct agent_start start = RUN_SHELL("umask");
    struct run run;

    assert_int_equal(agent_hello(box->agent)->bounding, 0x1c3);
    start.user = "daemon";
    run_all(&run, box, &start);
    assert_string_equal(run_out(&run), "0022\n");
    run_finish(&run);
    box_free(box);
}

static void no_program_inside_can_end_init(void **state UNUSED)
{
    struct box *box = the_namespace(NULL, -1);
    struct run run;

    run_all(&run, box, &RUN_SHELL("kill -TERM 1 && kill -INT 1 && kill -KILL 1 && echo sent"));
    assert_string_equal(run_out(&run), "sent\n");
    run_finish(&run);
    run_all(&run, box, &RUN_SHELL("echo alive"));
    assert_string_equal(run_out(&run), "alive\n");
    run_finish(&run);
    box_free(box);
}

static void capabilities_are_those_of_each_user_in_any_order(void **state UNUSED)
{
    static const char *const users[] = { "daemon", "0", "1:1", "root", "root", "daemon" };
    struct box *box = the_namespace((const char *const[]){ "--bounding=1c3", NULL }, -1);

    for (size_t i = 0; i < ARRAY_LENGTH(users); i++) {
        struct agent_start start = RUN_SHELL("grep CapBnd /proc/self/status");
        bool is_root = !strcmp(users[i], "0") || !strcmp(users[i], "root");
        struct run run;

        start.user = users[i];
        run_all(&run, box, &start);
        assert_string_equal(run_out(&run), is_root ? "CapBnd:\t00000000000001c3\n"
                                                   : "CapBnd:\t0000000000000000\n");
        run_finish(&run);
    }
    box_free(box);
}

static int make_filter(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    int fd = memfd_create("filter", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, program, sizeof(program)), sizeof(program));
    return fd;
}

static void the_filter_holds_for_processes_and_not_for_init(void **state UNUSED)
{
    scoped(fd_close) int filter = make_filter();
    struct box *box = the_namespace((const char *const[]){ "--seccomp=4", NULL }, filter);
    struct asked asked = { 0 };
    char path[128];
    struct run run;

    assert_true(agent_hello(box->agent)->features & FEATURE_SECCOMP);
    assert_int_equal(agent_hello(box->agent)->seccomp_mode, 0);
    run_all(&run, box,
            &RUN_SHELL("mkdir /tmp/sandglass-must-not-appear 2>&1; "
                       "grep Seccomp: /proc/self/status"));
    assert_non_null(strstr(run_out(&run), "No space left"));
    assert_non_null(strstr(run_out(&run), "Seccomp:\t2"));
    run_finish(&run);

    snprintf(path, sizeof(path), "%s/made", box->dir);
    agent_file(box->agent, &(struct agent_file){ .kind = FILE_MKDIR, .path = path }, &asked.request,
               asked_done);
    box_wait(box, asked.answered);
    assert_int_equal(asked.request.err.code, ERR_NONE);
    assert_int_equal(rmdir(path), 0);
    box_free(box);
}

/* One that does not start: init says so by its exit code and leaves nothing. */
static int exit_code_of(const char *const *arguments)
{
    const char *init = getenv("SANDGLASS_INIT");
    int status;
    pid_t pid = fork();

    if (!pid) {
        char *const env[] = { NULL };

        close(3);
        execve(init, (char *const *)(uintptr_t)arguments, env);
        _exit(111);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void what_it_does_not_understand_stops_it(void **state UNUSED)
{
    assert_int_equal(exit_code_of((const char *const[]){ "init", "--direct", NULL }), 2);
    assert_int_equal(exit_code_of((const char *const[]){ "init", "--unknown", NULL }), 2);
    assert_int_equal(exit_code_of((const char *const[]){ "init", "--bounding=xyz", NULL }), 2);
    assert_int_equal(exit_code_of((const char *const[]){ "init", "--listen=here", NULL }), 2);
    assert_int_equal(
        exit_code_of((const char *const[]){ "init", "--listen=/x/y", "--relay", NULL }), 2);
    assert_int_equal(exit_code_of((const char *const[]){ "init", "--relay", NULL }), 2);
}

static void options_that_exclude_each_other_stop_it(void **state UNUSED)
{
    static char longer[300] = "--home=/";
    static const char *const bad[][2] = {
        { "--dial=/x/y", "--listen=/x/y" },
        { "--dial=/x/y", "--relay" },
        { "--relay=/x/y", "--dial=/x/y" },
        { "--dial=/x/y", "--dial=/x/y" },
        { "--dial=here", NULL },
        { "--dial=", NULL },
        { "--dial=/x/y", "--home=here" },
        { "--dial=/x/y", "--workspace=here" },
        { "--dial=/x/y", "--workspace=" },
        { "--dial=/x/y", longer },
        { "--workspace=/x", "--direct" },
        { "--direct", "--home=/x" },
    };

    memset(longer + strlen(longer), 'x', sizeof(longer) - strlen(longer) - 1);
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_int_equal(exit_code_of((const char *const[]){ "init", bad[i][0], bad[i][1], NULL }),
                         2);
}

static void its_socket_takes_the_place_of_no_other_file(void **state UNUSED)
{
    char path[] = "/tmp/sandglass-init-test-XXXXXX";
    char argument[sizeof(path) + 16];
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    snprintf(argument, sizeof(argument), "--listen=%s", path);
    assert_int_equal(exit_code_of((const char *const[]){ "init", "--direct", argument, NULL }), 2);
    assert_int_equal(unlink(path), 0);
}

static long read_kilobytes(pid_t pid, const char *field)
{
    char path[64];
    char line[256];
    long value = -1;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (!strncmp(line, field, strlen(field)))
            value = atol(line + strlen(field));
    fclose(file);
    return value;
}

/* Only root may look into an init, which is not dumpable. */
static struct box *the_visible_one(void)
{
    if (geteuid() != 0)
        skip();
    return box_new(BOX_DIRECT, NULL, -1);
}

/* The memory of a sanitizer is not init's: sizes hold for the static program. */
static void assert_is_small(const struct box *box, long limit_kb)
{
    if (!getenv("SANDGLASS_INIT_IS_SANITIZED"))
        assert_in_range(read_kilobytes(box->init, "Anonymous:"), 1, limit_kb);
}

/* The program's own pages are shared by all sandboxes of a host: what counts is the rest. */
static void an_idle_init_is_small(void **state UNUSED)
{
    struct box *box = the_visible_one();
    struct run run;
    long before;

    before = read_kilobytes(box->init, "Anonymous:");
    print_message("# idle: %ld kB of its own, %ld kB in all\n", before,
                  read_kilobytes(box->init, "Rss:"));
    assert_is_small(box, 32);
    for (int i = 0; i < 20; i++) {
        run_all(&run, box, &RUN_SHELL("exit 0"));
        run_finish(&run);
    }
    box_list(box);
    print_message("# after use: %ld kB\n", read_kilobytes(box->init, "Anonymous:"));
    assert_is_small(box, 96);
    box_free(box);
}

static void an_init_that_dials_is_as_small(void **state UNUSED)
{
    struct box *box;

    if (geteuid() != 0)
        skip();
    box = box_new_dialling(
        &(struct box_spawn){ .mode = BOX_NAMESPACE,
                             .arguments = (const char *const[]){
                                 "--workspace=/tmp", "--user=daemon", "--environment", NULL } });
    print_message("# dialling: %ld kB\n", read_kilobytes(box->init, "Anonymous:"));
    assert_is_small(box, 32);
    box_free(box);
}

static void a_large_environment_leaves_no_memory_behind(void **state UNUSED)
{
    enum { COUNT = 100 };
    struct box *box = the_visible_one();
    static char texts[COUNT][1024];
    const char *env[COUNT + 1] = { 0 };
    struct agent_start start = RUN_SHELL("env | wc -c");
    struct run run;

    for (int i = 0; i < COUNT; i++) {
        memset(texts[i], 'x', sizeof(texts[i]) - 1);
        texts[i][snprintf(texts[i], 16, "V%03d", i)] = '=';
        env[i] = texts[i];
    }
    start.env = env;
    run_all(&run, box, &start);
    assert_true(atoi(run_out(&run)) > COUNT * 1023);
    run_finish(&run);
    box_list(box);
    assert_is_small(box, 96);
    box_free(box);
}

static void more_than_a_message_holds_is_refused_before_it_is_sent(void **state UNUSED)
{
    struct box *box = box_new(BOX_DIRECT, NULL, -1);
    static char large[PROTOCOL_MAX_MESSAGE];
    const char *env[] = { large, NULL };
    struct agent_start start = RUN_SHELL("exit 0");
    struct run run;

    memset(large, 'x', sizeof(large) - 1);
    start.env = env;
    run_begin(&run, box, &start);
    box_wait(box, run.answered);
    assert_int_equal(run.request.err.code, ERR_TOO_LARGE);
    assert_false(box->is_lost);
    run_finish(&run);
    box_free(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_user_is_used_when_none_is_asked_for),
        cmocka_unit_test(root_inside_has_no_more_than_the_bounding_set),
        cmocka_unit_test(a_prepared_init_believes_what_it_is_told),
        cmocka_unit_test(no_program_inside_can_end_init),
        cmocka_unit_test(capabilities_are_those_of_each_user_in_any_order),
        cmocka_unit_test(the_filter_holds_for_processes_and_not_for_init),
        cmocka_unit_test(what_it_does_not_understand_stops_it),
        cmocka_unit_test(options_that_exclude_each_other_stop_it),
        cmocka_unit_test(its_socket_takes_the_place_of_no_other_file),
        cmocka_unit_test(an_idle_init_is_small),
        cmocka_unit_test(an_init_that_dials_is_as_small),
        cmocka_unit_test(a_large_environment_leaves_no_memory_behind),
        cmocka_unit_test(more_than_a_message_holds_is_refused_before_it_is_sent),
    };

    return cmocka_run_group_tests_name("init/settings", tests, NULL, NULL);
}
