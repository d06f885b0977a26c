#include "api/executions.h"

#include "base/alloc.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

enum { PAGE_DEFAULT = 100, PAGE_MAXIMUM = 1000, PAGE_BYTES = 1024 * 1024 };

/* --- answers --------------------------------------------------------------------------------- */

void execution_reply(struct api_request *request, int status, struct execution *execution)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(API_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    execution_write_json(execution, &json, NULL, true);
    api_reply(request, status, &text);
}

void execution_record_reply(struct api_request *request, int status,
                            const struct execution_record *record)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(API_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    execution_record_write_json(record, request->core, &json, NULL, true, NULL);
    api_reply(request, status, &text);
}

/* --- finding one ----------------------------------------------------------------------------- */

struct search {
    struct api_request *request;
    struct store_query query;
    execution_record_fn *on_record;
    void (*on_none)(struct api_request *request);
    char session_id[ID_SIZE];
    char id[ID_SIZE];
    char *key; /* owned */
    bool found;
};

static void search_free(struct search *search)
{
    free(search->key);
    free(search);
}

static void on_search_record(struct store_query *query, const struct execution_record *record)
{
    struct search *search = container_of(query, struct search, query);

    if (search->found || !str_equal(record->session_id, search->session_id))
        return;
    search->found = true;
    if (search->request->exchange)
        search->on_record(search->request, record);
}

static void on_search_done(struct store_query *query)
{
    struct search *search = container_of(query, struct search, query);
    struct api_request *request = search->request;

    if (!api_finish(request)) {
        if (!search->found && query->err.code)
            api_fail(request, &query->err);
        else if (!search->found)
            search->on_none(request);
    }
    search_free(search);
}

static void fail_unknown(struct api_request *request)
{
    struct error err = { 0 };

    error_named(&err, ERR_NOT_FOUND, "execution_not_found",
                "execution \"%.60s\" not found in session %s", api_path(request, "execution"),
                request->session_id);
    api_fail(request, &err);
}

/* By id or by key, in this session. */
static void search_store(struct api_request *request, const char *id, const char *key,
                         execution_record_fn *on_record, void (*on_none)(struct api_request *))
{
    struct search *search = xnew(struct search);

    search->request = request;
    search->on_record = on_record;
    search->on_none = on_none;
    search->key = key ? xstrdup(key) : NULL;
    memcpy(search->session_id, request->session_id, sizeof(search->session_id));
    snprintf(search->id, sizeof(search->id), "%s", id ? id : "");
    search->query = (struct store_query){
        .on_execution = on_search_record,
        .done = on_search_done,
        .id = id ? search->id : NULL,
        .session_id = search->session_id,
        .key = search->key,
        .limit = 1,
    };
    api_begin(request);
    store_query(request->api->parts.store, STORE_EXECUTIONS, &search->query);
}

void api_find_execution(struct api_request *request, execution_live_fn *on_live,
                        execution_record_fn *on_record)
{
    const char *id = api_path(request, "execution");
    struct execution *execution;

    if (!id_is_valid(id, ID_EXECUTION)) {
        fail_unknown(request);
        return;
    }
    execution = execution_find(request->core, request->session_id, id);
    if (execution)
        on_live(request, execution);
    else
        search_store(request, id, NULL, on_record, fail_unknown);
}

/* --- waiting --------------------------------------------------------------------------------- */

/* What a request holds of an execution while it waits for it. */
struct wait {
    struct api_request *request;
    struct execution *execution; /* a reference */
    struct execution_watcher watcher;
    struct timer timer;
    int status;
    bool cancels;
};

static void wait_release(struct wait *wait)
{
    execution_unwatch(&wait->watcher);
    timer_stop(&wait->timer);
    execution_unref(wait->execution);
    free(wait);
}

/* What has not begun is not worth a slot once nobody waits for it. */
static bool waits_for_its_turn(const struct execution *execution)
{
    return execution_facts(execution)->state == EXECUTION_QUEUED &&
           !execution_facts(execution)->kind != EXECUTION_FOREGROUND;
}

