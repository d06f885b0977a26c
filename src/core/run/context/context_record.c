#include "core/run/context/context_record.h"

#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum {
    CODE_KEPT = 16 * 1024,
    OUTPUT_KEPT = 8 * 1024,  /* of each stream */
    MESSAGE_KEPT = 8 * 1024, /* larger ones, such as pictures, are left out */
    EVENT_MAXIMUM = 1024 * 1024
};

struct context_record {
    struct buffer code, streams[2];
    char *result, *error; /* owned; JSON objects as the driver said them, or NULL */
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

void context_record_message(struct context_record *record, const char *type, const json_t *message)
{
    char **place = !record                     ? NULL
                   : str_equal(type, "result") ? &record->result
                   : str_equal(type, "error")  ? &record->error
                                               : NULL;
    char *text = place ? json_dumps(message, JSON_COMPACT) : NULL;

    if (!text || strlen(text) > MESSAGE_KEPT) {
        free(text);
        return;
    }
    free(*place);
    *place = text;
}

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
    put_message(&json, "result", secrets, record->result);
    put_message(&json, "error", secrets, record->error);
    json_end_object(&json);
    if (!text.overflowed)
        session_emit(session, "context.ran", buffer_text(&text));
}
