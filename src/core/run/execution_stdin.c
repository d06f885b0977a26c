/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Input of a program.
 *
 * Where the program's pipe is ours, a byte that was written is inside. Where it is a bridge's, the
 * byte is under way until on_taken() has passed it: it is kept here, and written again to the next
 * pipe when the connection was made again before it arrived. So a byte that was accepted arrives
 * once, however often the connection breaks; it can be lost only with the daemon itself, and then
 * the caller was not told that it had arrived.
 */

#include "base/alloc.h"
#include "base/log.h"
#include "core/core.h"
#include "core/run/execution_private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

static const char END_OF_TRANSMISSION = 4; /* the character that ends the input of a terminal */

static void on_stdin_ready(struct io_watch *watch, unsigned events);

static void close_pipe(struct execution_run *run)
{
    io_watch_stop(&run->input.ready);
    fd_close(steal_fd(&run->input.fd));
}

static void wait_for_room(struct execution_run *run)
{
    io_watch_start(&run->input.ready, run->execution->core->loop, run->input.fd, IO_WRITE,
                   on_stdin_ready);
}

/* The end of input on its way into a sandbox elsewhere. The caller is answered when it is
 * there: a daemon that is killed before that has promised nothing. */
struct input_end {
    struct agent_request request;
    struct execution_run *run; /* borrowed */
};

static void drop_end(struct run_input *input)
{
    if (!input->end)
        return;
    agent_cancel(&input->end->request);
    free(steal_ptr(&input->end));
}

/* When the connection was lost, the next one is told again. */
static void on_end_told(struct agent_request *request)
{
    struct input_end *end = container_of(request, struct input_end, request);
    struct execution_run *run = end->run;

    if (!request->err.code || request->sys_errno)
        run->input.state = INPUT_CLOSED;
    free(steal_ptr(&run->input.end));
    execution_changed(run->execution);
}

/* Init holds the pipe too, so that it survives us: it has to let go as well. */
static void tell_end(struct execution_run *run)
{
    struct run_input *input = &run->input;
    uint64_t number = run->execution->facts.number;

    input->state = INPUT_CLOSED;
    if (run->execution->terminal || !run_holds_sandbox(run) || !run->hold.agent)
        return;
    if (!input->is_buffered) {
        agent_close_stdin(run->hold.agent, number, NULL, NULL);
        return;
    }
    drop_end(input);
    input->state = INPUT_CLOSING;
    input->end = xnew(struct input_end);
    input->end->run = run;
    agent_close_stdin(run->hold.agent, number, &input->end->request, on_end_told);
}

/* No more input is taken, and none is expected to arrive. */
static void close_input(struct execution_run *run)
{
    tell_end(run);
    buffer_fini(&run->input.data);
    buffer_fini(&run->input.kept);
    run->input.written = run->input.piped = 0;
    close_pipe(run);
}

static bool is_closed(const struct run_input *input)
{
    return input->state == INPUT_CLOSING || input->state == INPUT_CLOSED;
}

/* The pipe has no reader: either the program does not read any more, or the bridge has gone with
 * its pipes, and others follow. */
static bool is_cut_off(struct execution_run *run)
{
    if (!run->input.is_buffered || !run_holds_sandbox(run) || !run->hold.agent ||
        !agent_has_hung_up(run->hold.agent))
        return false;
    close_pipe(run);
    return true;
}

/* Bytes that the pipe has taken, 0 when it is full; -1 when the program does not read any more. */
static ssize_t write_some(struct execution_run *run, const void *data, size_t length)
{
    ssize_t count;

    do
        count = write(run->input.fd, data, length);
    while (count < 0 && errno == EINTR);
    if (count >= 0)
        return count;
    if (errno == EAGAIN) {
        wait_for_room(run);
        return 0;
    }
    return is_cut_off(run) ? 0 : -1;
}

/* Bytes that are kept go into the pipe as far as it takes them. */
static int push_kept(struct execution_run *run)
{
    struct run_input *input = &run->input;

    while (input->fd >= 0 && input->piped < input->kept.length) {
        ssize_t count =
            write_some(run, input->kept.data + input->piped, input->kept.length - input->piped);

        if (count <= 0)
            return (int)count;
        input->piped += (size_t)count;
    }
    return 0;
}