static void on_wait_gone(struct api_request *request)
{
    struct wait *wait = request->state;

    if (wait->cancels || (wait->status == 201 && waits_for_its_turn(wait->execution)))
        execution_abandon(wait->execution);
    wait_release(wait);
}

static void wait_answer(struct wait *wait)
{
    struct api_request *request = wait->request;
    struct execution *execution = wait->execution;

    if (wait->status == 201 && execution_facts(execution)->start_error.code)
        api_fail(request, &execution_facts(execution)->start_error);
    else
        execution_reply(request, wait->status, execution);
    request->on_gone = NULL;
    wait_release(wait);
}

static void on_wait_change(struct execution_watcher *watcher)
{
    struct wait *wait = container_of(watcher, struct wait, watcher);

    if (execution_state_is_final(execution_facts(wait->execution)->state))
        wait_answer(wait);
}

static void on_wait_over(struct timer *timer)
{
    wait_answer(container_of(timer, struct wait, timer));
}

static struct wait *wait_for(struct api_request *request, struct execution *execution, int status,
                             int64_t wait_ms)
{
    struct wait *wait = xnew(struct wait);

    wait->request = request;
    wait->execution = execution;
    wait->status = status;
    timer_init(&wait->timer, request->core->loop, on_wait_over);
    execution_ref(execution);
    execution_watch(execution, &wait->watcher, on_wait_change);
    if (wait_ms >= 0)
        timer_arm_in(&wait->timer, wait_ms * 1000);
    request->state = wait;
    request->on_gone = on_wait_gone;
    return wait;
}

void execution_reply_when_ended(struct api_request *request, struct execution *execution,
                                int status, int64_t wait_ms)
{
    if (wait_ms == 0 || execution_state_is_final(execution_facts(execution)->state))
        execution_reply(request, status, execution);
    else
        wait_for(request, execution, status, wait_ms);
}

/* --- starting -------------------------------------------------------------------------------- */

/* A background execution is promised only when it is recorded. */
struct promise {
    struct api_request *request;
    struct execution *execution; /* a reference */
    struct store_ticket ticket;
};

static void on_promised(struct store_ticket *ticket)
{
    struct promise *promise = container_of(ticket, struct promise, ticket);

    if (!api_finish(promise->request)) {
        if (ticket->err->code)
            api_fail(promise->request, ticket->err);
        else
            execution_reply(promise->request, 201, promise->execution);
    }
    execution_unref(promise->execution);
    free(promise);
}

static void reply_when_recorded(struct api_request *request, struct execution *execution)
{
    struct promise *promise = xnew(struct promise);

    promise->request = request;
    promise->execution = execution;
    execution_ref(execution);
    api_begin(request);
    store_commit(request->api->parts.store, &promise->ticket, on_promised);
}

static bool wants_events(const struct api_request *request)
{
    const char *accept = api_header(request, "accept");

    return accept && strstr(accept, "text/event-stream");
}

static void follow_up(struct api_request *request, struct execution *execution, bool background,
                      bool cancels, int status)
{
    bool waits = !background;
    struct error err = { 0 };

    if (wants_events(request)) {
        execution_stream(request, execution, cancels);
    } else if (api_parameter_bool(request, "wait", &waits, &err) == 0 && !waits) {
        reply_when_recorded(request, execution);
    } else if (execution_state_is_final(execution_facts(execution)->state)) {
        execution_reply(request, status, execution);
    } else {
        wait_for(request, execution, status, -1)->cancels = cancels;
    }
}

static void start(struct api_request *request)
{
    struct error err = { 0 };
    struct session *session = api_session_again(request, &err);
    scoped(execution_body_fini) struct execution_body body = { 0 };
    struct execution *execution;
    bool is_repeated;

    if (!session || execution_body_read(request, &body, &err) < 0) {
        api_fail(request, &err);
        return;
    }
    is_repeated = body.request.key && execution_find_key(session, body.request.key);
    execution = execution_start(session, &body.request, &err);
    if (!execution)
        api_fail(request, &err);
    else
        follow_up(request, execution, body.request.background,
                  body.cancel_on_disconnect && !is_repeated, is_repeated ? 200 : 201);
}

