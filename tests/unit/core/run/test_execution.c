/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/execution.h"
#include "core/run/execution_private.h"

#include "core/output/spool_shares.h"

#include "base/log.h"
#include "base/str.h"
#include "core/sandbox/sandbox.h"
#include "core/session/session_private.h"
#include "harness/fake_programs.h"
#include "harness/world.h"
#include "wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct world world;
static char state_path[64];
static struct session *session;

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    snprintf(state_path, sizeof(state_path), "/tmp/test-execution-XXXXXX");
    assert_non_null(mkdtemp(state_path));
    world_init(&world);
    world.state_dir = open(state_path, O_DIRECTORY | O_CLOEXEC);
    world.config.exec.grace_ms = 5000;
    world.config.exec.stall_timeout_ms = 10000;
    world.config.exec.max_concurrent = 3;
    world.config.exec.output_capture_bytes = 64 * 1024;
    world.config.exec.output_spool_bytes = 1024 * 1024;
    world_start(&world);
    session = world_open_simple(&world, "ann", NULL);
    return 0;
}

static int teardown(void **state)
{
    char command[128];

    (void)state;
    world_fini(&world);
    fake_programs_hang(false);
    fake_programs_clear();
    fd_close(world.state_dir);
    snprintf(command, sizeof(command), "rm -rf %s", state_path);
    return system(command);
}

static const char *const true_argv[] = { "/bin/true", "a b", NULL };

static struct execution *start(const struct execution_request *request)
{
    struct error err = { 0 };
    struct execution *execution = execution_start(session, request, &err);

    assert_non_null(execution);
    execution_ref(execution);
    world_settle(&world);
    return execution;
}

static struct execution *start_simple(void)
{
    return start(&(struct execution_request){ .argv = true_argv, .timeout_ms = -1 });
}

static void release(struct execution *execution)
{
    execution_unref(execution);
    world_settle(&world);
}

static const char *env_value(const struct fake_program *program, const char *name)
{
    size_t length = strlen(name);

    for (char **text = program->env; *text; text++) {
        if (strncmp(*text, name, length) == 0 && (*text)[length] == '=')
            return *text + length + 1;
    }
    return NULL;
}

static char *as_json(struct execution *execution)
{
    struct buffer text = BUFFER_INIT(1024 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    execution_write_json(execution, &json, NULL, true);
    return buffer_steal_text(&text);
}

/* --- a node without its lease ------------------------------------------------------------------ */

static bool refuse(void *context)
{
    (void)context;
    return false;
}

static void a_node_without_its_lease_starts_no_program(void **state)
{
    struct execution *execution;
    const struct execution_facts *facts;

    (void)state;
    world.core->parts.may_act = refuse;
    execution = start_simple();
    facts = execution_facts(execution);
    assert_int_equal(fake_programs_count(), 0);
    assert_int_equal(facts->state, EXECUTION_CRASHED);
    assert_string_equal(facts->start_error.name, "node_isolated");
    assert_true(facts->start_error.retryable);
    release(execution);
}

/* --- quotas of the spool --------------------------------------------------------------------- */

static void restart(void);

enum { MEGABYTE = 1024 * 1024 };

/* One that writes so much and ends. */
static void write_and_end(char *out_id, size_t bytes)
{
    struct execution *execution = start_simple();
    scoped(free) char *text = calloc(1, 4097);

    memset(text, 'x', 4096);
    for (size_t i = 0; i < bytes; i += 4096) {
        fake_program_write(fake_programs_last(), text);
        world_settle(&world);
    }
    memcpy(out_id, execution_facts(execution)->id, ID_SIZE);
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    release(execution);
}

static bool is_kept(const char *id)
{
    char name[ID_SIZE + 16];

    snprintf(name, sizeof(name), "output/%s.out", id);
    return faccessat(world.state_dir, name, F_OK, 0) == 0;
}

static void the_oldest_output_of_a_session_makes_room_for_the_newest(void **state)
{
    char ids[4][ID_SIZE];

    (void)state;
    world.config.exec.spool_per_session_bytes = MEGABYTE;
    for (size_t i = 0; i < 4; i++)
        write_and_end(ids[i], MEGABYTE * 2 / 5);
    assert_false(is_kept(ids[0]));
    assert_false(is_kept(ids[1]));
    assert_true(is_kept(ids[2]));
    assert_true(is_kept(ids[3]));
    assert_in_range(spool_shares_bytes(world.core->spool_shares), 1, MEGABYTE);
}

static void output_of_a_session_that_is_gone_goes_before_that_of_others(void **state)
{
    struct session *first = session, *second;
    char ids[3][ID_SIZE];

    (void)state;
    world.config.exec.spool_per_owner_bytes = MEGABYTE;
    write_and_end(ids[0], MEGABYTE * 2 / 5);
    second = session = world_open_simple(&world, "ann", NULL);
    write_and_end(ids[1], MEGABYTE * 2 / 5);
    session_end(second, END_DELETED, NULL, NULL, NULL);
    world_settle(&world);
    session = first;
    write_and_end(ids[2], MEGABYTE * 2 / 5);
    assert_true(is_kept(ids[0]));
    assert_false(is_kept(ids[1]));
    assert_true(is_kept(ids[2]));
}

static void in_all_the_owner_who_has_most_gives_first(void **state)
{
    char ids[4][ID_SIZE];

    (void)state;
    world.config.exec.spool_total_bytes = MEGABYTE;
    write_and_end(ids[0], MEGABYTE / 5);
    session = world_open_simple(&world, "bob", NULL);
    write_and_end(ids[1], MEGABYTE * 2 / 5);
    write_and_end(ids[2], MEGABYTE * 2 / 5);
    write_and_end(ids[3], MEGABYTE / 5);
    assert_true(is_kept(ids[0]));
    assert_false(is_kept(ids[1]));
    assert_true(is_kept(ids[2]));
    assert_true(is_kept(ids[3]));
}

static void programs_that_run_share_the_quota_of_their_session(void **state)
{
    scoped(free) char *text = calloc(1, 4097);
    struct execution *executions[3];
    struct fake_program *programs[3];

    (void)state;
    memset(text, 'x', 4096);
    world.config.exec.spool_per_session_bytes = MEGABYTE;
    for (size_t i = 0; i < 3; i++) {
        executions[i] = start_simple();
        programs[i] = fake_programs_last();
    }
    for (size_t i = 0; i < 3 * MEGABYTE / 4096; i++) {
        fake_program_write(programs[i % 3], text);
        world_settle(&world);
    }
    assert_in_range(spool_shares_bytes(world.core->spool_shares), 1, MEGABYTE);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(spool_length(execution_stdout(executions[i])), MEGABYTE);
        fake_program_exit(programs[i], 0);
        world_settle(&world);
        release(executions[i]);
    }
}

