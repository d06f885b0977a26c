/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mcp/mcp_relay.h"

#include "base/alloc.h"
#include "base/id.h"
#include "base/list.h"
#include "base/str.h"
#include "cli/run/feeder.h"
#include "cli/run/follower.h"
#include "cli/run/outlet.h"
#include "net/http_client.h"
#include "wire/jsonrpc.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LINE_MAXIMUM = 128 << 20,
    PIECE_BYTES = 64 * 1024,
    UNSENT_MAXIMUM = 1 << 20,
    LEAVING_US = 60 * 1000 * 1000,
};

static const int ending_signals[] = { SIGINT, SIGTERM, SIGHUP };

/* A request that has not been answered. */
struct asked {
    struct list node;
    char *id; /* owned: JSON */
};

struct relay {
    struct cli *cli;     /* borrowed */
    const char *session; /* borrowed; NULL: no wishes */

    struct http_call *call; /* NULL while there is none */
    bool is_connected;
    struct buffer refusal; /* the body of an answer that is not what we want */
    char client_id[64];    /* "" before the first connection */
    char version[32];      /* of the protocol that was agreed on; "" before */
    struct timer retry;    /* connecting again; later the end of our patience */
    int64_t lost_since_us; /* 0 while connected */

    struct buffer input;  /* the beginning of a line of the client's */
    struct buffer answer; /* and of the daemon's */
    struct list asked;
    struct io_watch in;
    struct deferred ready; /* input that is a file has no events */
    bool is_pollable;
    bool has_ended; /* the end of our input */

    struct outlet out;
    struct io_watch reader; /* tells when the reader of our output is gone */
    struct signal_watch signals[ARRAY_LENGTH(ending_signals)];
    bool is_leaving;
    struct error err;
    int exit_code;
};

/* --- what was asked -------------------------------------------------------------------------- */

static void note_asked(struct relay *relay, const struct jsonrpc_message *message)
{
    struct asked *asked = xnew(struct asked);

    asked->id = xstrdup(message->id);
    list_append(&relay->asked, &asked->node);
}

static void asked_free(struct asked *asked)
{
    list_remove(&asked->node);
    free(asked->id);
    free(asked);
}

static void note_answered(struct relay *relay, const char *id)
{
    struct asked *asked, *following;

    list_for_each_safe (asked, following, &relay->asked, node)
        if (str_equal(asked->id, id))
            asked_free(asked);
}

/* --- to the client --------------------------------------------------------------------------- */

static void leave(struct relay *relay);

static void send_line(struct relay *relay, const void *text, size_t length)
{
    bool has_room = outlet_write(&relay->out, text, length);

    has_room = outlet_write(&relay->out, "\n", 1) && has_room;
    if (!has_room && relay->call)
        http_call_pause(relay->call);
}

static void on_drained(struct outlet *outlet)
{
    struct relay *relay = container_of(outlet, struct relay, out);

    if (relay->call)
        http_call_resume(relay->call);
}

static void on_out_closed(struct outlet *outlet)
{
    leave(container_of(outlet, struct relay, out));
}

/* Nothing is ever read there: we wake up when the other end is closed. */
static void on_reader_gone(struct io_watch *watch, unsigned events UNUSED)
{
    struct relay *relay = container_of(watch, struct relay, reader);

    io_watch_stop(watch);
    leave(relay);
}

static void watch_reader(struct relay *relay)
{
    struct stat status;

    if (fstat(STDOUT_FILENO, &status) == 0 &&
        (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)))
        io_watch_start(&relay->reader, relay->cli->loop, STDOUT_FILENO, IO_READ, on_reader_gone);
}

static void fail_asked(struct relay *relay)
{
    struct asked *asked, *following;

    list_for_each_safe (asked, following, &relay->asked, node) {
        scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
        struct json_writer json = JSON_WRITER(&text);

        jsonrpc_write_error(&json, asked->id, JSONRPC_INTERNAL_ERROR,
                            "the daemon disconnected during the call; try again", NULL);
        asked_free(asked);
        send_line(relay, text.data, text.length);
    }
}

/* --- from the daemon ------------------------------------------------------------------------- */

static void note_version(struct relay *relay, const json_t *document)
{
    const json_t *result = json_object_get(document, "result");

    if (!*relay->version)
        snprintf(relay->version, sizeof(relay->version), "%s",
                 field_text(result, "protocolVersion", ""));
}

static void take_answer(struct relay *relay)
{
    scoped(jsonrpc_message_fini) struct jsonrpc_message message = { 0 };

    if (jsonrpc_read(relay->answer.data, relay->answer.length, &message, NULL) == 0 &&
        message.kind == JSONRPC_RESPONSE && message.id) {
        note_answered(relay, message.id);
        note_version(relay, message.document);
    }
    send_line(relay, relay->answer.data, relay->answer.length);
    buffer_clear(&relay->answer);
    if (relay->has_ended && list_is_empty(&relay->asked))
        leave(relay);
}

