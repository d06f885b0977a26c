/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's end against a bridge, which plays init for a sandbox that is elsewhere: every
 * descriptor is a pipe, output may be under way, and input is inside only when that is told. */

#include "stage.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct told_exit {
    struct protocol_exited message;
    struct protocol_totals totals;
};

struct told_process {
    struct protocol_process message;
    struct protocol_bases bases;
    struct protocol_totals totals;
};

static struct told_exit exit_with(uint64_t output, uint64_t errors)
{
    return (struct told_exit){
        .message.header = protocol_header(PROTOCOL_EXITED, sizeof(struct told_exit), 41, 0),
        .totals = { .output = output, .errors = errors },
    };
}

static struct told_process process_with(uint64_t base, uint64_t total)
{
    return (struct told_process){
        .message.header = protocol_header(PROTOCOL_PROCESS, sizeof(struct told_process), 41, 0),
        .message.pid = 3,
        .message.has_exited = 1,
        .bases = { .input = 3, .output = base, .errors = 0 },
        .totals = { .output = total, .errors = 0 },
    };
}

/* Says that it remembers a process with two pipes. */
static void list_process(struct stage *stage, const struct told_process *process)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    say(stage, process, sizeof(*process), (int[]){ ends[0], ends[0] }, 2);
    close(ends[0]);
    close(ends[1]);
}

/* --- a terminal ------------------------------------------------------------------------------- */

static void a_terminal_of_a_bridge_is_a_pair_of_pipes(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_started started;
    const struct agent_pipes *pipes = &asked.request.result.started.pipes;
    int in[2], out[2];
    char byte = 0;

    greet_as(stage, FEATURE_STREAMS);
    started = started_for(begin_start(stage, &asked, true), START_TTY);
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    say(stage, &started, sizeof(started), (int[]){ in[1], out[0] }, 2);
    assert_int_equal(asked.request.err.code, ERR_NONE);
    assert_false(pipes->terminal);
    assert_int_equal(pipes->errors, -1);
    assert_int_equal(write(pipes->input, "i", 1), 1);
    assert_int_equal(read(in[0], &byte, 1), 1);
    assert_int_equal(write(out[1], "o", 1), 1);
    assert_int_equal(read(pipes->output, &byte, 1), 1);
    assert_int_equal(byte, 'o');
    close(pipes->input);
    close(pipes->output);
    for (int i = 0; i < 2; i++) {
        close(in[i]);
        close(out[i]);
    }
}

static void a_terminal_of_init_has_two_descriptors_too(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_started started;
    const struct agent_pipes *pipes = &asked.request.result.started.pipes;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

    greet(stage);
    started = started_for(begin_start(stage, &asked, true), START_TTY);
    say(stage, &started, sizeof(started), &master, 1);
    assert_int_equal(asked.request.err.code, ERR_NONE);
    assert_true(pipes->terminal);
    assert_true(pipes->input >= 0 && pipes->output >= 0);
    assert_int_not_equal(pipes->input, pipes->output);
    assert_true(fcntl(pipes->input, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(pipes->input, F_GETFD) & FD_CLOEXEC);
    close(pipes->input);
    close(pipes->output);
    close(master);
}

/* Whatever is wrong with the two descriptors, both are closed and the connection ends. */
static void refuse_terminal(struct stage *stage, int input, int output)
{
    struct asked asked;
    struct protocol_started started;
    size_t before;

    greet_as(stage, FEATURE_STREAMS);
    before = count_descriptors();
    started = started_for(begin_start(stage, &asked, true), START_TTY);
    say(stage, &started, sizeof(started), (int[]){ input, output }, 2);
    assert_int_equal(stage->lost, 1);
    assert_int_equal(asked.request.err.code, ERR_BACKEND);
    assert_int_equal(count_descriptors(), before - 1);
}

static void a_regular_file_is_no_terminal(void **state)
{
    int file = memfd_create("file", MFD_CLOEXEC);
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    refuse_terminal(*state, ends[1], file);
    close(ends[0]);
    close(ends[1]);
    close(file);
}

static void pipes_of_a_terminal_the_wrong_way_round_are_refused(void **state)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    refuse_terminal(*state, ends[0], ends[1]);
    close(ends[0]);
    close(ends[1]);
}

static void a_bridge_passes_no_terminal_itself(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_started started;
    int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

    greet_as(stage, FEATURE_STREAMS);
    started = started_for(begin_start(stage, &asked, true), START_TTY);
    say(stage, &started, sizeof(started), &master, 1);
    assert_int_equal(stage->lost, 1);
    close(master);
}

static void init_passes_no_pair_of_pipes_for_a_terminal(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct protocol_started started;
    int ends[2];

    greet(stage);
    assert_int_equal(pipe(ends), 0);
    started = started_for(begin_start(stage, &asked, true), START_TTY);
    say(stage, &started, sizeof(started), (int[]){ ends[1], ends[0] }, 2);
    assert_int_equal(stage->lost, 1);
    close(ends[0]);
    close(ends[1]);
}

/* --- totals, bases, input that was taken ------------------------------------------------------ */

static void an_end_tells_how_much_was_written(void **state)
{
    struct stage *stage = *state;
    struct told_exit told = exit_with(1000, 7);

    greet_as(stage, FEATURE_STREAMS);
    say(stage, &told, sizeof(told), NULL, 0);
    assert_int_equal(stage->exited, 1);
    assert_true(stage->end.totals.are_known);
    assert_int_equal(stage->end.totals.output, 1000);
    assert_int_equal(stage->end.totals.errors, 7);
}

