/* SPDX-License-Identifier: Apache-2.0 */
#include "api/run/executions.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "service/recorded.h"

#include <stdio.h>
#include <string.h>

enum { PAGE_DEFAULT = 100, PAGE_MAXIMUM = 1000, PAGE_BYTES = 1024 * 1024 };

/* --- answers --------------------------------------------------------------------------------- */

void execution_reply(struct request *request, int status, const struct found_execution *found)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    found_execution_write_json(found, &json, NULL, true);
    request_reply_result(request, status, &text);
}

static struct found_execution live(const struct request *request, struct execution *execution)
{
    return (struct found_execution){ .core = request->core, .live = execution };
}

static void reply_live(struct request *request, int status, struct execution *execution)
{
    struct found_execution found = live(request, execution);

    execution_reply(request, status, &found);
}

/* --- finding one ----------------------------------------------------------------------------- */

struct search {
    struct request *request;
    struct execution_search search;
    api_execution_fn *on_found;
    request_fn *on_none;
};

static void on_found(struct execution_search *base, const struct found_execution *found)
{
    struct search *search = container_of(base, struct search, search);

    if (search->request->exchange)
        search->on_found(search->request, found);
}

static void on_searched(struct execution_search *base)
{
    struct search *search = container_of(base, struct search, search);
    struct request *request = search->request;

    if (!request_finish(request) && !base->was_found) {
        if (base->err.code)
            request_fail(request, &base->err);
        else
            search->on_none(request);
    }
    execution_search_fini(base);
    free(search);
}

/* By id or by key, in the session of the request. */
static void search_store(struct request *request, const char *id, const char *key,
                         api_execution_fn *then, request_fn *on_none)
{
    struct search *search = xnew(struct search);

    search->request = request;
    search->on_found = then;
    search->on_none = on_none;
    search->search.on_found = on_found;
    search->search.done = on_searched;
    request_begin(request);
    execution_search_start(&search->search, request->core, request->session_id, id, key);
}

static void fail_unknown(struct request *request)
{
    struct error err = { 0 };

    error_named(&err, ERR_NOT_FOUND, "execution_not_found",
                "execution \"%.60s\" not found in session %s", request_path(request, "execution"),
                request->session_id);
    request_fail(request, &err);
}

void api_find_execution(struct request *request, api_execution_fn *then)
{
    const char *id = request_path(request, "execution");
    struct found_execution found;

    if (!id_is_valid(id, ID_EXECUTION)) {
        fail_unknown(request);
        return;
    }
    found = live(request, execution_find(request->core, request->session_id, id));
    if (found.live)
        then(request, &found);
    else
        search_store(request, id, NULL, then, fail_unknown);
}

/* --- waiting --------------------------------------------------------------------------------- */

/* A request that waits for an execution. */
struct wait {
    struct request *request;
    struct execution_wait wait;
    int status;
    bool cancels;
};

static void wait_free(struct wait *wait)
{
    execution_wait_stop(&wait->wait);
    free(wait);
}

/* A queued execution whose client has left is not worth a slot. */
static bool waits_for_its_turn(const struct execution *execution)
{
    const struct execution_facts *facts = execution_facts(execution);

    return facts->state == EXECUTION_QUEUED && facts->kind == EXECUTION_FOREGROUND;
}

static void on_wait_gone(struct request *request)
{
    struct wait *wait = request->state;
    struct execution *execution = wait->wait.execution;

    if (wait->cancels || (wait->status == 201 && waits_for_its_turn(execution)))
        execution_abandon(execution);
    wait_free(wait);
}

static void on_wait_over(struct execution_wait *base)
{
    struct wait *wait = container_of(base, struct wait, wait);
    struct request *request = wait->request;
    const struct execution_facts *facts = execution_facts(base->execution);

    if (wait->status == 201 && facts->start_error.code)
        request_fail(request, &facts->start_error);
    else
        reply_live(request, wait->status, base->execution);
    request->on_gone = NULL;
    wait_free(wait);
}

static struct wait *wait_for(struct request *request, struct execution *execution, int status,
                             int64_t wait_ms)
{
    struct wait *wait = xnew(struct wait);

    wait->request = request;
    wait->status = status;
    request->state = wait;
    request->on_gone = on_wait_gone;
    execution_wait_start(&wait->wait, request->core, execution, wait_ms, on_wait_over);
    return wait;
}

void execution_reply_when_ended(struct request *request, struct execution *execution, int status,
                                int64_t wait_ms)
{
    if (wait_ms == 0 || execution_has_ended(execution))
        reply_live(request, status, execution);
    else
        wait_for(request, execution, status, wait_ms);
}

/* --- starting -------------------------------------------------------------------------------- */

/* The id of an execution that goes on is promised only when it is recorded, in the answer to a
 * background execution and at the head of a stream; so is a cancellation. */
