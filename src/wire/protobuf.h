/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Protocol Buffers by a table: messages in their binary form, and the same messages as JSON
 * (proto3's mapping), which the rest of the code reads and writes.
 *
 * Only the types in the tables of src/e2b are supported: texts, bytes, bool, whole numbers, enums,
 * messages, Timestamp, repeated texts and messages, and maps from text to text. Unknown fields are
 * skipped in both forms. Types do not contain themselves, so that the depth of a message is that of
 * its table.
 *
 * The canonical JSON that the functions give: names in lowerCamelCase, enums by name, bytes as
 * padded base64, 64-bit numbers as decimal text, times as RFC 3339.
 */

#include "base/buffer.h"
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROTOBUF_MAX_ITEMS = 64 * 1024 }; /* texts and messages in one message */

enum protobuf_kind {
    PROTOBUF_TEXT,
    PROTOBUF_BYTES,
    PROTOBUF_BOOL,
    PROTOBUF_UINT32,
    PROTOBUF_SINT32, /* zigzag */
    PROTOBUF_INT64,
    PROTOBUF_ENUM,
    PROTOBUF_MESSAGE,
    PROTOBUF_TIMESTAMP,
    PROTOBUF_TEXT_MAP, /* map<string, string> */
};

struct protobuf_name {
    const char *name; /* NULL at the end */
    int32_t number;
};

struct protobuf_field {
    uint32_t number;  /* 0 at the end */
    const char *name; /* lowerCamelCase; snake_case is read too */
    enum protobuf_kind kind;
    bool is_repeated;                    /* PROTOBUF_TEXT and PROTOBUF_MESSAGE only */
    const struct protobuf_field *fields; /* of a PROTOBUF_MESSAGE */
    const struct protobuf_name *names;   /* of a PROTOBUF_ENUM */
};

/* A binary message as canonical JSON; the caller owns the reference. NULL with an error. */
json_t *protobuf_decode(const struct protobuf_field *fields, const void *bytes, size_t length,
                        struct error *err);

/* Appends canonical JSON (or any input of protobuf_canonical()) as a binary message. */
int protobuf_encode(const struct protobuf_field *fields, const json_t *message, struct buffer *out,
                    struct error *err);

/* A message in any JSON that proto3 allows, made canonical; the caller owns the reference. NULL
 * with an error that names the field. Bytes are checked to be text only: see protobuf_bytes(). */
json_t *protobuf_canonical(const struct protobuf_field *fields, const json_t *message,
                           struct error *err);

/* Appends the decoded value of a field of bytes: base64 of either alphabet, with or without
 * padding. 0, or -1 when it is malformed or does not fit. */
int protobuf_bytes(const json_t *value, struct buffer *out);