/* How many bytes were accepted, 0 when there is no room now; -1 as above. */
static ssize_t put(struct execution_run *run, const void *data, size_t length)
{
    struct run_input *input = &run->input;
    size_t done = 0;

    if (input->is_buffered) {
        done = MIN(length, (size_t)INPUT_WINDOW - input->kept.length);
        (void)buffer_append(&input->kept, data, done);
        input->accepted += done;
        return push_kept(run) < 0 ? -1 : (ssize_t)done;
    }
    while (done < length) {
        ssize_t count = write_some(run, (const char *)data + done, length - done);

        if (count < 0)
            return -1;
        if (count == 0)
            break;
        done += (size_t)count;
        input->accepted += (uint64_t)count;
    }
    return (ssize_t)done;
}

/* End of file was asked for: it comes behind the last byte. */
static void finish_input(struct execution_run *run)
{
    struct run_input *input = &run->input;

    if (input->state != INPUT_ENDING || input->data.length || input->fd < 0)
        return;
    if (run->execution->terminal && !input->has_end) {
        ssize_t count = put(run, &END_OF_TRANSMISSION, 1);

        if (count == 0)
            return;
        input->has_end = true;
        if (count < 0)
            buffer_clear(&input->kept);
    }
    if (!input->kept.length)
        close_input(run);
}

/* Nothing waits for room in the pipe. Bytes that are under way are waited for, and it is noticed
 * when the bridge lets go of its end: an end for writing is never ready to be read. */
static void watch_less(struct execution_run *run)
{
    struct run_input *input = &run->input;

    if (input->fd >= 0 && input->kept.length)
        io_watch_start(&input->ready, run->execution->core->loop, input->fd, IO_READ,
                       on_stdin_ready);
    else
        io_watch_stop(&input->ready);
}

/* Input that came with the request is written first. */
static void pump(struct execution_run *run)
{
    struct run_input *input = &run->input;
    ssize_t count = push_kept(run);

    while (count >= 0 && input->written < input->data.length) {
        count = put(run, input->data.data + input->written, input->data.length - input->written);
        if (count == 0)
            break;
        input->written += (size_t)MAX(count, (ssize_t)0);
    }
    if (count < 0) {
        close_input(run);
        return;
    }
    if (input->written == input->data.length) {
        buffer_fini(&input->data);
        input->written = 0;
    }
    if (input->is_buffered ? input->piped == input->kept.length : !input->data.length)
        watch_less(run);
    finish_input(run);
}

static bool has_reader(const struct execution_run *run)
{
    struct pollfd pipe = { .fd = run->input.fd, .events = POLLOUT };

    return poll(&pipe, 1, 0) <= 0 || !(pipe.revents & POLLERR);
}

static void on_stdin_ready(struct io_watch *watch, unsigned events UNUSED)
{
    struct execution_run *run = container_of(watch, struct execution_run, input.ready);

    if (!run->input.is_buffered || has_reader(run))
        pump(run);
    else if (!is_cut_off(run))
        close_input(run);
    execution_changed(run->execution);
}

/* So many bytes are inside. The sandbox may tell anything: not less than before, and not more than
 * was sent. */
static void note_taken(struct run_input *input, uint64_t total)
{
    uint64_t more = MIN(total, input->accepted) - MIN(total, input->taken);

    more = MIN(more, (uint64_t)input->kept.length);
    buffer_consume(&input->kept, (size_t)more);
    input->piped -= MIN(input->piped, (size_t)more);
    input->taken += more;
}

void executions_on_taken(struct session *session, uint64_t number, uint64_t total)
{
    struct execution *execution = executions_find_number(session, number);

    if (!execution || !execution->run || !execution->run->input.is_buffered)
        return;
    note_taken(&execution->run->input, total);
    if (execution->run->input.fd >= 0)
        pump(execution->run);
    execution_changed(execution);
}

void execution_stdin_attach(struct execution_run *run, const struct agent_pipes *pipes)
{
    struct run_input *input = &run->input;
    int flags;

    input->fd = pipes->input;
    input->is_buffered = pipes->input_is_buffered;
    if (pipes->bases.are_known) { /* an earlier daemon has sent it */
        input->accepted = input->taken = pipes->bases.input;
        input->is_uncounted = false;
    }
    if (input->fd < 0)
        return;
    flags = fcntl(input->fd, F_GETFL);
    if (flags >= 0 && !(flags & O_NONBLOCK))
        (void)fcntl(input->fd, F_SETFL, flags | O_NONBLOCK);
    if (input->data.length || input->state == INPUT_ENDING)
        pump(run);
    execution_changed(run->execution); /* input that came before waits for the pipe */
}

