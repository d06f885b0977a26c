/* SPDX-License-Identifier: Apache-2.0 */
#include "harness/fake_programs.h"

#include "base/alloc.h"
#include "base/scoped.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct agent {
    struct loop *loop;                   /* borrowed */
    const struct agent_handler *handler; /* borrowed */
    void *user;                          /* borrowed */
    int fd;                              /* owned */
    struct agent_request *open;          /* borrowed; oldest first */
    struct deferred answer;
    bool lost;
};

static struct fake_program *programs;
static struct agent *connected; /* tests of executions have one sandbox at a time */
static enum protocol_stage next_stage;
static int next_errno;
static unsigned served_port, port_requests;
static int ports_errno;
static int accepted[16];
static size_t accepted_count;
static bool hangs, is_slow, is_list_due, has_streams;
static bool reads = true;
static struct protocol_hello hello = { .scratch = "/tmp/.sandglass" };

/* --- the connection -------------------------------------------------------------------------- */

static void on_answer(struct deferred *deferred)
{
    struct agent *agent = container_of(deferred, struct agent, answer);
    struct agent_request *request;

    while ((request = agent->open)) {
        agent->open = request->next;
        request->is_open = false;
        request->done(request);
    }
}

static void submit(struct agent *agent, struct agent_request *request, agent_done_fn *done)
{
    struct agent_request **link = &agent->open;

    *request = (struct agent_request){ .done = done, .agent = agent, .is_open = true };
    while (*link)
        link = &(*link)->next;
    *link = request;
    if (!hangs && !is_slow)
        loop_defer(agent->loop, &agent->answer, on_answer);
}

struct agent *agent_new(struct loop *loop, int fd, const struct agent_handler *handler, void *user)
{
    struct agent *agent = xnew(struct agent);

    *agent = (struct agent){ .loop = loop, .handler = handler, .user = user, .fd = fd };
    connected = agent;
    return agent;
}

void agent_free(struct agent *agent)
{
    if (!agent)
        return;
    for (struct agent_request *request = agent->open; request; request = request->next)
        request->is_open = false;
    if (connected == agent)
        connected = NULL;
    loop_undefer(agent->loop, &agent->answer);
    fd_close(agent->fd);
    free(agent);
}

void agent_retire(struct agent *agent)
{
    agent_free(agent);
}

int agent_release(struct agent *agent)
{
    int fd = steal_fd(&agent->fd);

    agent_free(agent);
    return fd;
}

struct loop *agent_loop(const struct agent *agent)
{
    return agent->loop;
}

void *agent_user(const struct agent *agent)
{
    return agent->user;
}

bool agent_is_lost(const struct agent *agent)
{
    return agent->lost;
}

bool agent_has_hung_up(const struct agent *agent)
{
    return agent->lost;
}

int64_t agent_heard_us(const struct agent *agent UNUSED)
{
    return 0;
}

bool agent_is_untaken(const struct agent_request *request UNUSED)
{
    return !reads;
}

void fake_programs_stop_reading(bool stop)
{
    reads = !stop;
}

bool agent_has_streams(const struct agent *agent UNUSED)
{
    return false;
}

void agent_assume_scratch(struct agent *agent UNUSED, char *path)
{
    free(path);
}

const struct protocol_hello *agent_hello(const struct agent *agent UNUSED)
{
    return &hello;
}

void fake_programs_set_scratch(const char *path)
{
    snprintf(hello.scratch, sizeof(hello.scratch), "%s", path);
}

static void tell_programs(struct agent *agent);

void fake_programs_hang(bool hang)
{
    hangs = hang;
    if (hang || !is_list_due || !connected)
        return;
    is_list_due = false;
    tell_programs(connected);
    loop_defer(connected->loop, &connected->answer, on_answer);
}

void fake_programs_be_slow(bool slow)
{
    is_slow = slow;
    if (!slow && connected)
        loop_defer(connected->loop, &connected->answer, on_answer);
}

void agent_cancel_write(struct agent_request *request, const char *path)
{
    (void)path;
    agent_cancel(request);
}

void agent_cancel(struct agent_request *request)
{
    struct agent_request **link;

    if (!request->is_open)
        return;
    for (link = &request->agent->open; *link != request; link = &(*link)->next)
        continue;
    *link = request->next;
    request->is_open = false;
}

/* --- starting -------------------------------------------------------------------------------- */

static char **copy_texts(const char *const *texts)
{
    size_t count = 0;
    char **copy;

    while (texts[count])
        count++;
    copy = xcalloc(count + 1, sizeof(*copy));
    for (size_t i = 0; i < count; i++)
        copy[i] = xstrdup(texts[i]);
    return copy;
}

static char *copy_script(const struct agent_start *start)
{
    char *text = xcalloc(1, start->script_length + 1);

    memcpy(text, start->script, start->script_length);
    return text;
}

static void make_pipe(int *out_inner, int *out_outer, bool inner_writes)
{
    int ends[2];

    assert(pipe2(ends, O_CLOEXEC) == 0);
    *out_inner = ends[inner_writes ? 1 : 0];
    *out_outer = ends[inner_writes ? 0 : 1];
}

