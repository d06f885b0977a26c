/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a process: a writer of service/cursor.h. */

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "e2b/envd/process.h"
#include "service/cursor.h"
#include "service/recorded.h"
#include "wire/base64.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { PIECE_BYTES = 32 * 1024 };

struct process_stream {
    struct rpc *rpc;
    struct cursor cursor;
    bool has_terminal;
    bool
        is_recorded; /* before that nothing is sent: a process that a client knows survives the daemon */
    bool has_started; /* the first event was sent */
};

static void release(struct rpc *rpc)
{
    struct process_stream *stream = rpc->state;

    cursor_close(&stream->cursor, false);
    free(stream);
}

/* --- events ---------------------------------------------------------------------------------- */

static void send_start(struct process_stream *stream)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256);

    stream->has_started = true;
    (void)buffer_appendf(&text, "{\"event\":{\"start\":{\"pid\":%d}}}",
                         execution_facts(stream->cursor.execution)->pid);
    rpc_send(stream->rpc, &text);
}

static void send_data(struct process_stream *stream, unsigned number, const uint8_t *bytes,
                      size_t length)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4 * PIECE_BYTES);
    scoped(free) char *base64 = base64_encode(bytes, length);

    (void)buffer_appendf(&text, "{\"event\":{\"data\":{\"%s\":\"",
                         stream->has_terminal ? "pty"
                         : number             ? "stderr"
                                              : "stdout");
    (void)buffer_append_text(&text, base64);
    (void)buffer_append_text(&text, "\"}}}");
    rpc_send(stream->rpc, &text);
}

/* As the runtime of E2B's agent calls them. */
static const char *signal_name(int number)
{
    static const char *const names[] = {
        [SIGHUP] = "hangup",
        [SIGINT] = "interrupt",
        [SIGQUIT] = "quit",
        [SIGILL] = "illegal instruction",
        [SIGTRAP] = "trace/breakpoint trap",
        [SIGABRT] = "aborted",
        [SIGBUS] = "bus error",
        [SIGFPE] = "floating point exception",
        [SIGKILL] = "killed",
        [SIGUSR1] = "user defined signal 1",
        [SIGSEGV] = "segmentation fault",
        [SIGUSR2] = "user defined signal 2",
        [SIGPIPE] = "broken pipe",
        [SIGALRM] = "alarm clock",
        [SIGTERM] = "terminated",
    };

    return number > 0 && (size_t)number < ARRAY_LENGTH(names) ? names[number] : NULL;
}

static void describe_end(const struct execution_facts *facts, char *text, size_t size)
{
    const char *name = signal_name(facts->signal);

    if (!facts->signal)
        snprintf(text, size, "exit status %d", facts->exit_code);
    else if (name)
        snprintf(text, size, "signal: %s", name);
    else
        snprintf(text, size, "signal: signal %d", facts->signal);
}

static void send_end(struct process_stream *stream)
{
    const struct execution_facts *facts = execution_facts(stream->cursor.execution);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1024);
    struct json_writer json = JSON_WRITER(&text);
    char status[64];

    describe_end(facts, status, sizeof(status));
    json_begin_object(&json, NULL);
    json_begin_object(&json, "event");
    json_begin_object(&json, "end");
    json_put_int(&json, "exitCode", facts->signal ? -1 : facts->exit_code);
    json_put_bool(&json, "exited", !facts->signal);
    json_put_text(&json, "status", status);
    if (facts->signal || facts->exit_code)
        json_put_text(&json, "error", status);
    json_end_object(&json);
    json_end_object(&json);
    json_end_object(&json);
    rpc_send(stream->rpc, &text);
    rpc_end(stream->rpc);
}

/* --- output ---------------------------------------------------------------------------------- */

/* One piece of a stream, at most so many bytes; false when there is nothing to send now. Bytes that
 * were dropped are passed over: E2B has no event for them. */
static bool send_piece(struct process_stream *stream, unsigned number, uint64_t limit)
{
    static uint8_t bytes[PIECE_BYTES];
    struct spool *spool = stream->cursor.output.streams[number];
    uint64_t *offset = &stream->cursor.offsets[number];
    uint64_t start, end;
    ssize_t count;

    if (!spool || !spool_extent(spool, *offset, &start, &end))
        return false;
    limit = MIN(limit, end - start);
    count = spool_read(spool, start, bytes, (size_t)MIN(limit, sizeof(bytes)));
    if (count < 0) {
        *offset = start + limit;
        return true;
    }
    if (count == 0)
        return false;
    send_data(stream, number, bytes, (size_t)count);
    *offset = start + (uint64_t)count;
    return true;
}

static bool send_next(struct process_stream *stream)
{
    unsigned number;
    uint64_t bytes;
    bool is_sent = false;

    if (cursor_turn(&stream->cursor, &number, &bytes) && send_piece(stream, number, bytes))
        return true;
    for (unsigned i = 0; i < STREAM_COUNT; i++)
        is_sent = send_piece(stream, i, UINT64_MAX) || is_sent;
    return is_sent;
}