static void on_head(struct http_call *call, const struct http_head *head);
static void on_end(struct http_call *call, const struct error *err);

static void on_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct relay *relay = http_call_user(call);

    if (!relay->is_connected) {
        (void)buffer_append(&relay->refusal, data, length);
        return;
    }
    while (length > 0) {
        const uint8_t *end = memchr(data, '\n', length);
        size_t count = end ? (size_t)(end - data) : length;

        (void)buffer_append(&relay->answer, data, count);
        if (end)
            take_answer(relay);
        data += count + (end != NULL);
        length -= count + (end != NULL);
    }
}

/* --- from the client ------------------------------------------------------------------------- */

/* A request waits for its answer until the client cancels it: a cancelled request has none. */
static void note_sent(struct relay *relay, const struct jsonrpc_message *message)
{
    if (message->kind == JSONRPC_REQUEST) {
        note_asked(relay, message);
    } else if (str_equal(message->method, "notifications/cancelled")) {
        scoped(free) char *id = jsonrpc_token(json_object_get(message->params, "requestId"));

        if (id)
            note_answered(relay, id);
    }
}

static void take_line(struct relay *relay, const void *text, size_t length)
{
    scoped(jsonrpc_message_fini) struct jsonrpc_message message = { 0 };

    if (jsonrpc_read(text, length, &message, NULL) == 0)
        note_sent(relay, &message);
    http_call_write(relay->call, text, length);
    http_call_write(relay->call, "\n", 1);
}

static void take_input(struct relay *relay)
{
    const uint8_t *end;

    while (relay->input.length > 0 &&
           (end = memchr(relay->input.data, '\n', relay->input.length))) {
        size_t count = (size_t)(end - relay->input.data);

        take_line(relay, relay->input.data, count);
        buffer_consume(&relay->input, count + 1);
    }
}

static void await_input(struct relay *relay);

/* Open requests are still answered, as long as the client reads. */
static void end_input(struct relay *relay)
{
    io_watch_stop(&relay->in);
    relay->has_ended = true;
    if (relay->input.length > 0)
        take_line(relay, relay->input.data, relay->input.length);
    buffer_clear(&relay->input);
    if (list_is_empty(&relay->asked))
        leave(relay);
}

static void read_input(struct relay *relay)
{
    void *place = buffer_reserve(&relay->input, PIECE_BYTES);
    ssize_t count = place ? read(STDIN_FILENO, place, PIECE_BYTES) : 0;

    if (count < 0 && (errno == EINTR || errno == EAGAIN)) {
        await_input(relay);
        return;
    }
    if (count <= 0) {
        end_input(relay);
        return;
    }
    buffer_advance(&relay->input, (size_t)count);
    take_input(relay);
    await_input(relay);
}

static void on_readable(struct io_watch *watch, unsigned events UNUSED)
{
    read_input(container_of(watch, struct relay, in));
}

static void on_ready(struct deferred *deferred)
{
    read_input(container_of(deferred, struct relay, ready));
}

static void await_input(struct relay *relay)
{
    bool may_read = relay->is_connected && !relay->has_ended && !relay->is_leaving &&
                    http_call_pending(relay->call) < UNSENT_MAXIMUM;

    if (!may_read)
        io_watch_stop(&relay->in);
    else if (relay->is_pollable)
        io_watch_start(&relay->in, relay->cli->loop, STDIN_FILENO, IO_READ, on_readable);
    else
        loop_defer(relay->cli->loop, &relay->ready, on_ready);
}

static void on_writable(struct http_call *call)
{
    struct relay *relay = http_call_user(call);

    if (relay->is_connected)
        await_input(relay);
}

/* --- the connection -------------------------------------------------------------------------- */

static const struct http_call_handler handler = {
    .on_head = on_head,
    .on_data = on_data,
    .on_writable = on_writable,
    .on_end = on_end,
};

static void connect_daemon(struct relay *relay)
{
    const char *headers[11] = { "Connection", "Upgrade", "Upgrade", "mcp-lines" };
    size_t used = 4;

    if (*relay->client_id) {
        headers[used++] = "Mcp-Session-Id";
        headers[used++] = relay->client_id;
    }
    if (*relay->version) {
        headers[used++] = "Mcp-Protocol-Version";
        headers[used++] = relay->version;
    }
    if (relay->session) {
        headers[used++] = "Sandglass-Session";
        headers[used++] = relay->session;
    }
    buffer_clear(&relay->refusal);
    buffer_clear(&relay->answer);
    relay->call = http_client_request(relay->cli->client, HTTP_GET, "/mcp", NULL, NULL, 0, headers,
                                      &handler, relay);
}

