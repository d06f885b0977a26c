/* SPDX-License-Identifier: Apache-2.0 */
/* Pulling an image, with progress. */

#include "backend/docker/engine_private.h"
#include "base/alloc.h"
#include "base/str.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MAXIMUM = 512 }; /* an image has 127 at most */

struct layer {
    char id[72];
    uint64_t done_bytes;
    uint64_t total_bytes;
};

struct pull_job {
    struct engine_flight flight;
    struct engine_pull *pull;   /* borrowed; its `private` is this job */
    struct engine_lines *lines; /* owned */
    struct layer *layers;       /* owned */
    size_t layer_count;
    int64_t stall_timeout_ms;
    struct error failure; /* reported by a line of the answer */
};

static struct pull_job *job_from(struct engine_flight *flight)
{
    return container_of(flight, struct pull_job, flight);
}

static void job_free(struct engine_flight *flight)
{
    struct pull_job *job = job_from(flight);

    job->pull->private = NULL;
    engine_flight_fini(flight);
    engine_lines_free(job->lines);
    free(job->layers);
    free(job);
}

/* --- lines ----------------------------------------------------------------------------------- */

/* NULL: there are too many. */
static struct layer *job_layer(struct pull_job *job, const char *id)
{
    struct layer *layer;

    for (size_t i = 0; i < job->layer_count; i++) {
        if (strcmp(job->layers[i].id, id) == 0)
            return &job->layers[i];
    }
    if (job->layer_count == LAYERS_MAXIMUM)
        return NULL;
    job->layers = xrealloc(job->layers, job->layer_count + 1, sizeof(*job->layers));
    layer = &job->layers[job->layer_count++];
    *layer = (struct layer){ 0 };
    memcpy(layer->id, id, strlen(id) + 1);
    return layer;
}

static uint64_t bytes_from(const json_t *value)
{
    double number = json_number_value(value);

    return number > 0 && number < 1e18 ? (uint64_t)number : 0;
}

static void layer_update(struct layer *layer, const char *status, const json_t *detail)
{
    uint64_t total = bytes_from(json_object_get(detail, "total"));
    bool is_loaded = str_starts_with(status, "Download complete") ||
                     str_starts_with(status, "Verifying") ||
                     str_starts_with(status, "Extracting") ||
                     str_starts_with(status, "Pull complete");

    if (total && !is_loaded) {
        layer->total_bytes = total;
        layer->done_bytes = MIN(bytes_from(json_object_get(detail, "current")), total);
    } else if (is_loaded) {
        layer->done_bytes = layer->total_bytes;
    }
}

static void job_sum(struct pull_job *job)
{
    struct engine_pull *pull = job->pull;

    pull->done_bytes = pull->total_bytes = 0;
    for (size_t i = 0; i < job->layer_count; i++) {
        pull->done_bytes += job->layers[i].done_bytes;
        pull->total_bytes += job->layers[i].total_bytes;
    }
}

static void job_note_failure(struct pull_job *job, const char *message)
{
    static const char *const absent[] = { "manifest unknown", "name unknown", "does not exist",
                                          "manifest for" };
    enum error_code code = ERR_BACKEND;
    char text[ENGINE_TEXT_SIZE];

    for (size_t i = 0; i < ARRAY_LENGTH(absent); i++) {
        if (strcasestr(message, absent[i]))
            code = ERR_NOT_FOUND;
    }
    if (strstr(message, "no space left on device"))
        code = ERR_NO_SPACE;
    engine_text_clean(message, text);
    error_set(&job->failure, code, "%s", text);
}

static void on_line(void *context, json_t *line)
{
    struct pull_job *job = context;
    struct engine_pull *pull = job->pull;
    const char *id = json_string_value(json_object_get(line, "id"));
    const char *status = json_string_value(json_object_get(line, "status"));
    const char *error = json_string_value(json_object_get(line, "error"));
    struct layer *layer = NULL;

    if (error)
        job_note_failure(job, error);
    if (id && strlen(id) < sizeof(layer->id))
        layer = job_layer(job, id);
    if (layer && status)
        layer_update(layer, status, json_object_get(line, "progressDetail"));
    job_sum(job);
    if (pull->on_progress)
        pull->on_progress(pull);
}

static void on_data(struct engine_flight *flight, const uint8_t *data, size_t length)
{
    struct pull_job *job = job_from(flight);
    struct error err;

    engine_flight_set_timeout(flight, job->stall_timeout_ms);
    if (engine_lines_feed(job->lines, data, length, on_line, job, &err) < 0)
        engine_flight_fail(flight, &err);
}

static void on_end(struct engine_flight *flight, const struct error *err)
{
    struct pull_job *job = job_from(flight);
    struct engine_pull *pull = job->pull;

    pull->err = err ? *err : job->failure;
    job_free(flight);
    pull->done(pull);
}

/* --- the interface --------------------------------------------------------------------------- */

void engine_pull_start(struct engine *engine, struct engine_pull *pull, const char *repository,
                       const char *tag, int64_t stall_timeout_ms, engine_pull_fn *on_progress,
                       engine_pull_fn *done)
{
    static const struct engine_flight_ops ops = {
        .on_data = on_data,
        .on_end = on_end,
        .free = job_free,
    };
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(64 * 1024);
    struct pull_job *job = xnew(struct pull_job);
    struct flight_request request = { .method = HTTP_POST };

    assert(!pull->private);
    (void)buffer_append_text(&path, "/images/create?fromImage=");
    (void)http_escape(&path, repository);
    (void)buffer_append_text(&path, "&tag=");
    (void)http_escape(&path, tag);
    request.path = buffer_text(&path);
    *pull = (struct engine_pull){ .done = done, .on_progress = on_progress, .private = job };
    job->pull = pull;
    job->lines = engine_lines_new();
    job->stall_timeout_ms = stall_timeout_ms;
    engine_flight_init(&job->flight, engine, &ops);
    engine_flight_send(&job->flight, &request, stall_timeout_ms);
}

void engine_pull_cancel(struct engine_pull *pull)
{
    struct pull_job *job = pull->private;

    if (job)
        job_free(&job->flight);
}
