/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection with one message in each line, both ways: what `sandglass mcp` connects to the
 * standard streams of a client. All that the client makes goes with the connection.
 */

#include "base/alloc.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"
#include "core/shares.h"
#include "loop/worker.h"
#include "mcp/private.h"

#include <stdlib.h>
#include <string.h>

enum { HERE_MAXIMUM = 32 * 1024 }; /* bytes of a message that is parsed on the loop */

struct parsing;

struct pipe {
    struct mcp_channel channel;
    struct mcp_exchange exchange;
    struct mcp *mcp;           /* borrowed */
    struct mcp_client *client; /* NULL when it has ended */
    struct mcp_ending *ending; /* until everything of the client is gone */
    struct buffer line;        /* the beginning of a message */
    struct share bytes;        /* of the bodies of its caller, for a large line */
    struct error skipped;      /* why the rest of the line is skipped; no error: it is not */
    struct parsing *parsing;   /* a message on its way through a thread; NULL: none */
    struct buffer rest;        /* input behind that one */
};

/* A large message, which a thread parses. */
struct parsing {
    struct job job;
    struct pipe *pipe; /* borrowed; NULL when it has gone */
    struct buffer text;
    struct share bytes;
    json_t *document; /* owned */
    struct error err;
};

/* --- out ------------------------------------------------------------------------------------- */

static struct pipe *pipe_from(struct mcp_channel *channel)
{
    return container_of(channel, struct pipe, channel);
}

static void send_line(struct pipe *pipe, const void *text, size_t length)
{
    http_respond_write(pipe->exchange.http, text, length);
    http_respond_write(pipe->exchange.http, "\n", 1);
    if (http_respond_pending(pipe->exchange.http) >= HTTP_HIGH_WATER)
        http_exchange_pause_body(pipe->exchange.http);
}

static void pipe_notify(struct mcp_channel *channel, const void *text, size_t length)
{
    send_line(pipe_from(channel), text, length);
}

static void pipe_finish(struct mcp_channel *channel, int status UNUSED, const void *text,
                        size_t length)
{
    send_line(pipe_from(channel), text, length);
}

static void pipe_close(struct mcp_channel *channel UNUSED)
{
}

static bool pipe_is_full(const struct mcp_channel *channel)
{
    const struct pipe *pipe = container_of(channel, const struct pipe, channel);

    return http_respond_pending(pipe->exchange.http) >= HTTP_LOW_WATER;
}

static const struct mcp_channel_ops pipe_ops = {
    .notify = pipe_notify,
    .finish = pipe_finish,
    .close = pipe_close,
    .is_full = pipe_is_full,
};

static void on_drain(struct mcp_exchange *exchange)
{
    if (!container_of(exchange, struct pipe, exchange)->parsing)
        http_exchange_resume_body(exchange->http);
}

/* --- in -------------------------------------------------------------------------------------- */

static void fail(struct pipe *pipe, const char *id, int code, const char *message, const char *data)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(16 * 1024);

    mcp_write_failure(&text, id, code, message, data);
    send_line(pipe, text.data, text.length);
}

/* In the stateless era each request says which version it speaks, and what its client can do. */
static bool check_meta(struct pipe *pipe, const struct jsonrpc_message *message)
{
    struct error err = { 0 };
    scoped(free) char *data = NULL;
    int code = mcp_meta_check(message->params, &data, &err);

    if (code)
        fail(pipe, message->id, code, err.message, data);
    return code == 0;
}

static void take_request(struct pipe *pipe, const struct jsonrpc_message *message)
{
    struct mcp_client *client = pipe->client;
    const struct caller_identity caller = { client->identity.owner, client->identity.on_behalf_of,
                                            client->identity.any_owner };
    struct mcp_source source = {
        .mcp = pipe->mcp,
        .client = client,
        .caller = &caller,
        .channel = &pipe->channel,
        .is_stateless = mcp_meta_version(message->params) ||
                        strcmp(message->method, "server/discover") == 0,
    };

    if (!source.is_stateless || check_meta(pipe, message))
        mcp_request_start(&source, message);
}

static void take_message(struct pipe *pipe, struct jsonrpc_message *message, int code,
                         const struct error *err)
{
    mcp_client_touch(pipe->client);
    if (code)
        fail(pipe, message->id, code, err->message, NULL);
    else if (message->kind == JSONRPC_REQUEST)
        take_request(pipe, message);
    else if (message->kind == JSONRPC_NOTIFICATION)
        mcp_notification(pipe->client, message);
}

