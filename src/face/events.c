/* SPDX-License-Identifier: Apache-2.0 */
#include "face/events.h"

#include "base/macros.h"
#include "core/core.h"
#include "core/metrics.h"
#include "face/request.h"
#include "wire/http/sse.h"

enum { HEARTBEAT_US = 15 * 1000 * 1000 };

static void on_heartbeat(struct timer *timer)
{
    struct event_answer *answer = container_of(timer, struct event_answer, heartbeat);
    struct http_exchange *exchange = answer->request->exchange;

    event_answer_start(answer);
    if (http_respond_pending(exchange) == 0)
        http_respond_write(exchange, ":\n\n", 3);
    timer_arm_in(&answer->heartbeat, HEARTBEAT_US);
}

void event_answer_init(struct event_answer *answer, struct request *request)
{
    *answer = (struct event_answer){ .request = request };
    timer_init(&answer->heartbeat, request->core->loop, on_heartbeat);
    timer_arm_in(&answer->heartbeat, HEARTBEAT_US);
}

void event_answer_start(struct event_answer *answer)
{
    struct request *request = answer->request;

    if (answer->has_started)
        return;
    answer->has_started = true;
    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    list_append(&request->faces->streams, &request->stream);
    http_respond_start(request->exchange, 200, "text/event-stream", -1);
}

void event_answer_send(struct event_answer *answer, const char *name, const void *data,
                       size_t length)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);

    event_answer_start(answer);
    if (sse_write(&text, NULL, name, data, length) == 0)
        http_respond_write(answer->request->exchange, text.data, text.length);
}

bool event_answer_has_room(const struct event_answer *answer)
{
    return http_respond_pending(answer->request->exchange) < HTTP_HIGH_WATER;
}

void event_answer_end(struct event_answer *answer)
{
    http_respond_end(answer->request->exchange);
    event_answer_fini(answer);
}

void event_answer_fini(struct event_answer *answer)
{
    if (answer->request)
        timer_stop(&answer->heartbeat);
}
