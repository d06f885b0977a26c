/* SPDX-License-Identifier: Apache-2.0 */
/* What an image says: its user, directory and environment; and the rights that engines leave init. */

#include "box.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 256 };

static char dir[64]; /* of one test */

static int make_dir(void **state UNUSED)
{
    snprintf(dir, sizeof(dir), "/tmp/sandglass-image-test-XXXXXX");
    return mkdtemp(dir) && !chmod(dir, 0755) ? 0 : -1;
}

static int remove_dir(void **state UNUSED)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

static struct box *the_container(const struct box_spawn *options)
{
    struct box_spawn in_namespace = *options;

    if (!box_can_have(BOX_NAMESPACE))
        skip();
    in_namespace.mode = BOX_NAMESPACE;
    return box_new_dialling(&in_namespace);
}

static struct box *the_container_with(const char *one, const char *two, const char *three)
{
    return the_container(
        &(struct box_spawn){ .arguments = (const char *const[]){ one, two, three, NULL } });
}

static void expect_output(struct box *box, const char *user, const char *text, const char *expected)
{
    struct agent_start start = { .argv = (const char *const[]){ "/bin/sh", "-c", text, NULL } };
    struct run run;

    start.user = user;
    run_all(&run, box, &start);
    assert_string_equal(run_out(&run), expected);
    run_finish(&run);
}

static int make_directory(struct box *box, const char *path)
{
    struct asked asked = { 0 };

    agent_file(box->agent, &(struct agent_file){ .kind = FILE_MKDIR, .path = path }, &asked.request,
               asked_done);
    box_wait(box, asked.answered);
    return asked.request.sys_errno;
}

/* The text with the directory in the place of %s; of two texts at a time, or four. */
static __attribute__((format(printf, 1, 0))) const char *in_dir(const char *format)
{
    static char texts[4][256];
    static unsigned next;
    char *text = texts[next++ % 4];

    snprintf(text, sizeof(texts[0]), format, dir);
    return text;
}

/* --- the workspace ---------------------------------------------------------------------------- */

static void a_missing_workspace_is_made_for_the_default_user(void **state UNUSED)
{
    struct box *box = the_container_with(in_dir("--workspace=%s/a/b"), "--user=daemon", NULL);

    expect_output(box, "", "pwd; stat -c '%U %a' . ..; echo $HOME ${TMPDIR-none}",
                  in_dir("%s/a/b\ndaemon 755\nroot 755\n/usr/sbin none\n"));
    expect_output(box, "root", "pwd; echo $HOME", in_dir("%s/a/b\n/root\n"));
    assert_int_equal(make_directory(box, "sub/below"), 0);
    expect_output(box, "", "stat -c %U sub/below", "daemon\n");
    assert_string_equal(agent_hello(box->agent)->scratch, "/tmp/.sandglass");
    box_free(box);
}

static void a_workspace_that_exists_stays_as_it_is(void **state UNUSED)
{
    struct box *box;

    assert_int_equal(mkdir(in_dir("%s/w"), 0711), 0);
    box = the_container_with(in_dir("--workspace=%s/w"), "--user=daemon", NULL);
    expect_output(box, "", "pwd; stat -c '%U %a' .", in_dir("%s/w\nroot 711\n"));
    assert_int_equal(chmod(in_dir("%s/w"), 0700), 0); /* the user may not enter it */
    expect_output(box, "", "pwd", "/usr/sbin\n");
    box_free(box);
}

static void without_a_workspace_there_is_the_home(void **state UNUSED)
{
    struct box *box = the_container_with("--workspace=/proc/nothing/here", "--user=daemon", NULL);

    expect_output(box, "", "pwd", "/usr/sbin\n");
    box_free(box);
    box = the_container_with("--workspace=/", "--user=daemon", NULL);
    expect_output(box, "", "pwd", "/\n");
    box_free(box);
    assert_int_equal(close(creat(in_dir("%s/file"), 0644)), 0);
    box = the_container_with(in_dir("--workspace=%s/file"), "--user=4242", NULL);
    expect_output(box, "", "pwd", "/\n");
    box_free(box);
}

static void a_workspace_that_was_removed_is_made_again(void **state UNUSED)
{
    struct box *box = the_container_with(in_dir("--workspace=%s/w"), "--user=daemon", NULL);

    assert_int_equal(rmdir(in_dir("%s/w")), 0);
    expect_output(box, "root", "pwd; stat -c %U .", in_dir("%s/w\ndaemon\n"));
    assert_int_equal(rmdir(in_dir("%s/w")), 0);
    assert_int_equal(make_directory(box, "sub"), 0);
    expect_output(box, "", "stat -c %U . sub", "daemon\ndaemon\n");
    box_free(box);
}

