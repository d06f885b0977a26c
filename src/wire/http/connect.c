/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http/connect.h"

#include "base/str.h"
#include "wire/json.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

static const char *const type_names[2][2] = {
    [CONNECT_JSON] = { "application/json", "application/connect+json" },
    [CONNECT_BINARY] = { "application/proto", "application/connect+proto" },
};

int connect_type_parse(const char *content_type, struct connect_type *out_type)
{
    size_t length = content_type ? strcspn(content_type, "; \t") : 0;

    for (unsigned codec = 0; codec < 2; codec++) {
        for (unsigned stream = 0; stream < 2; stream++) {
            const char *name = type_names[codec][stream];

            if (length != strlen(name) || strncasecmp(content_type, name, length) != 0)
                continue;
            *out_type = (struct connect_type){ codec, stream };
            return 0;
        }
    }
    return -1;
}

const char *connect_type_name(struct connect_type type)
{
    return type_names[type.codec][type.is_stream];
}

int connect_timeout_parse(const char *text, int64_t *out_ms)
{
    uint64_t value;

    if (strlen(text) > 10 || str_to_u64(text, &value) < 0 || value == 0)
        return -1;
    *out_ms = (int64_t)value;
    return 0;
}

/* --- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int status;
} codes[CONNECT_CODES] = {
    [CONNECT_OK] = { "", 200 },
    [CONNECT_CANCELED] = { "canceled", 499 },
    [CONNECT_UNKNOWN] = { "unknown", 500 },
    [CONNECT_INVALID_ARGUMENT] = { "invalid_argument", 400 },
    [CONNECT_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504 },
    [CONNECT_NOT_FOUND] = { "not_found", 404 },
    [CONNECT_ALREADY_EXISTS] = { "already_exists", 409 },
    [CONNECT_PERMISSION_DENIED] = { "permission_denied", 403 },
    [CONNECT_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429 },
    [CONNECT_FAILED_PRECONDITION] = { "failed_precondition", 400 },
    [CONNECT_ABORTED] = { "aborted", 409 },
    [CONNECT_OUT_OF_RANGE] = { "out_of_range", 400 },
    [CONNECT_UNIMPLEMENTED] = { "unimplemented", 501 },
    [CONNECT_INTERNAL] = { "internal", 500 },
    [CONNECT_UNAVAILABLE] = { "unavailable", 503 },
    [CONNECT_DATA_LOSS] = { "data_loss", 500 },
    [CONNECT_UNAUTHENTICATED] = { "unauthenticated", 401 },
};

const char *connect_code_name(enum connect_code code)
{
    assert(code < CONNECT_CODES);
    return codes[code].name;
}

int connect_code_status(enum connect_code code)
{
    assert(code < CONNECT_CODES);
    return codes[code].status;
}

enum connect_code connect_code_of(const struct error *err)
{
    switch (err->code) {
    case ERR_NONE:
        return CONNECT_OK;
    case ERR_INVALID:
    case ERR_TOO_LARGE:
        return CONNECT_INVALID_ARGUMENT;
    case ERR_UNAUTHORIZED:
        return CONNECT_UNAUTHENTICATED;
    case ERR_FORBIDDEN:
        return CONNECT_PERMISSION_DENIED;
    case ERR_NOT_FOUND:
        return CONNECT_NOT_FOUND;
    case ERR_CONFLICT:
        return CONNECT_FAILED_PRECONDITION;
    case ERR_LIMIT:
    case ERR_NO_SPACE:
        return CONNECT_RESOURCE_EXHAUSTED;
    case ERR_GONE:
    case ERR_BACKEND:
    case ERR_UNAVAILABLE:
        return CONNECT_UNAVAILABLE;
    case ERR_TIMEOUT:
        return CONNECT_DEADLINE_EXCEEDED;
    case ERR_INTERNAL:
    case ERR_CODES:
        break;
    }
    return CONNECT_INTERNAL;
}

void connect_put_error(struct json_writer *json, const char *key, enum connect_code code,
                       const char *message)
{
    json_begin_object(json, key);
    json_put_text(json, "code", connect_code_name(code));
    json_put_text(json, "message", message ? message : "");
    json_end_object(json);
}

/* --- envelopes ------------------------------------------------------------------------------- */

long connect_envelope_decode(const void *bytes, size_t length, size_t maximum,
                             struct connect_envelope *out_envelope)
{
    const uint8_t *at = bytes;
    size_t size;

    if (length > 0 && at[0] & ~CONNECT_FLAGS)
        return -1;
    if (length < CONNECT_ENVELOPE)
        return 0;
    size = (size_t)at[1] << 24 | (size_t)at[2] << 16 | (size_t)at[3] << 8 | at[4];
    if (size > maximum)
        return -1;
    if (length - CONNECT_ENVELOPE < size)
        return 0;
    *out_envelope = (struct connect_envelope){ at[0], at + CONNECT_ENVELOPE, size };
    return (long)(CONNECT_ENVELOPE + size);
}

int connect_envelope_append(struct buffer *out, unsigned flags, const void *message, size_t length)
{
    uint8_t head[CONNECT_ENVELOPE] = { (uint8_t)flags, (uint8_t)(length >> 24),
                                       (uint8_t)(length >> 16), (uint8_t)(length >> 8),
                                       (uint8_t)length };

    if (length > UINT32_MAX || !buffer_reserve(out, sizeof(head) + length))
        return -1;
    (void)buffer_append(out, head, sizeof(head));
    return buffer_append(out, message, length);
}

int connect_end_append(struct buffer *out, enum connect_code code, const char *message)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(16 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    json_begin_object(&json, NULL);
    if (code != CONNECT_OK)
        connect_put_error(&json, "error", code, message);
    json_end_object(&json);
    return text.overflowed ? -1 : connect_envelope_append(out, CONNECT_END, text.data, text.length);
}