static void on_head(struct http_call *call, const struct http_head *head)
{
    struct relay *relay = http_call_user(call);
    const char *id = http_head_header(head, "mcp-session-id");

    if (head->status != 101)
        return;
    relay->is_connected = true;
    relay->lost_since_us = 0;
    if (id)
        snprintf(relay->client_id, sizeof(relay->client_id), "%s", id);
    await_input(relay);
}

static void fail(struct relay *relay, const struct error *err)
{
    relay->err = *err;
    relay->exit_code = EXIT_REFUSED;
    loop_stop(relay->cli->loop);
}

static void on_refused(struct relay *relay, int status, const struct error *err)
{
    struct error why = { 0 };

    if (err)
        why = *err;
    else
        reply_error(&why, status, relay->refusal.data, relay->refusal.length);
    cli_explain_connection(relay->cli, &why);
    fail(relay, &why);
}

/* Something else than the daemon's absence will not pass by itself. */
static void on_lost(struct relay *relay, int status, const struct error *err)
{
    int64_t now_us = loop_now_us(relay->cli->loop);
    bool was_known = *relay->client_id;

    fail_asked(relay);
    if (!relay->lost_since_us)
        relay->lost_since_us = now_us;
    if (!was_known || (!err && status >= 400 && status != 503) ||
        now_us - relay->lost_since_us > LOST_LIMIT_US)
        on_refused(relay, status, err);
    else if (relay->has_ended)
        loop_stop(relay->cli->loop);
    else
        timer_arm_in(&relay->retry, RETRY_DELAY_US);
}

static void on_end(struct http_call *call, const struct error *err)
{
    struct relay *relay = http_call_user(call);

    relay->call = NULL;
    relay->is_connected = false;
    io_watch_stop(&relay->in);
    loop_undefer(relay->cli->loop, &relay->ready);
    if (relay->is_leaving)
        loop_stop(relay->cli->loop);
    else
        on_lost(relay, http_call_status(call), err);
}

static void on_retry(struct timer *timer)
{
    struct relay *relay = container_of(timer, struct relay, retry);

    if (relay->is_leaving)
        loop_stop(relay->cli->loop);
    else
        connect_daemon(relay);
}

/* The daemon closes the connection when everything that the client made is gone. */
static void leave(struct relay *relay)
{
    if (relay->is_leaving)
        return;
    relay->is_leaving = true;
    io_watch_stop(&relay->in);
    io_watch_stop(&relay->reader);
    loop_undefer(relay->cli->loop, &relay->ready);
    if (relay->is_connected) {
        http_call_resume(relay->call);
        http_call_end(relay->call);
        timer_arm_in(&relay->retry, LEAVING_US);
    } else {
        loop_stop(relay->cli->loop);
    }
}

/* --- all of it ------------------------------------------------------------------------------- */

static struct relay *signalled; /* the only one in the process */

static void on_signal(struct signal_watch *watch UNUSED, int number UNUSED)
{
    leave(signalled);
}

static void relay_start(struct relay *relay)
{
    struct loop *loop = relay->cli->loop;

    list_init(&relay->asked);
    timer_init(&relay->retry, loop, on_retry);
    relay->is_pollable = feeder_is_pollable(STDIN_FILENO);
    outlet_init(&relay->out, loop, STDOUT_FILENO, on_drained, on_out_closed);
    watch_reader(relay);
    signalled = relay;
    for (size_t i = 0; i < ARRAY_LENGTH(ending_signals); i++)
        signal_watch_start(&relay->signals[i], loop, ending_signals[i], on_signal);
    connect_daemon(relay);
}

static void relay_fini(struct relay *relay)
{
    struct asked *asked, *following;

    if (relay->call)
        http_call_cancel(relay->call);
    timer_stop(&relay->retry);
    io_watch_stop(&relay->in);
    io_watch_stop(&relay->reader);
    loop_undefer(relay->cli->loop, &relay->ready);
    for (size_t i = 0; i < ARRAY_LENGTH(ending_signals); i++)
        signal_watch_stop(&relay->signals[i]);
    list_for_each_safe (asked, following, &relay->asked, node)
        asked_free(asked);
    outlet_fini(&relay->out);
    buffer_fini(&relay->input);
    buffer_fini(&relay->answer);
    buffer_fini(&relay->refusal);
}

int mcp_relay_run(struct cli *cli, const char *session)
{
    struct relay relay = {
        .cli = cli,
        .session = session,
        .refusal = BUFFER_INIT(1 << 20),
        .input = BUFFER_INIT(LINE_MAXIMUM),
        .answer = BUFFER_INIT(LINE_MAXIMUM),
    };
    struct error err;

    if (cli_connect(cli, &err) < 0)
        return cli_fail(cli, &err);
    relay_start(&relay);
    loop_run(cli->loop);
    relay_fini(&relay);
    return relay.exit_code ? cli_fail(cli, &relay.err) : 0;
}