/* Root gives nothing away in a directory where the user could put something else in its place. */
static void in_a_directory_of_the_user_the_user_makes_it(void **state UNUSED)
{
    struct box *box;

    assert_int_equal(mkdir(in_dir("%s/own"), 0755), 0);
    assert_int_equal(chown(in_dir("%s/own"), 1, 1), 0);
    box = the_container_with(in_dir("--workspace=%s/own/w"), "--user=daemon", NULL);
    expect_output(box, "", "stat -c %U .; rmdir ../w", "daemon\n");
    expect_output(box, "", "pwd; stat -c %U .", in_dir("%s/own/w\ndaemon\n"));
    box_free(box);
}

static void a_home_of_its_own_is_for_the_default_user(void **state UNUSED)
{
    struct box *box = the_container_with(in_dir("--home=%s/h"), "--user=1:1", NULL);

    expect_output(box, "", "echo $HOME; pwd; stat -c %u $HOME", in_dir("%1$s/h\n%1$s/h\n1\n"));
    expect_output(box, "daemon", "echo $HOME", in_dir("%s/h\n"));
    expect_output(box, "root", "echo $HOME", "/root\n");
    box_free(box);
    box = the_container_with(in_dir("--home=%s/h"), in_dir("--workspace=%s/w"), NULL);
    expect_output(box, "", "echo $HOME; pwd", in_dir("%1$s/h\n%1$s/w\n"));
    box_free(box);
}

/* --- users ------------------------------------------------------------------------------------ */

