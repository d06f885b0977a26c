/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to one HTTP request: JSON when it is there soon, and otherwise a stream of events.
 *
 * Events of a client that has a state here are numbered and kept for a while, within limits. When
 * the connection breaks the request goes on, and a GET with Last-Event-ID gets what was missed.
 */

#include "base/alloc.h"
#include "base/str.h"
#include "core/metrics.h"
#include "mcp/private.h"
#include "wire/http/sse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATIENCE_US = 500 * 1000,   /* until an answer becomes a stream */
    KEPT_US = 60 * 1000 * 1000, /* an ended one that was not asked for again */
    KEPT_STREAMS = 32,
    EVENT_ID_SIZE = 48,
};

struct kept_event {
    struct list node;
    uint64_t number;
    size_t length;
    char text[];
};

struct attachment {
    struct mcp_exchange exchange;
    struct mcp_stream *stream; /* NULL when it is another's now, or gone */
};

struct mcp_stream {
    struct mcp_channel channel;
    struct mcp *mcp;           /* borrowed */
    struct mcp_client *client; /* borrowed; NULL for a request that stands alone */
    struct list node;          /* client->streams */
    struct mcp_stream_options options;
    struct mcp_request *request;   /* borrowed; NULL when it has ended */
    struct attachment *attachment; /* NULL while no client is connected */
    uint64_t number, last_event;
    struct list events; /* struct kept_event */
    struct timer timer; /* patience, then heartbeats, then the time that it is kept */
    bool is_events;     /* the answer has begun as a stream */
    bool is_ended;
    bool is_own; /* a GET: it has no request and no end */
};

/* --- answers --------------------------------------------------------------------------------- */

void mcp_respond(struct mcp *mcp, struct http_exchange *http, int status, const void *text,
                 size_t length)
{
    metrics_add(mcp->parts.core->metrics, METRIC_HTTP_REQUESTS, (unsigned)status / 100, 1);
    http_respond(http, status, length ? "application/json" : NULL, text, length);
}

static struct http_exchange *http_of(const struct mcp_stream *stream)
{
    return stream->attachment ? stream->attachment->exchange.http : NULL;
}

static void event_id(const struct mcp_stream *stream, uint64_t number, char id[EVENT_ID_SIZE])
{
    snprintf(id, EVENT_ID_SIZE, "%llu-%llu", (unsigned long long)stream->number,
             (unsigned long long)number);
}

static void write_event(const struct mcp_stream *stream, uint64_t number, const void *text,
                        size_t length)
{
    scoped(buffer_fini) struct buffer event = BUFFER_INIT(MCP_ANSWER_MAXIMUM + 4096);
    char id[EVENT_ID_SIZE];

    event_id(stream, number, id);
    if (http_of(stream) && sse_write(&event, stream->client ? id : NULL, NULL, text, length) == 0)
        http_respond_write(http_of(stream), event.data, event.length);
}