void execution_stdin_reattach(struct execution_run *run, const struct agent_pipes *pipes)
{
    struct run_input *input = &run->input;

    if (pipes->input < 0 && input->state == INPUT_CLOSING) /* init has let go of it already */
        input->state = INPUT_CLOSED;
    else if (pipes->input >= 0 && is_closed(input))
        tell_end(run); /* the connection broke before that was heard */
    if (!pipes->bases.are_known || is_closed(input) || input->state == INPUT_NONE) {
        fd_close(pipes->input);
        execution_changed(run->execution);
        return;
    }
    if (pipes->input < 0) {
        close_input(run);
        return;
    }
    close_pipe(run);
    if (pipes->bases.input < input->taken)
        log_warn("input of a program is missing in its sandbox",
                 kv("execution", run->execution->facts.id),
                 kv("bytes", input->taken - pipes->bases.input));
    note_taken(input, pipes->bases.input);
    input->piped = 0;
    input->fd = pipes->input;
    pump(run);
    execution_changed(run->execution);
}

void execution_stdin_detach(struct execution_run *run)
{
    drop_end(&run->input);
    if (run->input.state != INPUT_NONE)
        run->input.state = INPUT_CLOSED;
    close_pipe(run);
}

static int check_input(const struct execution *execution, struct error *err)
{
    const struct execution_run *run = execution->run;

    if (!run || run_is_ending(run))
        return error_named(err, ERR_CONFLICT, "execution_not_running", "execution %s is %s",
                           execution->facts.id, execution_state_name(execution->facts.state));
    if (run->input.state == INPUT_NONE) {
        error_named(err, ERR_CONFLICT, "no_stdin", "execution %s was started without stdin",
                    execution->facts.id);
        return error_hint(err, "start the execution with \"stdin\": true");
    }
    if (run->input.state != INPUT_OPEN)
        return error_named(err, ERR_CONFLICT, "stdin_closed", "stdin of execution %s is closed",
                           execution->facts.id);
    return 0;
}

/* Not started yet, being resized, or about to get a signal. */
static bool takes_nothing_now(const struct execution_run *run)
{
    return run->input.fd < 0 || run->terminal.request.is_open || run->signals.request.is_open ||
           run->signals.count;
}

ssize_t execution_write_stdin(struct execution *execution, const void *data, size_t length,
                              struct error *err)
{
    struct execution_run *run = execution->run;
    ssize_t count;

    if (check_input(execution, err) < 0)
        return -1;
    if (takes_nothing_now(run))
        return 0;
    count = put(run, data, length);
    if (count >= 0 && run->input.is_buffered && run->input.piped == run->input.kept.length)
        watch_less(run);
    if (count >= 0)
        return count;
    close_input(run);
    return error_named(err, ERR_CONFLICT, "stdin_closed", "execution %s has closed its stdin",
                       execution->facts.id);
}

int execution_close_stdin(struct execution *execution, struct error *err)
{
    if (check_input(execution, err) < 0)
        return -1;
    execution->run->input.state = INPUT_ENDING;
    finish_input(execution->run);
    return 0;
}

bool execution_stdin_count(const struct execution *execution, uint64_t *out_taken,
                           uint64_t *out_pending)
{
    const struct run_input *input = execution->run ? &execution->run->input : NULL;

    if (!input || input->state == INPUT_NONE || input->is_uncounted ||
        execution_state_is_final(execution->facts.state))
        return false;
    *out_pending = input->is_buffered ? input->accepted - input->taken : 0;
    *out_taken = input->accepted - *out_pending;
    return true;
}

uint64_t execution_stdin_end(const struct execution *execution)
{
    return execution->run && execution->run->input.is_buffered ? execution->run->input.accepted : 0;
}

int execution_stdin_is_taken(const struct execution *execution, uint64_t offset, struct error *err)
{
    const struct execution_run *run = execution->run;

    if (!offset || (run && run->input.taken >= offset))
        return 1;
    if (!run || run_is_ending(run))
        return error_named(err, ERR_CONFLICT, "execution_not_running",
                           "execution %s is %s, and did not take all of its input",
                           execution->facts.id, execution_state_name(execution->facts.state));
    if (is_closed(&run->input))
        return error_named(err, ERR_CONFLICT, "stdin_closed", "execution %s has closed its stdin",
                           execution->facts.id);
    return 0;
}

bool execution_stdin_has_ended(const struct execution *execution)
{
    const struct execution_run *run = execution->run;

    if (!run || run_is_ending(run))
        return true;
    if (run->input.state == INPUT_ENDING) /* without a pipe it is not known whose pipe it will be */
        return run->input.fd >= 0 && !run->input.is_buffered;
    return run->input.state != INPUT_CLOSING;
}
