/* SPDX-License-Identifier: Apache-2.0 */
/* Streamable HTTP: which message belongs to whom, in both eras of the protocol. */

#include "base/alloc.h"
#include "base/str.h"
#include "face/request.h"
#include "mcp/private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *header(const struct http_exchange *http, const char *name)
{
    return http_head_header(http_exchange_head(http), name);
}

static void fail(struct mcp *mcp, struct http_exchange *http, int status, const char *id, int code,
                 const char *message, const char *data)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(16 * 1024);

    mcp_write_failure(&text, id, code, message, data);
    mcp_respond(mcp, http, status, text.data, text.length);
}

/* Without the header, or with a pattern, plain JSON is the safer answer. */
static struct mcp_stream_options read_accept(const struct http_exchange *http)
{
    const char *accept = header(http, "accept");

    return (struct mcp_stream_options){
        .accepts_json = !accept || strstr(accept, "application/json") || strstr(accept, "*/*") ||
                        strstr(accept, "application/*"),
        .accepts_events = accept && strstr(accept, "text/event-stream"),
    };
}

/* --- whose it is ------------------------------------------------------------------------------ */

char *mcp_client_header(const struct mcp *mcp, const char *client_id)
{
    struct buffer text = BUFFER_INIT(1024);

    buffer_append_text(&text, client_id);
    if (mcp->parts.node) {
        buffer_append_byte(&text, '.');
        (void)http_escape(&text, mcp->parts.node);
    }
    return buffer_steal_text(&text);
}

/* A header that is too long for an id is that of no client. */
void mcp_client_header_read(const struct http_exchange *http, char out_id[ID_SIZE], char **out_node)
{
    const char *text = header(http, "mcp-session-id");
    size_t length = text ? strcspn(text, ".") : 0;

    *out_node = NULL;
    snprintf(out_id, ID_SIZE, "%.*s", (int)MIN(length, (size_t)ID_SIZE), text ? text : "");
    if (!text || !text[length])
        return;
    text += length + 1;
    *out_node = xmalloc(strlen(text) + 1);
    request_unescape(text, strlen(text), *out_node);
}

/* --- a message on its way in ----------------------------------------------------------------- */

struct arrival {
    struct mcp *mcp;
    const struct caller_identity *caller;
    struct http_exchange *http;
    bool is_guest;
    struct jsonrpc_message message;
};

static struct mcp_exchange *refuse(struct arrival *arrival, int status, int code,
                                   const char *message, const char *data)
{
    fail(arrival->mcp, arrival->http, status, arrival->message.id, code, message, data);
    return NULL;
}

static struct mcp_exchange *accept_silently(struct arrival *arrival)
{
    mcp_respond(arrival->mcp, arrival->http, 202, NULL, 0);
    return NULL;
}

static const char *guest_version(const struct arrival *arrival)
{
    const char *version = header(arrival->http, "mcp-protocol-version");
    const char *known = version ? mcp_version_find(version) : NULL;

    return known ? known : mcp_version_find("2025-03-26");
}

/* `guest`: the id of a client of another node; NULL: none. */
static struct mcp_exchange *start(struct arrival *arrival, struct mcp_client *client,
                                  const char *guest)
{
    struct mcp_stream_options options = read_accept(arrival->http);
    struct mcp_source source = {
        .mcp = arrival->mcp,
        .client = client,
        .caller = arrival->caller,
        .is_stateless = !client && !guest,
        .guest = guest,
        .guest_version = guest ? guest_version(arrival) : NULL,
    };
    struct mcp_exchange *exchange;
    struct mcp_stream *stream;

    if (!options.accepts_json && !options.accepts_events)
        return refuse(arrival, 406, JSONRPC_INVALID_REQUEST,
                      "Accept must allow application/json or text/event-stream", NULL);
    if (client && client->stream_count >= MCP_STREAMS_MAXIMUM)
        return refuse(arrival, 429, JSONRPC_INVALID_REQUEST, "too many requests at once", NULL);
    options.is_primed = client && client->version && strcmp(client->version, "2025-11-25") >= 0;
    stream = mcp_stream_new(arrival->mcp, client, arrival->http, &options);
    exchange = mcp_stream_exchange(stream);
    source.channel = mcp_stream_channel(stream);
    mcp_request_start(&source, &arrival->message);
    return exchange;
}

/* --- the stateless era ----------------------------------------------------------------------- */