static void output_of_an_earlier_daemon_counts_in_all_and_goes_first(void **state)
{
    char old[ID_SIZE], new[ID_SIZE];

    (void)state;
    write_and_end(old, MEGABYTE * 3 / 5);
    restart();
    world_advance(&world, 100);
    assert_in_range(spool_shares_bytes(world.core->spool_shares), MEGABYTE / 2, MEGABYTE);
    world.config.exec.spool_total_bytes = MEGABYTE;
    write_and_end(new, MEGABYTE * 3 / 5);
    assert_false(is_kept(old));
    assert_true(is_kept(new));
}

/* --- from start to end ----------------------------------------------------------------------- */

static void a_program_runs_and_its_end_is_known(void **state)
{
    struct execution *execution = start_simple();
    struct fake_program *program = fake_programs_last();
    scoped(free) char *json = NULL;

    (void)state;
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    assert_string_equal(program->argv[0], "/bin/true");
    assert_string_equal(program->argv[1], "a b");
    fake_program_write(program, "hello\n");
    fake_program_exit(program, 3);
    world_settle(&world);

    assert_int_equal(execution_facts(execution)->state, EXECUTION_EXITED);
    assert_int_equal(execution_facts(execution)->exit_code, 3);
    json = as_json(execution);
    assert_non_null(strstr(json, "\"stdout\":\"hello\\n\""));
    assert_non_null(strstr(json, "\"exit_code\":3"));
    release(execution);
    assert_int_equal(fake_programs_count(), 0);
    assert_int_equal(world.core->executions_by_id.count, 0);
}

static void a_session_is_in_use_while_a_program_runs(void **state)
{
    struct execution *execution = start_simple();

    (void)state;
    assert_int_equal(session_active_holds(session), 1);
    world_advance(&world, 2 * 3600 * 1000);
    assert_non_null(world_find(&world, session_id(session)));
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_int_equal(session_active_holds(session), 0);
    release(execution);
}

static void a_process_is_forgotten_only_when_its_end_is_durable(void **state)
{
    struct execution *execution = start_simple();

    (void)state;
    fake_store_hold(world.store, true);
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_EXITED);
    assert_int_equal(fake_programs_count(), 1);
    fake_store_hold(world.store, false);
    world_settle(&world);
    assert_int_equal(fake_programs_count(), 0);
    release(execution);
}

struct listener {
    struct execution_watcher watcher;
    bool heard_the_end;
};

static void on_heard(struct execution_watcher *watcher)
{
    struct listener *listener = container_of(watcher, struct listener, watcher);

    listener->heard_the_end = execution_has_ended(watcher->execution);
}

static void an_end_is_told_when_it_is_recorded(void **state)
{
    struct execution *execution = start_simple();
    struct listener listener = { 0 };

    (void)state;
    execution_watch(execution, &listener.watcher, on_heard);
    fake_store_hold(world.store, true);
    fake_program_write(fake_programs_last(), "hello\n");
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_int_equal(fake_store_waiting(world.store, STORE_WRITTEN), 1);
    assert_false(listener.heard_the_end);
    assert_false(execution_has_ended(execution)); /* for callers that come now */
    fake_store_hold(world.store, false);
    world_settle(&world);
    assert_true(listener.heard_the_end);
    assert_true(execution_has_ended(execution));
    execution_unwatch(&listener.watcher);
    release(execution);
}

static void an_end_that_cannot_be_recorded_is_told_all_the_same(void **state)
{
    struct execution *execution = start_simple();
    struct listener listener = { 0 };

    (void)state;
    execution_watch(execution, &listener.watcher, on_heard);
    fake_store_fail_next(world.store, ERR_INTERNAL);
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_true(listener.heard_the_end);
    assert_int_equal(fake_programs_count(), 1);
    world_advance(&world, 2000);
    assert_int_equal(fake_programs_count(), 0);
    execution_unwatch(&listener.watcher);
    release(execution);
}

/* The next daemon, or another node that took the session over, would not know the key, and run the
 * program again. */
static void a_keyed_program_starts_only_when_its_key_is_recorded(void **state)
{
    struct execution_request keyed = { .argv = true_argv, .key = "once", .timeout_ms = -1 };
    struct execution *first, *other;

    (void)state;
    release(start_simple()); /* the sandbox is there */
    fake_store_hold(world.store, true);
    first = start(&keyed);
    assert_int_equal(fake_programs_count(), 1);
    other = start_simple();
    assert_int_equal(fake_programs_count(), 2);
    fake_store_hold(world.store, false);
    world_settle(&world);
    assert_int_equal(fake_programs_count(), 3);
    assert_int_equal(execution_facts(first)->state, EXECUTION_RUNNING);
    release(first);
    release(other);
}

static void a_background_child_that_holds_the_pipes_does_not_keep_it_from_ending(void **state)
{
    struct execution *execution = start_simple();
    struct fake_program *program = fake_programs_last();

    (void)state;
    fake_program_leave_child(program);
    fake_program_exit(program, 0);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_EXITED);
    assert_int_equal(session_active_holds(session), 0);
    assert_int_equal(fake_programs_count(), 1);

    fake_program_write(program, "late\n");
    world_settle(&world);
    assert_int_equal(spool_length(execution_stdout(execution)), 5);
    fd_close(steal_fd(&program->output));
    fd_close(steal_fd(&program->errors));
    world_settle(&world);
    assert_int_equal(fake_programs_count(), 0);
    release(execution);
}

/* --- what is run ----------------------------------------------------------------------------- */

