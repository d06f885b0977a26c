/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The Connect protocol (remote calls over HTTP) as pure functions: the types of bodies, envelopes
 * of streams, codes of errors, deadlines. Messages are JSON or binary, see wire/protobuf.h.
 *
 *     a call       one message in, one message or an error out, as the bodies of an exchange
 *     a stream     messages in envelopes; the last envelope of an answer has its status
 */

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_writer;

enum connect_codec { CONNECT_JSON, CONNECT_BINARY };

/* The codec and kind of a Content-Type. */
struct connect_type {
    enum connect_codec codec;
    bool is_stream;
};

/* 0, or -1 for a type of another protocol, and for NULL. */
int connect_type_parse(const char *content_type, struct connect_type *out_type);
const char *connect_type_name(struct connect_type type);

/* Milliseconds of Connect-Timeout-Ms: at most ten digits, more than zero. 0 or -1. */
int connect_timeout_parse(const char *text, int64_t *out_ms);

/* --- errors ---------------------------------------------------------------------------------- */

enum connect_code {
    CONNECT_OK,
    CONNECT_CANCELED,
    CONNECT_UNKNOWN,
    CONNECT_INVALID_ARGUMENT,
    CONNECT_DEADLINE_EXCEEDED,
    CONNECT_NOT_FOUND,
    CONNECT_ALREADY_EXISTS,
    CONNECT_PERMISSION_DENIED,
    CONNECT_RESOURCE_EXHAUSTED,
    CONNECT_FAILED_PRECONDITION,
    CONNECT_ABORTED,
    CONNECT_OUT_OF_RANGE,
    CONNECT_UNIMPLEMENTED,
    CONNECT_INTERNAL,
    CONNECT_UNAVAILABLE,
    CONNECT_DATA_LOSS,
    CONNECT_UNAUTHENTICATED,
    CONNECT_CODES
};

const char *connect_code_name(enum connect_code code); /* "invalid_argument"; "" for CONNECT_OK */
int connect_code_status(enum connect_code code);       /* of the answer to a call */

/* The code for a failure of ours. */
enum connect_code connect_code_of(const struct error *err);

/* {"code","message"} under `key`. */
void connect_put_error(struct json_writer *json, const char *key, enum connect_code code,
                       const char *message);

/* --- envelopes ------------------------------------------------------------------------------- */

enum { CONNECT_ENVELOPE = 5 }; /* bytes before the message */

enum connect_flags {
    CONNECT_COMPRESSED = 1 << 0,
    CONNECT_END = 1 << 1,
    CONNECT_FLAGS = (1 << 2) - 1,
};

struct connect_envelope {
    unsigned flags;
    const uint8_t *message; /* borrowed */
    size_t length;
};

/* The first envelope: how many bytes it takes, 0 when more are needed, -1 when its flags are
 * unknown or its message is longer than `maximum`. */
long connect_envelope_decode(const void *bytes, size_t length, size_t maximum,
                             struct connect_envelope *out_envelope);

/* 0, or -1 when it does not fit; here and below. */
int connect_envelope_append(struct buffer *out, unsigned flags, const void *message, size_t length);

/* The last envelope of an answer. The message may be NULL with CONNECT_OK. */
int connect_end_append(struct buffer *out, enum connect_code code, const char *message);