static void users_are_those_that_images_name(void **state UNUSED)
{
    static const struct {
        const char *option;
        const char *expected;
    } rows[] = {
        { "--user=daemon", "1 1 1 daemon /usr/sbin /usr/sbin/nologin\n" },
        { "--user=1", "1 1 1 daemon /usr/sbin /usr/sbin/nologin\n" },
        { "--user=4242", "4242 0 0 4242 / /bin/sh\n" },
        { "--user=4242:4343", "4242 4343 4343 4242 / /bin/sh\n" },
        { "--user=4242:daemon", "4242 1 1 4242 / /bin/sh\n" },
        { "--user=daemon:users", "1 100 100 daemon /usr/sbin /usr/sbin/nologin\n" },
        { "--user=daemon:4343", "1 4343 4343 daemon /usr/sbin /usr/sbin/nologin\n" },
        { "--user=root:users", "0 100 100 root /root /bin/bash\n" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct box *box = the_container_with(rows[i].option, NULL, NULL);

        for (int round = 0; round < 2; round++)
            expect_output(box, "", "echo $(id -u) $(id -g) $(id -G) $USER $HOME $SHELL",
                          rows[i].expected);
        box_free(box);
    }
}

static int error_of_start(struct box *box, const char *user)
{
    struct agent_start start = RUN_SHELL("exit 0");
    struct run run;
    int error;

    start.user = user;
    run_begin(&run, box, &start);
    box_wait(box, run.answered);
    error = run.request.sys_errno;
    if (!error)
        run_wait_end(&run);
    run_finish(&run);
    return error;
}

static void a_user_that_is_not_there_is_refused(void **state UNUSED)
{
    static const char *const options[] = { "--user=no-such-user",
                                           "--user=daemon:no-such-group",
                                           "--user=no-such-user:1",
                                           "--user=1:1:1",
                                           "--user=1:",
                                           "--user=:1" };

    for (size_t i = 0; i < ARRAY_LENGTH(options); i++) {
        struct box *box = the_container_with(options[i], NULL, NULL);

        assert_int_equal(error_of_start(box, ""), EINVAL);
        assert_int_equal(error_of_start(box, "root"), 0);
        box_free(box);
    }
}

static void requests_name_users_as_before(void **state UNUSED)
{
    struct box *box = the_container_with("--user=daemon:users", NULL, NULL);

    assert_int_equal(error_of_start(box, ""), 0);
    assert_int_equal(error_of_start(box, "daemon:users"), EINVAL);
    expect_output(box, "4242", "id -g", "4242\n");
    box_free(box);
}

static void another_group_takes_no_capability_from_root(void **state UNUSED)
{
    struct box *box = the_container_with("--user=root:users", "--bounding=1c3", NULL);

    expect_output(box, "", "grep CapEff /proc/self/status", "CapEff:\t00000000000001c3\n");
    box_free(box);
}

/* --- the environment -------------------------------------------------------------------------- */

static void variables_of_the_image_are_defaults(void **state UNUSED)
{
    struct box *box = the_container(&(struct box_spawn){
        .arguments = (const char *const[]){ "--environment", "--user=daemon", NULL },
        .environment = (const char *const[]){ "COLOR=blue", "SHAPE=round", "EMPTY=", "HOME=/root",
                                              "USER=root", "LOGNAME=root", "SHELL=/bin/image",
                                              "SANDGLASS_SECRET=x", "PATH=/nowhere:/bin", "odd",
                                              NULL },
    });
    struct agent_start start =
        RUN_SHELL("echo $COLOR $SHAPE [${EMPTY-none}] $HOME $USER $LOGNAME $SHELL "
                  "${SANDGLASS_SECRET-none} $PATH");
    struct run run;

    start.env = (const char *const[]){ "SHAPE=square", "PATHS=/x", NULL };
    run_all(&run, box, &start);
    assert_string_equal(run_out(&run),
                        "blue square [] /usr/sbin daemon daemon /usr/sbin/nologin none "
                        "/nowhere:/bin\n");
    run_finish(&run);
    box_free(box);
}

static void without_the_option_there_are_none(void **state UNUSED)
{
    struct box *box = the_container(
        &(struct box_spawn){ .environment = (const char *const[]){ "COLOR=blue", NULL } });

    expect_output(box, "", "echo ${COLOR-none}", "none\n");
    box_free(box);
}

static void programs_are_searched_in_the_path_of_the_image(void **state UNUSED)
{
    char path[128];
    struct box *box;
    struct run run;

    snprintf(path, sizeof(path), "PATH=%s", dir);
    assert_int_equal(symlink("/bin/pwd", in_dir("%s/my-own-pwd")), 0);
    box = the_container(&(struct box_spawn){
        .arguments = (const char *const[]){ "--environment", "--workspace=/", NULL },
        .environment = (const char *const[]){ path, NULL },
    });
    run_all(&run, box,
            &(struct agent_start){ .argv = (const char *const[]){ "my-own-pwd", NULL } });
    assert_string_equal(run_out(&run), "/\n");
    run_finish(&run);
    box_free(box);
}

/* The largest that is taken: MANY variables with 32 KiB in all, each with its NUL. */
static const char *const *many_variables(void)
{
    static char texts[MANY + 1][129];
    static const char *pointers[MANY + 2];

    for (int i = 0; i < MANY; i++) {
        memset(texts[i], 'x', 127);
        texts[i][127] = 0;
        texts[i][snprintf(texts[i], 16, "V%03d", i)] = '=';
        pointers[i] = texts[i];
    }
    pointers[MANY] = NULL;
    return pointers;
}

static void a_large_environment_arrives_whole(void **state UNUSED)
{
    enum { OWN = 2000 };
    static char texts[OWN][16];
    static const char *own[OWN + 1];
    struct box *box = the_container(&(struct box_spawn){
        .arguments = (const char *const[]){ "--environment", NULL },
        .environment = many_variables(),
    });
    struct agent_start start = RUN_SHELL("env | grep -c '^V[0-9]*=x*$'; env | grep -c ^W; "
                                         "env | grep ^V | wc -c; echo $V255");
    char expected[256];
    struct run run;

    for (int i = 0; i < OWN; i++) {
        snprintf(texts[i], sizeof(texts[i]), "W%04d=y", i);
        own[i] = texts[i];
    }
    start.env = own;
    run_all(&run, box, &start);
    snprintf(expected, sizeof(expected), "256\n%d\n32768\n%s\n", OWN,
             many_variables()[MANY - 1] + strlen("V255="));
    assert_string_equal(run_out(&run), expected);
    run_finish(&run);
    box_free(box);
}

static int exit_code_with(const char *const *environment)
{
    struct box_spawn options = {
        .mode = BOX_DIRECT,
        .socket = -1,
        .filter_fd = -1,
        .arguments = (const char *const[]){ "--dial=/nowhere", "--environment", NULL },
        .environment = environment,
    };
    int status;
    pid_t pid = box_spawn(&options);

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_larger_one_stops_init(void **state UNUSED)
{
    const char **variables = (const char **)(uintptr_t)many_variables();
    static char longer[256];

    variables[MANY] = "ONE=more";
    variables[MANY + 1] = NULL;
    assert_int_equal(exit_code_with(variables), 2);
    snprintf(longer, sizeof(longer), "%sx", variables[0]);
    variables[0] = longer;
    variables[MANY] = NULL;
    assert_int_equal(exit_code_with(variables), 2);
}

/* Prints the request that it gets and ends, as one that cannot fork. */
static const char zygote_text[] = "import os, socket\n"
                                  "control = socket.socket(fileno=4)\n"
                                  "control.send(b'ready')\n"
                                  "request, fds, *_ = socket.recv_fds(control, 1 << 20, 8)\n"
                                  "print(request[4:].replace(b'\\0', b'|').decode(), flush=True)\n";

static void a_zygote_gets_them_before_those_of_the_request(void **state UNUSED)
{
    struct box *box = the_container(&(struct box_spawn){
        .arguments = (const char *const[]){ "--environment", "--workspace=/", NULL },
        .environment = (const char *const[]){ "COLOR=blue", "HOME=/x", "SHAPE=round", NULL },
    });
    struct agent_start zygote = {
        .argv = (const char *const[]){ "python3", "-c", zygote_text, NULL },
        .is_zygote = true,
    };
    char script[96];
    struct agent_start start = {
        .argv = (const char *const[]){ "/bin/sh", script, NULL },
        .env = (const char *const[]){ "COLOR=red", NULL },
        .script_path = script,
        .script = "echo $COLOR $SHAPE",
        .script_length = strlen("echo $COLOR $SHAPE"),
        .may_fork = true,
    };
    char expected[512];
    struct run first;
    struct run run;

    if (system("python3 -c 'import socket; socket.recv_fds' 2>/dev/null"))
        skip();
    snprintf(script, sizeof(script), "%s/script", dir);
    run_begin(&first, box, &zygote);
    run_wait_started(&first);
    while (!box_find_end(box, first.number)) { /* until it was ready for one of them */
        run_all(&run, box, &start);
        assert_string_equal(run_out(&run), "red round\n");
        run_finish(&run);
    }
    run_wait_end(&first);
    snprintf(expected, sizeof(expected), "%s|/bin/sh|%s|COLOR=blue|SHAPE=round|COLOR=red|\n",
             script, script);
    assert_string_equal(run_out(&first), expected);
    run_finish(&first);
    box_free(box);
}

/* --- rights ----------------------------------------------------------------------------------- */

static void init_needs_only_what_engines_leave_to_root(void **state UNUSED)
{
    struct box *box = the_container(&(struct box_spawn){
        .rights = BOX_ROOT_OF_CONTAINER,
        .arguments = (const char *const[]){ in_dir("--workspace=%s/w"), "--user=daemon", NULL },
    });
    struct agent_start start = RUN_SHELL("sleep 1000 & sleep 1000");
    struct run run;

    assert_int_equal(agent_hello(box->agent)->bounding, 0x5fb);
    expect_output(box, "root", "id -u; grep CapEff /proc/self/status",
                  "0\nCapEff:\t00000000000005fb\n");
    expect_output(box, "", "id -un; grep CapBnd /proc/self/status; touch file; stat -c %U file",
                  "daemon\nCapBnd:\t0000000000000000\ndaemon\n");
    expect_output(box, "4242:4343", "id -u; id -g", "4242\n4343\n");
    assert_int_equal(make_directory(box, "sub"), 0);
    run_begin(&run, box, &start);
    run_wait_started(&run);
    assert_int_equal(box_kill_tree(box, run.number, SIGKILL), 0);
    run_wait_end(&run);
    run_finish(&run);
    box_free(box);
}

static void init_without_any_right_runs_its_own_user(void **state UNUSED)
{
    struct box *box;

    assert_int_equal(chmod(dir, 0777), 0);
    box = the_container(&(struct box_spawn){
        .rights = BOX_NOBODY,
        .arguments = (const char *const[]){ in_dir("--workspace=%s/w"), NULL },
    });
    assert_int_equal(agent_hello(box->agent)->capabilities, 0);
    expect_output(box, "", "id -u; pwd; cat /proc/self/oom_score_adj",
                  in_dir("65534\n%s/w\n500\n"));
    expect_output(box, "65534", "id -g", "65534\n");
    assert_int_equal(error_of_start(box, "root"), EPERM);
    assert_int_equal(error_of_start(box, "daemon"), EPERM);
    assert_int_equal(make_directory(box, "sub"), 0);
    box_free(box);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(a_missing_workspace_is_made_for_the_default_user),
        IN_DIR(a_workspace_that_exists_stays_as_it_is),
        IN_DIR(without_a_workspace_there_is_the_home),
        IN_DIR(a_workspace_that_was_removed_is_made_again),
        IN_DIR(in_a_directory_of_the_user_the_user_makes_it),
        IN_DIR(a_home_of_its_own_is_for_the_default_user),
        IN_DIR(users_are_those_that_images_name),
        IN_DIR(a_user_that_is_not_there_is_refused),
        IN_DIR(requests_name_users_as_before),
        IN_DIR(another_group_takes_no_capability_from_root),
        IN_DIR(variables_of_the_image_are_defaults),
        IN_DIR(without_the_option_there_are_none),
        IN_DIR(programs_are_searched_in_the_path_of_the_image),
        IN_DIR(a_large_environment_arrives_whole),
        IN_DIR(a_larger_one_stops_init),
        IN_DIR(a_zygote_gets_them_before_those_of_the_request),
        IN_DIR(init_needs_only_what_engines_leave_to_root),
        IN_DIR(init_without_any_right_runs_its_own_user),
    };

    return cmocka_run_group_tests_name("init/image", tests, NULL, NULL);
}
