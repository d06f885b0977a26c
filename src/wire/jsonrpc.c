/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/jsonrpc.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

static bool is_batch(const char *text, size_t length)
{
    size_t at = 0;

    while (at < length && memchr(" \t\r\n", text[at], 4))
        at++;
    return at < length && text[at] == '[';
}

char *jsonrpc_token(const json_t *value)
{
    if (!json_is_integer(value) && !json_is_string(value))
        return NULL;
    if (json_is_string(value) && json_string_length(value) > JSONRPC_ID_MAXIMUM)
        return NULL;
    return json_dumps(value, JSON_ENCODE_ANY);
}

static int refuse(struct error *err, const char *message)
{
    error_named(err, ERR_INVALID, "invalid_request", "%s", message);
    return JSONRPC_INVALID_REQUEST;
}

static int read_id(struct jsonrpc_message *message, bool *out_has_id, struct error *err)
{
    const json_t *id = json_object_get(message->document, "id");

    message->id = jsonrpc_token(id);
    *out_has_id = id != NULL;

    /* The response to an unreadable request has the id null. */
    if (message->id || !id || (json_is_null(id) && message->kind == JSONRPC_RESPONSE))
        return 0;
    return refuse(err, "id must be a whole number or a text of at most 256 bytes");
}

static int read_method(struct jsonrpc_message *message, struct error *err)
{
    const json_t *method = json_object_get(message->document, "method");

    if (!json_is_string(method) || json_string_length(method) > JSONRPC_METHOD_MAXIMUM ||
        json_string_length(method) == 0)
        return refuse(err, "method must be a text of at most 128 bytes");
    message->method = json_string_value(method);
    return 0;
}

static int read_params(struct jsonrpc_message *message, struct error *err)
{
    json_t *params = json_object_get(message->document, "params");

    if (params && !json_is_object(params)) {
        error_named(err, ERR_INVALID, "invalid_params", "params must be an object");
        return JSONRPC_INVALID_PARAMS;
    }
    message->params = params;
    return 0;
}

static int read_members(struct jsonrpc_message *message, struct error *err)
{
    const json_t *document = message->document;
    const json_t *version = json_object_get(document, "jsonrpc");
    bool is_answer = json_object_get(document, "result") || json_object_get(document, "error");
    bool has_id;
    int code;

    message->kind = is_answer ? JSONRPC_RESPONSE : JSONRPC_REQUEST;
    code = read_id(message, &has_id, err);
    if (code)
        return code;
    if (!str_equal(json_string_value(version), "2.0"))
        return refuse(err, "jsonrpc must be \"2.0\"");
    if (is_answer)
        return json_object_get(document, "method")
                   ? refuse(err, "a message with a method has neither result nor error")
                   : 0;
    if (!has_id)
        message->kind = JSONRPC_NOTIFICATION;
    code = read_method(message, err);
    return code ? code : read_params(message, err);
}

int jsonrpc_read(const void *data, size_t length, struct jsonrpc_message *out, struct error *err)
{
    *out = (struct jsonrpc_message){ 0 };
    if (is_batch(data, length))
        return refuse(err, "batches are not supported: send one message at a time");
    out->document = json_read(data, length, err);
    return out->document ? read_members(out, err) : JSONRPC_PARSE_ERROR;
}

int jsonrpc_take(json_t *document, struct jsonrpc_message *out, struct error *err)
{
    *out = (struct jsonrpc_message){ .document = document };
    return read_members(out, err);
}

void jsonrpc_message_fini(struct jsonrpc_message *message)
{
    json_decref(message->document);
    free(message->id);
    *message = (struct jsonrpc_message){ 0 };
}

/* --- writing --------------------------------------------------------------------------------- */

static void begin(struct json_writer *json)
{
    json_begin_object(json, NULL);
    json_put_text(json, "jsonrpc", "2.0");
}

void jsonrpc_begin_result(struct json_writer *json, const char *id)
{
    begin(json);
    json_put_raw(json, "id", id);
}

void jsonrpc_begin_notification(struct json_writer *json, const char *method)
{
    begin(json);
    json_put_text(json, "method", method);
}

void jsonrpc_write_error(struct json_writer *json, const char *id, int code, const char *message,
                         const char *data)
{
    begin(json);
    json_put_raw(json, "id", id ? id : "null");
    json_begin_object(json, "error");
    json_put_int(json, "code", code);
    json_put_text(json, "message", message);
    if (data)
        json_put_raw(json, "data", data);
    json_end_object(json);
    json_end_object(json);
}
