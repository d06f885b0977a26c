/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/context/context_record.h"

#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "wire/base64.h"

#include <stdlib.h>
#include <string.h>

enum {
    CODE_KEPT = 16 * 1024,
    OUTPUT_KEPT = 8 * 1024,  /* of each stream */
    MESSAGE_KEPT = 8 * 1024, /* of an error */
    CONTENT_KEPT = 4 * 1024, /* of one media type in the event; larger ones are in a file */
    RESULTS_KEPT = 256 * 1024 /* of all results, in the event */,
    EVENT_MAXIMUM = 1024 * 1024
};

struct context_record {
    struct buffer code, streams[2];
    struct buffer results; /* JSON objects, separated by commas, masked */
    unsigned left_out;     /* results, or contents of results, that are not kept */
    char *result, *error;  /* owned; JSON objects as the driver said them, or NULL */
};

static void keep(struct buffer *buffer, const void *data, size_t length)
{
    buffer_append(buffer, data, MIN(length, buffer->maximum - buffer->length));
}

struct context_record *context_record_new(const char *code, size_t length)
{
    struct context_record *record = xnew(struct context_record);

    record->code = BUFFER_INIT(CODE_KEPT);
    record->streams[0] = record->streams[1] = BUFFER_INIT(OUTPUT_KEPT);
    record->results = BUFFER_INIT(RESULTS_KEPT);
    keep(&record->code, code, length);
    return record;
}

void context_record_free(struct context_record *record)
{
    if (!record)
        return;
    buffer_fini(&record->code);
    buffer_fini(&record->streams[0]);
    buffer_fini(&record->streams[1]);
    buffer_fini(&record->results);
    free(record->result);
    free(record->error);
    free(record);
}

void context_record_output(struct context_record *record, size_t stream, const void *data,
                           size_t length)
{
    if (record)
        keep(&record->streams[stream], data, length);
}

/* --- results -------------------------------------------------------------------------------- */

/* Drivers give the bytes of these as base64. */
static bool is_base64(const char *type)
{
    return (strncmp(type, "image/", 6) == 0 && !str_equal(type, "image/svg+xml")) ||
           str_equal(type, "application/pdf");
}

/* Keeps the bytes with the execution, and where they are in `files`. */
static bool keep_file(const struct context_run *run, const char *type, const void *data,
                      size_t length, json_t *files)
{
    struct context *context = run->context;
    scoped(free) char *path = NULL;
    char hash[DISPLAY_HASH_SIZE];

    if (!context->execution ||
        !execution_keep_display(context->execution, type, data, length, hash))
        return false;
    path = xasprintf("/api/v1/sessions/%s/executions/%s/displays/%s", session_id(context->session),
                     execution_facts(context->execution)->id, hash);
    json_object_set_new(
        files, type,
        json_pack("{s:s, s:s, s:I}", "path", path, "sha256", hash, "size", (json_int_t)length));
    return true;
}

static bool keep_bytes(const struct context_run *run, const char *type, const char *text,
                       json_t *files)
{
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(DISPLAY_MAXIMUM);

    return base64_decode(text, strlen(text), &bytes) == 0 &&
           keep_file(run, type, bytes.data, bytes.length, files);
}

/* One media type of a result: small ones as they are, others in a file. */
static bool keep_content(const struct context_run *run, const char *type, const json_t *value,
                         json_t *data, json_t *files)
{
    const char *base64 = is_base64(type) ? json_string_value(value) : NULL;
    scoped(json_decref) json_t *masked = NULL;
    scoped(free) char *text = NULL;

    if (base64 && strlen(base64) > CONTENT_KEPT)
        return keep_bytes(run, type, base64, files);
    masked = base64 ? json_incref((json_t *)value)
                    : json_masked(value, session_mask(run->context->session));
    text = json_is_string(masked) ? xstrdup(json_string_value(masked))
                                  : json_dumps(masked, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text && strlen(text) > CONTENT_KEPT)
        return keep_file(run, type, text, strlen(text), files);
    return text && json_object_set(data, type, masked) == 0;
}

