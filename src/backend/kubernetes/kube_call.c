/* SPDX-License-Identifier: Apache-2.0 */
/* Requests with an answer in JSON. */

#include "backend/kubernetes/kube_private.h"

#include "base/alloc.h"
#include "base/backoff.h"
#include "base/str.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MAXIMUM_S = 60, STATUS_LIMITED = 429, STATUS_BUSY = 503, STATUS_LOGIN = 401 };

enum job_state {
    JOB_CALLING,
    JOB_WAITING, /* the server has asked for patience: `again` is armed */
};

struct kube_job {
    enum job_state state;
    struct list node;
    struct kube_client *client; /* borrowed */
    struct kube_call *call;     /* borrowed; its `private` is this job */
    enum http_method method;
    char *path;         /* owned */
    char *body;         /* owned, or NULL */
    const char *accept; /* borrowed: a literal */
    int64_t timeout_ms;
    struct timer deadline;
    struct timer again;
    struct http_call *http; /* borrowed from the client */
    int status;
    unsigned wait_s;    /* as the server has asked; 0: it has not */
    bool has_new_token; /* a 401 was answered with another token already */
    struct buffer answer;
};

static void job_free(struct kube_job *job)
{
    job->call->private = NULL;
    if (job->http)
        http_call_cancel(job->http);
    timer_stop(&job->deadline);
    timer_stop(&job->again);
    list_remove(&job->node);
    buffer_fini(&job->answer);
    free(job->path);
    free(job->body);
    free(job);
}

void kube_jobs_free(struct kube_client *client)
{
    struct kube_job *job;

    while ((job = list_first(&client->jobs, struct kube_job, node)))
        job_free(job);
}

static void job_end(struct kube_job *job, const struct error *err)
{
    struct kube_call *call = job->call;
    scoped(json_decref) json_t *body = NULL;

    call->status = job->status;
    call->err = err ? *err : (struct error){ 0 };
    if (!err && job->answer.length)
        body = json_loadb((char *)job->answer.data, job->answer.length, 0, NULL);
    if (!err && !json_is_object(body))
        error_named(&call->err, ERR_UNAVAILABLE, "kubernetes_unavailable",
                    "%s gives an answer that is no JSON object", job->client->config.url);
    call->body = call->err.code ? NULL : body;
    job_free(job);
    call->done(call);
}

static void on_deadline(struct timer *timer)
{
    struct kube_job *job = container_of(timer, struct kube_job, deadline);
    struct error err = { 0 };

    if (job->state == JOB_WAITING)
        kube_error_from_answer(&err, job->client, job->status, job->answer.data,
                               job->answer.length);
    else
        kube_error_timeout(&err, job->client, job->timeout_ms);
    job_end(job, &err);
}

/* --- the answer ------------------------------------------------------------------------------- */

static void on_head(struct http_call *http, const struct http_head *head)
{
    struct kube_job *job = http_call_user(http);
    const char *wait = http_head_header(head, "retry-after");
    uint64_t seconds = 0;

    job->status = head->status;
    if (wait && str_to_u64(wait, &seconds) == 0)
        job->wait_s = (unsigned)MIN(MAX(seconds, (uint64_t)1), (uint64_t)WAIT_MAXIMUM_S);
}

static void on_data(struct http_call *http, const uint8_t *data, size_t length)
{
    struct kube_job *job = http_call_user(http);
    struct error err = { 0 };

    if (buffer_append(&job->answer, data, length) == 0)
        return;
    error_named(&err, ERR_UNAVAILABLE, "kubernetes_unavailable",
                "%s sends an answer of more than %d MiB", job->client->config.url,
                KUBE_ANSWER_MAXIMUM >> 20);
    job_end(job, &err);
}

static void job_send(struct kube_job *job);

static bool job_may_wait(const struct kube_job *job)
{
    return job->status == STATUS_LIMITED || (job->status == STATUS_BUSY && job->wait_s);
}

static void on_end(struct http_call *http, const struct error *cause)
{
    struct kube_job *job = http_call_user(http);
    struct error err = { 0 };

    job->http = NULL;
    if (cause) {
        kube_error_from_http(&err, job->client, cause);
        job_end(job, &err);
    } else if (job->status >= 200 && job->status < 300) {
        job_end(job, NULL);
    } else if (job_may_wait(job)) {
        job->state = JOB_WAITING;
        timer_arm_in(&job->again, (int64_t)MAX(job->wait_s, 1U) * 1000 * 1000);
    } else if (job->status == STATUS_LOGIN && !job->has_new_token &&
               kube_client_renew_token(job->client)) {
        job->has_new_token = true;
        job_send(job);
    } else {
        kube_error_from_answer(&err, job->client, job->status, job->answer.data,
                               job->answer.length);
        job_end(job, &err);
    }
}

static void job_send(struct kube_job *job)
{
    static const struct http_call_handler handler = {
        .on_head = on_head,
        .on_data = on_data,
        .on_end = on_end,
    };

    job->state = JOB_CALLING;
    job->status = 0;
    job->wait_s = 0;
    buffer_clear(&job->answer);
    job->http = kube_client_call(job->client, job->method, job->path, job->body,
                                 (const char *const[]){ "Accept", job->accept, NULL }, &handler,
                                 job);
}

static void on_again(struct timer *timer)
{
    job_send(container_of(timer, struct kube_job, again));
}

static void request(struct kube_client *client, struct kube_call *call, enum http_method method,
                    const char *path, const char *accept, const char *body, int64_t timeout_ms,
                    kube_done_fn *done)
{
    struct kube_job *job = xnew(struct kube_job);

    assert(!call->private && timeout_ms > 0);
    *call = (struct kube_call){ .done = done, .private = job };
    job->client = client;
    job->call = call;
    job->method = method;
    job->accept = accept;
    job->path = xstrdup(path);
    job->body = body ? xstrdup(body) : NULL;
    job->timeout_ms = timeout_ms;
    job->answer = BUFFER_INIT(KUBE_ANSWER_MAXIMUM);
    timer_init(&job->deadline, client->loop, on_deadline);
    timer_init(&job->again, client->loop, on_again);
    list_init(&job->node);
    list_append(&client->jobs, &job->node);
    timer_arm_in(&job->deadline, timeout_ms * 1000);
    job_send(job);
}

void kube_request(struct kube_client *client, struct kube_call *call, enum http_method method,
                  const char *path, const char *body, int64_t timeout_ms, kube_done_fn *done)
{
    request(client, call, method, path, "application/json", body, timeout_ms, done);
}

void kube_request_metadata(struct kube_client *client, struct kube_call *call, const char *path,
                           int64_t timeout_ms, kube_done_fn *done)
{
    request(client, call, HTTP_GET, path,
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json", NULL,
            timeout_ms, done);
}

void kube_cancel(struct kube_call *call)
{
    if (call->private)
        job_free(call->private);
}