static void on_repeated(struct api_request *request, const struct execution_record *record)
{
    struct execution *execution = execution_find(request->core, record->session_id, record->id);
    bool waits = !record->background;
    struct error err = { 0 };

    if (api_parameter_bool(request, "wait", &waits, &err) < 0)
        api_fail(request, &err);
    else if (execution)
        follow_up(request, execution, record->background, false, 200);
    else
        execution_record_reply(request, 200, record);
}

static void post_execution(struct api_request *request)
{
    const char *key = json_string_value(json_object_get(request->body, "key"));
    bool waits;
    struct error err = { 0 };

    if (api_parameter_bool(request, "wait", &waits, &err) < 0)
        api_fail(request, &err);
    else if (str_is_empty(key))
        start(request);
    else
        search_store(request, NULL, key, on_repeated, start);
}

/* --- looking --------------------------------------------------------------------------------- */

static void on_get_live(struct api_request *request, struct execution *execution)
{
    int64_t wait_ms = 0;
    struct error err = { 0 };

    if (api_parameter_ms(request, "wait", WAIT_MAXIMUM_MS, &wait_ms, &err) < 0)
        api_fail(request, &err);
    else
        execution_reply_when_ended(request, execution, 200, wait_ms);
}

static void on_get_record(struct api_request *request, const struct execution_record *record)
{
    execution_record_reply(request, 200, record);
}

static void get_execution(struct api_request *request)
{
    api_find_execution(request, on_get_live, on_get_record);
}

struct listing {
    struct api_request *request;
    struct store_query query;
    char session_id[ID_SIZE];
    char *state; /* owned */
    struct buffer text;
    struct json_writer json;
    uint64_t last; /* position of the one that was shown last */
    bool has_more;
};

static void on_listed(struct store_query *query, const struct execution_record *record)
{
    struct listing *listing = container_of(query, struct listing, query);
    struct core *core = listing->request->core;
    struct execution *execution = execution_find(core, record->session_id, record->id);

    listing->has_more = listing->has_more || listing->text.length >= PAGE_BYTES;
    if (listing->has_more)
        return;
    listing->last = query->position;
    if (execution)
        execution_write_json(execution, &listing->json, NULL, false);
    else
        execution_record_write_json(record, core, &listing->json, NULL, false, NULL);
}

static void on_list_done(struct store_query *query)
{
    struct listing *listing = container_of(query, struct listing, query);
    struct api_request *request = listing->request;
    char cursor[32];

    if (!api_finish(request)) {
        snprintf(cursor, sizeof(cursor), "%llu", (unsigned long long)listing->last);
        json_end_array(&listing->json);
        json_put_text(&listing->json, "next_cursor",
                      listing->has_more || query->is_cut ? cursor : NULL);
        json_end_object(&listing->json);
        if (query->err.code)
            api_fail(request, &query->err);
        else
            api_reply(request, 200, &listing->text);
    }
    buffer_fini(&listing->text);
    free(listing->state);
    free(listing);
}

static void get_executions(struct api_request *request)
{
    uint64_t limit = PAGE_DEFAULT, behind = 0;
    const char *state = api_parameter(request, "state");
    struct listing *listing;
    struct error err = { 0 };

    if (api_parameter_u64(request, "limit", PAGE_MAXIMUM, &limit, &err) < 0 ||
        api_parameter_u64(request, "cursor", INT64_MAX, &behind, &err) < 0) {
        api_fail(request, &err);
        return;
    }
    listing = xnew(struct listing);
    *listing = (struct listing){ .request = request };
    memcpy(listing->session_id, request->session_id, sizeof(listing->session_id));
    listing->state = state ? xstrdup(state) : NULL;
    listing->text = BUFFER_INIT(API_REPLY_MAXIMUM);
    listing->json = JSON_WRITER(&listing->text);
    listing->query = (struct store_query){
        .on_execution = on_listed,
        .done = on_list_done,
        .session_id = listing->session_id,
        .state = listing->state,
        .newest_first = true,
        .behind = behind,
        .limit = (uint32_t)MAX(limit, (uint64_t)1),
        .limit_bytes = PAGE_BYTES,
    };
    json_begin_object(&listing->json, NULL);
    json_begin_array(&listing->json, "executions");
    api_begin(request);
    store_query(request->api->parts.store, STORE_EXECUTIONS, &listing->query);
}

