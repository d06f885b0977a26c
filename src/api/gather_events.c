/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /events of the whole cluster: the streams of all nodes in one. Events are numbered by each node,
 * so the id of an event here says how far each of them was read: NODE:NUMBER,NODE:NUMBER,… and a
 * client that comes back with it as Last-Event-ID misses nothing of any node.
 *
 * Nodes come and go: those that are new are read from their first event on that comes after, those
 * that are lost from where they were when they are back.
 *
 * The answer begins when every node has said where its stream begins, or after PATIENCE_US: a client
 * that has the head of the answer misses no event that it causes from then on.
 */

#include "api/gather.h"
#include "api/private.h"
#include "base/alloc.h"
#include "base/list.h"
#include "base/str.h"
#include "cluster/cluster.h"
#include "cluster/relay.h"
#include "face/events.h"
#include "face/home.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_US = 1000 * 1000,           /* how often nodes are looked for */
    PATIENCE_US = 5 * LOOK_US,       /* for a node that is there and does not answer */
    EVENT_MAXIMUM = 4 * 1024 * 1024, /* bytes of one event */
    POSITION_MAXIMUM = 64 * 1024,    /* of the text that says where each node was */
};

struct source {
    struct list link;
    struct stream *stream; /* borrowed */
    char *node;            /* owned */
    uint64_t last;         /* number of its last event; 0 before the first */
    bool has_last;
    struct http_call *call; /* owned; NULL while it is not read */
    struct buffer partial;  /* of an event whose end has not come */
};

struct stream {
    struct request *request; /* borrowed */
    struct event_answer answer;
    struct list sources;
    struct timer look;
    struct timer end;
    int64_t begun_us;
    bool follows;
    bool is_paused;
};

/* --- where each node was ------------------------------------------------------------------------- */

static struct source *source_of(struct stream *stream, const char *node)
{
    struct source *source;

    list_for_each (source, &stream->sources, link) {
        if (str_equal(source->node, node))
            return source;
    }
    source = xnew(struct source);
    source->stream = stream;
    source->node = xstrdup(node);
    source->partial = BUFFER_INIT(EVENT_MAXIMUM);
    list_append(&stream->sources, &source->link);
    return source;
}

static void write_position(const struct stream *stream, struct buffer *out)
{
    const struct source *source;

    list_for_each (source, &stream->sources, link) {
        if (!source->has_last)
            continue;
        if (out->length)
            buffer_append_byte(out, ',');
        (void)http_escape(out, source->node);
        buffer_appendf(out, ":%" PRIu64, source->last);
    }
}

/* "a:12,b:40"; -1 when it is not such a text. */
static int read_position(struct stream *stream, const char *text)
{
    while (*text) {
        size_t length = strcspn(text, ",");
        scoped(free) char *part = xstrndup(text, length);
        scoped(free) char *node = xmalloc(length + 1);
        char *colon = strrchr(part, ':');
        struct source *source;
        uint64_t number;

        if (!colon || colon == part || str_to_u64(colon + 1, &number) < 0)
            return -1;
        request_unescape(part, (size_t)(colon - part), node);
        source = source_of(stream, node);
        source->last = number;
        source->has_last = true;
        text += length + (text[length] == ',');
    }
    return 0;
}

/* --- life ------------------------------------------------------------------------------------ */

static void source_free(struct source *source)
{
    if (source->call)
        http_call_cancel(source->call);
    list_remove(&source->link);
    buffer_fini(&source->partial);
    free(source->node);
    free(source);
}

static void stream_free(struct stream *stream)
{
    struct source *source;

    event_answer_fini(&stream->answer);
    timer_stop(&stream->look);
    timer_stop(&stream->end);
    while ((source = list_first(&stream->sources, struct source, link)))
        source_free(source);
    free(stream);
}

static void on_gone(struct request *request)
{
    stream_free(request->state);
}

/* --- events ---------------------------------------------------------------------------------- */

static void start_when_all_have_begun(struct stream *stream)
{
    const struct source *source;

    list_for_each (source, &stream->sources, link)
        if (source->call && !source->has_last)
            return;
    event_answer_start(&stream->answer);
}

/* One event as the node sent it, with another id. Comments keep the connection to the node alive, and
 * have no meaning here. */
static void pass_on(struct source *source, const char *text, size_t length)
{
    struct stream *stream = source->stream;
    struct http_exchange *exchange = stream->request->exchange;
    scoped(buffer_fini) struct buffer position = BUFFER_INIT(POSITION_MAXIMUM);
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(2 * EVENT_MAXIMUM);
    bool has_data = false;

    for (size_t at = 0; at < length;) {
        size_t line = strcspn(text + at, "\n");

        if (line > 4 && strncmp(text + at, "id: ", 4) == 0) {
            scoped(free) char *number = xstrndup(text + at + 4, line - 4);

            source->has_last = str_to_u64(number, &source->last) == 0;
        } else if (line && text[at] != ':') {
            has_data = true;
            buffer_append(&out, text + at, line);
            buffer_append_byte(&out, '\n');
        }
        at += line + 1;
    }
    if (!has_data)
        return;
    event_answer_start(&stream->answer);
    write_position(stream, &position);
    buffer_appendf(&out, "id: %s\n\n", buffer_text(&position));
    http_respond_write(exchange, out.data, out.length);
}

