/* SPDX-License-Identifier: Apache-2.0 */
/* A list that is watched: read in pages, then followed as a stream of events. */

#include "backend/kubernetes/kube_private.h"

#include "base/alloc.h"
#include "base/backoff.h"
#include "base/str.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    PAGE_ITEMS = 250,
    PAGE_MS = 60 * 1000,
    STREAM_S = 300,                            /* the server ends the stream then */
    STREAM_US = (STREAM_S + 60) * 1000 * 1000, /* and a silent one is ended here */
    EVENT_MAXIMUM = 4 * 1024 * 1024,
    STATUS_GONE = 410,
};

static const struct backoff again_ms = { .first = 500, .most = 30 * 1000 };

/* | state           | leads to                                          |
 * | WATCH_LISTING   | WATCH_OPENING, WATCH_WAITING                      |
 * | WATCH_OPENING   | WATCH_STREAMING, WATCH_LISTING, WATCH_WAITING     |
 * | WATCH_STREAMING | WATCH_OPENING, WATCH_LISTING, WATCH_WAITING       |
 * | WATCH_WAITING   | WATCH_LISTING, WATCH_OPENING                      | */
enum watch_state {
    WATCH_LISTING,
    WATCH_OPENING, /* the stream is asked for */
    WATCH_STREAMING,
    WATCH_WAITING, /* something has failed: the timer goes on */
};

struct watch_job {
    enum watch_state state;
    struct list node;
    struct kube_client *client; /* borrowed */
    struct kube_watch *watch;   /* borrowed; its `private` is this job */
    char *path;                 /* owned */
    char *selector;             /* owned; escaped */
    struct kube_call page;
    struct http_call *http; /* borrowed from the client; NULL without a stream */
    struct timer timer;
    struct buffer input; /* what of the stream is no whole event yet, or a refusal */
    int status;
    char *version; /* owned: what was seen last; NULL: the list has to be read */
    bool is_gone;  /* the server does not know the version any more */
    unsigned failures;
};

static void job_list(struct watch_job *job, const char *next);
static void job_stream(struct watch_job *job);

static void job_free(struct watch_job *job)
{
    job->watch->private = NULL;
    kube_cancel(&job->page);
    if (job->http)
        http_call_cancel(job->http);
    timer_stop(&job->timer);
    list_remove(&job->node);
    buffer_fini(&job->input);
    free(job->path);
    free(job->selector);
    free(job->version);
    free(job);
}

void kube_watches_free(struct kube_client *client)
{
    struct watch_job *job;

    while ((job = list_first(&client->watches, struct watch_job, node)))
        job_free(job);
}

/* --- going on --------------------------------------------------------------------------------- */

static void forget_version(struct watch_job *job)
{
    free(steal_ptr(&job->version));
}

static void take_version(struct watch_job *job, const json_t *object)
{
    const json_t *metadata = json_object_get(object, "metadata");
    const char *version = json_string_value(json_object_get(metadata, "resourceVersion"));

    if (str_is_empty(version) || strlen(version) > 64)
        return;
    free(job->version);
    job->version = xstrdup(version);
}

static void go_on(struct watch_job *job)
{
    if (job->version)
        job_stream(job);
    else
        job_list(job, NULL);
}

/* Half of the delay is left to chance: many daemons may have lost the same server. */
static int64_t delay_us(unsigned failures)
{
    int64_t most = backoff_delay(&again_ms, failures) * 1000;
    uint32_t random = 0;

    if (getrandom(&random, sizeof(random), 0) < 0)
        random = 0;
    return most / 2 + random % (most / 2 + 1);
}

static void fail(struct watch_job *job, const struct error *err)
{
    job->state = WATCH_WAITING;
    timer_arm_in(&job->timer, delay_us(++job->failures));
    job->watch->handler->on_down(job->watch, err);
}

/* --- the list --------------------------------------------------------------------------------- */

static void on_page(struct kube_call *call)
{
    struct watch_job *job = container_of(call, struct watch_job, page);
    const json_t *metadata = json_object_get(call->body, "metadata");
    const char *next = json_string_value(json_object_get(metadata, "continue"));
    const json_t *item;
    size_t i;

    if (call->status == STATUS_GONE)
        error_set(&call->err, ERR_UNAVAILABLE, "the list has changed while it was read");
    if (call->err.code) {
        fail(job, &call->err);
        return;
    }
    json_array_foreach(json_object_get(call->body, "items"), i, item)
        job->watch->handler->on_object(job->watch, item, false);
    if (!str_is_empty(next)) {
        job_list(job, next);
        return;
    }
    take_version(job, call->body);
    job->watch->handler->on_list_end(job->watch);
    job_stream(job);
}

static void job_list(struct watch_job *job, const char *next)
{
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(64 * 1024);

    job->state = WATCH_LISTING;
    if (!next)
        job->watch->handler->on_list_begin(job->watch);
    buffer_appendf(&path, "%s?labelSelector=%s&limit=%d", job->path, job->selector, PAGE_ITEMS);
    if (next) {
        (void)buffer_append_text(&path, "&continue=");
        (void)http_escape(&path, next);
    }
    kube_request(job->client, &job->page, HTTP_GET, buffer_text(&path), NULL, PAGE_MS, on_page);
}

