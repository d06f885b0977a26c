#include "core/run/execution_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

static const char END_OF_TRANSMISSION = 4; /* the character that ends the input of a terminal */

static void close_pipe(struct execution_run *run)
{
    io_watch_stop(&run->input.ready);
    fd_close(steal_fd(&run->input.fd));
}

/* Init holds the pipe too, so that it survives us: it has to let go as well. */
static void end_input(struct execution_run *run)
{
    struct execution *execution = run->execution;

    run->input.state = INPUT_CLOSED;
    if (run->input.fd < 0)
        return;
    if (execution->terminal)
        (void)!write(run->input.fd, &END_OF_TRANSMISSION, 1);
    else if (run_holds_sandbox(run) && run->hold.agent)
        agent_close_stdin(run->hold.agent, execution->facts.number);
    close_pipe(run);
}

static void on_stdin_ready(struct io_watch *watch, unsigned events UNUSED);

static void wait_for_room(struct execution_run *run)
{
    io_watch_start(&run->input.ready, run->execution->core->loop, run->input.fd, IO_WRITE,
                   on_stdin_ready);
}

/* Input that came with the request is written first. */
static void pump(struct execution_run *run)
{
    while (run->input.written < run->input.data.length) {
        ssize_t count = write(run->input.fd, run->input.data.data + run->input.written,
                              run->input.data.length - run->input.written);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN) {
            wait_for_room(run);
            return;
        }
        if (count < 0) /* the program does not read it any more */
            break;
        run->input.written += (size_t)count;
    }
    io_watch_stop(&run->input.ready);
    buffer_fini(&run->input.data);
    run->input.written = 0;
    if (run->input.state == INPUT_ENDING)
        end_input(run);
}

static void on_stdin_ready(struct io_watch *watch, unsigned events UNUSED)
{
    struct execution_run *run = container_of(watch, struct execution_run, input.ready);

    pump(run);
    execution_changed(run->execution);
}

void execution_stdin_attach(struct execution_run *run, const struct agent_pipes *pipes)
{
    int flags;

    if (pipes->terminal) {
        fd_close(pipes->input);
        run->input.fd = fcntl(pipes->output, F_DUPFD_CLOEXEC, 0);
    } else {
        run->input.fd = pipes->input;
    }
    if (run->input.fd < 0)
        return;
    flags = fcntl(run->input.fd, F_GETFL);
    if (flags >= 0)
        (void)fcntl(run->input.fd, F_SETFL, flags | O_NONBLOCK);
    if (run->input.data.length || run->input.state == INPUT_ENDING)
        pump(run);
}

void execution_stdin_detach(struct execution_run *run)
{
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
        return error_hint(err, "start it with \"stdin\": true");
    }
    if (run->input.state != INPUT_OPEN)
        return error_named(err, ERR_CONFLICT, "stdin_closed", "stdin of execution %s is closed",
                           execution->facts.id);
    return 0;
}

ssize_t execution_write_stdin(struct execution *execution, const void *data, size_t length,
                              struct error *err)
{
    struct execution_run *run = execution->run;
    size_t done = 0;

    if (check_input(execution, err) < 0)
        return -1;
    if (run->input.fd < 0) /* not started yet */
        return 0;
    while (done < length) {
        ssize_t count = write(run->input.fd, (const char *)data + done, length - done);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && errno == EAGAIN) {
            wait_for_room(run);
            break;
        }
        if (count < 0) {
            end_input(run);
            return error_named(err, ERR_CONFLICT, "stdin_closed",
                               "execution %s has closed its stdin", execution->facts.id);
        }
        done += (size_t)count;
    }
    return (ssize_t)done;
}

int execution_close_stdin(struct execution *execution, struct error *err)
{
    struct execution_run *run = execution->run;

    if (check_input(execution, err) < 0)
        return -1;
    if (run->input.fd < 0)
        run->input.state = INPUT_ENDING;
    else
        end_input(run);
    return 0;
}