static void keep_result(struct context_record *record, const struct context_run *run,
                        const char *type, const json_t *contents)
{
    scoped(json_decref) json_t *data = json_object(), *files = json_object();
    scoped(json_decref) json_t *result = NULL;
    scoped(free) char *text = NULL;
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)contents, name, value)
    {
        if (!keep_content(run, name, value, data, files))
            record->left_out++;
    }
    result = json_pack("{s:s, s:O}", "type", type, "data", data);
    if (json_object_size(files))
        json_object_set(result, "files", files);
    text = json_dumps(result, JSON_COMPACT);
    if (!text || record->results.length + strlen(text) + 1 > RESULTS_KEPT) {
        record->left_out++;
        return;
    }
    buffer_appendf(&record->results, "%s%s", record->results.length ? "," : "", text);
}

static void keep_message(char **place, const json_t *message)
{
    char *text = json_dumps(message, JSON_COMPACT);

    if (!text || strlen(text) > MESSAGE_KEPT) {
        free(text);
        return;
    }
    free(*place);
    *place = text;
}

void context_record_message(struct context_record *record, const struct context_run *run,
                            const char *type, const json_t *message)
{
    if (!record)
        return;
    if (str_equal(type, "error")) {
        keep_message(&record->error, message);
        return;
    }
    keep_result(record, run, type, json_object_get(message, "data"));
    if (str_equal(type, "result"))
        keep_message(&record->result, message);
}

/* --- the event ------------------------------------------------------------------------------- */

/* Only the beginning is kept, without a possible first half of a secret. */
static void put_masked(struct json_writer *json, const char *key, const struct mask *secrets,
                       const struct buffer *text)
{
    scoped(mask_stream_fini) struct mask_stream stream = MASK_STREAM(secrets);
    scoped(buffer_fini) struct buffer masked = BUFFER_INIT(EVENT_MAXIMUM);

    mask_feed(&stream, text->data, text->length, &masked);
    if (text->length < text->maximum)
        mask_end(&stream, &masked);
    json_put_bytes(json, key, buffer_text(&masked), masked.length);
}

static void put_message(struct json_writer *json, const char *key, const struct mask *secrets,
                        const char *message)
{
    scoped(json_decref) json_t *said = message ? json_read(message, strlen(message), NULL) : NULL;
    scoped(json_decref) json_t *shown = said ? json_masked(said, secrets) : NULL;
    scoped(free) char *text = shown ? json_dumps(shown, JSON_COMPACT) : NULL;

    if (text)
        json_put_raw(json, key, text);
}

static void put_results(struct json_writer *json, const struct context_record *record)
{
    scoped(free) char *text =
        xasprintf("[%.*s]", (int)record->results.length, (const char *)record->results.data);

    json_put_raw(json, "results", record->results.length ? text : "[]");
    json_put_int(json, "results_left_out", record->left_out);
}

void context_record_emit(const struct context_record *record, const struct context_run *run,
                         const char *language)
{
    struct session *session = run->context->session;
    const struct mask *secrets = session_mask(session);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(EVENT_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    if (!record)
        return;
    json_begin_object(&json, NULL);
    json_put_text(&json, "context_id", run->context->id);
    json_put_int(&json, "number", (int64_t)run->number);
    json_put_int(&json, "run", (int64_t)run->number);
    json_put_text(&json, "language", language);
    put_masked(&json, "code", secrets, &record->code);
    json_put_text(&json, "state", context_run_state_name(run->state));
    if (run->exit_code >= 0)
        json_put_int(&json, "exit_code", run->exit_code);
    json_put_double(&json, "duration_seconds", (double)run->duration_us / 1e6);
    put_masked(&json, "stdout", secrets, &record->streams[0]);
    put_masked(&json, "stderr", secrets, &record->streams[1]);
    json_put_int(&json, "stdout_bytes", (int64_t)run->bytes[0]);
    json_put_int(&json, "stderr_bytes", (int64_t)run->bytes[1]);
    put_results(&json, record);
    put_message(&json, "result", secrets, record->result);
    put_message(&json, "error", secrets, record->error);
    json_end_object(&json);
    if (!text.overflowed)
        session_emit(session, "context.ran", buffer_text(&text));
}
