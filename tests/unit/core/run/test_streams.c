/* SPDX-License-Identifier: Apache-2.0 */
/* Executions in a sandbox that is elsewhere: input and output are under way for a while, and the
 * pipes are others after each connection. */

#include "core/run/execution.h"

#include "base/alloc.h"
#include "core/run/execution_private.h"
#include "harness/fake_backend.h"
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
#include <unistd.h>

#include <cmocka.h>

static struct world world;
static char state_path[64];
static struct session *session;

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    snprintf(state_path, sizeof(state_path), "/tmp/test-streams-XXXXXX");
    assert_non_null(mkdtemp(state_path));
    world_init(&world);
    world.state_dir = open(state_path, O_DIRECTORY | O_CLOEXEC);
    world.config.exec.stall_timeout_ms = 10000;
    world.config.exec.max_concurrent = 3;
    world.config.exec.output_capture_bytes = 64 * 1024;
    world.config.exec.output_spool_bytes = 1024 * 1024;
    fake_programs_use_streams();
    world_start(&world);
    session = world_open_simple(&world, "ann", NULL);
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

static const char *const cat_argv[] = { "/bin/cat", NULL };

static struct execution *start(const struct execution_request *request)
{
    struct error err = { 0 };
    struct execution *execution = execution_start(session, request, &err);

    assert_non_null(execution);
    execution_ref(execution);
    world_settle(&world);
    return execution;
}

/* One that reads and writes, and whose pipes stay open beyond its end. */
static struct execution *start_cat(void)
{
    struct execution *execution = start(
        &(struct execution_request){ .argv = cat_argv, .wants_stdin = true, .timeout_ms = -1 });

    fake_program_leave_child(fake_programs_last());
    return execution;
}

static void release(struct execution *execution)
{
    execution_unref(execution);
    world_settle(&world);
}

static void end_and_release(struct execution *execution)
{
    struct fake_program *program = fake_programs_last();

    fake_program_exit(program, 0);
    fd_close(steal_fd(&program->output));
    fd_close(steal_fd(&program->errors));
    world_settle(&world);
    release(execution);
}

static void assert_pipe_has(int fd, const char *expected)
{
    char text[64] = "";
    int flags = fcntl(fd, F_GETFL);
    ssize_t count;

    assert_return_code(fcntl(fd, F_SETFL, flags | O_NONBLOCK), errno);
    count = read(fd, text, sizeof(text) - 1);
    assert_int_equal(count, *expected ? (ssize_t)strlen(expected) : -1);
    assert_string_equal(text, expected);
}

static void assert_counts(const struct execution *execution, uint64_t taken, uint64_t pending)
{
    uint64_t told_taken, told_pending;

    assert_true(execution_stdin_count(execution, &told_taken, &told_pending));
    assert_int_equal(told_taken, taken);
    assert_int_equal(told_pending, pending);
}

static void type(struct execution *execution, const char *text)
{
    struct error err = { 0 };

    assert_int_equal(execution_write_stdin(execution, text, strlen(text), &err), strlen(text));
}

/* The connection breaks, and is made again. */
static void reconnect(void)
{
    fake_programs_reconnect();
    world_advance(&world, 5000);
    assert_int_equal(sandbox_state(session_sandbox(session)), SANDBOX_READY);
}

static void on_committed(struct store_ticket *ticket)
{
    assert_int_equal(ticket->err->code, ERR_NONE);
}

/* --- input ------------------------------------------------------------------------------------ */

static void input_has_arrived_when_it_was_taken(void **state)
{
    struct execution *execution = start_cat();
    struct error err = { 0 };

    (void)state;
    type(execution, "hello");
    assert_int_equal(execution_stdin_end(execution), 5);
    assert_int_equal(execution_stdin_is_taken(execution, 5, &err), 0);
    assert_counts(execution, 0, 5);
    fake_program_take(fake_programs_last(), 3);
    assert_int_equal(execution_stdin_is_taken(execution, 3, &err), 1);
    assert_int_equal(execution_stdin_is_taken(execution, 5, &err), 0);
    fake_program_take(fake_programs_last(), 5);
    assert_int_equal(execution_stdin_is_taken(execution, 5, &err), 1);
    assert_counts(execution, 5, 0);
    end_and_release(execution);
}