static bool says_stateless(const struct arrival *arrival)
{
    return mcp_meta_version(arrival->message.params) ||
           str_equal(header(arrival->http, "mcp-protocol-version"), MCP_VERSION_STATELESS);
}

/* The tool, prompt or resource that the request names. The header Mcp-Name repeats it for proxies
 * that do not read bodies. */
static const char *name_of(const struct jsonrpc_message *message)
{
    const char *member = strcmp(message->method, "resources/read") == 0 ? "uri"
                         : strcmp(message->method, "tools/call") == 0 ||
                                 strcmp(message->method, "prompts/get") == 0
                             ? "name"
                             : NULL;

    return member ? json_string_value(json_object_get(message->params, member)) : NULL;
}

static const char *find_mismatch(const struct arrival *arrival)
{
    const char *name = name_of(&arrival->message);

    if (!str_equal(header(arrival->http, "mcp-protocol-version"),
                   mcp_meta_version(arrival->message.params)))
        return "the header Mcp-Protocol-Version is not the version in _meta";
    if (!str_equal(header(arrival->http, "mcp-method"), arrival->message.method))
        return "the header Mcp-Method is not the method of the request";
    if (name && !str_equal(header(arrival->http, "mcp-name"), name))
        return "the header Mcp-Name is not what the request names";
    return NULL;
}

static struct mcp_exchange *post_stateless(struct arrival *arrival)
{
    const char *mismatch;
    scoped(free) char *data = NULL;
    struct error err = { 0 };
    int code;

    if (arrival->message.kind != JSONRPC_REQUEST)
        return accept_silently(arrival);
    mismatch = mcp_meta_version(arrival->message.params) ? find_mismatch(arrival) : NULL;
    if (mismatch)
        return refuse(arrival, 400, MCP_HEADER_MISMATCH, mismatch, NULL);
    code = mcp_meta_check(arrival->message.params, &data, &err);
    if (code)
        return refuse(arrival, 400, code, err.message, data);
    return start(arrival, NULL, NULL);
}

/* --- with initialize ------------------------------------------------------------------------- */

static struct mcp_exchange *initialize(struct arrival *arrival)
{
    struct mcp_client *client;
    scoped(free) char *shown = NULL;
    struct error err = { 0 };

    if (mcp_initialize_check(arrival->message.params, &err) < 0)
        return refuse(arrival, 400, JSONRPC_INVALID_PARAMS, err.message, NULL);
    client = mcp_client_new(arrival->mcp, arrival->caller, ID_MCP_CLIENT, NULL, &err);
    if (!client)
        return refuse(arrival, 429, JSONRPC_INTERNAL_ERROR, err.message, NULL);
    shown = mcp_client_header(arrival->mcp, client->id);
    http_respond_header(arrival->http, "Mcp-Session-Id", shown);
    return start(arrival, client, NULL);
}

/* After a restart of the daemon what was agreed on is known from the header. */
static bool agree_again(const struct arrival *arrival, struct mcp_client *client)
{
    const char *version = header(arrival->http, "mcp-protocol-version");

    if (!client->version)
        client->version = version ? mcp_version_find(version) : mcp_version_find("2025-03-26");
    return !version || mcp_version_find(version);
}

static struct mcp_exchange *post_of_client(struct arrival *arrival, const char *id)
{
    struct mcp_client *client = mcp_client_find(arrival->mcp, arrival->caller, id);

    if (arrival->is_guest && !client && id_is_valid(id, ID_MCP_CLIENT) &&
        arrival->message.kind == JSONRPC_REQUEST)
        return start(arrival, NULL, id);
    if (!client || client->channel)
        return refuse(arrival, 404, MCP_SESSION_NOT_FOUND,
                      "unknown MCP session: send initialize again", NULL);
    if (!agree_again(arrival, client)) {
        scoped(free) char *data =
            mcp_version_data(header(arrival->http, "mcp-protocol-version"), false);

        return refuse(arrival, 400, JSONRPC_INVALID_REQUEST,
                      "this Mcp-Protocol-Version is not supported", data);
    }
    mcp_client_touch(client);
    if (arrival->message.kind == JSONRPC_REQUEST)
        return start(arrival, client, NULL);
    if (arrival->message.kind == JSONRPC_NOTIFICATION)
        mcp_notification(client, &arrival->message);
    return accept_silently(arrival);
}

static struct mcp_exchange *post_stateful(struct arrival *arrival)
{
    char id[ID_SIZE];
    scoped(free) char *node = NULL;

