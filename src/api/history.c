/*
 * GET …/history: all that is kept of a session, in order: its events, and with the end of each
 * execution what was run and what came of it. It is in the store, so it is there when the sandbox,
 * the session and the daemon that ran it are gone, until retention.
 *
 * As pages of JSON, or as JSON lines in one answer: the session, then a line for each entry. The
 * values of secrets are masked in what programs wrote.
 */

#include "api/request.h"
#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "core/events.h"
#include "core/metrics.h"
#include "core/run/execution.h"
#include "core/session/secrets.h"

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
    struct api_request *request; /* NULL when the client has left */
    struct api *api;             /* borrowed */
    struct store_query query;
    char session_id[ID_SIZE];
    char *session_json;      /* owned */
    struct mask *secrets;    /* a reference */
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
    free(history->session_json);
    mask_free(history->secrets);
    buffer_fini(&history->text);
    free(history);
}

static void on_gone(struct api_request *request)
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
    struct api_request *request = history->request;
    bool is_lines = history->is_lines;
    struct error failure = *err;

    finish(history);
    if (is_lines)
        http_exchange_abort(request->exchange); /* an answer that is cut off does not look whole */
    else
        api_fail(request, &failure);
}

static void ask(struct history *history, enum store_table table, struct store_query query)
{
    history->is_reading = true;
    history->query = query;
    store_query(history->api->parts.store, table, &history->query);
}

/* Whether to go on with what the store has answered. */
static bool take_answer(struct history *history)
{
    history->is_reading = false;
    if (!history->request) {
        history_free(history);
        return false;
    }
    if (history->query.err.code == ERR_NONE)
        return true;
    fail(history, &history->query.err);
    return false;
}

/* --- entries ---------------------------------------------------------------------------------- */

static void go_on(struct history *history);