static void the_end_of_input_comes_behind_its_last_byte(void **state)
{
    struct execution *execution = start_cat();
    struct fake_program *program = fake_programs_last();
    struct error err = { 0 };

    (void)state;
    type(execution, "hello");
    assert_int_equal(execution_close_stdin(execution, &err), 0);
    world_settle(&world);
    assert_pipe_has(program->input, "hello");
    assert_pipe_has(program->input, ""); /* not the end */
    fake_program_take(program, 5);
    assert_int_equal(read(program->input, &(char){ 0 }, 1), 0);
    assert_int_equal(execution_write_stdin(execution, "x", 1, &err), -1);
    assert_string_equal(err.name, "stdin_closed");
    end_and_release(execution);
}

static void input_that_is_not_inside_goes_into_the_next_pipe(void **state)
{
    struct execution *execution = start_cat();
    struct fake_program *program = fake_programs_last();

    (void)state;
    type(execution, "abcdef");
    fake_program_take(program, 2);
    program->taken = 3; /* one more arrived, and that was not told any more */
    reconnect();
    assert_pipe_has(program->input, "def");
    type(execution, "g");
    assert_pipe_has(program->input, "g");
    assert_counts(execution, 3, 4);
    fake_program_take(program, 7);
    assert_counts(execution, 7, 0);
    end_and_release(execution);
}

/* Whoever asked for it would otherwise not ask again when the daemon was killed before that. */
static void input_has_ended_when_the_sandbox_has_answered(void **state)
{
    struct execution *execution = start_cat();
    struct error err = { 0 };

    (void)state;
    assert_int_equal(execution_close_stdin(execution, &err), 0);
    assert_false(execution_stdin_has_ended(execution));
    world_settle(&world);
    assert_true(execution_stdin_has_ended(execution));
    end_and_release(execution);
}

static void an_end_of_input_that_was_not_heard_is_told_again(void **state)
{
    struct execution *execution = start_cat();
    struct fake_program *program = fake_programs_last();
    struct error err = { 0 };

    (void)state;
    type(execution, "abc");
    assert_int_equal(execution_close_stdin(execution, &err), 0);
    reconnect();
    assert_pipe_has(program->input, "abc");
    fake_program_take(program, 3);
    assert_int_equal(read(program->input, &(char){ 0 }, 1), 0);
    end_and_release(execution);
}

static void a_new_daemon_knows_how_much_input_has_arrived(void **state)
{
    struct execution *execution = start_cat();
    char id[ID_SIZE], session_text[ID_SIZE];
    struct store_ticket ticket;

    (void)state;
    memcpy(id, execution_facts(execution)->id, sizeof(id));
    memcpy(session_text, session_id(session), sizeof(session_text));
    type(execution, "abcdef");
    fake_programs_last()->taken = 4;
    release(execution);
    store_commit(world.store, &ticket, on_committed);
    world_settle(&world);
    world_restart(&world);
    session = world_find(&world, session_text);
    execution = execution_find(world.core, session_text, id);
    assert_non_null(execution);
    execution_ref(execution);
    assert_counts(execution, 4, 0);
    type(execution, "ef");
    assert_counts(execution, 4, 2);
    end_and_release(execution);
}

static void a_sandbox_cannot_take_more_than_was_sent(void **state)
{
    struct execution *execution = start_cat();

    (void)state;
    type(execution, "abc");
    fake_program_take(fake_programs_last(), 1000);
    assert_counts(execution, 3, 0);
    fake_program_take(fake_programs_last(), 1);
    assert_counts(execution, 3, 0);
    end_and_release(execution);
}

/* Reads its input as it comes, and tells that; the number of bytes up to the end. */
static uint64_t swallow(struct fake_program *program)
{
    uint64_t total = 0;
    char bytes[64 * 1024];
    ssize_t count;

    while ((count = read(program->input, bytes, sizeof(bytes))) > 0) {
        for (ssize_t i = 0; i < count; i++)
            assert_int_equal(bytes[i], (char)('a' + (total + (uint64_t)i) % 23));
        total += (uint64_t)count;
        fake_program_take(program, total);
        world_settle(&world);
    }
    return total;
}

static void input_of_a_request_is_longer_than_what_may_be_under_way(void **state)
{
    enum { LENGTH = 1024 * 1024 + 3 };
    scoped(free) char *text = xmalloc(LENGTH);
    struct execution *execution;

    (void)state;
    for (size_t i = 0; i < LENGTH; i++)
        text[i] = (char)('a' + i % 23);
    execution = start(&(struct execution_request){
        .argv = cat_argv, .stdin_data = text, .stdin_length = LENGTH, .timeout_ms = -1 });
    assert_int_equal(swallow(fake_programs_last()), LENGTH);
    end_and_release(execution);
}