static void pause_all(struct stream *stream, bool is_paused)
{
    struct source *source;

    stream->is_paused = is_paused;
    list_for_each (source, &stream->sources, link) {
        if (source->call && is_paused)
            http_call_pause(source->call);
        else if (source->call)
            http_call_resume(source->call);
    }
}

static void on_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct source *source = http_call_user(call);
    struct stream *stream = source->stream;
    const char *text, *end;

    if (http_call_status(call) != 200)
        return;
    if (buffer_append(&source->partial, data, length) < 0)
        buffer_clear(&source->partial); /* an event that is too long is left out */
    text = buffer_text(&source->partial);
    while ((end = strstr(text, "\n\n"))) {
        pass_on(source, text, (size_t)(end - text) + 1);
        buffer_consume(&source->partial, (size_t)(end - text) + 2);
        text = buffer_text(&source->partial);
    }
    start_when_all_have_begun(stream);
    if (!event_answer_has_room(&stream->answer) && !stream->is_paused)
        pause_all(stream, true);
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);

    if (request->on_gone == on_gone)
        pause_all(request->state, false);
}

static void on_call_end(struct http_call *call, const struct error *err UNUSED)
{
    struct source *source = http_call_user(call);
    struct stream *stream = source->stream;
    const struct source *other;

    source->call = NULL;
    buffer_clear(&source->partial);
    start_when_all_have_begun(stream);
    if (stream->follows)
        return; /* on_look() begins again, if the node is there */
    list_for_each (other, &stream->sources, link) {
        if (other->call)
            return;
    }
    timer_arm_in(&stream->end, 0);
}

static void on_end(struct timer *timer)
{
    struct stream *stream = container_of(timer, struct stream, end);
    struct request *request = stream->request;

    http_respond_end(request->exchange);
    request->on_gone = NULL;
    stream_free(stream);
}

/* --- reading a node -------------------------------------------------------------------------- */

static void read_source(struct source *source, const struct cluster_node *node)
{
    static const struct http_call_handler handler = { .on_data = on_data, .on_end = on_call_end };
    struct stream *stream = source->stream;
    const struct request *request = stream->request;
    const struct cluster_node *self = cluster_self(request->faces->parts.cluster);
    struct relay_identity caller = request_relay_identity(request);
    scoped(buffer_fini) struct buffer target = BUFFER_INIT(4096);

    buffer_append_text(&target, "/api/v1/events?node=");
    (void)http_escape(&target, node->id);
    if (source->has_last)
        buffer_appendf(&target, "&after=%" PRIu64, source->last);
    if (!stream->follows)
        buffer_append_text(&target, "&follow=0");
    source->call = relay_call(request->faces->parts.relay,
                              &(struct relay_ask){
                                  .from = { self->id, self->epoch, NULL },
                                  .to = { node->id, node->epoch, node->address },
                                  .caller = &caller,
                                  .method = HTTP_GET,
                                  .target = buffer_text(&target),
                              },
                              &handler, source, NULL);
    if (source->call && stream->is_paused)
        http_call_pause(source->call);
}

static void look_for_nodes(struct stream *stream)
{
    const struct cluster *cluster = stream->request->faces->parts.cluster;
    const struct cluster_node *node = NULL;

    while ((node = cluster_next(cluster, node))) {
        struct source *source = source_of(stream, node->id);

        if (!source->call && node->state != NODE_LOST)
            read_source(source, node);
        else if (source->call && node->state == NODE_LOST)
            http_call_cancel(steal_ptr(&source->call));
    }
}

static void on_look(struct timer *timer)
{
    struct stream *stream = container_of(timer, struct stream, look);

    look_for_nodes(stream);
    if (loop_now_us(stream->request->faces->parts.loop) - stream->begun_us >= PATIENCE_US)
        event_answer_start(&stream->answer);
    else
        start_when_all_have_begun(stream);
    timer_arm_in(&stream->look, LOOK_US);
}

/* --- beginning ------------------------------------------------------------------------------- */

static int read_start(struct stream *stream, struct error *err)
{
    const char *after = request_parameter(stream->request, "after");
    const char *last = request_header(stream->request, "last-event-id");

    if (last && read_position(stream, last) < 0)
        return error_named(err, ERR_INVALID, "invalid_header",
                           "Last-Event-ID must be the id of an event");
    if (after && read_position(stream, after) < 0)
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter after must be the id of an event of the cluster, "
                           "NODE:NUMBER,…");
    stream->follows = true;
    return request_parameter_bool(stream->request, "follow", &stream->follows, err);
}

void api_gather_events(struct request *request)
{
    struct stream *stream = xnew(struct stream);
    struct error err = { 0 };

    stream->request = request;
    list_init(&stream->sources);
    timer_init(&stream->look, request->faces->parts.loop, on_look);
    timer_init(&stream->end, request->faces->parts.loop, on_end);
    if (read_start(stream, &err) < 0) {
        stream_free(stream);
        request_fail(request, &err);
        return;
    }
    stream->follows = stream->follows && !request->is_head;
    request->state = stream;
    request->on_gone = on_gone;
    http_respond_on_drain(request->exchange, on_drain);
    event_answer_init(&stream->answer, request);
    stream->begun_us = loop_now_us(request->faces->parts.loop);
    look_for_nodes(stream);
    start_when_all_have_begun(stream);
    if (stream->follows)
        timer_arm_in(&stream->look, LOOK_US);
}