static void the_environment_is_built_from_nothing(void **state)
{
    static char pass[] = "PATH", *pass_items[] = { pass };
    struct execution_request request = {
        .argv = true_argv,
        .env_json = "{\"GIVEN\":\"yes\",\"SANDGLASS_EXECUTION_ID\":\"stale\"}",
        .timeout_ms = -1,
    };
    struct execution *execution;
    const struct fake_program *program;

    (void)state;
    setenv("SECRET_TOKEN", "canary", 1);
    setenv("PATH", "/bin", 1);
    world.config.sandbox.env_pass.items = pass_items;
    world.config.sandbox.env_pass.count = 1;
    execution = start(&request);
    program = fake_programs_last();
    assert_null(env_value(program, "SECRET_TOKEN"));
    assert_string_equal(env_value(program, "PATH"), "/bin");
    assert_string_equal(env_value(program, "GIVEN"), "yes");
    assert_string_equal(env_value(program, "SANDGLASS_EXECUTION_ID"),
                        execution_facts(execution)->id);
    assert_string_equal(env_value(program, "SANDGLASS_SESSION_ID"), session_id(session));
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

static void shell_text_falls_back_to_sh_where_there_is_no_bash(void **state)
{
    struct execution *execution;

    (void)state;
    fake_programs_fail_next(STAGE_EXEC, ENOENT);
    execution = start(&(struct execution_request){ .command = "echo hi", .timeout_ms = -1 });
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    assert_string_equal(fake_programs_last()->argv[0], "/bin/sh");
    assert_string_equal(fake_programs_last()->argv[2], "echo hi");
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

static void code_goes_as_a_script_beside_its_interpreter(void **state)
{
    struct execution *execution = start(&(struct execution_request){
        .code = "print(1)", .code_length = 8, .language = "python", .timeout_ms = -1 });
    const struct fake_program *program = fake_programs_last();

    (void)state;
    assert_string_equal(program->argv[0], "python3");
    assert_string_equal(program->argv[1], program->script_path);
    assert_string_equal(program->script, "print(1)");
    assert_non_null(strstr(program->script_path, execution_facts(execution)->id));
    assert_true(str_ends_with(program->script_path, ".py"));
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

static void a_script_goes_where_init_says(void **state)
{
    struct execution *execution;

    (void)state;
    fake_programs_set_scratch("/somewhere/else");
    execution = start(&(struct execution_request){
        .code = "print(1)", .code_length = 8, .language = "python", .timeout_ms = -1 });
    assert_true(str_starts_with(fake_programs_last()->script_path, "/somewhere/else/exe_"));
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

static void a_sandbox_without_a_place_for_scripts_says_so(void **state)
{
    struct execution *execution;

    (void)state;
    fake_programs_set_scratch("");
    execution = start(&(struct execution_request){
        .code = "print(1)", .code_length = 8, .language = "python", .timeout_ms = -1 });
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CRASHED);
    assert_string_equal(execution_facts(execution)->start_error.name, "no_scratch");
    assert_null(fake_programs_last());
    release(execution);
    execution = start(&(struct execution_request){ .command = "echo hi", .timeout_ms = -1 });
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

struct refusal {
    struct execution_request request;
    const char *name;
};

static void wrong_requests_are_refused_by_name_and_start_nothing(void **state)
{
    static const char *const nothing[] = { NULL };
    static const char *const empty[] = { "", NULL };
    const struct refusal refusals[] = {
        { { 0 }, "invalid_field" },
        { { .argv = true_argv, .command = "x" }, "invalid_field" },
        { { .argv = nothing }, "invalid_field" },
        { { .argv = empty }, "invalid_field" },
        { { .command = "" }, "invalid_field" },
        { { .code = "", .language = "python" }, "invalid_field" },
        { { .code = "x", .code_length = 1, .language = "cobol" }, "unsupported_language" },
        { { .argv = true_argv, .env_json = "{\"A=B\":\"1\"}" }, "invalid_env" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(refusals); i++) {
        struct error err = { 0 };

        assert_null(execution_start(session, &refusals[i].request, &err));
        assert_string_equal(err.name, refusals[i].name);
    }
    assert_int_equal(world.core->executions_by_id.count, 0);
    assert_null(fake_programs_last());
}

static void too_many_arguments_are_refused_before_anything_is_sent(void **state)
{
    const char **many = calloc(5001, sizeof(*many));
    struct error err = { 0 };

    (void)state;
    for (size_t i = 0; i < 5000; i++)
        many[i] = "x";
    assert_null(execution_start(
        session, &(struct execution_request){ .argv = (const char *const *)many }, &err));
    assert_int_equal(err.code, ERR_TOO_LARGE);
    free(many);
}

static void more_executions_than_allowed_are_refused(void **state)
{
    struct execution *running[3];
    struct error err = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++)
        running[i] = start_simple();
    assert_null(execution_start(session, &(struct execution_request){ .argv = true_argv }, &err));
    assert_int_equal(err.code, ERR_LIMIT);
    assert_string_equal(err.name, "too_many_executions");
    for (int i = 0; i < 3; i++)
        execution_cancel(running[i]);
    world_settle(&world);
    for (int i = 0; i < 3; i++)
        release(running[i]);
}

static void a_repeated_key_gives_the_same_execution(void **state)
{
    struct execution_request request = { .argv = true_argv, .key = "once", .timeout_ms = -1 };
    struct execution *first = start(&request);
    struct execution *again = start(&request);

    (void)state;
    assert_ptr_equal(first, again);
    fake_program_exit(fake_programs_last(), 0);
    release(first);
    release(again);
}

/* --- what cannot be started ------------------------------------------------------------------ */

static void what_is_not_found_ends_with_127_and_its_name(void **state)
{
    struct execution *execution;

    (void)state;
    fake_programs_fail_next(STAGE_EXEC, ENOENT);
    execution = start_simple();
    assert_int_equal(execution_facts(execution)->state, EXECUTION_EXITED);
    assert_int_equal(execution_facts(execution)->exit_code, 127);
    assert_string_equal(execution_facts(execution)->error, "/bin/true: not found");
    release(execution);
}

static void what_is_not_executable_ends_with_126(void **state)
{
    struct execution *execution;

    (void)state;
    fake_programs_fail_next(STAGE_EXEC, EACCES);
    execution = start_simple();
    assert_int_equal(execution_facts(execution)->exit_code, 126);
    assert_non_null(strstr(execution_facts(execution)->error, "/bin/true"));
    release(execution);
}

static void a_full_process_table_is_the_callers_answer(void **state)
{
    struct execution *execution;

    (void)state;
    fake_programs_fail_next(STAGE_SPAWN, EAGAIN);
    execution = start_simple();
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CRASHED);
    assert_int_equal(execution_facts(execution)->start_error.code, ERR_LIMIT);
    release(execution);
}

static void a_supervisor_that_was_killed_is_named(void **state)
{
    struct execution *execution;

    (void)state;
    fake_programs_fail_next(STAGE_SPAWN, EINTR);
    execution = start_simple();
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CRASHED);
    assert_non_null(strstr(execution_facts(execution)->error, "supervisor"));
    assert_false(execution_facts(execution)->start_error.retryable);
    release(execution);
}

static void an_end_without_code_and_signal_is_no_exit(void **state)
{
    struct execution *execution = start_simple();

    (void)state;
    fake_program_exit(fake_programs_last(), -1);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CRASHED);
    assert_non_null(execution_facts(execution)->reason);
    release(execution);
}

static void a_generation_that_has_moved_on_is_the_callers_answer(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = true_argv, .generation = 7, .timeout_ms = -1 });

    (void)state;
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CRASHED);
    assert_string_equal(execution_facts(execution)->start_error.name, "generation_moved");
    release(execution);
}

/* --- stopping -------------------------------------------------------------------------------- */

static void a_timeout_sends_term_and_keeps_the_output(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 1000 });
    const struct fake_program *program = fake_programs_last();

    (void)state;
    fake_program_write(fake_programs_last(), "begun\n");
    world_advance(&world, 999);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    world_advance(&world, 2);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_TIMEOUT);
    assert_int_equal(program->signals[0], SIGTERM);
    assert_int_equal(program->signal_count, 1);
    assert_int_equal(spool_length(execution_stdout(execution)), 6);
    assert_string_equal(execution_facts(execution)->reason, "timeout");
    release(execution);
}

static void a_timeout_is_no_success_of_a_program_that_ends_well_when_asked_to(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 1000 });

    (void)state;
    fake_programs_last()->ignores_term = true;
    world_advance(&world, 1001);
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_TIMEOUT);
    assert_int_equal(execution_facts(execution)->exit_code, 124);
    release(execution);
}