static struct fake_program *make_program(const struct agent_start *start)
{
    struct fake_program *program = xnew(struct fake_program);

    *program = (struct fake_program){
        .number = start->number,
        .argv = copy_texts(start->argv),
        .env = copy_texts(start->env),
        .cwd = xstrdup(start->cwd),
        .user = xstrdup(start->user),
        .script_path = start->script_path ? xstrdup(start->script_path) : NULL,
        .script = start->script_path ? copy_script(start) : NULL,
        .input = -1,
        .errors = -1,
        .outer = { -1, -1, -1 },
        .terminal = start->terminal,
        .columns = start->columns,
        .rows = start->rows,
        .next = programs,
    };
    make_pipe(&program->output, &program->outer[1], true);
    if (!start->terminal)
        make_pipe(&program->errors, &program->outer[2], true);
    if (start->wants_stdin || start->terminal)
        make_pipe(&program->input, &program->outer[0], false);
    programs = program;
    return program;
}

static int duplicate(int fd)
{
    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

static struct agent_pipes pipes_of(const struct fake_program *program)
{
    return (struct agent_pipes){
        .input = duplicate(program->outer[0]),
        .output = duplicate(program->outer[1]),
        .errors = duplicate(program->outer[2]),
        .terminal = program->terminal && !has_streams,
        .input_is_buffered = has_streams,
    };
}

void agent_start(struct agent *agent, const struct agent_start *start,
                 struct agent_request *request, agent_done_fn *done)
{
    submit(agent, request, done);
    if (hangs)
        return;
    if (next_stage) {
        request->stage = next_stage;
        request->sys_errno = next_errno;
        error_set(&request->err, ERR_BACKEND, "refused by the test");
        next_stage = STAGE_NONE;
        return;
    }
    request->result.started.pipes = pipes_of(make_program(start));
    request->result.started.pid = FAKE_PID;
}

/* --- processes ------------------------------------------------------------------------------- */

static struct fake_program *find(uint64_t number)
{
    struct fake_program *program = programs;

    while (program && program->number != number)
        program = program->next;
    return program;
}

static void close_ends(struct fake_program *program)
{
    fd_close(steal_fd(&program->input));
    fd_close(steal_fd(&program->output));
    fd_close(steal_fd(&program->errors));
}

static void finish(struct fake_program *program, struct agent_exit end)
{
    if (program->has_exited)
        return;
    end.survivors = program->survivors;
    if (has_streams)
        end.totals = (struct agent_totals){ true, program->total, 0 };
    program->has_exited = true;
    program->end = end;
    if (!program->survivors)
        close_ends(program);
    if (connected)
        connected->handler->on_exited(connected, program->number, &end);
}

void agent_signal(struct agent *agent, uint64_t number, int signal_number,
                  enum protocol_scope scope, struct agent_request *request, agent_done_fn *done)
{
    struct fake_program *program = find(number);

    if (request)
        submit(agent, request, done);
    if (!program || hangs)
        return;
    if (program->signal_count < 16)
        program->signals[program->signal_count++] = signal_number;
    if (signal_number == SIGKILL && scope == SCOPE_TREE) {
        program->survivors = 0;
        close_ends(program);
    }
    if (signal_number == SIGKILL || (signal_number == SIGTERM && !program->ignores_term))
        finish(program, (struct agent_exit){ .code = -1, .signal = signal_number });
}

void agent_resize(struct agent *agent, uint64_t number, unsigned columns, unsigned rows,
                  struct agent_request *request, agent_done_fn *done)
{
    struct fake_program *program = find(number);

    if (request)
        submit(agent, request, done);
    if (!program || hangs)
        return;
    program->columns = columns;
    program->rows = rows;
    program->resizes++;
}

void agent_close_stdin(struct agent *agent, uint64_t number, struct agent_request *request,
                       agent_done_fn *done)
{
    struct fake_program *program = find(number);

    if (request)
        submit(agent, request, done);
    if (program)
        fd_close(steal_fd(&program->outer[0]));
}

void agent_forget(struct agent *agent UNUSED, uint64_t number)
{
    struct fake_program *program = find(number);

    if (!program)
        return;
    program->is_forgotten = true;
    for (int i = 0; i < 3; i++)
        fd_close(steal_fd(&program->outer[i]));
}

static void tell_programs(struct agent *agent)
{
    for (struct fake_program *program = programs; program; program = program->next) {
        struct agent_pipes pipes;

        if (program->is_forgotten)
            continue;
        pipes = pipes_of(program);
        if (has_streams)
            pipes.bases = (struct agent_bases){ true, program->taken, program->base, 0 };
        agent->handler->on_process(agent, program->number, FAKE_PID, &pipes,
                                   program->has_exited ? &program->end : NULL);
    }
}

void agent_list(struct agent *agent, struct agent_request *request, agent_done_fn *done)
{
    if (hangs)
        is_list_due = true;
    else
        tell_programs(agent);
    submit(agent, request, done);
}

void agent_file(struct agent *agent, const struct agent_file *file UNUSED,
                struct agent_request *request, agent_done_fn *done)
{
    submit(agent, request, done);
    request->result.file.fd = -1;
}

void fake_programs_serve(unsigned port)
{
    served_port = port;
}

void fake_programs_refuse_ports(int number)
{
    ports_errno = number;
}

unsigned fake_programs_port_requests(void)
{
    return port_requests;
}

static void write_note(int fd, enum protocol_note_kind kind, unsigned number)
{
    struct protocol_note note = { .kind = (uint16_t)kind, .number = number };
    _Alignas(8) char bytes[64];
    long length = protocol_note_encode(bytes, sizeof(bytes), &note, "", 0, "", 0);

    assert(write(fd, bytes, (size_t)length) == length);
}

void agent_ports(struct agent *agent, struct agent_request *request, agent_done_fn *done)
{
    int ends[2];

    port_requests++;
    submit(agent, request, done);
    request->result.file.fd = -1;
    if (ports_errno < 0)
        error_named(&request->err, ERR_CONFLICT, "sandbox_too_old", "it is too old");
    if (ports_errno > 0) {
        request->sys_errno = ports_errno;
        error_set(&request->err, ERR_BACKEND, "no");
    }
    if (ports_errno || hangs)
        return;
    assert(pipe2(ends, O_CLOEXEC) == 0);
    if (served_port)
        write_note(ends[1], NOTE_PORT, served_port);
    write_note(ends[1], NOTE_LAST, 0);
    close(ends[1]);
    request->result.file.fd = ends[0];
}

void agent_connect(struct agent *agent, const char *user UNUSED, unsigned port,
                   const char *path UNUSED, struct agent_request *request, agent_done_fn *done)
{
    int ends[2];

    submit(agent, request, done);
    request->result.file.fd = -1;
    if (port != served_port) {
        request->sys_errno = ECONNREFUSED;
        error_set(&request->err, ERR_BACKEND, "connection refused");
        return;
    }
    assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    assert(accepted_count < ARRAY_LENGTH(accepted));
    accepted[accepted_count++] = ends[1];
    request->result.file.fd = ends[0];
}

int fake_programs_accept(void)
{
    int fd = accepted_count ? accepted[0] : -1;

    if (accepted_count)
        memmove(accepted, accepted + 1, --accepted_count * sizeof(*accepted));
    return fd;
}

void agent_attend(struct agent *agent, struct agent_request *request, agent_done_fn *done)
{
    submit(agent, request, done);
}

/* --- for the test ---------------------------------------------------------------------------- */

struct fake_program *fake_programs_last(void)
{
    return programs;
}

size_t fake_programs_count(void)
{
    size_t count = 0;

    for (const struct fake_program *program = programs; program; program = program->next)
        count += !program->is_forgotten;
    return count;
}

void fake_programs_fail_next(enum protocol_stage stage, int number)
{
    next_stage = stage;
    next_errno = number;
}

void fake_program_write(struct fake_program *program, const char *text)
{
    assert(write(program->output, text, strlen(text)) == (ssize_t)strlen(text));
}

void fake_programs_use_streams(void)
{
    has_streams = true;
}

void fake_program_take(struct fake_program *program, uint64_t total)
{
    program->taken = total;
    connected->handler->on_taken(connected, program->number, total);
}

/* The ends of one stream for another pipe. */
static void replace_pipe(int *inner, int *outer, bool inner_writes)
{
    if (*inner < 0)
        return;
    fd_close(*inner);
    fd_close(*outer);
    make_pipe(inner, outer, inner_writes);
}

void fake_programs_reconnect(void)
{
    struct error err;

    for (struct fake_program *program = programs; program; program = program->next) {
        replace_pipe(&program->input, &program->outer[0], false);
        replace_pipe(&program->output, &program->outer[1], true);
        replace_pipe(&program->errors, &program->outer[2], true);
    }
    error_set(&err, ERR_BACKEND, "cut by the test");
    connected->lost = true;
    connected->handler->on_lost(connected, &err);
}

void fake_program_exit(struct fake_program *program, int code)
{
    finish(program, (struct agent_exit){ .code = code, .cpu_us = 1000, .max_rss_bytes = 4096 });
}

void fake_program_die(struct fake_program *program, int signal_number)
{
    finish(program, (struct agent_exit){ .code = -1, .signal = signal_number });
}

void fake_program_leave_child(struct fake_program *program)
{
    program->survivors = 1;
}

void fake_programs_clear(void)
{
    while (accepted_count)
        fd_close(accepted[--accepted_count]);
    served_port = port_requests = 0;
    ports_errno = 0;
    while (programs) {
        struct fake_program *program = programs;

        programs = program->next;
        close_ends(program);
        for (int i = 0; i < 3; i++)
            fd_close(program->outer[i]);
        for (char **text = program->argv; *text; text++)
            free(*text);
        for (char **text = program->env; *text; text++)
            free(*text);
        free(program->argv);
        free(program->env);
        free(program->cwd);
        free(program->user);
        free(program->script_path);
        free(program->script);
        free(program);
    }
    next_stage = STAGE_NONE;
    has_streams = false;
    fake_programs_set_scratch("/tmp/.sandglass");
}