static void take_line(struct pipe *pipe, const void *text, size_t length)
{
    scoped(jsonrpc_message_fini) struct jsonrpc_message message = { 0 };
    struct error err = { 0 };
    int code = jsonrpc_read(text, length, &message, &err);

    take_message(pipe, &message, code, &err);
}

/* --- large messages -------------------------------------------------------------------------- */

static void take_input(struct pipe *pipe, const uint8_t *data, size_t length);

/* On the worker's thread. */
static void parse(struct job *job)
{
    struct parsing *parsing = container_of(job, struct parsing, job);

    parsing->document = json_read_request(parsing->text.data, parsing->text.length, &parsing->err);
}

static void take_parsed(struct pipe *pipe, struct parsing *parsing)
{
    scoped(jsonrpc_message_fini) struct jsonrpc_message message = { 0 };
    int code = parsing->document
                   ? jsonrpc_take(steal_ptr(&parsing->document), &message, &parsing->err)
                   : JSONRPC_PARSE_ERROR;

    take_message(pipe, &message, code, &parsing->err);
}

static void go_on(struct pipe *pipe)
{
    scoped(buffer_fini) struct buffer rest = pipe->rest;

    pipe->rest = BUFFER_INIT(MCP_MESSAGE_MAXIMUM);
    take_input(pipe, rest.data, rest.length);
    if (!pipe->parsing && http_respond_pending(pipe->exchange.http) < HTTP_HIGH_WATER)
        http_exchange_resume_body(pipe->exchange.http);
}

static void on_parsed(struct job *job)
{
    struct parsing *parsing = container_of(job, struct parsing, job);
    struct pipe *pipe = parsing->pipe;

    if (pipe)
        pipe->parsing = NULL;
    if (pipe && pipe->client)
        take_parsed(pipe, parsing);
    if (pipe)
        go_on(pipe);
    json_decref(parsing->document);
    buffer_fini(&parsing->text);
    share_give(&parsing->bytes);
    free(parsing);
}

static void parse_on_thread(struct pipe *pipe)
{
    struct parsing *parsing = xnew(struct parsing);
    struct mcp *mcp = pipe->mcp;

    parsing->job = (struct job){ .run = parse, .done = on_parsed };
    parsing->pipe = pipe;
    parsing->text = pipe->line;
    parsing->bytes = pipe->bytes;
    pipe->line = BUFFER_INIT(MCP_MESSAGE_MAXIMUM);
    pipe->bytes = (struct share){ 0 };
    pipe->parsing = parsing;
    if (!mcp->parser)
        mcp->parser = worker_new(mcp->parts.core->loop, 1, "mcp parser");
    http_exchange_pause_body(pipe->exchange.http);
    worker_submit(mcp->parser, &parsing->job);
}

/* --- lines ----------------------------------------------------------------------------------- */

static bool is_blank(const uint8_t *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!memchr(" \t\r", text[i], 3))
            return false;
    return true;
}

static void end_line(struct pipe *pipe)
{
    if (pipe->skipped.code) {
        fail(pipe, NULL, JSONRPC_INVALID_REQUEST, pipe->skipped.message, NULL);
    } else if (pipe->line.length > HERE_MAXIMUM) {
        parse_on_thread(pipe);
        return;
    } else if (!is_blank(pipe->line.data, pipe->line.length)) {
        take_line(pipe, pipe->line.data, pipe->line.length);
    }
    pipe->skipped = (struct error){ 0 };
    buffer_clear(&pipe->line);
}

/* A large line counts as a body of the longest kind: its length is not known. */
static void add_to_line(struct pipe *pipe, const uint8_t *data, size_t length)
{
    struct error *err = &pipe->skipped;

    if (err->code)
        return;
    if (pipe->line.length + length > HERE_MAXIMUM && !pipe->bytes.shares &&
        share_take_bytes(&pipe->bytes, pipe->mcp->parts.core->shares, pipe->client->identity.owner,
                         SHARE_BODIES, MCP_MESSAGE_MAXIMUM, err) < 0)
        return;
    if (buffer_append(&pipe->line, data, length) == 0)
        return;
    error_set(err, ERR_TOO_LARGE, "the message is too long");
    buffer_fini(&pipe->line);
    pipe->line = BUFFER_INIT(MCP_MESSAGE_MAXIMUM);
    share_give(&pipe->bytes);
}