static void a_program_that_ignores_term_is_killed_after_the_grace(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 1000 });
    struct fake_program *program = fake_programs_last();

    (void)state;
    program->ignores_term = true;
    world_advance(&world, 1001);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    world_advance(&world, 4998);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    world_advance(&world, 2);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_TIMEOUT);
    assert_int_equal(program->signals[1], SIGKILL);
    release(execution);
}

static void the_rest_of_the_tree_is_killed_before_a_timeout_is_told(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 1000 });
    struct fake_program *program = fake_programs_last();

    (void)state;
    fake_program_leave_child(program);
    world_advance(&world, 1001);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_TIMEOUT);
    assert_int_equal(program->signals[0], SIGTERM);
    assert_int_equal(program->signals[1], SIGKILL);
    assert_int_equal(program->survivors, 0);
    release(execution);
}

static void a_timeout_of_zero_never_comes(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 0 });

    (void)state;
    world_advance(&world, 3600 * 1000);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

static void a_timeout_counts_while_the_execution_waits_for_a_sandbox(void **state)
{
    struct execution *execution;

    (void)state;
    session_teardown(session, END_TEARDOWN);
    world_settle(&world);
    fake_backend_hold(world.backend, FAKE_CREATE, true);
    execution = start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 1000 });
    world_advance(&world, 999);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_QUEUED);
    world_advance(&world, 2);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_TIMEOUT);
    fake_backend_hold(world.backend, FAKE_CREATE, false);
    world_settle(&world);
    assert_null(fake_programs_last());
    release(execution);
}

static void assert_sandbox_is_replaced_after_a_timeout(struct execution *execution, int64_t ms)
{
    char old[ID_SIZE];

    memcpy(old, sandbox_id(session_sandbox(session)), sizeof(old));
    world_advance(&world, ms - 2);
    assert_false(execution_state_is_final(execution_facts(execution)->state));
    world_advance(&world, 4);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_TIMEOUT);
    assert_true(strstr(execution_facts(execution)->reason, "timeout"));
    world_settle(&world);
    fake_programs_hang(false);
    assert_true(!session_sandbox(session) ||
                strcmp(sandbox_id(session_sandbox(session)), old) != 0);
    release(execution);
    execution = start_simple();
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

static void a_start_that_init_does_not_answer_ends_as_timeout_and_costs_the_sandbox(void **state)
{
    struct execution *execution = start_simple(); /* the sandbox is there */

    (void)state;
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
    fake_programs_hang(true);
    execution = start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 1000 });
    assert_sandbox_is_replaced_after_a_timeout(execution, 1000 + 10000);
}

static void a_start_without_a_timeout_ends_when_init_stays_silent(void **state)
{
    struct execution *execution = start_simple(); /* the sandbox is there */
    char old[ID_SIZE];

    (void)state;
    world.config.sandbox.silence_timeout_ms = 60000;
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
    memcpy(old, sandbox_id(session_sandbox(session)), sizeof(old));
    fake_programs_hang(true);
    execution = start(&(struct execution_request){ .argv = true_argv });
    world_advance(&world, 59998);
    assert_false(execution_state_is_final(execution_facts(execution)->state));
    world_advance(&world, 4);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CRASHED);
    assert_string_equal(execution_facts(execution)->reason, "the sandbox did not answer");
    fake_programs_hang(false);
    assert_true(!session_sandbox(session) ||
                strcmp(sandbox_id(session_sandbox(session)), old) != 0);
    release(execution);
}

static void a_program_that_was_started_may_run_longer_than_a_silent_init(void **state)
{
    struct execution *execution;

    (void)state;
    world.config.sandbox.silence_timeout_ms = 60000;
    execution = start(&(struct execution_request){ .argv = true_argv });
    fake_programs_hang(true);
    world_advance(&world, 200000);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    fake_programs_hang(false);
    release(execution);
}

static void a_kill_that_init_does_not_answer_ends_as_timeout_and_costs_the_sandbox(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 1000 });

    (void)state;
    fake_programs_hang(true);
    assert_sandbox_is_replaced_after_a_timeout(execution, 1000 + 5000 + 10000);
}

/* Others may work in it, and the machine may be busy. */
static void a_start_that_is_answered_late_ends_as_timeout_and_costs_nothing_else(void **state)
{
    struct execution *other = start_simple(), *execution;

    (void)state;
    fake_programs_be_slow(true);
    execution = start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 1000 });
    world_advance(&world, 10000);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_QUEUED);
    fake_programs_be_slow(false);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_TIMEOUT);
    assert_int_equal(execution_facts(execution)->signal, SIGTERM);
    world_advance(&world, 20000);
    assert_int_equal(execution_facts(other)->state, EXECUTION_RUNNING);
    execution_cancel(other);
    world_settle(&world);
    release(execution);
    release(other);
}

static void cancelling_a_running_program_ends_it_as_cancelled(void **state)
{
    struct execution *execution = start_simple();

    (void)state;
    execution_cancel(execution);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CANCELLED);
    assert_int_equal(execution_facts(execution)->signal, SIGTERM);
    release(execution);
}

static void cancelling_while_it_waits_for_a_sandbox_starts_nothing(void **state)
{
    struct execution *execution;
    struct error err = { 0 };

    (void)state;
    session_teardown(session, END_TEARDOWN);
    world_settle(&world);
    fake_backend_hold(world.backend, FAKE_CREATE, true);
    execution = execution_start(session, &(struct execution_request){ .argv = true_argv }, &err);
    execution_ref(execution);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_QUEUED);
    execution_cancel(execution);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CANCELLED);
    fake_backend_hold(world.backend, FAKE_CREATE, false);
    world_settle(&world);
    assert_null(fake_programs_last());
    release(execution);
}

static void a_signal_reaches_the_program(void **state)
{
    struct execution *execution = start_simple();
    struct error err = { 0 };

    (void)state;
    assert_int_equal(execution_signal(execution, SIGUSR1, false, &err), 0);
    assert_int_equal(execution_signal(execution, SIGUSR2, false, &err), 0);
    world_settle(&world);
    assert_int_equal(fake_programs_last()->signals[0], SIGUSR1);
    assert_int_equal(fake_programs_last()->signals[1], SIGUSR2);
    assert_int_equal(execution_signal(execution, 0, false, &err), -1);
    assert_int_equal(execution_signal(execution, 4000, false, &err), -1);
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_int_equal(execution_signal(execution, SIGTERM, false, &err), -1);
    assert_string_equal(err.name, "execution_not_running");
    release(execution);
}

/* --- input ----------------------------------------------------------------------------------- */

static size_t read_input(const struct fake_program *program, char *text, size_t size)
{
    ssize_t count = read(program->input, text, size - 1);

    assert_true(count >= 0);
    text[count] = '\0';
    return (size_t)count;
}

