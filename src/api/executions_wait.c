/* Waiting for something that an execution does: a text in its output, or a port that it serves. */

#include "api/executions.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/output/spool.h"
#include "core/run/ports.h"
#include "core/sandbox/sandbox.h"

#include <string.h>
#include <unistd.h>

enum {
    TIMEOUT_DEFAULT_MS = 30 * 1000,
    POLL_FIRST_US = 10 * 1000,
    POLL_LAST_US = 200 * 1000,
    TEXT_MAXIMUM = 4096,
    PIECE_BYTES = 64 * 1024,
    PORT_MAXIMUM = 65535,
};

/* How far a stream has been searched. */
struct search {
    struct spool *spool; /* borrowed; NULL when it is not searched */
    const char *name;
    uint64_t offset;
};

struct condition {
    struct api_request *request;
    struct execution *execution; /* a reference; NULL for one that is over and gone from memory */
    struct execution_watcher watcher;
    struct timer deadline, poll;
    int64_t poll_us, began_us;
    unsigned port;    /* 0 without one */
    const char *text; /* borrowed from the request; NULL without one */
    struct search searches[2];
    const struct search *found; /* the stream that has the text, at its offset */
};

static void condition_release(struct condition *condition)
{
    timer_stop(&condition->deadline);
    timer_stop(&condition->poll);
    execution_unwatch(&condition->watcher);
    execution_unref(condition->execution);
    free(condition);
}

static void on_gone(struct api_request *request)
{
    condition_release(request->state);
}

/* --- the answer ------------------------------------------------------------------------------ */

static void begin_answer(const struct condition *condition, struct json_writer *json, bool is_met,
                         const char *reason)
{
    struct loop *loop = condition->request->core->loop;

    json_begin_object(json, NULL);
    json_put_bool(json, "met", is_met);
    json_put_text(json, "reason", reason);
    json_put_text(json, "stream", condition->found ? condition->found->name : NULL);
    if (condition->found)
        json_put_int(json, "offset", (int64_t)condition->found->offset);
    else
        json_put_null(json, "offset");
    json_put_double(json, "waited_seconds",
                    (double)(loop_now_us(loop) - condition->began_us) / 1e6);
}

static void answer(struct condition *condition, bool is_met, const char *reason)
{
    struct api_request *request = condition->request;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(API_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    begin_answer(condition, &json, is_met, reason);
    execution_write_json(condition->execution, &json, "execution", false);
    json_end_object(&json);
    api_reply(request, 200, &text);
    request->on_gone = NULL;
    condition_release(condition);
}

/* --- looking --------------------------------------------------------------------------------- */

/* One piece; true when there may be more. What may be the beginning of the text is read again. */
static bool search_piece(struct condition *condition, struct search *search)
{
    static uint8_t bytes[PIECE_BYTES];
    size_t length = strlen(condition->text);
    const uint8_t *match;
    uint64_t start, end;
    ssize_t count;

    if (!search->spool || !spool_extent(search->spool, search->offset, &start, &end) ||
        end - start < length)
        return false;
    count = pread(spool_fd(search->spool), bytes, (size_t)MIN(end - start, sizeof(bytes)),
                  (off_t)start);
    if (count < (ssize_t)length)
        return false;
    match = memmem(bytes, (size_t)count, condition->text, length);
    search->offset = start + (match ? (uint64_t)(match - bytes) : (uint64_t)count - length + 1);
    if (match)
        condition->found = search;
    return !match;
}

static bool has_text(struct condition *condition)
{
    for (size_t i = 0; i < ARRAY_LENGTH(condition->searches) && !condition->found; i++) {
        while (search_piece(condition, &condition->searches[i]))
            ;
    }
    return condition->found;
}

static bool has_port(const struct condition *condition)
{
    const struct execution *execution = condition->execution;
    const struct sandbox *sandbox =
        execution_session(execution) ? execution_session(execution)->sandbox : NULL;

    return sandbox && str_equal(sandbox_id(sandbox), execution_facts(execution)->sandbox_id) &&
           sandbox_pid(sandbox) > 0 && ports_is_listening(sandbox_pid(sandbox), condition->port);
}

/* True when it was answered. */
static bool check(struct condition *condition)
{
    bool is_met = condition->text ? has_text(condition) : has_port(condition);

    if (is_met)
        answer(condition, true, NULL);
    else if (execution_state_is_final(execution_facts(condition->execution)->state))
        answer(condition, false, "ended");
    else
        return false;
    return true;
}

static void on_change(struct execution_watcher *watcher)
{
    struct condition *condition = container_of(watcher, struct condition, watcher);

    if (condition->text || execution_state_is_final(execution_facts(condition->execution)->state))
        (void)check(condition);
}

static void on_poll(struct timer *timer)
{
    struct condition *condition = container_of(timer, struct condition, poll);

    if (check(condition))
        return;
    condition->poll_us = MIN(condition->poll_us * 3 / 2, (int64_t)POLL_LAST_US);
    timer_arm_in(&condition->poll, condition->poll_us);
}

static void on_deadline(struct timer *timer)
{
    struct condition *condition = container_of(timer, struct condition, deadline);

    if (!check(condition))
        answer(condition, false, "timeout");
}

/* --- what was asked -------------------------------------------------------------------------- */

struct wish {
    uint64_t port, offset;
    int64_t timeout_ms;
    const char *text, *stream;
};

static int read_wish(const struct api_request *request, struct wish *wish, struct error *err)
{
    *wish = (struct wish){ .timeout_ms = TIMEOUT_DEFAULT_MS };
    wish->text = api_parameter(request, "output");
    wish->stream = api_parameter(request, "stream");
    if (api_parameter_u64(request, "port", PORT_MAXIMUM, &wish->port, err) < 0 ||
        api_parameter_u64(request, "offset", INT64_MAX, &wish->offset, err) < 0 ||
        api_parameter_ms(request, "timeout", WAIT_MAXIMUM_MS, &wish->timeout_ms, err) < 0)
        return -1;
    if (!wish->text == !wish->port)
        return error_named(err, ERR_INVALID, "invalid_parameter", "give one of output and port");
    if (wish->text && (!*wish->text || strlen(wish->text) > TEXT_MAXIMUM))
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "output must be a text of at most %d bytes", TEXT_MAXIMUM);
    if (wish->stream && !str_equal(wish->stream, "stdout") && !str_equal(wish->stream, "stderr"))
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "stream must be stdout or stderr");
    return 0;
}

