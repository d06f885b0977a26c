/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET …/history: all that is kept of a session, in order: its events, and with the end of each
 * execution what was run and what came of it. It is in the store, so it is there when the sandbox,
 * the session and the daemon that ran it are gone, until retention.
 *
 * As pages of JSON, or as JSON lines in one answer: the session, then a line for each entry. The
 * values of secrets are masked in what programs wrote.
 */

#include "service/history.h"
#include "api/private.h"
#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "core/events.h"
#include "core/metrics.h"
#include "service/event_page.h"
#include "service/executions.h"

#include <stdio.h>
#include <string.h>

enum {
    PAGE_DEFAULT = 100,
    PAGE_MAXIMUM = 1000,
    PAGE_OF_LINES = 50,       /* read at once when all is wanted */
    PAGE_BYTES = 1024 * 1024, /* a page ends behind the entry that goes beyond it */
    LINE_MAXIMUM = 64 * 1024 * 1024,
};

struct entry {
    struct event_record event; /* its texts are owned */
    char execution_id[ID_SIZE];
};

struct history {
    struct request *request; /* NULL when the client has left */
    struct core *core;       /* borrowed */
    struct past_session past;
    struct event_page page;
    struct execution_search search;
    char session_id[ID_SIZE];
    struct entry *entries;   /* owned: a page of events */
    size_t count, next;      /* of them, and the next to be written */
    uint64_t after;          /* the number of the last event that was written */
    uint64_t limit;          /* of entries in this page */
    struct buffer text;      /* a line, or the whole document */
    struct json_writer json; /* writes it */
    bool is_lines;           /* JSON lines, all of them */
    bool with_output;
    bool has_more;
    bool is_reading; /* the store has not answered yet */
    bool is_waiting; /* for room */
};

/* --- life ------------------------------------------------------------------------------------- */

static void drop_entries(struct history *history)
{
    for (size_t i = 0; i < history->count; i++) {
        free((char *)history->entries[i].event.owner);
        free((char *)history->entries[i].event.type);
        free((char *)history->entries[i].event.data_json);
    }
    history->count = history->next = 0;
}

static void history_free(struct history *history)
{
    drop_entries(history);
    free(history->entries);
    past_session_fini(&history->past);
    buffer_fini(&history->text);
    free(history);
}

static void on_gone(struct request *request)
{
    struct history *history = request->state;

    history->request = NULL;
    if (!history->is_reading)
        history_free(history);
}

/* The answer is complete, or never will be. */
static void finish(struct history *history)
{
    history->request->on_gone = NULL;
    history_free(history);
}

static void fail(struct history *history, const struct error *err)
{
    struct request *request = history->request;
    bool is_lines = history->is_lines;
    struct error failure = *err;

    finish(history);
    if (is_lines)
        http_exchange_abort(request->exchange); /* an answer that is cut off does not look whole */
    else
        request_fail(request, &failure);
}

/* Whether to go on with what the store has answered. */
static bool take_answer(struct history *history, const struct error *err)
{
    history->is_reading = false;
    if (!history->request) {
        history_free(history);
        return false;
    }
    if (err->code == ERR_NONE)
        return true;
    fail(history, err);
    return false;
}

/* --- entries ---------------------------------------------------------------------------------- */

static void go_on(struct history *history);

/* Texts in what an event tells may be a caller's own. */
static void put_event(struct history *history, const struct event_record *event)
{
    struct event_record shown = *event;
    scoped(free) char *text = NULL;

    if (!mask_is_empty(history->past.secrets) && !str_is_empty(event->data_json)) {
        text = json_masked_text(event->data_json, history->past.secrets);
        shown.data_json = text;
    }
    event_write_members(&shown, &history->json);
}

static void end_entry(struct history *history)
{
    json_end_object(&history->json);
    history->after = history->entries[history->next++].event.sequence;
    if (!history->is_lines)
        return;
    buffer_append_byte(&history->text, '\n');
    if (!history->text.overflowed)
        http_respond_write(history->request->exchange, history->text.data, history->text.length);
    buffer_clear(&history->text);
    history->json = JSON_WRITER(&history->text);
}