static void input_of_the_request_is_followed_by_its_end(void **state)
{
    struct execution *execution = start(&(struct execution_request){
        .argv = true_argv, .stdin_data = "typed", .stdin_length = 5, .timeout_ms = -1 });
    char text[16];

    (void)state;
    assert_int_equal(read_input(fake_programs_last(), text, sizeof(text)), 5);
    assert_string_equal(text, "typed");
    assert_int_equal(read_input(fake_programs_last(), text, sizeof(text)), 0);
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

static void input_is_taken_as_far_as_the_pipe_goes(void **state)
{
    struct execution *execution = start(
        &(struct execution_request){ .argv = true_argv, .wants_stdin = true, .timeout_ms = -1 });
    char *bytes = calloc(1, 1 << 20);
    struct error err = { 0 };
    ssize_t taken = execution_write_stdin(execution, bytes, 1 << 20, &err);

    (void)state;
    assert_true(taken > 0 && taken < 1 << 20);
    assert_int_equal(execution_write_stdin(execution, bytes, 1, &err), 0);
    read_input(fake_programs_last(), bytes, 1 << 20);
    assert_int_equal(execution_write_stdin(execution, bytes, 1, &err), 1);
    assert_int_equal(execution_close_stdin(execution, &err), 0);
    assert_int_equal(execution_write_stdin(execution, bytes, 1, &err), -1);
    assert_string_equal(err.name, "stdin_closed");
    fake_program_exit(fake_programs_last(), 0);
    free(bytes);
    release(execution);
}

static void input_in_the_pipe_of_the_program_has_arrived(void **state)
{
    struct execution *execution = start(
        &(struct execution_request){ .argv = true_argv, .wants_stdin = true, .timeout_ms = -1 });
    struct error err = { 0 };
    uint64_t end;

    (void)state;
    assert_int_equal(execution_write_stdin(execution, "abc", 3, &err), 3);
    end = execution_stdin_end(execution);
    assert_int_equal(execution_stdin_is_taken(execution, end, &err), 1);
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_EXITED);
    assert_int_equal(execution_stdin_is_taken(execution, end, &err), 1);
    release(execution);
}

static void input_waits_until_the_terminal_has_its_new_size(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = true_argv, .terminal = true, .timeout_ms = -1 });
    const struct fake_program *program = fake_programs_last();
    struct error err = { 0 };

    (void)state;
    assert_int_equal(program->columns, 80);
    fake_programs_be_slow(true);
    assert_int_equal(execution_resize(execution, 100, 30, &err), 0);
    assert_int_equal(execution_resize(execution, 110, 40, &err), 0);
    assert_int_equal(execution_resize(execution, 120, 50, &err), 0);
    assert_int_equal(execution_write_stdin(execution, "x", 1, &err), 0);
    fake_programs_be_slow(false);
    world_settle(&world);
    assert_int_equal(program->columns, 120);
    assert_int_equal(program->rows, 50);
    assert_int_equal(program->resizes, 2);
    assert_int_equal(execution_write_stdin(execution, "x", 1, &err), 1);
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

/* Code for an interpreter that was just interrupted must not be hit by that. */
static void input_waits_until_signals_before_it_have_arrived(void **state)
{
    struct execution *execution = start(
        &(struct execution_request){ .argv = true_argv, .wants_stdin = true, .timeout_ms = -1 });
    struct error err = { 0 };

    (void)state;
    fake_programs_be_slow(true);
    assert_int_equal(execution_signal(execution, SIGINT, true, &err), 0);
    assert_int_equal(execution_signal(execution, SIGUSR1, true, &err), 0);
    assert_int_equal(execution_write_stdin(execution, "x", 1, &err), 0);
    fake_programs_be_slow(false);
    world_settle(&world);
    assert_int_equal(fake_programs_last()->signal_count, 2);
    assert_int_equal(execution_write_stdin(execution, "x", 1, &err), 1);
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

static void a_program_without_input_says_so(void **state)
{
    struct execution *execution = start_simple();
    struct error err = { 0 };

    (void)state;
    assert_int_equal(execution_write_stdin(execution, "x", 1, &err), -1);
    assert_string_equal(err.name, "no_stdin");
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

/* --- the sandbox goes ------------------------------------------------------------------------ */

static void a_crashed_sandbox_ends_its_executions_as_crashed_and_keeps_their_output(void **state)
{
    struct execution *execution = start_simple();

    (void)state;
    fake_program_write(fake_programs_last(), "last words");
    fake_backend_kill(world.backend, sandbox_id(session_sandbox(session)));
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CRASHED);
    assert_non_null(strstr(execution_facts(execution)->reason, "crashed"));
    assert_int_equal(spool_length(execution_stdout(execution)), 10);
    release(execution);
}

/* The sandbox dies with the start of an execution open. */
static struct execution *start_and_kill(bool is_read)
{
    struct execution *execution = start_simple();

    fake_program_exit(fake_programs_last(), 0);
    release(execution);
    fake_programs_hang(true);
    execution = start_simple();
    fake_programs_hang(false);
    fake_programs_stop_reading(!is_read);
    fake_backend_kill(world.backend, sandbox_id(session_sandbox(session)));
    world_settle(&world);
    fake_programs_stop_reading(false);
    return execution;
}

static void what_a_dying_init_has_not_read_runs_in_the_next_sandbox(void **state)
{
    struct execution *execution = start_and_kill(false);

    (void)state;
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    assert_int_equal(execution_facts(execution)->generation, 2);
    fake_program_exit(fake_programs_last(), 0);
    release(execution);
}

static void what_a_dying_init_may_have_read_is_not_run_again(void **state)
{
    struct execution *execution = start_and_kill(true);

    (void)state;
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CRASHED);
    assert_int_equal(execution_facts(execution)->generation, 1);
    release(execution);
}

static void the_oom_killer_is_told_from_other_deaths(void **state)
{
    struct execution *execution = start_simple();

    (void)state;
    session->flavor.limits.memory_bytes = 128 << 20;
    fake_backend_set_capabilities(world.backend, (struct backend_capabilities){ .usage = true });
    fake_backend_set_oom_kills(world.backend, sandbox_id(session_sandbox(session)), 1);
    fake_program_die(fake_programs_last(), SIGKILL);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CRASHED);
    assert_string_equal(execution_facts(execution)->reason, "oom");
    assert_string_equal(execution_facts(execution)->error,
                        "killed: out of memory (limit 128 MB); see --memory");
    release(execution);

    execution = start_simple();
    fake_program_die(fake_programs_last(), SIGKILL);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_EXITED);
    assert_int_equal(execution_facts(execution)->signal, SIGKILL);
    release(execution);
}

static void deleting_the_session_keeps_the_result_of_what_runs(void **state)
{
    struct execution *execution = start_simple();
    struct ended ended;

    (void)state;
    fake_program_write(fake_programs_last(), "kept\n");
    world_end(&world, session, END_DELETED, &ended);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CANCELLED);
    assert_string_equal(execution_facts(execution)->reason, "deleted");
    assert_int_equal(spool_length(execution_stdout(execution)), 5);
    assert_null(execution_session(execution));
    fake_programs_clear();
    world_settle(&world);
    release(execution);
    assert_int_equal(world.core->executions_by_id.count, 0);
}

/* --- the daemon goes ------------------------------------------------------------------------- */

static struct execution *first_execution(void)
{
    return list_first(session_executions(session), struct execution, node);
}

static void on_committed(struct store_ticket *ticket)
{
    assert_int_equal(ticket->err->code, ERR_NONE);
}

