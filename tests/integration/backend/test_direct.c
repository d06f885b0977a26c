/* SPDX-License-Identifier: Apache-2.0 */
#include "ground.h"

#include "base/buffer.h"

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

static struct outcome outcome;

static int open_ground(void **state)
{
    static struct ground ground;

    ground_open(&ground, "direct", "");
    *state = &ground;
    return 0;
}

static int close_ground(void **state)
{
    ground_close(*state);
    return 0;
}

static void a_program_runs_in_its_workspace(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);
    char expected[256];

    snprintf(expected, sizeof(expected), "%s/sandboxes/%s/workspace\nhello\n", ground->path,
             sandbox.id);
    ground_expect(ground, sandbox.id, "", "pwd; echo hello > file; cat file", expected);
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
    assert_false(process_exists(ground_pid(&sandbox)));
}

static void nothing_of_the_daemon_is_inherited(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox;

    setenv("SANDGLASS_TEST_SECRET", "canary", 1);
    sandbox = ground_sandbox(ground);
    ground_run(ground, sandbox.id, "", "env; cat /proc/self/environ; ls -l /proc/self/fd",
               &outcome);
    assert_null(strstr(outcome.output, "canary"));
    assert_null(strstr(outcome.output, "socket:"));
    ground_expect(ground, sandbox.id, "", "grep -c . /proc/self/limits > /dev/null; ulimit -c",
                  "0\n");
    unsetenv("SANDGLASS_TEST_SECRET");
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
}

static void it_writes_nowhere_else(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);
    struct backend_sandbox other = ground_sandbox(ground);
    char command[512];

    ground_expect(ground, sandbox.id, "", "(echo x > /tmp/direct-escape) 2>/dev/null || echo no",
                  "no\n");
    snprintf(command, sizeof(command), "ls %s/sandboxes/%s/workspace 2>/dev/null || echo no",
             ground->path, other.id);
    ground_expect(ground, sandbox.id, "", command, "no\n");
    snprintf(command, sizeof(command), "ls %s 2>/dev/null || echo no", ground->path);
    ground_expect(ground, sandbox.id, "", command, "no\n");
    assert_int_equal(access("/tmp/direct-escape", F_OK), -1);
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
    assert_int_equal(ground_destroy(ground, other.id, NULL), 0);
}

static pid_t wait_for_pid(struct ground *ground, const char *id, const char *file)
{
    int64_t deadline = ground_now_ms() + 60000;
    char command[128];

    snprintf(command, sizeof(command), "cat %s 2>/dev/null", file);
    do {
        ground_run(ground, id, "", command, &outcome);
        if (atoi(outcome.output) > 0)
            return (pid_t)atoi(outcome.output);
    } while (ground_now_ms() < deadline);
    fail_msg("no pid in %s", file);
    return 0;
}

static void what_left_its_session_dies_with_it(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);
    pid_t setsid_pid;
    pid_t orphan;

    ground_start(
        ground, sandbox.id, "",
        "setsid sh -c 'echo $$ > one; exec sleep 1000' & "
        "(sh -c '(echo $$ > /dev/null; sh -c \"echo \\$\\$ > two; exec sleep 1000\" &) &' &)");
    setsid_pid = wait_for_pid(ground, sandbox.id, "one");
    orphan = wait_for_pid(ground, sandbox.id, "two");
    assert_true(process_exists(setsid_pid));
    assert_true(process_exists(orphan));
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
    assert_false(process_exists(setsid_pid));
    assert_false(process_exists(orphan));
}

static void its_init_has_a_session_of_its_own(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);

    ground_expect(ground, sandbox.id, "", "echo yes", "yes\n");
    assert_int_equal(getsid(ground_pid(&sandbox)), ground_pid(&sandbox));
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
}

static void a_fork_bomb_dies_with_it(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox;
    int64_t begin;

    sandbox = ground_sandbox(ground);
    ground_start(ground, sandbox.id, "", "b() { b | b & }; b; b; sleep 1000");
    begin = ground_now_ms();
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
    assert_true(ground_now_ms() - begin < 30000);
}

