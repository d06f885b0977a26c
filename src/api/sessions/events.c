/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events as Server-Sent Events: the id of each is its number, so that Last-Event-ID goes on where a
 * broken connection ended. Events in the store come first, in pages, then new ones as they happen.
 */

#include "core/events.h"
#include "api/gather.h"
#include "api/private.h"
#include "base/alloc.h"
#include "base/str.h"
#include "face/events.h"
#include "loop/flow.h"
#include "service/event_page.h"
#include "wire/http/sse.h"

#include <stdio.h>
#include <string.h>

enum {
    PAGE = 200,
    PAGE_BYTES = 256 * 1024,
    EVENT_COST = 16 * 1024, /* sending one takes as long as handling so many bytes of output */
};

struct event_reader {
    struct request *request; /* NULL when the client has left */
    struct core *core;       /* borrowed */
    struct events_watcher watcher;
    struct event_page page;
    struct event_answer answer;
    struct timer end;         /* ends the answer outside of the callback of an event */
    struct flow_source flow;  /* with all readers of its caller */
    char session_id[ID_SIZE]; /* "" for all */
    char *owner;              /* owned; NULL for any */
    uint64_t last;            /* number of the last one sent */
    bool is_reading;          /* the store has not answered yet */
    bool is_behind;           /* more is in the store than was sent */
    bool follows; /* until the session has ended, for good when it is for all sessions */
};

static void reader_free(struct event_reader *reader)
{
    events_unwatch(&reader->watcher);
    event_answer_fini(&reader->answer);
    timer_stop(&reader->end);
    flow_leave(&reader->flow);
    free(reader->owner);
    free(reader);
}

static void on_gone(struct request *request)
{
    struct event_reader *reader = request->state;

    reader->request = NULL;
    events_unwatch(&reader->watcher);
    event_answer_fini(&reader->answer);
    timer_stop(&reader->end);
    flow_leave(&reader->flow);
    if (!reader->is_reading)
        reader_free(reader);
}

static void send_event(struct event_reader *reader, const struct event_record *event)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(1024 * 1024);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(2 * 1024 * 1024);
    struct json_writer json = JSON_WRITER(&data);
    char id[24];

    json_begin_object(&json, NULL);
    event_write_members(event, &json);
    json_end_object(&json);
    snprintf(id, sizeof(id), "%llu", (unsigned long long)event->sequence);
    if (sse_write(&text, id, event->type, data.data, data.length) == 0)
        http_respond_write(reader->request->exchange, text.data, text.length);
    reader->last = event->sequence;
    if (*reader->session_id && str_equal(event->type, "session.ended"))
        reader->follows = false;
}

static bool has_room(const struct event_reader *reader)
{
    return http_respond_pending(reader->request->exchange) < HTTP_HIGH_WATER;
}

/* --- from the store -------------------------------------------------------------------------- */

static void on_stored(struct event_page *page, const struct event_record *event)
{
    struct event_reader *reader = container_of(page, struct event_reader, page);

    if (reader->request)
        send_event(reader, event);
}

static void read_page(struct event_reader *reader);

static void end_answer(struct event_reader *reader)
{
    struct request *request = reader->request;

    http_respond_end(request->exchange);
    request->on_gone = NULL;
    reader_free(reader);
}

static void on_page(struct event_page *page)
{
    struct event_reader *reader = container_of(page, struct event_reader, page);

    reader->is_reading = false;
    if (!reader->request) {
        reader_free(reader);
        return;
    }
    if (page->err.code)
        http_exchange_abort(reader->request->exchange);
    else if (page->has_more || reader->is_behind)
        read_page(reader);
    else if (!reader->follows)
        end_answer(reader);
}

/* The client's pace decides: with its buffer full the rest waits in the store. */
static void read_page(struct event_reader *reader)
{
    reader->is_behind = true;
    if (reader->is_reading || !has_room(reader))
        return;
    reader->is_behind = false;
    reader->is_reading = true;
    reader->page = (struct event_page){
        .on_event = on_stored,
        .done = on_page,
        .session_id = *reader->session_id ? reader->session_id : NULL,
        .owner = reader->owner,
        .after = reader->last,
        .limit = PAGE,
        .limit_bytes = PAGE_BYTES,
    };
    event_page_read(&reader->page, reader->core);
}

/* --- in turn ----------------------------------------------------------------------------------- */

/* All readers of one caller share one part of a turn: a thousand of them would hold up the requests
 * of others with each event. Those that wait find all that happened meanwhile in the store. */
static bool may_send(struct event_reader *reader)
{
    if (!flow_ask(&reader->flow))
        return false;
    (void)flow_took(&reader->flow, EVENT_COST, false);
    return true;
}

static void on_served(struct flow_source *source)
{
    struct event_reader *reader = container_of(source, struct event_reader, flow);

    (void)flow_took(source, EVENT_COST, false);
    if (reader->is_behind)
        read_page(reader);
}