static void restart(void)
{
    char id[ID_SIZE];
    struct store_ticket ticket;

    memcpy(id, session_id(session), sizeof(id));
    world_settle(&world);
    store_commit(world.store, &ticket, on_committed);
    world_settle(&world);
    world_restart(&world);
    session = world_find(&world, id);
    assert_non_null(session);
}

static void a_new_daemon_goes_on_with_a_running_program_without_losing_a_byte(void **state)
{
    struct execution *execution = start_simple();
    char *id = strdup(execution_facts(execution)->id);

    (void)state;
    fake_program_write(fake_programs_last(), "before ");
    world_settle(&world);
    release(execution);
    restart();
    fake_program_write(fake_programs_last(), "after");
    world_settle(&world);

    execution = first_execution();
    assert_non_null(execution);
    assert_string_equal(execution_facts(execution)->id, id);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    assert_int_equal(spool_length(execution_stdout(execution)), 12);
    execution_ref(execution);
    fake_program_exit(fake_programs_last(), 4);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_EXITED);
    assert_int_equal(execution_facts(execution)->exit_code, 4);
    release(execution);
    free(id);
}

static void bytes_written_while_no_daemon_ran_are_found(void **state)
{
    struct execution *execution = start_simple();
    struct store_ticket ticket;
    char id[ID_SIZE];

    (void)state;
    memcpy(id, session_id(session), sizeof(id));
    release(execution);
    store_commit(world.store, &ticket, on_committed);
    world_settle(&world);
    world_kill(&world, false);
    fake_program_write(fake_programs_last(), "meanwhile");
    fake_program_exit(fake_programs_last(), 9);
    world_start(&world);
    session = world_find(&world, id);
    assert_non_null(session);
    world_settle(&world);
    assert_int_equal(fake_programs_count(), 0);
    assert_int_equal(fake_store_count(world.store, STORE_EXECUTIONS), 1);
}

static void an_end_that_is_told_before_the_pipes_came_loses_no_byte(void **state)
{
    const struct agent_exit end = { .code = 0 };
    struct execution *execution = start_simple();

    (void)state;
    fake_program_write(fake_programs_last(), "before ");
    world_settle(&world);
    release(execution);
    fake_backend_refuse(world.backend, FAKE_ADOPT, 1, ERR_BACKEND);
    restart();
    execution = first_execution();
    execution_ref(execution);
    fake_program_write(fake_programs_last(), "after");
    executions_on_exited(session, execution_facts(execution)->number, &end);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    fake_program_exit(fake_programs_last(), 0);
    world_advance(&world, 5000);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_EXITED);
    assert_int_equal(spool_length(execution_stdout(execution)), 12);
    release(execution);
}

static void a_timeout_goes_on_in_the_next_daemon(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 10000 });

    (void)state;
    world_advance(&world, 6000);
    release(execution);
    restart();
    execution = first_execution();
    execution_ref(execution);
    world_advance(&world, 3000);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    world_advance(&world, 2000);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_TIMEOUT);
    release(execution);
}

static void a_stop_is_recorded_before_the_program_gets_a_signal(void **state)
{
    struct execution *execution = start_simple();
    struct fake_program *program = fake_programs_last();

    (void)state;
    fake_store_hold(world.store, true);
    execution_cancel(execution);
    world_settle(&world);
    assert_int_equal(program->signal_count, 0);
    fake_store_hold(world.store, false);
    world_settle(&world);
    assert_int_equal(program->signals[0], SIGTERM);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CANCELLED);
    release(execution);
}

static void a_store_that_does_not_answer_keeps_no_program_from_being_stopped(void **state)
{
    struct execution *execution = start_simple();
    struct fake_program *program = fake_programs_last();

    (void)state;
    program->ignores_term = true;
    fake_store_hold(world.store, true);
    execution_cancel(execution);
    world_advance(&world, 1001);
    assert_int_equal(program->signals[0], SIGTERM);
    assert_int_equal(program->signal_count, 1);
    world_advance(&world, 5001);
    assert_int_equal(program->signals[1], SIGKILL);
    fake_store_hold(world.store, false);
    world_settle(&world);
    assert_int_equal(program->signal_count, 2);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CANCELLED);
    release(execution);
}

static void a_stop_goes_on_in_the_next_daemon(void **state)
{
    struct execution *execution = start_simple();
    struct fake_program *program = fake_programs_last();

    (void)state;
    program->ignores_term = true;
    execution_cancel(execution);
    release(execution);
    assert_int_equal(program->signal_count, 1);
    restart();
    execution = first_execution();
    execution_ref(execution);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    assert_null(execution_facts(execution)->reason);
    world_advance(&world, 5001);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CANCELLED);
    assert_int_equal(execution_facts(execution)->signal, SIGKILL);
    assert_null(execution_facts(execution)->reason);
    release(execution);
}

/* The program takes TERM for a reason to end well, and no daemon is there to see it. */
static void a_timeout_stays_one_when_the_daemon_is_killed_behind_the_signal(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 1000 });
    char id[ID_SIZE];

    (void)state;
    memcpy(id, session_id(session), sizeof(id));
    fake_programs_last()->ignores_term = true;
    world_advance(&world, 1001);
    assert_int_equal(fake_programs_last()->signals[0], SIGTERM);
    release(execution);
    world_kill(&world, false);
    fake_program_exit(fake_programs_last(), 0);
    fake_programs_hang(true);
    world_start(&world);
    session = world_find(&world, id);
    execution = first_execution();
    execution_ref(execution);
    fake_programs_hang(false);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_TIMEOUT);
    assert_int_equal(execution_facts(execution)->exit_code, 124);
    assert_string_equal(execution_facts(execution)->reason, "timeout");
    release(execution);
}

static void a_timeout_whose_sandbox_goes_meanwhile_says_both(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = true_argv, .timeout_ms = 1000 });

    (void)state;
    fake_programs_last()->ignores_term = true;
    world_advance(&world, 1001);
    fake_backend_kill(world.backend, sandbox_id(session_sandbox(session)));
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_TIMEOUT);
    assert_true(str_starts_with(execution_facts(execution)->reason, "timeout: crashed"));
    release(execution);
}

/* Its sandbox has not told yet that it still knows it. */
static void cancelling_what_an_earlier_daemon_started_ends_its_program(void **state)
{
    struct execution *execution = start_simple();
    struct fake_program *program = fake_programs_last();

    (void)state;
    release(execution);
    fake_programs_hang(true);
    restart();
    execution = first_execution();
    execution_ref(execution);
    execution_cancel(execution);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    fake_programs_hang(false);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_CANCELLED);
    assert_int_equal(program->signals[0], SIGTERM);
    release(execution);
}

static void a_running_record_that_init_does_not_know_is_lost(void **state)
{
    struct execution *execution = start_simple();

    (void)state;
    release(execution);
    fake_programs_last()->is_forgotten = true;
    restart();
    execution = first_execution();
    assert_true(!execution || execution_facts(execution)->state == EXECUTION_CRASHED);
}

