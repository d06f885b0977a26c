/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a sandbox: the events of its session. */

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "e2b/private.h"
#include "service/event_page.h"

#include <stdlib.h>

enum { LOGS_DEFAULT = 1000, LOGS_MAXIMUM = 1000 };

struct logs {
    struct request *request;
    struct event_page page;
    struct buffer lines, entries; /* JSON values with commas between */
    bool is_first;                /* of the first version */
    int64_t from_ms, until_ms;
};

static void logs_free(struct logs *logs)
{
    buffer_fini(&logs->lines);
    buffer_fini(&logs->entries);
    free(logs);
}

static void put_entry(struct json_writer *json, const struct event_record *event)
{
    json_begin_object(json, NULL);
    json_put_time(json, "timestamp", event->wall_us);
    json_put_text(json, "level", "info");
    json_put_text(json, "message", event->type);
    json_begin_object(json, "fields");
    json_put_text(json, "logger", "sandglass");
    json_put_text(json, "data", event->data_json);
    json_end_object(json);
    json_end_object(json);
}

/* The clients of the first version parse the line as JSON. */
static void put_line(struct buffer *into, const struct event_record *event)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(64 * 1024);
    struct json_writer inner = JSON_WRITER(&line);
    struct json_writer json = JSON_WRITER(into);

    json_begin_object(&inner, NULL);
    json_put_text(&inner, "level", "info");
    json_put_text(&inner, "logger", "sandglass");
    json_put_text(&inner, "message", event->type);
    json_put_raw(&inner, "data", event->data_json ? event->data_json : "null");
    json_end_object(&inner);
    json_begin_object(&json, NULL);
    json_put_time(&json, "timestamp", event->wall_us);
    json_put_text(&json, "line", buffer_text(&line));
    json_end_object(&json);
}

static void separate(struct buffer *values)
{
    if (values->length)
        buffer_append_byte(values, ',');
}

static void on_event(struct event_page *page, const struct event_record *event)
{
    struct logs *logs = container_of(page, struct logs, page);
    struct json_writer json;
    int64_t at_ms = event->wall_us / 1000;

    if (at_ms < logs->from_ms || at_ms > logs->until_ms)
        return;
    separate(&logs->entries);
    json = JSON_WRITER(&logs->entries);
    put_entry(&json, event);
    if (!logs->is_first)
        return;
    separate(&logs->lines);
    put_line(&logs->lines, event);
}

static void logs_reply(struct logs *logs)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

    buffer_append_text(&text, "{\"logs\":[");
    if (logs->is_first) {
        buffer_append_text(&text, buffer_text(&logs->lines));
        buffer_append_text(&text, "],\"logEntries\":[");
    }
    buffer_append_text(&text, buffer_text(&logs->entries));
    buffer_append_text(&text, "]}");
    request_reply(logs->request, 200, &text);
}

static void on_events(struct event_page *page)
{
    struct logs *logs = container_of(page, struct logs, page);

    if (!request_finish(logs->request)) {
        if (page->err.code)
            request_fail(logs->request, &page->err);
        else
            logs_reply(logs);
    }
    logs_free(logs);
}

static int read_range(const struct request *request, struct logs *logs, struct error *err)
{
    uint64_t limit = LOGS_DEFAULT, from = 0;
    bool backward = str_equal(request_parameter(request, "direction"), "backward");

    logs->until_ms = INT64_MAX;
    if (request_parameter_u64(request, "limit", UINT32_MAX, &limit, err) < 0 ||
        request_parameter_u64(request, logs->is_first ? "start" : "cursor", INT64_MAX, &from, err) <
            0)
        return -1;
    if (backward && from)
        logs->until_ms = (int64_t)from;
    else
        logs->from_ms = (int64_t)from;
    logs->page.limit = (uint32_t)MIN(limit ? limit : 1, (uint64_t)LOGS_MAXIMUM);
    return 0;
}

static void read_logs(struct request *request, bool is_first)
{
    struct logs *logs = xnew(struct logs);
    struct error err = { 0 };

    logs->request = request;
    logs->is_first = is_first;
    logs->lines = BUFFER_INIT(16 * 1024 * 1024);
    logs->entries = BUFFER_INIT(16 * 1024 * 1024);
    if (read_range(request, logs, &err) < 0) {
        request_fail(request, &err);
        logs_free(logs);
        return;
    }
    logs->page.session_id = request->session_id;
    logs->page.limit_bytes = 8 * 1024 * 1024;
    logs->page.on_event = on_event;
    logs->page.done = on_events;
    request_begin(request);
    event_page_read(&logs->page, request->core);
}

static void show_first(struct request *request)
{
    read_logs(request, true);
}

static void show_second(struct request *request)
{
    read_logs(request, false);
}

static void get_first_logs(struct request *request)
{
    e2b_find(request, show_first);
}

static void get_logs(struct request *request)
{
    e2b_find(request, show_second);
}

const struct route e2b_log_routes[] = {
    { HTTP_GET, "/sandboxes/{id}/logs", get_first_logs, "Logs of a sandbox",
      .answers = e2b_any_answers },
    { HTTP_GET, "/v2/sandboxes/{id}/logs", get_logs, "Logs of a sandbox",
      .answers = e2b_any_answers },
    { 0 },
};