/* Texts in what an event tells may be a caller's own. */
static void put_event(struct history *history, const struct event_record *event)
{
    struct event_record shown = *event;
    scoped(free) char *text = NULL;

    if (!mask_is_empty(history->secrets) && !str_is_empty(event->data_json)) {
        text = json_masked_text(event->data_json, history->secrets);
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

static void on_execution(struct store_query *query, const struct execution_record *record)
{
    struct history *history = container_of(query, struct history, query);

    struct execution_record shown = *record;
    scoped(free) char *key = NULL;
    scoped(free) char *request = NULL;

    if (!mask_is_empty(history->secrets)) {
        key = record->key ? mask_text(history->secrets, record->key) : NULL;
        request =
            json_masked_text(record->request_json ? record->request_json : "", history->secrets);
        shown.key = key;
        shown.request_json = request;
    }
    if (history->request && str_equal(record->session_id, history->session_id))
        execution_record_write_json(&shown, history->api->parts.core, &history->json, "execution",
                                    history->with_output, history->secrets);
}

static void on_execution_done(struct store_query *query)
{
    struct history *history = container_of(query, struct history, query);

    if (!take_answer(history))
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
        ask(history, STORE_EXECUTIONS,
            (struct store_query){ .on_execution = on_execution,
                                  .done = on_execution_done,
                                  .id = entry->execution_id,
                                  .limit = 1 });
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

static void on_event(struct store_query *query, const struct event_record *event)
{
    struct history *history = container_of(query, struct history, query);
    struct entry *entry = &history->entries[history->count];

    *entry = (struct entry){ .event = *event };
    entry->event.owner = xstrdup(event->owner);
    entry->event.type = xstrdup(event->type);
    entry->event.data_json = xstrdup(event->data_json ? event->data_json : "");
    note_execution(entry);
    history->count++;
}

static void on_page(struct store_query *query)
{
    struct history *history = container_of(query, struct history, query);

    history->has_more = query->is_cut;
    if (take_answer(history))
        go_on(history);
}

static void read_page(struct history *history)
{
    drop_entries(history);
    ask(history, STORE_EVENTS,
        (struct store_query){ .on_event = on_event,
                              .done = on_page,
                              .session_id = history->session_id,
                              .after = history->after,
                              .limit = (uint32_t)history->limit,
                              .limit_bytes = PAGE_BYTES });
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
    api_reply(history->request, 200, &history->text);
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
    struct api_request *request = http_exchange_user(exchange);
    struct history *history = request->state;

    if (request->on_gone && history->is_waiting)
        go_on(history);
}

/* --- beginning -------------------------------------------------------------------------------- */

static void start_lines(struct history *history)
{
    struct api_request *request = history->request;

    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_on_drain(request->exchange, on_drain);
    http_respond_start(request->exchange, 200, "application/x-ndjson", -1);
    buffer_appendf(&history->text, "{\"session\":%s}\n", history->session_json);
    http_respond_write(request->exchange, history->text.data, history->text.length);
    buffer_clear(&history->text);
}

static void start_document(struct history *history)
{
    json_begin_object(&history->json, NULL);
    json_put_raw(&history->json, "session", history->session_json);
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

/* What a caller made up may be anything; the rest is ours, and a secret that is the same word as a
 * state has nothing to do with it. */
static void mask_session(struct history *history)
{
    static const char *const members[] = { "key", "labels", "on_behalf_of" };
    scoped(json_decref) json_t *session = NULL;

    if (mask_is_empty(history->secrets))
        return;
    session = json_read(history->session_json, strlen(history->session_json), NULL);
    for (size_t i = 0; i < ARRAY_LENGTH(members); i++) {
        const json_t *given = json_object_get(session, members[i]);

        if (given)
            json_object_set_new(session, members[i], json_masked(given, history->secrets));
    }
    free(history->session_json);
    history->session_json = json_dumps(session, JSON_COMPACT | JSON_REAL_PRECISION(15));
}

static void on_session(struct store_query *query, const struct session_record *record)
{
    struct history *history = container_of(query, struct history, query);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(LINE_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    scoped(json_decref)
        json_t *spec = json_read(record->spec_json, strlen(record->spec_json), NULL);
    const char *sealed = json_string_value(json_object_get(spec, "sealed"));
    struct error err = { 0 };
    scoped(secrets_free) struct secrets *secrets =
        sealed ? secrets_unseal(history->api->parts.core->vault, record->owner, sealed, &err)
               : NULL;

    session_record_write_json(record, &json, NULL);
    history->session_json = buffer_steal_text(&text);
    history->secrets = secrets_join(secrets, NULL);
    mask_session(history);
    if (sealed && !secrets)
        history->with_output = false; /* what cannot be masked is not shown */
}

static void on_session_done(struct store_query *query)
{
    struct history *history = container_of(query, struct history, query);
    struct error err = { 0 };

    if (!take_answer(history))
        return;
    if (history->session_json) {
        start(history);
        return;
    }
    find_refuse(history->session_id, &err);
    fail(history, &err); /* its retention was over just now */
}

static void take_live(struct history *history, const struct session *session)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(LINE_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    session_write_json(session, &json, NULL);
    history->session_json = buffer_steal_text(&text);
    history->secrets = mask_ref(session_mask(session));
    mask_session(history);
    history->with_output = history->with_output && !session_has_lost_secrets(session);
}

static bool wants_lines(const struct api_request *request)
{
    const char *accept = api_header(request, "accept");
    const char *format = api_parameter(request, "format");

    return format ? str_equal(format, "jsonl") : accept && strstr(accept, "application/x-ndjson");
}

static int read_parameters(const struct api_request *request, struct history *history,
                           struct error *err)
{
    const char *format = api_parameter(request, "format");

    history->is_lines = wants_lines(request);
    history->limit = history->is_lines ? PAGE_OF_LINES : PAGE_DEFAULT;
    history->with_output = true;
    if (format && !str_equal(format, "json") && !str_equal(format, "jsonl"))
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter format must be json or jsonl");
    if (history->is_lines && api_parameter(request, "limit"))
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter limit is for pages; JSON lines are all there is");
    if (api_parameter_u64(request, "cursor", INT64_MAX, &history->after, err) < 0 ||
        api_parameter_u64(request, "limit", PAGE_MAXIMUM, &history->limit, err) < 0 ||
        api_parameter_bool(request, "output", &history->with_output, err) < 0)
        return -1;
    if (history->limit == 0)
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter limit must be at least 1");
    return 0;
}

static void get_history(struct api_request *request)
{
    struct history *history = xnew(struct history);
    struct error err = { 0 };

    if (read_parameters(request, history, &err) < 0) {
        free(history);
        api_fail(request, &err);
        return;
    }
    history->request = request;
    history->api = request->api;
    history->entries = xcalloc(history->limit, sizeof(*history->entries));
    history->text = BUFFER_INIT(history->is_lines ? LINE_MAXIMUM : API_REPLY_MAXIMUM);
    history->json = JSON_WRITER(&history->text);
    memcpy(history->session_id, request->session_id, sizeof(history->session_id));
    request->state = history;
    request->on_gone = on_gone;
    if (request->session) {
        take_live(history, request->session);
        start(history);
        return;
    }
    ask(history, STORE_SESSIONS,
        (struct store_query){ .on_session = on_session,
                              .done = on_session_done,
                              .id = history->session_id,
                              .limit = 1 });
}

static const struct api_parameter parameters[] = {
    { "cursor", "integer", "only what came behind this, as next_cursor has it" },
    { "limit", "integer", "entries in a page; 100 unless given, 1000 at most" },
    { "output", "boolean", "0 leaves out what programs wrote" },
    { "format", "string", "json (pages), or jsonl: everything, a line for each entry" },
    { 0 },
};

static const struct api_answer answers[] = {
    { 200, "{session, entries, next_cursor}; an entry is an event, with the execution that has "
           "ended. As application/x-ndjson: {session}, then the entries" },
    { 400, "a parameter is unknown or out of range" },
    { 404, "session_not_found: unknown, somebody else's, or its retention is over" },
    { 0 },
};

const struct api_route api_history_routes[] = {
    { HTTP_GET, "/api/v1/sessions/{session}/history", get_history,
      "All that is kept of a session: events, what was run and what came of it",
      .session = API_ANY_SESSION, .parameters = parameters, .answers = answers },
    { 0 },
};