static void a_child_that_an_ended_program_left_is_still_heard_by_the_next_daemon(void **state)
{
    struct execution *execution = start_simple();
    struct fake_program *program = fake_programs_last();
    struct execution_record record = { 0 };
    struct spool *output;

    (void)state;
    memcpy(record.id, execution_facts(execution)->id, sizeof(record.id));
    fake_program_write(program, "before ");
    fake_program_leave_child(program);
    fake_program_exit(program, 0);
    world_settle(&world);
    release(execution);
    restart();
    fake_program_write(program, "after");
    world_settle(&world);
    assert_int_equal(program->signal_count, 0);
    fd_close(steal_fd(&program->output));
    fd_close(steal_fd(&program->errors));
    world_settle(&world);
    assert_int_equal(fake_programs_count(), 0);
    assert_int_equal(world.core->executions_by_id.count, 0);
    output = execution_open_output(world.core, &record, false);
    assert_int_equal(spool_length(output), 12);
    spool_free(output);
}

/* A directory where the file is to be. */
static void spoil_spool(const struct execution *execution)
{
    char name[ID_SIZE + 16];

    snprintf(name, sizeof(name), "output/%s.out", execution_facts(execution)->id);
    (void)mkdirat(world.state_dir, "output", 0700);
    assert_int_equal(mkdirat(world.state_dir, name, 0700), 0);
}

static void mend_spool(const char *id)
{
    char name[ID_SIZE + 16];

    snprintf(name, sizeof(name), "output/%s.out", id);
    assert_int_equal(unlinkat(world.state_dir, name, AT_REMOVEDIR), 0);
}

static void on_failure_told(struct store_ticket *ticket)
{
    assert_int_equal(ticket->err->code, ERR_NO_SPACE);
}

/* The next transaction fails, with what `execution` has just changed; somebody was told. */
static void lose_record(struct execution *execution)
{
    struct store_ticket ticket;

    fake_store_fail_next(world.store, ERR_NO_SPACE);
    execution_save(execution);
    store_commit(world.store, &ticket, on_failure_told);
    world_settle(&world);
}

static struct execution *end_of(const char *id)
{
    struct execution *execution;

    execution = execution_find(world.core, session_id(session), id);
    assert_non_null(execution);
    execution_ref(execution);
    fake_program_write(fake_programs_last(), "late");
    fake_program_exit(fake_programs_last(), 0);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_EXITED);
    return execution;
}

static struct execution *end_after_restart(const char *id)
{
    restart();
    return end_of(id);
}

static void the_next_daemon_knows_that_output_was_lost(void **state)
{
    struct execution *execution = start_simple();
    char id[ID_SIZE];

    (void)state;
    memcpy(id, execution_facts(execution)->id, sizeof(id));
    spoil_spool(execution);
    fake_program_write(fake_programs_last(), "early");
    release(execution);
    mend_spool(id);
    execution = end_after_restart(id);
    assert_non_null(execution_facts(execution)->error);
    assert_non_null(strstr(execution_facts(execution)->error, "output is incomplete"));
    release(execution);
}

static void on_stopped(struct core *core, const struct error *err, void *user)
{
    (void)core;
    *(int *)user = err ? -1 : 1;
}

static void a_daemon_that_stops_in_good_order_says_how_much_was_lost(void **state)
{
    struct execution *execution = start_simple();
    char id[ID_SIZE];
    uint64_t from, to;
    int stopped = 0;

    (void)state;
    memcpy(id, execution_facts(execution)->id, sizeof(id));
    spoil_spool(execution);
    fake_program_write(fake_programs_last(), "early");
    release(execution);
    mend_spool(id);
    core_stop(world.core, false, 30000, on_stopped, &stopped);
    world_advance(&world, 500);
    assert_int_equal(stopped, 1);
    execution = end_after_restart(id);
    assert_int_equal(spool_length(execution_stdout(execution)), strlen("earlylate"));
    assert_true(spool_has_hole(execution_stdout(execution), &from, &to));
    release(execution);
}

/* Nothing is dropped before somebody can know of it. */
static void bytes_stay_in_the_pipe_until_their_loss_is_recorded(void **state)
{
    struct execution *execution = start_simple();
    char id[ID_SIZE];

    (void)state;
    memcpy(id, execution_facts(execution)->id, sizeof(id));
    spoil_spool(execution);
    fake_store_hold(world.store, true);
    fake_program_write(fake_programs_last(), "early");
    world_settle(&world);
    assert_int_equal(spool_length(execution_stdout(execution)), 0);
    release(execution);
    mend_spool(id);
    world_kill(&world, false); /* what was not committed is lost */
    fake_store_hold(world.store, false);
    world_start(&world);
    session = session_next(world.core, NULL);
    execution = end_of(id);
    assert_null(execution_facts(execution)->error);
    assert_int_equal(spool_length(execution_stdout(execution)), strlen("earlylate"));
    assert_false(spool_has_hole(execution_stdout(execution), &(uint64_t){ 0 }, &(uint64_t){ 0 }));
    release(execution);
}

static void a_loss_that_could_not_be_recorded_is_recorded_later(void **state)
{
    struct execution *execution = start_simple();
    char id[ID_SIZE];

    (void)state;
    memcpy(id, execution_facts(execution)->id, sizeof(id));
    spoil_spool(execution);
    fake_store_hold(world.store, true);
    fake_program_write(fake_programs_last(), "early");
    world_settle(&world);
    fake_store_hold(world.store, false);
    lose_record(execution);
    release(execution);
    world_advance(&world, 2000);
    mend_spool(id);
    execution = end_after_restart(id);
    assert_non_null(execution_facts(execution)->error);
    release(execution);
}

static void nothing_is_started_while_records_cannot_be_written(void **state)
{
    struct execution *execution = start_simple();
    struct error err = { 0 };

    (void)state;
    lose_record(execution);
    assert_null(execution_start(
        session, &(struct execution_request){ .argv = true_argv, .timeout_ms = -1 }, &err));
    assert_string_equal(err.name, "store_failing");
    assert_true(err.retryable);
    world_advance(&world, 2000); /* by then something has been written */
    release(start_simple());
    release(execution);
}

static void a_record_that_the_store_lost_is_written_again(void **state)
{
    struct execution *execution;
    char id[ID_SIZE];

    (void)state;
    release(start_simple());
    fake_store_hold(world.store, true);
    execution = start_simple();
    memcpy(id, execution_facts(execution)->id, sizeof(id));
    fake_store_hold(world.store, false);
    lose_record(execution);
    release(execution);
    world_advance(&world, 2000);
    execution = end_after_restart(id);
    assert_null(execution_facts(execution)->error);
    release(execution);
}

static void stopping_writes_what_the_store_has_lost(void **state)
{
    struct execution *execution;
    char id[ID_SIZE];
    int stopped = 0;

    (void)state;
    release(start_simple());
    fake_store_hold(world.store, true);
    execution = start_simple();
    memcpy(id, execution_facts(execution)->id, sizeof(id));
    fake_store_hold(world.store, false);
    lose_record(execution);
    release(execution);
    core_stop(world.core, false, 30000, on_stopped, &stopped);
    fake_store_fail_next(world.store, ERR_NO_SPACE); /* once more: it is tried again */
    world_advance(&world, 500);
    assert_int_equal(stopped, 1);
    execution = end_after_restart(id);
    assert_null(execution_facts(execution)->error);
    release(execution);
}

