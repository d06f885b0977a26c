/* SPDX-License-Identifier: Apache-2.0 */
/* The stream of events, opened again whenever it ends. */

#include "backend/docker/engine_private.h"
#include "base/alloc.h"
#include "base/backoff.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

enum { STEADY_US = 5 * 1000 * 1000 }; /* a stream that lasted so long was no failure */

static const struct backoff reopen_ms = { .first = 100, .most = 5000 };

struct events_job {
    struct engine_flight flight;
    struct engine_events *events; /* borrowed; its `private` is this job */
    struct timer timer;           /* opens the stream again */
    struct engine_lines *lines;   /* owned */
    char *filters;                /* owned; escaped */
    unsigned failures;
    int64_t up_us;   /* when the stream was opened; 0: it is not open */
    int64_t last_ns; /* the time of the last event, by the engine's clock; 0: none */
};

static struct events_job *job_from(struct engine_flight *flight)
{
    return container_of(flight, struct events_job, flight);
}

static void job_free(struct engine_flight *flight)
{
    struct events_job *job = job_from(flight);

    job->events->private = NULL;
    timer_stop(&job->timer);
    engine_flight_fini(flight);
    engine_lines_free(job->lines);
    free(job->filters);
    free(job);
}

/* --- opening --------------------------------------------------------------------------------- */

/*
 * The engine opens the stream before it subscribes to its own events. Asked for events from the
 * time of the answer to /_ping on, it shows those of the gap too. Later the stream goes on behind
 * the last event that was seen, as far as the engine remembers.
 */
static char *make_path(struct engine_flight *flight)
{
    const struct events_job *job = job_from(flight);
    int64_t since_ns = job->last_ns ? job->last_ns + 1 : flight->engine->date_s * NS_PER_S;

    if (!since_ns)
        return xasprintf("/events?filters=%s", job->filters);
    return xasprintf("/events?since=%lld.%09lld&filters=%s", (long long)(since_ns / NS_PER_S),
                     (long long)(since_ns % NS_PER_S), job->filters);
}

static void job_open(struct events_job *job)
{
    static const struct flight_request request = { .method = HTTP_GET };

    engine_lines_clear(job->lines);
    engine_forget_version(job->flight.engine); /* its date is to be that of now */
    engine_flight_send(&job->flight, &request, ENGINE_CONNECT_TIMEOUT_MS);
}

static void on_timer(struct timer *timer)
{
    job_open(container_of(timer, struct events_job, timer));
}

/* Half of the delay is left to chance: many daemons may have lost the same engine. */
static int64_t delay_us(unsigned failures)
{
    int64_t most = backoff_delay(&reopen_ms, failures) * 1000;
    uint32_t random = 0;

    if (getrandom(&random, sizeof(random), 0) < 0)
        random = 0;
    return most / 2 + random % (most / 2 + 1);
}

/* --- the stream ------------------------------------------------------------------------------ */

static void on_head(struct engine_flight *flight, const struct http_head *head UNUSED)
{
    struct events_job *job = job_from(flight);

    engine_flight_set_timeout(flight, 0);
    job->up_us = loop_now_us(flight->engine->loop);
    job->events->handler->on_up(job->events);
}

static void on_line(void *context, json_t *line)
{
    struct events_job *job = context;
    json_t *time_ns = json_object_get(line, "timeNano");

    if (json_is_integer(time_ns) && json_integer_value(time_ns) > job->last_ns &&
        json_integer_value(time_ns) < INT64_MAX) /* the next is behind it */
        job->last_ns = json_integer_value(time_ns);
    job->events->handler->on_event(job->events, line);
}

static void on_data(struct engine_flight *flight, const uint8_t *data, size_t length)
{
    struct events_job *job = job_from(flight);
    struct error err;

    if (engine_lines_feed(job->lines, data, length, on_line, job, &err) < 0)
        engine_flight_fail(flight, &err);
}

static void on_end(struct engine_flight *flight, const struct error *err)
{
    struct events_job *job = job_from(flight);
    struct engine *engine = flight->engine;
    struct error ended;

    error_named(&ended, ERR_UNAVAILABLE, "engine_unavailable",
                "the engine at %s has closed its stream of events", engine->host);
    if (job->up_us && loop_now_us(engine->loop) - job->up_us > STEADY_US)
        job->failures = 0;
    job->up_us = 0;
    job->failures++;
    timer_arm_in(&job->timer, delay_us(job->failures));
    job->events->handler->on_down(job->events, err ? err : &ended);
}

/* --- the interface --------------------------------------------------------------------------- */

static char *filters_for(const char *key, const char *value)
{
    scoped(json_decref) json_t *filters = json_pack("{s:[s]}", key, value);
    scoped(free) char *text = json_dumps(filters, JSON_COMPACT);
    scoped(buffer_fini) struct buffer escaped = BUFFER_INIT(64 * 1024);

    assert(text);
    (void)http_escape(&escaped, text);
    return buffer_steal_text(&escaped);
}

void engine_events_start(struct engine *engine, struct engine_events *events, const char *key,
                         const char *value, const struct engine_events_handler *handler)
{
    static const struct engine_flight_ops ops = {
        .make_path = make_path,
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
        .free = job_free,
    };
    struct events_job *job = xnew(struct events_job);

    assert(!events->private);
    *events = (struct engine_events){ .handler = handler, .private = job };
    job->events = events;
    job->filters = filters_for(key, value);
    job->lines = engine_lines_new();
    timer_init(&job->timer, engine->loop, on_timer);
    engine_flight_init(&job->flight, engine, &ops);
    job_open(job);
}

bool engine_events_are_up(const struct engine_events *events)
{
    const struct events_job *job = events->private;

    return job && job->up_us;
}

void engine_events_stop(struct engine_events *events)
{
    struct events_job *job = events->private;

    if (job)
        job_free(&job->flight);
}
