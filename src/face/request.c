/* SPDX-License-Identifier: Apache-2.0 */
#include "face/request.h"
#include "face/rename.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"
#include "core/metrics.h"
#include "service/recorded.h"

#include <string.h>

/* --- what was asked -------------------------------------------------------------------------- */

const char *request_parameter(const struct request *request, const char *name)
{
    for (size_t i = 0; i < request->parameter_count; i++) {
        if (strcmp(request->parameters[i].name, name) == 0)
            return request->parameters[i].value;
    }
    return NULL;
}

static int refuse_parameter(const char *name, const char *wanted, struct error *err)
{
    return error_named(err, ERR_INVALID, "invalid_parameter", "parameter %s must be %s", name,
                       wanted);
}

int request_parameter_u64(const struct request *request, const char *name, uint64_t maximum,
                          uint64_t *out_value, struct error *err)
{
    const char *text = request_parameter(request, name);
    uint64_t value;

    if (!text)
        return 0;
    if (str_to_u64(text, &value) < 0)
        return refuse_parameter(name, "a whole number", err);
    if (value > maximum)
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter %s must be at most %llu", name, (unsigned long long)maximum);
    *out_value = value;
    return 0;
}

int request_parameter_limit(const struct request *request, uint64_t maximum, uint64_t *out_limit,
                            struct error *err)
{
    uint64_t limit = *out_limit;

    if (request_parameter_u64(request, "limit", maximum, &limit, err) < 0)
        return -1;
    if (limit == 0)
        return error_named(err, ERR_INVALID, "invalid_parameter",
                           "parameter limit must be between 1 and %llu",
                           (unsigned long long)maximum);
    *out_limit = limit;
    return 0;
}

int request_parameter_bool(const struct request *request, const char *name, bool *out_value,
                           struct error *err)
{
    const char *text = request_parameter(request, name);

    if (!text)
        return 0;
    if (strcmp(text, "1") == 0 || strcmp(text, "true") == 0 || !*text)
        *out_value = true;
    else if (strcmp(text, "0") == 0 || strcmp(text, "false") == 0)
        *out_value = false;
    else
        return refuse_parameter(name, "1 or 0", err);
    return 0;
}

int request_parameter_ms(const struct request *request, const char *name, int64_t maximum_ms,
                         int64_t *out_ms, struct error *err)
{
    const char *text = request_parameter(request, name);
    int64_t ms;

    if (!text)
        return 0;
    if (str_to_duration_ms(text, &ms, NULL) < 0)
        return refuse_parameter(name, "a duration such as 30 or 90s", err);
    *out_ms = MIN(ms, maximum_ms);
    return 0;
}

const char *request_header(const struct request *request, const char *name)
{
    return http_head_header(http_exchange_head(request->exchange), name);
}

int request_idempotency_key(const struct request *request, const char **out_key, struct error *err)
{
    const char *key = request_header(request, "idempotency-key");

    if (key && (!*key || strlen(key) > REQUEST_KEY_MAXIMUM))
        return error_named(err, ERR_INVALID, "invalid_header",
                           "Idempotency-Key must have 1 to %d bytes, not %zu", REQUEST_KEY_MAXIMUM,
                           strlen(key));
    *out_key = key;
    return 0;
}

int request_decode(const struct request *request, void *out, struct error *err)
{
    if (json_decode(request->body, request->route->fields, request->route->field_count, out, err) ==
        0)
        return 0;
    request_restore_names(request, err);
    return -1;
}

json_t *request_take_field(struct request *request, const char *name)
{
    json_t *value = json_object_get(request->body, name);

    if (!value)
        return NULL;
    json_incref(value);
    json_object_del(request->body, name);
    if (!json_is_null(value))
        return value;
    json_decref(value);
    return NULL;
}

/* --- answers --------------------------------------------------------------------------------- */

static void reply(struct request *request, int status, const void *body, size_t length)
{
    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, (unsigned)status / 100, 1);
    http_respond(request->exchange, status, "application/json", body, length);
}

static void reply_now(struct request *request, int status, struct buffer *json)
{
    static const char too_large[] =
        "{\"error\":{\"code\":\"internal\",\"message\":\"the answer is too large\",\"hint\":\"\","
        "\"retryable\":false}}\n";

    if (!request->exchange)
        return;
    if (buffer_append_byte(json, '\n') < 0 || json->overflowed)
        reply(request, 500, too_large, sizeof(too_large) - 1);
    else
        reply(request, status, json->data, json->length);
}

/* --- answers that come when what they tell is recorded ------------------------------------------ */

struct durable {
    struct request *request;
    struct recorded recorded;
    int status;
    bool is_result; /* of work that is done: told even if the store fails */
    struct buffer text;
};

static void on_recorded(struct recorded *recorded)
{
    struct durable *durable = container_of(recorded, struct durable, recorded);

    if (!request_finish(durable->request)) {
        if (recorded->err->code && !durable->is_result)
            request_fail(durable->request, recorded->err);
        else
            reply_now(durable->request, durable->status, &durable->text);
    }
    buffer_fini(&durable->text);
    free(durable);
}

static struct durable *durable_new(struct request *request, int status, struct buffer *json)
{
    struct durable *durable = xnew(struct durable);

    durable->request = request;
    durable->status = status;
    durable->text = *json;
    *json = (struct buffer){ 0 };
    request_begin(request);
    return durable;
}

static bool promises_something(const struct request *request, int status)
{
    return request->exchange && status < 300 && request->route &&
           request->route->method != HTTP_GET;
}

static void reply_when_written(struct request *request, int status, struct buffer *json,
                               bool is_result)
{
    struct durable *durable;

    if (!promises_something(request, status) || !recorded_can_wait(request->core)) {
        reply_now(request, status, json);
        return;
    }
    durable = durable_new(request, status, json);
    durable->is_result = is_result;
    recorded_wait_written(&durable->recorded, request->core, on_recorded);
}

void request_reply(struct request *request, int status, struct buffer *json)
{
    reply_when_written(request, status, json, false);
}

void request_reply_result(struct request *request, int status, struct buffer *json)
{
    reply_when_written(request, status, json, true);
}

void request_reply_empty_object(struct request *request, int status)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(8);

    (void)buffer_append_text(&text, "{}");
    request_reply(request, status, &text);
}

void request_reply_recorded(struct request *request, int status, struct buffer *json)
{
    struct durable *durable = durable_new(request, status, json);

    recorded_wait(&durable->recorded, request->core, on_recorded);
}