struct promise {
    struct request *request;
    struct execution *execution; /* a reference */
    int status;
    struct recorded recorded;
    bool cancels; /* of a stream: the client's leaving cancels it */
};

static struct promise *promise_new(struct request *request, struct execution *execution)
{
    struct promise *promise = xnew(struct promise);

    promise->request = request;
    promise->execution = execution;
    execution_ref(execution);
    request_begin(request);
    return promise;
}

static void promise_free(struct promise *promise)
{
    execution_unref(promise->execution);
    free(promise);
}

static void on_promised(struct recorded *recorded)
{
    struct promise *promise = container_of(recorded, struct promise, recorded);

    if (!request_finish(promise->request)) {
        if (recorded->err->code)
            request_fail(promise->request, recorded->err);
        else
            reply_live(promise->request, promise->status, promise->execution);
    }
    promise_free(promise);
}

static void reply_when_recorded(struct request *request, struct execution *execution, int status)
{
    struct promise *promise = promise_new(request, execution);

    promise->status = status;
    recorded_wait(&promise->recorded, request->core, on_promised);
}

static void on_stream_promised(struct recorded *recorded)
{
    struct promise *promise = container_of(recorded, struct promise, recorded);
    bool is_gone = request_finish(promise->request);

    if (promise->cancels && (is_gone || recorded->err->code))
        execution_abandon(promise->execution);
    if (!is_gone && recorded->err->code)
        request_fail(promise->request, recorded->err);
    else if (!is_gone)
        execution_stream(promise->request, promise->execution, promise->cancels);
    promise_free(promise);
}

static void stream_when_recorded(struct request *request, struct execution *execution, bool cancels)
{
    struct promise *promise = promise_new(request, execution);

    promise->cancels = cancels;
    recorded_wait_written(&promise->recorded, request->core, on_stream_promised);
}

static bool wants_events(const struct request *request)
{
    const char *accept = request_header(request, "accept");

    return accept && strstr(accept, "text/event-stream");
}

static void follow_up(struct request *request, struct execution *execution, bool background,
                      bool cancels, int status)
{
    bool waits = !background;
    struct error err = { 0 };

    if (wants_events(request)) {
        stream_when_recorded(request, execution, cancels);
    } else if (request_parameter_bool(request, "wait", &waits, &err) == 0 && !waits) {
        reply_when_recorded(request, execution, status);
    } else if (execution_has_ended(execution)) {
        reply_live(request, status, execution);
    } else {
        wait_for(request, execution, status, -1)->cancels = cancels;
    }
}

static void start(struct request *request)
{
    scoped(execution_body_fini) struct execution_body body = { 0 };
    struct execution *execution = NULL;
    bool is_repeated = false;
    struct error err = { 0 };

    if (execution_body_read(request, &body, &err) == 0)
        execution =
            start_execution(request->core, request->session_id, &body.request, &is_repeated, &err);
    if (!execution)
        request_fail(request, &err);
    else
        follow_up(request, execution, body.request.background,
                  body.cancel_on_disconnect && !is_repeated, is_repeated ? 200 : 201);
}

static void on_repeated(struct request *request, const struct found_execution *found)
{
    if (found->live)
        follow_up(request, found->live, found_execution_is_background(found), false, 200);
    else
        execution_reply(request, 200, found);
}

static void post_execution(struct request *request)
{
    const char *key;
    bool waits;
    struct error err = { 0 };

    if (request_parameter_bool(request, "wait", &waits, &err) < 0 ||
        execution_key(request, &key, &err) < 0)
        request_fail(request, &err);
    else if (str_is_empty(key))
        start(request);
    else
        search_store(request, NULL, key, on_repeated, start);
}

/* --- looking --------------------------------------------------------------------------------- */

static void show(struct request *request, const struct found_execution *found)
{
    int64_t wait_ms = 0;
    struct error err = { 0 };

    if (!found->live)
        execution_reply(request, 200, found);
    else if (request_parameter_ms(request, "wait_seconds", WAIT_MAXIMUM_MS, &wait_ms, &err) < 0)
        request_fail(request, &err);
    else
        execution_reply_when_ended(request, found->live, 200, wait_ms);
}

static void get_execution(struct request *request)
{
    api_find_execution(request, show);
}

struct listing {
    struct request *request;
    struct execution_page page;
    char *state; /* owned */
    struct buffer text;
    struct json_writer json;
};

static bool on_listed(struct execution_page *page, const struct found_execution *found)
{
    struct listing *listing = container_of(page, struct listing, page);

    if (listing->text.length >= PAGE_BYTES)
        return false;
    found_execution_write_json(found, &listing->json, NULL, false);
    return true;
}