static void a_program_that_does_not_read_any_more_is_noticed(void **state)
{
    struct execution *execution = start_cat();
    struct fake_program *program = fake_programs_last();
    struct error err = { 0 };

    (void)state;
    type(execution, "abc");
    fd_close(steal_fd(&program->input));
    world_settle(&world);
    assert_int_equal(execution_stdin_is_taken(execution, 3, &err), -1);
    assert_string_equal(err.name, "stdin_closed");
    end_and_release(execution);
}

static void the_input_of_a_terminal_ends_with_a_character(void **state)
{
    struct execution *execution =
        start(&(struct execution_request){ .argv = cat_argv, .terminal = true, .timeout_ms = -1 });
    struct fake_program *program = fake_programs_last();
    struct error err = { 0 };

    (void)state;
    type(execution, "abc");
    assert_int_equal(execution_close_stdin(execution, &err), 0);
    assert_pipe_has(program->input, "abc\004");
    assert_counts(execution, 0, 4);
    end_and_release(execution);
}

/* --- output ----------------------------------------------------------------------------------- */

static void an_execution_ends_when_its_output_has_come(void **state)
{
    struct execution *execution = start_cat();
    struct fake_program *program = fake_programs_last();

    (void)state;
    fake_program_write(program, "first ");
    program->total = 10;
    fake_program_exit(program, 0);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    fake_program_write(program, "last");
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_EXITED);
    assert_null(execution_facts(execution)->error);
    end_and_release(execution);
}

static void output_goes_on_with_the_next_pipe(void **state)
{
    struct execution *execution = start_cat();
    struct fake_program *program = fake_programs_last();
    char text[32] = "";

    (void)state;
    fake_program_write(program, "0123456789");
    world_settle(&world);
    program->base = 6; /* the last bytes were not acknowledged in time */
    reconnect();
    fake_program_write(program, "6789abcdef");
    world_settle(&world);
    assert_int_equal(spool_length(execution_stdout(execution)), 16);
    assert_int_equal(spool_read(execution_stdout(execution), 0, text, sizeof(text)), 16);
    assert_string_equal(text, "0123456789abcdef");
    program->total = 16;
    end_and_release(execution);
}

static void output_that_is_lost_is_told(void **state)
{
    struct execution *execution = start_cat();
    struct fake_program *program = fake_programs_last();

    (void)state;
    fake_program_write(program, "0123456789");
    world_settle(&world);
    program->base = 15;
    reconnect();
    assert_non_null(
        strstr(execution_facts(execution)->error, "5 bytes from offset 10 on are lost"));
    program->total = 15;
    end_and_release(execution);
}

static void output_that_was_under_way_is_lost_with_the_sandbox(void **state)
{
    struct execution *execution = start_cat();
    struct fake_program *program = fake_programs_last();

    (void)state;
    fake_program_write(program, "0123456789");
    program->total = 30;
    fake_program_exit(program, 0);
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING);
    fd_close(steal_fd(&program->output));
    fd_close(steal_fd(&program->errors));
    fd_close(steal_fd(&program->outer[1]));
    fd_close(steal_fd(&program->outer[2]));
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_RUNNING); /* another may come */
    sandbox_destroy(session_sandbox(session), END_CRASHED, "gone");
    world_settle(&world);
    assert_int_equal(execution_facts(execution)->state, EXECUTION_EXITED);
    assert_non_null(
        strstr(execution_facts(execution)->error, "20 bytes from offset 10 on are lost"));
    release(execution);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(input_has_arrived_when_it_was_taken),
        TEST(the_end_of_input_comes_behind_its_last_byte),
        TEST(input_that_is_not_inside_goes_into_the_next_pipe),
        TEST(input_has_ended_when_the_sandbox_has_answered),
        TEST(an_end_of_input_that_was_not_heard_is_told_again),
        TEST(a_new_daemon_knows_how_much_input_has_arrived),
        TEST(a_sandbox_cannot_take_more_than_was_sent),
        TEST(input_of_a_request_is_longer_than_what_may_be_under_way),
        TEST(a_program_that_does_not_read_any_more_is_noticed),
        TEST(the_input_of_a_terminal_ends_with_a_character),
        TEST(an_execution_ends_when_its_output_has_come),
        TEST(output_goes_on_with_the_next_pipe),
        TEST(output_that_is_lost_is_told),
        TEST(output_that_was_under_way_is_lost_with_the_sandbox),
    };

    return cmocka_run_group_tests_name("core/run/streams", tests, NULL, NULL);
}