/* --- the stream ------------------------------------------------------------------------------- */

static void on_stream_head(struct http_call *http, const struct http_head *head)
{
    struct watch_job *job = http_call_user(http);

    job->status = head->status;
    if (head->status != 200)
        return;
    job->state = WATCH_STREAMING;
    job->failures = 0;
}

/* An old version is answered by 200 and this one event. */
static void take_error(struct watch_job *job, const json_t *status)
{
    if (json_integer_value(json_object_get(status, "code")) == STATUS_GONE)
        job->is_gone = true;
    else
        forget_version(job); /* whatever it was: the list is certain */
}

static void take_event(struct watch_job *job, const json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *object = json_object_get(event, "object");

    if (!type || !json_is_object(object))
        return;
    if (str_equal(type, "ERROR")) {
        take_error(job, object);
        return;
    }
    take_version(job, object);
    if (str_equal(type, "BOOKMARK"))
        return;
    job->watch->handler->on_object(job->watch, object, str_equal(type, "DELETED"));
}

static void take_lines(struct watch_job *job)
{
    uint8_t *newline;
    size_t used = 0;

    while (job->input.length > used &&
           (newline = memchr(job->input.data + used, '\n', job->input.length - used))) {
        size_t length = (size_t)(newline - (job->input.data + used));
        scoped(json_decref)
            json_t *event = json_loadb((char *)job->input.data + used, length, 0, NULL);

        used += length + 1;
        if (event)
            take_event(job, event);
    }
    buffer_consume(&job->input, used);
}

/* A place in the stream that cannot be read is as good as lost: the list tells what was there. */
static void on_stream_data(struct http_call *http, const uint8_t *data, size_t length)
{
    struct watch_job *job = http_call_user(http);
    struct error err = { 0 };

    if (buffer_append(&job->input, data, length) == 0) {
        if (job->status == 200)
            take_lines(job);
        return;
    }
    http_call_cancel(steal_ptr(&job->http));
    forget_version(job);
    error_set(&err, ERR_UNAVAILABLE, "%s sends an event of more than %d MiB",
              job->client->config.url, EVENT_MAXIMUM >> 20);
    fail(job, &err);
}

static void on_stream_end(struct http_call *http, const struct error *cause)
{
    struct watch_job *job = http_call_user(http);
    struct error err = { 0 };

    job->http = NULL;
    timer_stop(&job->timer);
    if (job->status && job->status != 200)
        kube_error_from_answer(&err, job->client, job->status, job->input.data, job->input.length);
    else if (cause)
        kube_error_from_http(&err, job->client, cause);
    if (job->is_gone || job->status == STATUS_GONE) {
        forget_version(job);
        err.code = ERR_NONE;
    }
    if (job->status == 401)
        (void)kube_client_renew_token(job->client);
    if (err.code)
        fail(job, &err);
    else
        go_on(job);
}

static void job_stream(struct watch_job *job)
{
    static const struct http_call_handler handler = {
        .on_head = on_stream_head,
        .on_data = on_stream_data,
        .on_end = on_stream_end,
    };
    scoped(free) char *path = xasprintf("%s?watch=true&allowWatchBookmarks=true&timeoutSeconds=%d&"
                                        "labelSelector=%s&resourceVersion=%s",
                                        job->path, STREAM_S, job->selector,
                                        job->version ? job->version : "0");

    job->state = WATCH_OPENING;
    job->status = 0;
    job->is_gone = false;
    buffer_clear(&job->input);
    timer_arm_in(&job->timer, STREAM_US);
    job->http = kube_client_call(job->client, HTTP_GET, path, NULL, NULL, &handler, job);
}

/* --- the interface ---------------------------------------------------------------------------- */

/* Time to try again; or a stream that the server should have ended is still there. */
static void on_timer(struct timer *timer)
{
    struct watch_job *job = container_of(timer, struct watch_job, timer);
    struct error err = { 0 };

    if (job->state == WATCH_WAITING) {
        go_on(job);
        return;
    }
    http_call_cancel(steal_ptr(&job->http));
    kube_error_timeout(&err, job->client, STREAM_US / 1000);
    fail(job, &err);
}

void kube_watch_start(struct kube_client *client, struct kube_watch *watch, const char *path,
                      const char *selector, const struct kube_watch_handler *handler)
{
    scoped(buffer_fini) struct buffer escaped = BUFFER_INIT(8 * 1024);
    struct watch_job *job = xnew(struct watch_job);

    assert(!watch->private);
    (void)http_escape(&escaped, selector);
    *watch = (struct kube_watch){ .handler = handler, .private = job };
    job->client = client;
    job->watch = watch;
    job->path = xstrdup(path);
    job->selector = buffer_steal_text(&escaped);
    job->input = BUFFER_INIT(EVENT_MAXIMUM);
    timer_init(&job->timer, client->loop, on_timer);
    list_init(&job->node);
    list_append(&client->watches, &job->node);
    job_list(job, NULL);
}

void kube_watch_stop(struct kube_watch *watch)
{
    if (watch->private)
        job_free(watch->private);
}

bool kube_watch_is_up(const struct kube_watch *watch)
{
    const struct watch_job *job = watch->private;

    return job && job->state == WATCH_STREAMING;
}