    mcp_client_header_read(arrival->http, id, &node);
    if (header(arrival->http, "mcp-session-id"))
        return post_of_client(arrival, id);
    if (arrival->message.kind == JSONRPC_REQUEST &&
        strcmp(arrival->message.method, "initialize") == 0)
        return initialize(arrival);
    return refuse(arrival, 400, JSONRPC_INVALID_REQUEST,
                  "the header Mcp-Session-Id is missing: send initialize first", NULL);
}

struct mcp_exchange *mcp_post(struct mcp *mcp, const struct caller_identity *caller,
                              struct http_exchange *http, bool is_guest, json_t *document,
                              const void *body, size_t length)
{
    struct arrival arrival = { .mcp = mcp, .caller = caller, .http = http, .is_guest = is_guest };
    struct error err = { 0 };
    struct mcp_exchange *exchange;
    int code = document ? jsonrpc_take(json_incref(document), &arrival.message, &err)
                        : jsonrpc_read(body, length, &arrival.message, &err);

    if (code)
        exchange = refuse(&arrival, 400, code, err.message, NULL);
    else if (says_stateless(&arrival))
        exchange = post_stateless(&arrival);
    else
        exchange = post_stateful(&arrival);
    jsonrpc_message_fini(&arrival.message);
    return exchange;
}

void mcp_refuse_text(struct mcp *mcp, struct http_exchange *http, const struct error *err)
{
    fail(mcp, http, err->code == ERR_TOO_LARGE ? 413 : 400, NULL, JSONRPC_PARSE_ERROR, err->message,
         NULL);
}

/* --- GET and DELETE -------------------------------------------------------------------------- */

static struct mcp_client *find_client(struct mcp *mcp, const struct caller_identity *caller,
                                      struct http_exchange *http)
{
    scoped(free) char *node = NULL;
    struct mcp_client *client;
    char id[ID_SIZE];

    mcp_client_header_read(http, id, &node);
    client = *id ? mcp_client_find(mcp, caller, id) : NULL;
    if (client && !client->channel)
        return client;
    if (header(http, "mcp-session-id"))
        fail(mcp, http, 404, NULL, MCP_SESSION_NOT_FOUND,
             "unknown MCP session: send initialize again", NULL);
    else
        fail(mcp, http, 400, NULL, JSONRPC_INVALID_REQUEST, "the header Mcp-Session-Id is missing",
             NULL);
    return NULL;
}

struct mcp_exchange *mcp_get(struct mcp *mcp, const struct caller_identity *caller,
                             struct http_exchange *http)
{
    const char *last = header(http, "last-event-id");
    struct mcp_client *client;
    struct mcp_stream *stream;

    if (!read_accept(http).accepts_events) {
        fail(mcp, http, 406, NULL, JSONRPC_INVALID_REQUEST, "Accept must allow text/event-stream",
             NULL);
        return NULL;
    }
    client = find_client(mcp, caller, http);
    if (!client)
        return NULL;
    mcp_client_touch(client);
    stream = last ? mcp_stream_resume(client, http, last) : mcp_stream_open(client, http);
    if (stream)
        return mcp_stream_exchange(stream);
    if (last)
        fail(mcp, http, 400, NULL, JSONRPC_INVALID_REQUEST,
             "the messages after this Last-Event-ID are not kept any more", NULL);
    else
        fail(mcp, http, 429, NULL, JSONRPC_INVALID_REQUEST, "too many streams at once", NULL);
    return NULL;
}

struct deletion {
    struct mcp_exchange exchange;
    struct mcp *mcp;
    struct mcp_ending *ending;
};

static void on_deletion_gone(struct mcp_exchange *exchange)
{
    struct deletion *deletion = container_of(exchange, struct deletion, exchange);

    mcp_ending_forget(deletion->ending);
    free(deletion);
}

static void on_client_ended(void *user)
{
    struct deletion *deletion = user;

    deletion->ending = NULL;
    mcp_respond(deletion->mcp, deletion->exchange.http, 204, NULL, 0);
}

struct mcp_exchange *mcp_delete(struct mcp *mcp, const struct caller_identity *caller,
                                struct http_exchange *http)
{
    struct mcp_client *client = find_client(mcp, caller, http);
    struct deletion *deletion;

    if (!client)
        return NULL;
    deletion = xnew(struct deletion);
    deletion->exchange = (struct mcp_exchange){ .http = http, .on_gone = on_deletion_gone };
    deletion->mcp = mcp;
    deletion->ending = mcp_client_end(client, on_client_ended, deletion);
    return &deletion->exchange;
}