static void on_execution(struct execution_search *search, const struct found_execution *found)
{
    struct history *history = container_of(search, struct history, search);

    if (history->request)
        past_session_write_execution(&history->past, history->core, found->record, &history->json,
                                     "execution", history->with_output);
}

static void on_execution_done(struct execution_search *search)
{
    struct history *history = container_of(search, struct history, search);

    execution_search_fini(search);
    if (!take_answer(history, &search->err))
        return;
    end_entry(history);
    go_on(history);
}

/* True when it is written; otherwise the store is asked for its execution first. */
static bool write_entry(struct history *history)
{
    const struct entry *entry = &history->entries[history->next];

    json_begin_object(&history->json, NULL);
    put_event(history, &entry->event);
    if (*entry->execution_id) {
        history->is_reading = true;
        history->search =
            (struct execution_search){ .on_found = on_execution, .done = on_execution_done };
        execution_search_start(&history->search, history->core, history->session_id,
                               entry->execution_id, NULL);
        return false;
    }
    end_entry(history);
    return true;
}

/* --- pages ------------------------------------------------------------------------------------ */

static void note_execution(struct entry *entry)
{
    const char *text = entry->event.data_json;
    scoped(json_decref) json_t *data = NULL;
    const char *id;

    if (!str_equal(entry->event.type, "execution.ended"))
        return;
    data = json_read(text, strlen(text), NULL);
    id = json_string_value(json_object_get(data, "execution_id"));
    if (id && id_is_valid(id, ID_EXECUTION))
        snprintf(entry->execution_id, sizeof(entry->execution_id), "%s", id);
}

static void on_event(struct event_page *page, const struct event_record *event)
{
    struct history *history = container_of(page, struct history, page);
    struct entry *entry = &history->entries[history->count];

    *entry = (struct entry){ .event = *event };
    entry->event.owner = xstrdup(event->owner);
    entry->event.type = xstrdup(event->type);
    entry->event.data_json = xstrdup(event->data_json ? event->data_json : "");
    note_execution(entry);
    history->count++;
}

static void on_page(struct event_page *page)
{
    struct history *history = container_of(page, struct history, page);

    history->has_more = page->has_more;
    if (take_answer(history, &page->err))
        go_on(history);
}

static void read_page(struct history *history)
{
    drop_entries(history);
    history->is_reading = true;
    history->page = (struct event_page){ .on_event = on_event,
                                         .done = on_page,
                                         .session_id = history->session_id,
                                         .after = history->after,
                                         .limit = (uint32_t)history->limit,
                                         .limit_bytes = PAGE_BYTES };
    event_page_read(&history->page, history->core);
}

static void end_document(struct history *history)
{
    struct json_writer *json = &history->json;
    char cursor[24];

    history->has_more = history->has_more || history->next < history->count;
    snprintf(cursor, sizeof(cursor), "%llu", (unsigned long long)history->after);
    json_end_array(json);
    json_put_text(json, "next_cursor", history->has_more ? cursor : NULL);
    json_end_object(json);
    request_reply(history->request, 200, &history->text);
    finish(history);
}

static void end_lines(struct history *history)
{
    http_respond_end(history->request->exchange);
    finish(history);
}

static bool has_room(struct history *history)
{
    return !history->is_lines || http_respond_pending(history->request->exchange) < HTTP_HIGH_WATER;
}

/* A page, not lines, which leave as they are written. */
static bool page_is_full(const struct history *history)
{
    return !history->is_lines && history->next && history->text.length >= PAGE_BYTES;
}

/* The client's pace decides: with its buffer full the rest waits in the store. */
static void go_on(struct history *history)
{
    while (history->next < history->count && !page_is_full(history)) {
        history->is_waiting = !has_room(history);
        if (history->is_waiting || !write_entry(history))
            return;
    }
    if (!history->is_lines)
        end_document(history);
    else if (history->has_more)
        read_page(history);
    else
        end_lines(history);
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);
    struct history *history = request->state;

    if (request->on_gone && history->is_waiting)
        go_on(history);
}

