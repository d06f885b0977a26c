/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with an answer in JSON. */

#include "backend/docker/engine_private.h"
#include "base/alloc.h"

#include <assert.h>
#include <stdlib.h>

struct call_job {
    struct engine_flight flight;
    struct engine_call *call; /* borrowed; its `private` is this job */
    struct buffer answer;
};

static struct call_job *job_from(struct engine_flight *flight)
{
    return container_of(flight, struct call_job, flight);
}

static void job_free(struct engine_flight *flight)
{
    struct call_job *job = job_from(flight);

    job->call->private = NULL;
    engine_flight_fini(flight);
    buffer_fini(&job->answer);
    free(job);
}

static void on_data(struct engine_flight *flight, const uint8_t *data, size_t length)
{
    struct call_job *job = job_from(flight);
    struct error err;

    if (buffer_append(&job->answer, data, length) == 0)
        return;
    error_set(&err, ERR_BACKEND, "the engine at %s sends an answer of more than %d MiB",
              flight->engine->host, ENGINE_ANSWER_MAXIMUM >> 20);
    engine_flight_fail(flight, &err);
}

/* The answer, NULL when there is none to read. */
static json_t *job_read(struct call_job *job, struct error *err)
{
    json_t *body;

    if (job->flight.content == CONTENT_OTHER || !job->answer.length)
        return NULL;
    body = engine_json_read(job->answer.data, job->answer.length);
    if (!body && job->flight.content == CONTENT_JSON)
        error_set(err, ERR_BACKEND, "the engine at %s sends an answer that is not valid JSON",
                  job->flight.engine->host);
    return body;
}

static void on_end(struct engine_flight *flight, const struct error *err)
{
    struct call_job *job = job_from(flight);
    struct engine_call *call = job->call;
    scoped(json_decref) json_t *body = NULL;

    call->err = err ? *err : (struct error){ 0 };
    call->status = flight->status;
    if (!err)
        body = job_read(job, &call->err);
    call->body = body;
    job_free(flight);
    call->done(call);
}

void engine_request(struct engine *engine, struct engine_call *call, enum http_method method,
                    const char *path, const char *content_type, const void *body,
                    size_t body_length, int64_t timeout_ms, engine_done_fn *done)
{
    static const struct engine_flight_ops ops = {
        .on_data = on_data,
        .on_end = on_end,
        .free = job_free,
    };
    struct flight_request request = {
        .method = method,
        .path = path,
        .content_type = content_type ? content_type
                        : body       ? "application/json"
                                     : NULL,
        .body = body,
        .body_length = body_length,
    };
    struct call_job *job = xnew(struct call_job);

    assert(!call->private);
    *call = (struct engine_call){ .done = done, .private = job };
    job->call = call;
    job->answer = BUFFER_INIT(ENGINE_ANSWER_MAXIMUM);
    engine_flight_init(&job->flight, engine, &ops);
    engine_flight_send(&job->flight, &request, timeout_ms);
}

void engine_cancel(struct engine_call *call)
{
    struct call_job *job = call->private;

    if (job)
        job_free(&job->flight);
}