static void on_page(struct execution_page *page)
{
    struct listing *listing = container_of(page, struct listing, page);
    struct request *request = listing->request;
    char cursor[32];

    if (!request_finish(request)) {
        snprintf(cursor, sizeof(cursor), "%llu", (unsigned long long)page->next);
        json_end_array(&listing->json);
        json_put_text(&listing->json, "next_cursor", page->has_more ? cursor : NULL);
        json_end_object(&listing->json);
        if (page->err.code)
            request_fail(request, &page->err);
        else
            request_reply(request, 200, &listing->text);
    }
    buffer_fini(&listing->text);
    free(listing->state);
    free(listing);
}

static void get_executions(struct request *request)
{
    const char *state = request_parameter(request, "state");
    struct execution_page page = {
        .limit = PAGE_DEFAULT, .limit_bytes = PAGE_BYTES, .on_execution = on_listed, .done = on_page
    };
    struct listing *listing;
    struct error err = { 0 };

    if (request_parameter_limit(request, PAGE_MAXIMUM, &page.limit, &err) < 0 ||
        request_parameter_u64(request, "cursor", INT64_MAX, &page.behind, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    listing = xnew(struct listing);
    listing->request = request;
    listing->page = page;
    listing->page.state = listing->state = state ? xstrdup(state) : NULL;
    listing->text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    listing->json = JSON_WRITER(&listing->text);
    json_begin_object(&listing->json, NULL);
    json_begin_array(&listing->json, "executions");
    request_begin(request);
    execution_page_start(&listing->page, request->core, request->session_id);
}

/* --- cancelling ------------------------------------------------------------------------------ */

static void cancel(struct request *request, const struct found_execution *found)
{
    int64_t wait_ms = WAIT_MAXIMUM_MS;
    struct error err = { 0 };

    if (!found->live) {
        execution_reply(request, 200, found);
        return;
    }
    if (request_parameter_ms(request, "wait_seconds", WAIT_MAXIMUM_MS, &wait_ms, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    execution_cancel(found->live);
    if (wait_ms == 0)
        reply_when_recorded(request, found->live, 200);
    else
        execution_reply_when_ended(request, found->live, 200, wait_ms);
}

static void delete_execution(struct request *request)
{
    api_find_execution(request, cancel);
}

/* --- the table ------------------------------------------------------------------------------- */

#define EXECUTIONS "/api/v1/sessions/{session}/executions"

static const struct route_parameter start_parameters[] = {
    { "wait", "boolean",
      "answer when the execution has ended (default), or at once as with background" },
    { 0 },
};

static const struct route_parameter wait_parameters[] = {
    { "wait_seconds", "string", "seconds to wait for the end" },
    { 0 },
};

static const struct route_parameter list_parameters[] = {
    { "state", "string", "queued, running, exited, timeout, output_limit, cancelled or crashed" },
    { "limit", "integer", "at most this many, 100 by default and 1000 at most" },
    { "cursor", "string", "next_cursor of the previous page" },
    { 0 },
};

static const struct route_answer start_answers[] = {
    { 201, "the ended execution with its output; with background, its current state; with Accept: "
           "text/event-stream, a live stream" },
    { 200, "the execution already started with this key" },
    { 400, "a field is unknown, of the wrong type or out of range; unsupported_language" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 409, "generation_moved, paused, sandbox_crashed" },
    { 410, "session_ended" },
    { 413, "arguments or input too large" },
    { 429, "capacity, too_many_executions" },
    { 502, "the sandbox could not be created" },
    { 504, "the sandbox was not ready in time" },
    { 0 },
};

static const struct route_answer list_answers[] = {
    { 200, "{executions, next_cursor}, newest first" },
    { 404, "session_not_found: unknown, or owned by another principal" },
    { 0 },
};

static const struct route_answer answers[] = {
    { 200, "the execution, with head and tail of its output" },
    { 404, "session_not_found, execution_not_found" },
    { 0 },
};

const struct route api_execution_routes[] = {
    { HTTP_POST, EXECUTIONS, post_execution, "Run a program in a session", .body = ROUTE_JSON_BODY,
      .session = ROUTE_LIVE_SESSION, .fields = execution_fields, .field_count = EXECUTION_FIELDS,
      .extras = execution_extras, .parameters = start_parameters, .answers = start_answers,
      .idempotent = true },
    { HTTP_GET, EXECUTIONS, get_executions, "List the executions of a session, newest first",
      .session = ROUTE_ANY_SESSION, .parameters = list_parameters, .answers = list_answers },
    { HTTP_GET, EXECUTIONS "/{execution}", get_execution, "Read an execution",
      .session = ROUTE_ANY_SESSION, .parameters = wait_parameters, .answers = answers },
    { HTTP_DELETE, EXECUTIONS "/{execution}", delete_execution,
      "Cancel an execution: TERM to its process tree, KILL after a grace period; answers when it "
      "has ended",
      .session = ROUTE_ANY_SESSION, .parameters = wait_parameters, .answers = answers },
    { 0 },
};