/* The first event has no data: from its id on the client can ask again. */
static void begin_events(struct mcp_stream *stream)
{
    metrics_add(stream->mcp->parts.core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    stream->is_events = true;
    http_respond_header(http_of(stream), "X-Accel-Buffering", "no");
    http_respond_start(http_of(stream), 200, "text/event-stream", -1);
    if (stream->options.is_primed && stream->client)
        write_event(stream, 0, "", 0);
    timer_arm_in(&stream->timer, MCP_HEARTBEAT_US);
}

/* --- what is kept ---------------------------------------------------------------------------- */

static void event_drop(struct mcp_stream *stream, struct kept_event *event)
{
    stream->client->replay_bytes -= event->length;
    list_remove(&event->node);
    free(event);
}

/* The oldest go first, of all clients. */
static void make_room(struct mcp_client *client)
{
    struct mcp_stream *stream;

    list_for_each (stream, &client->streams, node) {
        struct kept_event *event, *following;

        list_for_each_safe (event, following, &stream->events, node) {
            if (client->replay_bytes <= MCP_REPLAY_BYTES)
                return;
            event_drop(stream, event);
        }
    }
}

static void keep_event(struct mcp_stream *stream, uint64_t number, const void *text, size_t length)
{
    struct kept_event *event;

    if (!stream->client || length > MCP_REPLAY_BYTES)
        return;
    event = xmalloc(sizeof(*event) + length);
    event->number = number;
    event->length = length;
    memcpy(event->text, text, length);
    list_append(&stream->events, &event->node);
    stream->client->replay_bytes += length;
    make_room(stream->client);
}

static void send_event(struct mcp_stream *stream, const void *text, size_t length)
{
    uint64_t number = ++stream->last_event;

    write_event(stream, number, text, length);
    keep_event(stream, number, text, length);
}

/* --- life ------------------------------------------------------------------------------------ */

static void stream_free(struct mcp_stream *stream)
{
    struct kept_event *event, *following;

    timer_stop(&stream->timer);
    if (stream->attachment) {
        stream->attachment->stream = NULL;
        if (stream->client)
            stream->client->attached--;
    }
    if (stream->client) {
        list_for_each_safe (event, following, &stream->events, node)
            event_drop(stream, event);
        stream->client->stream_count--;
    }
    list_remove(&stream->node);
    free(stream);
}

static void on_timer(struct timer *timer)
{
    struct mcp_stream *stream = container_of(timer, struct mcp_stream, timer);
    struct http_exchange *http = http_of(stream);

    if (!http) {
        if (stream->is_ended)
            stream_free(stream);
        return;
    }
    if (!stream->is_events) {
        begin_events(stream);
        return;
    }
    if (http_respond_pending(http) == 0)
        http_respond_write(http, ":\n\n", 3);
    timer_arm_in(timer, MCP_HEARTBEAT_US);
}

/* A client that comes back finds the rest; where none can, the stream is over. */
static void on_detached(struct mcp_stream *stream)
{
    bool may_come_back = stream->client && stream->is_events && !stream->is_own;

    stream->attachment = NULL;
    if (stream->client)
        stream->client->attached--;
    timer_stop(&stream->timer);
    if (!may_come_back) {
        if (stream->request)
            mcp_request_drop(stream->request);
        stream_free(stream);
    } else if (stream->is_ended) {
        timer_arm_in(&stream->timer, KEPT_US);
    }
}

static void on_gone(struct mcp_exchange *exchange)
{
    struct attachment *attachment = container_of(exchange, struct attachment, exchange);

    if (attachment->stream)
        on_detached(attachment->stream);
    free(attachment);
}

static void attach(struct mcp_stream *stream, struct http_exchange *http)
{
    struct attachment *attachment = xnew(struct attachment);

    attachment->exchange = (struct mcp_exchange){ .http = http, .on_gone = on_gone };
    attachment->stream = stream;
    stream->attachment = attachment;
    if (stream->client)
        stream->client->attached++;
}

static void forget_oldest(struct mcp_client *client)
{
    struct mcp_stream *stream, *following;
    size_t kept = 0;

    list_for_each (stream, &client->streams, node)
        kept += stream->is_ended && !stream->attachment;
    list_for_each_safe (stream, following, &client->streams, node) {
        if (kept < KEPT_STREAMS)
            return;
        if (!stream->is_ended || stream->attachment)
            continue;
        kept--;
        stream_free(stream);
    }
}

/* --- the channel of a request ---------------------------------------------------------------- */

static struct mcp_stream *stream_from(struct mcp_channel *channel)
{
    return container_of(channel, struct mcp_stream, channel);
}

static void stream_begin(struct mcp_channel *channel, struct mcp_request *request)
{
    struct mcp_stream *stream = stream_from(channel);

    stream->request = request;
    if (stream->options.accepts_events)
        timer_arm_in(&stream->timer, PATIENCE_US);
}

static void stream_notify(struct mcp_channel *channel, const void *text, size_t length)
{
    struct mcp_stream *stream = stream_from(channel);

    if (!stream->options.accepts_events)
        return;
    if (!stream->is_events && stream->attachment)
        begin_events(stream);
    send_event(stream, text, length);
}

static void end_answer(struct mcp_stream *stream)
{
    stream->request = NULL;
    stream->is_ended = true;
    timer_stop(&stream->timer);
    if (stream->attachment)
        http_respond_end(http_of(stream));
    else
        timer_arm_in(&stream->timer, KEPT_US);
}

static void stream_finish(struct mcp_channel *channel, int status, const void *text, size_t length)
{
    struct mcp_stream *stream = stream_from(channel);
    bool only_events = stream->options.accepts_events && !stream->options.accepts_json;

    if (!stream->is_events && status == 200 && only_events)
        begin_events(stream);
    if (stream->is_events) {
        send_event(stream, text, length);
        end_answer(stream);
        return;
    }
    stream->request = NULL;
    stream->is_ended = true;
    timer_stop(&stream->timer);
    mcp_respond(stream->mcp, http_of(stream), status, text, length);
}

static void stream_close(struct mcp_channel *channel)
{
    struct mcp_stream *stream = stream_from(channel);

    if (!stream->is_events) {
        stream->is_events = true;
        http_respond_start(http_of(stream), 200, "text/event-stream", -1);
    }
    end_answer(stream);
}

static bool stream_is_full(const struct mcp_channel *channel)
{
    const struct mcp_stream *stream = container_of(channel, const struct mcp_stream, channel);
    struct http_exchange *http = http_of(stream);

    return !http || http_respond_pending(http) >= HTTP_LOW_WATER;
}

static const struct mcp_channel_ops stream_ops = {
    .begin = stream_begin,
    .notify = stream_notify,
    .finish = stream_finish,
    .close = stream_close,
    .is_full = stream_is_full,
};

/* --- beginnings ------------------------------------------------------------------------------ */

struct mcp_stream *mcp_stream_new(struct mcp *mcp, struct mcp_client *client,
                                  struct http_exchange *http,
                                  const struct mcp_stream_options *options)
{
    struct mcp_stream *stream = xnew(struct mcp_stream);

    stream->channel.ops = &stream_ops;
    stream->mcp = mcp;
    stream->client = client;
    stream->options = *options;
    list_init(&stream->events);
    list_init(&stream->node);
    timer_init(&stream->timer, mcp->parts.loop, on_timer);
    if (client) {
        forget_oldest(client);
        stream->number = ++client->next_stream;
        client->stream_count++;
        list_append(&client->streams, &stream->node);
    }
    attach(stream, http);
    return stream;
}

struct mcp_channel *mcp_stream_channel(struct mcp_stream *stream)
{
    return &stream->channel;
}

struct mcp_exchange *mcp_stream_exchange(struct mcp_stream *stream)
{
    return &stream->attachment->exchange;
}

struct mcp_stream *mcp_stream_open(struct mcp_client *client, struct http_exchange *http)
{
    struct mcp_stream *stream;

    if (client->stream_count >= MCP_STREAMS_MAXIMUM)
        return NULL;
    stream = mcp_stream_new(client->mcp, client, http,
                            &(struct mcp_stream_options){ .accepts_events = true });
    stream->is_own = true;
    begin_events(stream);

    /* Some clients wait for the first bytes before they take it for open. */
    http_respond_write(http, ":\n\n", 3);
    return stream;
}

static int parse_event_id(const char *text, uint64_t *out_stream, uint64_t *out_event)
{
    const char *dash = strchr(text, '-');
    scoped(free) char *number = dash ? xstrndup(text, (size_t)(dash - text)) : NULL;

    return number && str_to_u64(number, out_stream) == 0 ? str_to_u64(dash + 1, out_event) : -1;
}

static struct mcp_stream *find_stream(const struct mcp_client *client, uint64_t number)
{
    struct mcp_stream *stream;

    list_for_each (stream, &client->streams, node)
        if (stream->number == number && stream->is_events)
            return stream;
    return NULL;
}

/* Whether all events behind this one are there. */
static bool is_complete(const struct mcp_stream *stream, uint64_t after)
{
    struct kept_event *first = list_first(&stream->events, struct kept_event, node);

    if (after > stream->last_event)
        return false;
    return after == stream->last_event || (first && first->number <= after + 1);
}

static void replay(struct mcp_stream *stream, uint64_t after)
{
    struct kept_event *event;

    list_for_each (event, &stream->events, node)
        if (event->number > after)
            write_event(stream, event->number, event->text, event->length);
}

struct mcp_stream *mcp_stream_resume(struct mcp_client *client, struct http_exchange *http,
                                     const char *text)
{
    struct mcp_stream *stream = NULL;
    uint64_t number, after;

    if (parse_event_id(text, &number, &after) == 0)
        stream = find_stream(client, number);
    if (!stream || stream->is_own || !is_complete(stream, after))
        return NULL;
    if (stream->attachment) {
        /* The client knows better than we do that the old connection is dead. */
        http_exchange_abort(http_of(stream));
        stream->attachment->stream = NULL;
        client->attached--;
    }
    attach(stream, http);
    metrics_add(client->mcp->parts.core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_start(http, 200, "text/event-stream", -1);
    replay(stream, after);
    if (stream->is_ended)
        http_respond_end(http);
    else
        timer_arm_in(&stream->timer, MCP_HEARTBEAT_US);
    return stream;
}

void mcp_streams_end(struct mcp_client *client)
{
    static const char ended[] =
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32001,\"message\":\"the MCP session "
        "has ended\"}}";
    struct mcp_stream *stream, *following;

    list_for_each_safe (stream, following, &client->streams, node) {
        struct http_exchange *http = http_of(stream);

        if (http && !stream->is_ended && stream->is_events)
            http_respond_end(http);
        else if (http && !stream->is_ended)
            mcp_respond(client->mcp, http, 404, ended, sizeof(ended) - 1);
        stream_free(stream);
    }
}