static void take_input(struct pipe *pipe, const uint8_t *data, size_t length)
{
    while (length > 0 && pipe->client && !pipe->parsing) {
        const uint8_t *end = memchr(data, '\n', length);
        size_t count = end ? (size_t)(end - data) : length;

        add_to_line(pipe, data, count);
        if (end)
            end_line(pipe);
        data += count + (end != NULL);
        length -= count + (end != NULL);
    }
    if (pipe->parsing && length)
        (void)buffer_append(&pipe->rest, data, length);
}

/* --- the end --------------------------------------------------------------------------------- */

static void on_everything_gone(void *user)
{
    struct pipe *pipe = user;

    pipe->ending = NULL;
    http_respond_end(pipe->exchange.http);
}

static void end_client(struct pipe *pipe)
{
    struct mcp_client *client = steal_ptr(&pipe->client);

    if (client)
        pipe->ending = mcp_client_end(client, on_everything_gone, pipe);
}

static void on_data(struct mcp_exchange *exchange, const uint8_t *data, size_t length)
{
    struct pipe *pipe = container_of(exchange, struct pipe, exchange);

    if (length == 0)
        end_client(pipe);
    take_input(pipe, data, length);
}

static void on_gone(struct mcp_exchange *exchange)
{
    struct pipe *pipe = container_of(exchange, struct pipe, exchange);

    end_client(pipe);
    mcp_ending_forget(pipe->ending);
    if (pipe->parsing)
        pipe->parsing->pipe = NULL;
    buffer_fini(&pipe->line);
    buffer_fini(&pipe->rest);
    share_give(&pipe->bytes);
    free(pipe);
}

/* --- the beginning --------------------------------------------------------------------------- */

bool mcp_wants_pipe(const struct http_exchange *http)
{
    const struct http_head *head = http_exchange_head(http);
    const char *protocol = http_head_header(head, "upgrade");

    return head->upgrade && str_equal(protocol, MCP_UPGRADE);
}

/* The daemon was replaced, and the client has come back. */
static struct mcp_client *find_client(struct mcp *mcp, const struct caller_identity *caller,
                                      const char *id)
{
    struct mcp_client *client;

    if (!id || !mcp_client_is_leased(id))
        return NULL;
    client = mcp_client_find(mcp, caller, id);
    if (!client && !map_get(&mcp->clients, id))
        client = mcp_client_new(mcp, caller, NULL, id, NULL);
    return client && !client->channel ? client : NULL;
}

struct mcp_exchange *mcp_pipe(struct mcp *mcp, const struct caller_identity *caller,
                              struct http_exchange *http, struct error *err)
{
    const struct http_head *head = http_exchange_head(http);
    const char *version = http_head_header(head, "mcp-protocol-version");
    const char *wanted = http_head_header(head, MCP_WISHES);
    struct mcp_wishes *wishes = wanted ? mcp_wishes_read(wanted, err) : NULL;
    struct mcp_client *client;
    struct pipe *pipe;

    if (wanted && !wishes)
        return NULL;
    client = find_client(mcp, caller, http_head_header(head, "mcp-session-id"));
    if (!client)
        client = mcp_client_new(mcp, caller, ID_MCP_PIPE, NULL, err);
    if (!client) {
        mcp_wishes_free(wishes);
        return NULL;
    }
    mcp_wishes_free(client->wishes);
    client->wishes = wishes;
    pipe = xnew(struct pipe);
    pipe->channel.ops = &pipe_ops;
    pipe->exchange = (struct mcp_exchange){
        .http = http, .on_gone = on_gone, .on_data = on_data, .on_drain = on_drain
    };
    pipe->mcp = mcp;
    pipe->client = client;
    pipe->line = BUFFER_INIT(MCP_MESSAGE_MAXIMUM);
    pipe->rest = BUFFER_INIT(MCP_MESSAGE_MAXIMUM);
    client->channel = &pipe->channel;
    client->version = version ? mcp_version_find(version) : NULL;
    timer_stop(&client->idle);
    http_respond_header(http, "Mcp-Session-Id", client->id);
    return &pipe->exchange;
}