/* --- beginning -------------------------------------------------------------------------------- */

static void start_lines(struct history *history)
{
    struct request *request = history->request;

    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_on_drain(request->exchange, on_drain);
    http_respond_start(request->exchange, 200, "application/x-ndjson", -1);
    buffer_appendf(&history->text, "{\"session\":%s}\n", history->past.json);
    http_respond_write(request->exchange, history->text.data, history->text.length);
    buffer_clear(&history->text);
}

static void start_document(struct history *history)
{
    json_begin_object(&history->json, NULL);
    json_put_raw(&history->json, "session", history->past.json);
    json_begin_array(&history->json, "entries");
}

static void start(struct history *history)
{
    if (history->is_lines)
        start_lines(history);
    else
        start_document(history);
    read_page(history);
}

static void on_session(struct past_session *past)
{
    struct history *history = container_of(past, struct history, past);

    if (take_answer(history, &past->err))
        start(history);
}

static bool wants_lines(const struct request *request)
{
    const char *accept = request_header(request, "accept");
    const char *format = request_parameter(request, "format");

    return format ? str_equal(format, "jsonl") : accept && strstr(accept, "application/x-ndjson");
}

static int read_parameters(const struct request *request, struct history *history,
                           struct error *err)
{
    const char *format = request_parameter(request, "format");

    history->is_lines = wants_lines(request);
    history->limit = history->is_lines ? PAGE_OF_LINES : PAGE_DEFAULT;
    history->with_output = true;
    if (format && !str_equal(format, "json") && !str_equal(format, "jsonl"))
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter format must be json or jsonl");
    if (history->is_lines && request_parameter(request, "limit"))
        return error_named(
            err, ERR_INVALID, "invalid_parameter",
            "parameter limit applies to pages only; format jsonl returns everything");
    if (request_parameter_u64(request, "cursor", INT64_MAX, &history->after, err) < 0 ||
        request_parameter_limit(request, PAGE_MAXIMUM, &history->limit, err) < 0 ||
        request_parameter_bool(request, "output", &history->with_output, err) < 0)
        return -1;
    if (history->limit == 0)
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter limit must be at least 1");
    return 0;
}

static void get_history(struct request *request)
{
    struct history *history = xnew(struct history);
    struct error err = { 0 };

    if (read_parameters(request, history, &err) < 0) {
        free(history);
        request_fail(request, &err);
        return;
    }
    history->request = request;
    history->core = request->core;
    history->entries = xcalloc(history->limit, sizeof(*history->entries));
    history->text = BUFFER_INIT(history->is_lines ? LINE_MAXIMUM : REQUEST_REPLY_MAXIMUM);
    history->json = JSON_WRITER(&history->text);
    memcpy(history->session_id, request->session_id, sizeof(history->session_id));
    request->state = history;
    request->on_gone = on_gone;
    if (request->session) {
        past_session_take(&history->past, request->session);
        start(history);
        return;
    }
    history->is_reading = true;
    past_session_read(&history->past, request->core, history->session_id, on_session);
}

static const struct route_parameter parameters[] = {
    { "cursor", "string", "entries after this cursor only: next_cursor of the previous page" },
    { "limit", "integer", "entries per page; 100 by default, 1000 at most" },
    { "output", "boolean", "0 leaves out the output of programs" },
    { "format", "string", "json (pages), or jsonl: everything, a line for each entry" },
    { 0 },
};

static const struct route_answer answers[] = {
    { 200, "{session, entries, next_cursor}; an entry is an event, with the execution if one has "
           "ended. As application/x-ndjson: {session}, then the entries" },
    { 400, "a parameter is unknown or out of range" },
    { 404, "session_not_found: unknown, owned by another principal, or its retention is over" },
    { 0 },
};

const struct route api_history_routes[] = {
    { HTTP_GET, "/api/v1/sessions/{session}/history", get_history,
      "Read the recorded history of a session: events, executions and their results",
      .session = ROUTE_ANY_SESSION, .parameters = parameters, .answers = answers },
    { 0 },
};