static void it_is_found_again_after_a_restart(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);
    struct backend_sandbox stale = sandbox;
    struct error err = { 0 };

    ground_expect(ground, sandbox.id, "", "echo kept > file", "");
    ground_restart(ground);
    assert_int_equal(ground_count(ground), 1);
    ground_make_stale(&stale);
    assert_int_equal(ground_adopt(ground, &stale, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
    assert_int_equal(ground_adopt(ground, &sandbox, &err), 0);
    ground_expect(ground, sandbox.id, "", "cat file", "kept\n");
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
    assert_int_equal(ground_count(ground), 0);
}

static void destroying_twice_is_fine(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);
    struct error err = { 0 };

    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
    assert_int_equal(ground_adopt(ground, &sandbox, &err), -1);
    assert_int_equal(err.code, ERR_GONE);
}

static void the_same_id_is_not_made_twice(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox;
    struct backend_sandbox again;
    struct sandbox_spec spec;

    ground_spec(&spec);
    assert_int_equal(ground_create(ground, &spec, &sandbox, NULL), 0);
    assert_int_equal(ground_create(ground, &spec, &again, NULL), -1);
    assert_true(process_exists(ground_pid(&sandbox)));
    ground_expect(ground, sandbox.id, "", "echo alive", "alive\n");
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
}

static void a_deep_workspace_with_locked_folders_is_removed(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);

    ground_expect(ground, sandbox.id, "",
                  "python3 -c 'import os\nfor i in range(700): os.mkdir(\"d\"); os.chdir(\"d\")'; "
                  "mkdir locked; touch locked/file; chmod 0 locked; mkfifo pipe; "
                  "ln -s /etc/passwd link; echo made",
                  "made\n");
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
}

static void a_server_inside_is_reached(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);

    ground_expect_servers(ground, sandbox.id);
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
}

static void the_report_tells_what_is_missing(void **state)
{
    struct ground *ground = *state;
    struct backend_sandbox sandbox = ground_sandbox(ground);
    scoped(buffer_fini) struct buffer json = BUFFER_INIT(65536);
    struct error err = { 0 };

    assert_int_equal(ground_report(ground, sandbox.id, &json, &err), 0);
    assert_non_null(strstr(buffer_text(&json), "\"backend\":\"direct\""));
    assert_non_null(strstr(buffer_text(&json), "\"seccomp\":\"filter\""));
    assert_non_null(strstr(buffer_text(&json), "\"no_new_privs\":true"));
    assert_non_null(strstr(buffer_text(&json), "\"namespaces\":[]"));
    assert_non_null(strstr(buffer_text(&json), "\"boundary\":\"none"));
    assert_int_equal(ground_destroy(ground, sandbox.id, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_program_runs_in_its_workspace, open_ground, close_ground),
        cmocka_unit_test_setup_teardown(nothing_of_the_daemon_is_inherited, open_ground,
                                        close_ground),
        cmocka_unit_test_setup_teardown(it_writes_nowhere_else, open_ground, close_ground),
        cmocka_unit_test_setup_teardown(its_init_has_a_session_of_its_own, open_ground,
                                        close_ground),
        cmocka_unit_test_setup_teardown(what_left_its_session_dies_with_it, open_ground,
                                        close_ground),
        cmocka_unit_test_setup_teardown(it_is_found_again_after_a_restart, open_ground,
                                        close_ground),
        cmocka_unit_test_setup_teardown(destroying_twice_is_fine, open_ground, close_ground),
        cmocka_unit_test_setup_teardown(the_same_id_is_not_made_twice, open_ground, close_ground),
        cmocka_unit_test_setup_teardown(a_deep_workspace_with_locked_folders_is_removed,
                                        open_ground, close_ground),
        cmocka_unit_test_setup_teardown(a_server_inside_is_reached, open_ground, close_ground),
        cmocka_unit_test_setup_teardown(the_report_tells_what_is_missing, open_ground,
                                        close_ground),
        /* more than one id, a control group, or the host's network */
        cmocka_unit_test_setup_teardown(a_fork_bomb_dies_with_it, open_ground, close_ground),
    };

    return run_ground_tests("direct", tests, 0, 1);
}