static void an_end_without_totals_says_that_they_are_not_known(void **state)
{
    struct stage *stage = *state;
    struct protocol_exited exited = {
        .header = protocol_header(PROTOCOL_EXITED, sizeof(exited), 41, 0),
    };

    greet_as(stage, FEATURE_STREAMS);
    say(stage, &exited, sizeof(exited), NULL, 0);
    assert_int_equal(stage->exited, 1);
    assert_false(stage->end.totals.are_known);
}

static void a_process_that_is_listed_tells_where_its_streams_continue(void **state)
{
    struct stage *stage = *state;
    struct told_process process = process_with(400, 500);

    greet_as(stage, FEATURE_STREAMS);
    list_process(stage, &process);
    assert_int_equal(stage->listed, 1);
    assert_true(stage->bases.are_known);
    assert_int_equal(stage->bases.input, 3);
    assert_int_equal(stage->bases.output, 400);
    assert_int_equal(stage->end.totals.output, 500);
}

/* Of children in the background: their bytes follow those of the process. */
static void a_stream_may_continue_behind_the_total(void **state)
{
    struct stage *stage = *state;
    struct told_process process = process_with(900, 500);

    greet_as(stage, FEATURE_STREAMS);
    list_process(stage, &process);
    assert_int_equal(stage->listed, 1);
    assert_int_equal(stage->lost, 0);
}

static void input_that_was_taken_is_told(void **state)
{
    struct stage *stage = *state;
    struct protocol_taken taken = {
        .header = protocol_header(PROTOCOL_TAKEN, sizeof(taken), 41, 0),
        .total = 12,
    };

    greet_as(stage, FEATURE_STREAMS);
    say(stage, &taken, sizeof(taken), NULL, 0);
    assert_int_equal(stage->taken, 12);
    assert_int_equal(stage->lost, 0);
}

static void output_without_a_pipe_for_it_is_refused(void **state)
{
    struct stage *stage = *state;
    struct asked asked;
    struct {
        struct protocol_ran message;
        struct protocol_totals totals;
    } ran = { .totals = { .output = 1 } };

    greet_as(stage, FEATURE_STREAMS);
    ran.message.header =
        protocol_header(PROTOCOL_RAN, sizeof(ran), 41, begin_start(stage, &asked, false));
    say(stage, &ran, sizeof(ran), NULL, 0);
    assert_int_equal(stage->exited, 0);
    assert_int_equal(stage->lost, 1);
    assert_int_equal(asked.request.err.code, ERR_BACKEND);
}

static void init_itself_tells_no_totals(void **state)
{
    struct stage *stage = *state;
    struct told_exit told = exit_with(0, 0);

    greet(stage);
    say(stage, &told, sizeof(told), NULL, 0);
    assert_int_equal(stage->exited, 0);
    assert_int_equal(stage->lost, 1);
}

static void init_itself_tells_no_bases(void **state)
{
    struct stage *stage = *state;
    struct told_process process = process_with(1, 1);

    greet(stage);
    list_process(stage, &process);
    assert_int_equal(stage->listed, 0);
    assert_int_equal(stage->lost, 1);
}

static void init_itself_takes_input_at_once(void **state)
{
    struct stage *stage = *state;
    struct protocol_taken taken = {
        .header = protocol_header(PROTOCOL_TAKEN, sizeof(taken), 41, 0),
        .total = 12,
    };

    greet(stage);
    say(stage, &taken, sizeof(taken), NULL, 0);
    assert_int_equal(stage->taken, 0);
    assert_int_equal(stage->lost, 1);
}

static void totals_that_no_file_can_have_are_refused(void **state)
{
    struct stage *stage = *state;
    struct told_exit told = exit_with(0, UINT64_MAX);

    greet_as(stage, FEATURE_STREAMS);
    say(stage, &told, sizeof(told), NULL, 0);
    assert_int_equal(stage->exited, 0);
    assert_int_equal(stage->lost, 1);
}

static void bases_that_no_file_can_have_are_refused(void **state)
{
    struct stage *stage = *state;
    struct told_process process = process_with((uint64_t)INT64_MAX + 1, 0);

    greet_as(stage, FEATURE_STREAMS);
    list_process(stage, &process);
    assert_int_equal(stage->listed, 0);
    assert_int_equal(stage->lost, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_STAGE(a_terminal_of_a_bridge_is_a_pair_of_pipes),
        ON_STAGE(a_terminal_of_init_has_two_descriptors_too),
        ON_STAGE(a_regular_file_is_no_terminal),
        ON_STAGE(pipes_of_a_terminal_the_wrong_way_round_are_refused),
        ON_STAGE(a_bridge_passes_no_terminal_itself),
        ON_STAGE(init_passes_no_pair_of_pipes_for_a_terminal),
        ON_STAGE(an_end_tells_how_much_was_written),
        ON_STAGE(an_end_without_totals_says_that_they_are_not_known),
        ON_STAGE(a_process_that_is_listed_tells_where_its_streams_continue),
        ON_STAGE(a_stream_may_continue_behind_the_total),
        ON_STAGE(input_that_was_taken_is_told),
        ON_STAGE(output_without_a_pipe_for_it_is_refused),
        ON_STAGE(init_itself_tells_no_totals),
        ON_STAGE(init_itself_tells_no_bases),
        ON_STAGE(init_itself_takes_input_at_once),
        ON_STAGE(totals_that_no_file_can_have_are_refused),
        ON_STAGE(bases_that_no_file_can_have_are_refused),
    };

    return cmocka_run_group_tests_name("agent/streams", tests, NULL, NULL);
}
