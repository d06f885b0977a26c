/* SPDX-License-Identifier: Apache-2.0 */
/* Input of processes, in one message or in many. */

#include "base/alloc.h"
#include "base/str.h"
#include "e2b/envd/process.h"

#include <string.h>

/* Bytes on their way: what the program's pipe does not take yet is held, and the client waits. */
struct feed {
    struct rpc *rpc;
    struct execution *execution; /* a reference; NULL before it was named */
    struct execution_watcher watcher;
    struct buffer held;
    uint64_t end; /* see execution_stdin_end() */
    bool is_all;  /* the client has sent everything */
};

static void feed_release(struct rpc *rpc)
{
    struct feed *feed = rpc->state;

    if (feed->execution) {
        execution_unwatch(&feed->watcher);
        execution_unref(feed->execution);
    }
    buffer_fini(&feed->held);
    free(feed);
}

/* Everything was accepted: the client is answered when it has arrived. */
static void feed_finish(struct feed *feed)
{
    struct error err = { 0 };
    int taken = feed->execution ? execution_stdin_is_taken(feed->execution, feed->end, &err) : 1;

    if (taken < 0)
        rpc_fail_error(feed->rpc, &err);
    else if (taken > 0)
        rpc_reply_empty(feed->rpc);
}

static void feed_pump(struct feed *feed)
{
    struct error err = { 0 };
    ssize_t taken = 1;

    while (feed->held.length && taken > 0) {
        taken = execution_write_stdin(feed->execution, feed->held.data, feed->held.length, &err);
        if (taken < 0) {
            rpc_fail_error(feed->rpc, &err);
            return;
        }
        buffer_consume(&feed->held, (size_t)taken);
        if (taken > 0)
            feed->end = execution_stdin_end(feed->execution);
    }
    if (feed->held.length)
        return;
    if (feed->is_all)
        feed_finish(feed);
    else
        rpc_resume(feed->rpc);
}

static void on_change(struct execution_watcher *watcher)
{
    struct feed *feed = container_of(watcher, struct feed, watcher);

    if (feed->rpc->state_of_answer == RPC_OPEN && (feed->held.length || feed->is_all))
        feed_pump(feed);
}

static struct feed *feed_new(struct rpc *rpc)
{
    struct feed *feed = xnew(struct feed);

    feed->rpc = rpc;
    feed->held = BUFFER_INIT(REQUEST_BODY_MAXIMUM);
    rpc->state = feed;
    rpc->release = feed_release;
    return feed;
}

static void feed_attach(struct feed *feed, struct execution *execution)
{
    feed->execution = execution;
    execution_ref(execution);
    execution_watch(execution, &feed->watcher, on_change);
}

/* Adds the bytes of a ProcessInput: 0, or -1 when it was answered. */
static int take_input(struct feed *feed, const json_t *input)
{
    bool is_pty = json_object_get(input, "pty") != NULL;
    const json_t *value = json_object_get(input, is_pty ? "pty" : "stdin");

    if (!value)
        return 0;
    if (is_pty != process_has_terminal(feed->execution)) {
        rpc_fail(feed->rpc, CONNECT_INVALID_ARGUMENT,
                 is_pty ? "the process has no terminal: send \"stdin\""
                        : "the process has a terminal: send \"pty\"");
        return -1;
    }
    if (protobuf_bytes(value, &feed->held) == 0)
        return 0;
    rpc_fail(feed->rpc, CONNECT_INVALID_ARGUMENT, "the input is not base64, or too large");
    return -1;
}

void process_send_input(struct rpc *rpc)
{
    struct execution *execution = process_select(rpc, json_object_get(rpc->input, "process"));
    struct feed *feed;

    if (!execution)
        return;
    feed = feed_new(rpc);
    feed_attach(feed, execution);
    feed->is_all = true;
    if (take_input(feed, json_object_get(rpc->input, "input")) == 0)
        feed_pump(feed);
}

/* --- a stream of it --------------------------------------------------------------------------- */

static void on_message(struct rpc *rpc)
{
    struct feed *feed = rpc->state;
    const json_t *start = json_object_get(rpc->input, "start");
    const json_t *data = json_object_get(rpc->input, "data");
    struct execution *execution;

    if (start && !feed->execution) {
        execution = process_select(rpc, json_object_get(start, "process"));
        if (execution)
            feed_attach(feed, execution);
        return;
    }
    if (!data)
        return;
    if (!feed->execution) {
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "the first message must name the process");
        return;
    }
    if (take_input(feed, json_object_get(data, "input")) < 0)
        return;
    rpc_pause(rpc);
    feed_pump(feed);
}

static void on_end(struct rpc *rpc)
{
    struct feed *feed = rpc->state;

    feed->is_all = true;
    feed_pump(feed);
}

void process_stream_input(struct rpc *rpc)
{
    (void)feed_new(rpc);
    rpc->on_message = on_message;
    rpc->on_end = on_end;
}

/* --- its end ---------------------------------------------------------------------------------- */

static void on_closing_change(struct execution_watcher *watcher)
{
    struct feed *feed = container_of(watcher, struct feed, watcher);

    if (feed->rpc->state_of_answer == RPC_OPEN && execution_stdin_has_ended(feed->execution))
        rpc_reply_empty(feed->rpc);
}

void process_close_stdin(struct rpc *rpc)
{
    struct execution *execution = process_select(rpc, json_object_get(rpc->input, "process"));
    struct feed *feed;

    if (!execution)
        return;
    if (process_has_terminal(execution)) {
        rpc_fail(rpc, CONNECT_FAILED_PRECONDITION,
                 "the process has a terminal, whose input cannot be closed: send the character "
                 "Ctrl-D instead");
        return;
    }
    (void)execution_close_stdin(execution, NULL); /* closed before, or never open: as good */
    feed = feed_new(rpc);
    feed->execution = execution;
    execution_ref(execution);
    execution_watch(execution, &feed->watcher, on_closing_change);
    on_closing_change(&feed->watcher);
}