/* --- cancelling ------------------------------------------------------------------------------ */

static void on_cancel_live(struct api_request *request, struct execution *execution)
{
    int64_t wait_ms = WAIT_MAXIMUM_MS;
    struct error err = { 0 };

    if (api_parameter_ms(request, "wait", WAIT_MAXIMUM_MS, &wait_ms, &err) < 0) {
        api_fail(request, &err);
        return;
    }
    execution_cancel(execution);
    execution_reply_when_ended(request, execution, 200, wait_ms);
}

static void delete_execution(struct api_request *request)
{
    api_find_execution(request, on_cancel_live, on_get_record);
}

/* --- the table ------------------------------------------------------------------------------- */

#define EXECUTIONS "/api/v1/sessions/{session}/executions"

static const struct api_parameter start_parameters[] = {
    { "wait", "boolean", "answer when it has ended (default), or at once as with background" },
    { 0 },
};

static const struct api_parameter wait_parameters[] = {
    { "wait", "string", "seconds to wait for the end" },
    { 0 },
};

static const struct api_parameter list_parameters[] = {
    { "state", "string", "queued, running, exited, timeout, output_limit, cancelled or crashed" },
    { "limit", "integer", "at most this many, 100 by default and 1000 at most" },
    { "cursor", "string", "next_cursor of the page before" },
    { 0 },
};

static const struct api_answer start_answers[] = {
    { 201, "the execution: ended with its output, or with background as it stands; with Accept: "
           "text/event-stream a live stream" },
    { 200, "the execution that this key has started already" },
    { 400, "a field is unknown, of the wrong type or out of range; unsupported_language" },
    { 404, "session_not_found: unknown, or somebody else's" },
    { 409, "generation_moved, paused, sandbox_crashed" },
    { 410, "session_ended" },
    { 413, "arguments or input too large" },
    { 429, "capacity, too_many_executions" },
    { 502, "the sandbox could not be made" },
    { 504, "the sandbox was not ready in time" },
    { 0 },
};

static const struct api_answer list_answers[] = {
    { 200, "{executions, next_cursor}, the newest first" },
    { 404, "session_not_found: unknown, or somebody else's" },
    { 0 },
};

static const struct api_answer answers[] = {
    { 200, "the execution, with head and tail of its output" },
    { 404, "session_not_found, execution_not_found" },
    { 0 },
};

const struct api_route api_execution_routes[] = {
    { HTTP_POST, EXECUTIONS, post_execution, "Run a program in the session", .body = API_JSON_BODY,
      .session = API_LIVE_SESSION, .fields = execution_fields, .field_count = EXECUTION_FIELDS,
      .extras = execution_extras, .parameters = start_parameters, .answers = start_answers },
    { HTTP_GET, EXECUTIONS, get_executions, "Executions of the session, the newest first",
      .session = API_ANY_SESSION, .parameters = list_parameters, .answers = list_answers },
    { HTTP_GET, EXECUTIONS "/{execution}", get_execution, "One execution",
      .session = API_ANY_SESSION, .parameters = wait_parameters, .answers = answers },
    { HTTP_DELETE, EXECUTIONS "/{execution}", delete_execution,
      "Cancel it: TERM to its whole tree, KILL after a grace; answers when it has ended",
      .session = API_ANY_SESSION, .parameters = wait_parameters, .answers = answers },
    { 0 },
};