static void set_searches(struct condition *condition, const struct wish *wish, struct spool *out,
                         struct spool *err)
{
    bool wants_out = !str_equal(wish->stream ? wish->stream : "", "stderr");
    bool wants_err = !str_equal(wish->stream ? wish->stream : "", "stdout");

    condition->text = wish->text;
    condition->port = (unsigned)wish->port;
    condition->searches[0] = (struct search){ wants_out ? out : NULL, "stdout", wish->offset };
    condition->searches[1] = (struct search){ wants_err ? err : NULL, "stderr", wish->offset };
}

static void on_live(struct api_request *request, struct execution *execution)
{
    struct condition *condition;
    struct wish wish;
    struct error err = { 0 };

    if (read_wish(request, &wish, &err) < 0) {
        api_fail(request, &err);
        return;
    }
    condition = xnew(struct condition);
    condition->request = request;
    condition->execution = execution;
    condition->began_us = loop_now_us(request->core->loop);
    condition->poll_us = POLL_FIRST_US;
    set_searches(condition, &wish, execution_stdout(execution), execution_stderr(execution));
    timer_init(&condition->deadline, request->core->loop, on_deadline);
    timer_init(&condition->poll, request->core->loop, on_poll);
    execution_ref(execution);
    execution_watch(execution, &condition->watcher, on_change);
    request->state = condition;
    request->on_gone = on_gone;
    if (check(condition))
        return;
    timer_arm_in(&condition->deadline, wish.timeout_ms * 1000);
    if (condition->port)
        timer_arm_in(&condition->poll, condition->poll_us);
}

/* It has ended: its output is what it is. */
static void on_record(struct api_request *request, const struct execution_record *record)
{
    scoped(spool_free) struct spool *out = NULL;
    scoped(spool_free) struct spool *errors = NULL;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(API_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);
    struct condition condition = { .request = request,
                                   .began_us = loop_now_us(request->core->loop) };
    struct wish wish;
    struct error err = { 0 };
    bool is_met;

    if (read_wish(request, &wish, &err) < 0) {
        api_fail(request, &err);
        return;
    }
    out = execution_open_output(request->core, record, false);
    errors = execution_open_output(request->core, record, true);
    set_searches(&condition, &wish, out, errors);
    is_met = condition.text && has_text(&condition);
    begin_answer(&condition, &json, is_met, is_met ? NULL : "ended");
    execution_record_write_json(record, request->core, &json, "execution", false, NULL);
    json_end_object(&json);
    api_reply(request, 200, &text);
}

static void get_wait(struct api_request *request)
{
    api_find_execution(request, on_live, on_record);
}

static const struct api_parameter wait_parameters[] = {
    { "output", "string", "a text that the program writes" },
    { "stream", "string", "stdout or stderr: where the text is looked for; both by default" },
    { "offset", "integer", "the text is looked for from here on" },
    { "port", "integer", "a TCP port that somebody listens on inside the sandbox" },
    { "timeout", "string", "seconds to wait, 30 by default and an hour at most" },
    { 0 },
};

static const struct api_answer wait_answers[] = {
    { 200, "{met, reason, stream, offset, waited_seconds, execution}; reason is timeout or ended "
           "when it is not met" },
    { 400, "a parameter is unknown or out of range" },
    { 404, "session_not_found or execution_not_found" },
    { 0 },
};

const struct api_route api_wait_routes[] = {
    { HTTP_GET, "/api/v1/sessions/{session}/executions/{execution}/wait", get_wait,
      "Wait until an execution has written a text or a port is served", .session = API_ANY_SESSION,
      .parameters = wait_parameters, .answers = wait_answers },
    { 0 },
};