/* --- the end --------------------------------------------------------------------------------- */

static bool is_about(const char *error, const char *what)
{
    size_t length = what ? strlen(what) : 0;

    return length && strncmp(error, what, length) == 0 && error[length] == ':';
}

/* It never ran. The record has one text for the reason. */
static void fail_start(struct process_stream *stream)
{
    const struct execution_facts *facts = execution_facts(stream->cursor.execution);
    const char *error = facts->error ? facts->error : "the process could not be started";
    const json_t *config = json_object_get(stream->rpc->input, "process");
    const char *cwd = json_string_value(json_object_get(config, "cwd"));

    if (facts->start_error.code)
        rpc_fail_error(stream->rpc, &facts->start_error);
    else if (facts->state != EXECUTION_EXITED)
        rpc_abort(stream->rpc);
    else if (is_about(error, stream->rpc->user))
        rpc_fail(stream->rpc, CONNECT_UNAUTHENTICATED, "invalid username: '%s'", stream->rpc->user);
    else if (is_about(error, cwd))
        rpc_fail(stream->rpc, CONNECT_INVALID_ARGUMENT, "cwd '%s' does not exist", cwd);
    else
        rpc_fail(stream->rpc, CONNECT_INVALID_ARGUMENT, "error starting process: %s", error);
}

static void finish(struct process_stream *stream)
{
    const struct execution_facts *facts = execution_facts(stream->cursor.execution);

    if (facts->state == EXECUTION_TIMEOUT)
        rpc_fail(stream->rpc, CONNECT_DEADLINE_EXCEEDED, "the time of the process is over");
    else if (facts->exit_code < 0 && !facts->signal)
        rpc_abort(stream->rpc); /* it went with its sandbox */
    else
        send_end(stream);
}

static void pump(struct process_stream *stream)
{
    const struct execution_facts *facts = execution_facts(stream->cursor.execution);
    bool progress = true;

    if (stream->rpc->state_of_answer == RPC_OVER || facts->state == EXECUTION_QUEUED ||
        !stream->is_recorded)
        return;
    if (!stream->has_started && facts->pid == 0) {
        if (!cursor_is_live(&stream->cursor))
            fail_start(stream);
        return;
    }
    if (!stream->has_started)
        send_start(stream);
    while (progress && rpc_has_room(stream->rpc))
        progress = send_next(stream);
    cursor_advance(&stream->cursor);
    if (!progress && !cursor_is_live(&stream->cursor))
        finish(stream);
}

static void on_change(struct cursor *cursor)
{
    pump(container_of(cursor, struct process_stream, cursor));
}

static void on_room(struct rpc *rpc)
{
    pump(rpc->state);
}

/* --- a new process is recorded first ----------------------------------------------------------- */

struct promise {
    struct recorded recorded;
    struct request *request;
    struct rpc *rpc; /* as long as the request */
};

static void on_recorded(struct recorded *recorded)
{
    struct promise *promise = container_of(recorded, struct promise, recorded);
    struct rpc *rpc = promise->rpc;
    struct process_stream *stream;
    struct error err = *recorded->err;
    bool is_over = request_finish(promise->request);

    free(promise);
    if (is_over || rpc->state_of_answer == RPC_OVER)
        return;
    stream = rpc->state;
    stream->is_recorded = true;
    if (err.code)
        rpc_fail_error(rpc, &err);
    else
        pump(stream);
}

static void wait_until_recorded(struct rpc *rpc)
{
    struct promise *promise = xnew(struct promise);

    promise->request = rpc->request;
    promise->rpc = rpc;
    request_begin(rpc->request);
    recorded_wait(&promise->recorded, rpc->request->core, on_recorded);
}

void process_follow(struct rpc *rpc, struct execution *execution, enum process_follow how)
{
    struct process_stream *stream = xnew(struct process_stream);
    bool replays = how == FOLLOW_NEW;

    stream->rpc = rpc;
    stream->is_recorded = how != FOLLOW_NEW;
    stream->has_terminal = process_has_terminal(execution);
    stream->cursor.on_change = on_change;
    cursor_open(&stream->cursor,
                &(struct found_execution){ .core = rpc->request->core, .live = execution },
                CURSOR_BOTH);
    for (unsigned i = 0; i < STREAM_COUNT && !replays; i++)
        if (stream->cursor.output.streams[i])
            stream->cursor.offsets[i] = spool_length(stream->cursor.output.streams[i]);
    cursor_follow(&stream->cursor);
    cursor_advance(&stream->cursor);
    rpc->state = stream;
    rpc->release = release;
    rpc->on_room = on_room;
    if (stream->is_recorded)
        pump(stream);
    else
        wait_until_recorded(rpc);
}