static void a_process_that_nobody_recorded_is_killed_and_forgotten(void **state)
{
    struct execution *execution = start_simple();
    char id[ID_SIZE];

    (void)state;
    memcpy(id, session_id(session), sizeof(id));
    release(execution);
    fake_programs_last()->number++;
    restart();
    world_settle(&world);
    assert_int_equal(fake_programs_last()->signals[0], SIGKILL);
    assert_int_equal(fake_programs_count(), 0);
}

/* A leak is what the sanitizer would report. */
static void a_stray_whose_death_is_not_answered_goes_with_its_session_or_the_daemon(void **state)
{
    struct execution *execution = start_simple();

    (void)state;
    release(execution);
    fake_programs_last()->number++;
    fake_programs_be_slow(true);
    restart();
    world_settle(&world);
    assert_int_equal(fake_programs_last()->signals[0], SIGKILL);
    assert_int_equal(fake_programs_count(), 1);
    assert_false(list_is_empty(&world.core->strays));
    session_end(session, END_DELETED, NULL, NULL, NULL);
    world_settle(&world);
    assert_true(list_is_empty(&world.core->strays));
    fake_programs_be_slow(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(a_program_runs_and_its_end_is_known),
        TEST(a_session_is_in_use_while_a_program_runs),
        TEST(a_node_without_its_lease_starts_no_program),
        TEST(the_next_daemon_knows_that_output_was_lost),
        TEST(a_daemon_that_stops_in_good_order_says_how_much_was_lost),
        TEST(bytes_stay_in_the_pipe_until_their_loss_is_recorded),
        TEST(a_loss_that_could_not_be_recorded_is_recorded_later),
        TEST(nothing_is_started_while_records_cannot_be_written),
        TEST(a_record_that_the_store_lost_is_written_again),
        TEST(stopping_writes_what_the_store_has_lost),
        TEST(a_process_is_forgotten_only_when_its_end_is_durable),
        TEST(a_background_child_that_holds_the_pipes_does_not_keep_it_from_ending),
        TEST(the_environment_is_built_from_nothing),
        TEST(shell_text_falls_back_to_sh_where_there_is_no_bash),
        TEST(code_goes_as_a_script_beside_its_interpreter),
        TEST(a_script_goes_where_init_says),
        TEST(a_sandbox_without_a_place_for_scripts_says_so),
        TEST(wrong_requests_are_refused_by_name_and_start_nothing),
        TEST(too_many_arguments_are_refused_before_anything_is_sent),
        TEST(more_executions_than_allowed_are_refused),
        TEST(a_repeated_key_gives_the_same_execution),
        TEST(an_end_is_told_when_it_is_recorded),
        TEST(an_end_that_cannot_be_recorded_is_told_all_the_same),
        TEST(a_keyed_program_starts_only_when_its_key_is_recorded),
        TEST(what_is_not_found_ends_with_127_and_its_name),
        TEST(what_is_not_executable_ends_with_126),
        TEST(a_full_process_table_is_the_callers_answer),
        TEST(a_generation_that_has_moved_on_is_the_callers_answer),
        TEST(a_timeout_sends_term_and_keeps_the_output),
        TEST(a_program_that_ignores_term_is_killed_after_the_grace),
        TEST(the_rest_of_the_tree_is_killed_before_a_timeout_is_told),
        TEST(a_timeout_of_zero_never_comes),
        TEST(a_start_without_a_timeout_ends_when_init_stays_silent),
        TEST(a_program_that_was_started_may_run_longer_than_a_silent_init),
        TEST(a_supervisor_that_was_killed_is_named),
        TEST(an_end_without_code_and_signal_is_no_exit),
        TEST(the_oldest_output_of_a_session_makes_room_for_the_newest),
        TEST(output_of_a_session_that_is_gone_goes_before_that_of_others),
        TEST(in_all_the_owner_who_has_most_gives_first),
        TEST(programs_that_run_share_the_quota_of_their_session),
        TEST(output_of_an_earlier_daemon_counts_in_all_and_goes_first),
        TEST(a_timeout_is_no_success_of_a_program_that_ends_well_when_asked_to),
        TEST(a_timeout_counts_while_the_execution_waits_for_a_sandbox),
        TEST(a_start_that_init_does_not_answer_ends_as_timeout_and_costs_the_sandbox),
        TEST(a_kill_that_init_does_not_answer_ends_as_timeout_and_costs_the_sandbox),
        TEST(a_start_that_is_answered_late_ends_as_timeout_and_costs_nothing_else),
        TEST(cancelling_what_an_earlier_daemon_started_ends_its_program),
        TEST(cancelling_a_running_program_ends_it_as_cancelled),
        TEST(cancelling_while_it_waits_for_a_sandbox_starts_nothing),
        TEST(a_signal_reaches_the_program),
        TEST(input_of_the_request_is_followed_by_its_end),
        TEST(input_is_taken_as_far_as_the_pipe_goes),
        TEST(input_in_the_pipe_of_the_program_has_arrived),
        TEST(input_waits_until_the_terminal_has_its_new_size),
        TEST(input_waits_until_signals_before_it_have_arrived),
        TEST(a_program_without_input_says_so),
        TEST(a_crashed_sandbox_ends_its_executions_as_crashed_and_keeps_their_output),
        TEST(what_a_dying_init_has_not_read_runs_in_the_next_sandbox),
        TEST(what_a_dying_init_may_have_read_is_not_run_again),
        TEST(the_oom_killer_is_told_from_other_deaths),
        TEST(deleting_the_session_keeps_the_result_of_what_runs),
        TEST(a_new_daemon_goes_on_with_a_running_program_without_losing_a_byte),
        TEST(bytes_written_while_no_daemon_ran_are_found),
        TEST(an_end_that_is_told_before_the_pipes_came_loses_no_byte),
        TEST(a_timeout_goes_on_in_the_next_daemon),
        TEST(a_stop_is_recorded_before_the_program_gets_a_signal),
        TEST(a_store_that_does_not_answer_keeps_no_program_from_being_stopped),
        TEST(a_stop_goes_on_in_the_next_daemon),
        TEST(a_timeout_stays_one_when_the_daemon_is_killed_behind_the_signal),
        TEST(a_timeout_whose_sandbox_goes_meanwhile_says_both),
        TEST(a_running_record_that_init_does_not_know_is_lost),
        TEST(a_child_that_an_ended_program_left_is_still_heard_by_the_next_daemon),
        TEST(a_process_that_nobody_recorded_is_killed_and_forgotten),
        TEST(a_stray_whose_death_is_not_answered_goes_with_its_session_or_the_daemon),
    };

    log_setup(LOG_ERROR, LOG_TEXT, STDERR_FILENO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