static void join_flow(struct event_reader *reader)
{
    const struct request *request = reader->request;
    const char *caller = str_is_empty(request->principal) ? request->owner : request->principal;
    scoped(free) char *name = xasprintf("events %s", caller);

    flow_join(&reader->flow, reader->core->flows, name, on_served);
}

/* --- as they happen -------------------------------------------------------------------------- */

static void on_event(struct events_watcher *watcher, const struct event_record *event)
{
    struct event_reader *reader = container_of(watcher, struct event_reader, watcher);

    if (event->sequence <= reader->last)
        return;
    if (reader->is_reading || reader->is_behind || !has_room(reader) || !may_send(reader))
        reader->is_behind = true;
    else
        send_event(reader, event);
    if (!reader->follows)
        timer_arm_in(&reader->end, 0); /* watchers do not go while they are being called */
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);
    struct event_reader *reader = request->state;

    if (request->on_gone && reader->is_behind)
        read_page(reader);
}

/* If events of the store are still to be read, on_page() ends the answer after them. */
static void on_end(struct timer *timer)
{
    struct event_reader *reader = container_of(timer, struct event_reader, end);

    if (!reader->is_reading && !reader->is_behind)
        end_answer(reader);
}

/* A node that reads for a client of its own has to know where it begins, to go on from there. */
static void send_start(const struct event_reader *reader)
{
    char text[48];
    int length = snprintf(text, sizeof(text), "id: %llu\n\n", (unsigned long long)reader->last);

    if (reader->request->relay && !*reader->session_id)
        http_respond_write(reader->request->exchange, text, (size_t)length);
}

/* --- beginning ------------------------------------------------------------------------------- */

static int read_start(const struct request *request, uint64_t *out_after, struct error *err)
{
    const char *id = request_header(request, "last-event-id");

    if (id && str_to_u64(id, out_after) < 0)
        return error_named(err, ERR_INVALID, "invalid_header",
                           "Last-Event-ID must be the number of an event");
    return request_parameter_u64(request, "after", INT64_MAX, out_after, err);
}

/* The owner of the events; NULL for those of all owners. As for a list of sessions, but an
 * administrator need not ask. */
static int read_owner(const struct request *request, const char **out_owner, struct error *err)
{
    const char *owner = request_parameter(request, "owner");

    *out_owner = request->any_owner ? NULL : request->owner;
    if (!owner)
        return 0;
    *out_owner = str_equal(owner, "*") ? NULL : owner;
    if (request_may_name_owner(request))
        return 0;
    return error_named(err, ERR_FORBIDDEN, "forbidden",
                       "only an operator may follow another owner's sessions");
}

static void begin(struct request *request, const char *session_id, uint64_t after, bool follows)
{
    struct event_reader *reader;
    const char *owner;
    struct error err = { 0 };

    if (read_start(request, &after, &err) < 0 || read_owner(request, &owner, &err) < 0 ||
        request_parameter_bool(request, "follow", &follows, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    reader = xnew(struct event_reader);
    reader->request = request;
    reader->core = request->core;
    reader->last = after;
    reader->follows = follows && !request->is_head;
    reader->owner = owner ? xstrdup(owner) : NULL;
    snprintf(reader->session_id, sizeof(reader->session_id), "%s", session_id);
    memcpy(reader->watcher.session_id, reader->session_id, sizeof(reader->session_id));
    reader->watcher.owner = reader->owner;
    reader->watcher.on_event = on_event;
    timer_init(&reader->end, request->core->loop, on_end);
    request->state = reader;
    request->on_gone = on_gone;
    http_respond_on_drain(request->exchange, on_drain);
    event_answer_init(&reader->answer, request);
    event_answer_start(&reader->answer);
    send_start(reader);
    join_flow(reader);
    if (reader->follows)
        events_watch(request->core->events, &reader->watcher);
    read_page(reader);
}

static void get_events(struct request *request)
{
    begin(request, "", events_last(request->core->events), true);
}

/* All that happened to the session, and for a live one what will. */
static void get_session_events(struct request *request)
{
    begin(request, request->session_id, 0, request->session != NULL);
}

static const struct route_parameter parameters[] = {
    { "after", "integer", "events after this number only, as with Last-Event-ID" },
    { "follow", "boolean", "0 ends the answer after the past events" },
    { 0 },
};

static const struct route_parameter cluster_parameters[] = {
    { "after", "string", "events after this one only, as with Last-Event-ID" },
    { "follow", "boolean", "0 ends the answer after the past events" },
    { "owner", "string", "events of this owner's sessions, * for all owners; operators only" },
    API_NODE_PARAMETER,
    { 0 },
};

static const struct route_answer answers[] = {
    { 200, "text/event-stream; the id of an event is its number" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 0 },
};

const struct route api_event_routes[] = {
    { HTTP_GET, "/api/v1/events", get_events, "Events of the caller's sessions",
      .parameters = cluster_parameters, .answers = answers, .gather = api_gather_events },
    { HTTP_GET, "/api/v1/sessions/{session}/events", get_session_events,
      "Events of a session, past and live", .session = ROUTE_ANY_SESSION, .parameters = parameters,
      .answers = answers },
    { 0 },
};
