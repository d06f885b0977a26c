/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * JSON-RPC 2.0 as MCP uses it: one message in a text, ids that are short texts or whole numbers,
 * parameters by name only. Batches are refused, as the protocol does since 2025-06-18.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "wire/json.h"

#include <stddef.h>

enum {
    JSONRPC_PARSE_ERROR = -32700,
    JSONRPC_INVALID_REQUEST = -32600,
    JSONRPC_METHOD_NOT_FOUND = -32601,
    JSONRPC_INVALID_PARAMS = -32602,
    JSONRPC_INTERNAL_ERROR = -32603,
    JSONRPC_ID_MAXIMUM = 256, /* bytes of an id, or of any other token that is sent back */
    JSONRPC_METHOD_MAXIMUM = 128,
};

enum jsonrpc_kind { JSONRPC_REQUEST, JSONRPC_NOTIFICATION, JSONRPC_RESPONSE };

struct jsonrpc_message {
    enum jsonrpc_kind kind;
    json_t *document;   /* owned */
    char *id;           /* owned; as JSON, so that it can be compared and sent back; or NULL */
    const char *method; /* borrowed from the document; NULL in a response */
    json_t *params;     /* borrowed; an object, or NULL without any */
};

/* 0, or the code of the error to answer with, which `err` explains. Also then the id is there when
 * it could be read. The message is to be released in any case. */
int jsonrpc_read(const void *data, size_t length, struct jsonrpc_message *out, struct error *err);
/* The same of an object that was read already; takes the reference over. */
int jsonrpc_take(json_t *document, struct jsonrpc_message *out, struct error *err);
void jsonrpc_message_fini(struct jsonrpc_message *message); /* safe on a zeroed one */

static inline void scoped_jsonrpc_message_fini(struct jsonrpc_message *message)
{
    jsonrpc_message_fini(message);
}

/* An id or a token as JSON, allocated: NULL when it is neither a whole number nor a text of at most
 * JSONRPC_ID_MAXIMUM bytes. */
char *jsonrpc_token(const json_t *value);

/* Begins a message; the caller adds "result" or "params" and ends the object. */
void jsonrpc_begin_result(struct json_writer *json, const char *id);
void jsonrpc_begin_notification(struct json_writer *json, const char *method);

/* A whole message. `id` NULL where it is not known; `data` is JSON or NULL. */
void jsonrpc_write_error(struct json_writer *json, const char *id, int code, const char *message,
                         const char *data);
