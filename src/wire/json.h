/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * JSON. Reading is strict (no duplicate keys, no trailing data, no NUL, bounded depth) and by a
 * table of fields, so that unknown fields, wrong types and numbers out of range are refused with
 * the field's name. Writing appends to a buffer, without building a tree.
 */

#include "base/buffer.h"
#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    JSON_DEPTH_MAXIMUM = 32,
    JSON_VALUES_MAXIMUM = 16 * 1024, /* of json_read_request() */
};

/* The document must be an object; the caller owns the reference. NULL on error. */
json_t *json_read(const void *data, size_t length, struct error *err);

/* The same for text from a stranger: each value takes fifty times the memory of its shortest text,
 * so it may have JSON_VALUES_MAXIMUM of them. */
json_t *json_read_request(const void *data, size_t length, struct error *err);

static inline void scoped_json_decref(json_t **value)
{
    json_decref(*value);
}

struct mask;

/* A copy without the values of secrets, in texts and in names; of a value that json_read() has
 * read, whose depth is bounded. */
json_t *json_masked(const json_t *value, const struct mask *secrets);

/* The same of a document, as allocated text; NULL when it cannot be read. */
char *json_masked_text(const char *text, const struct mask *secrets);

enum json_kind {
    JSON_KIND_TEXT,      /* const char *: borrowed from the document */
    JSON_KIND_BOOL,      /* bool */
    JSON_KIND_INT,       /* int64_t */
    JSON_KIND_SECONDS,   /* int64_t milliseconds: a number of seconds, or "90s" */
    JSON_KIND_SIZE,      /* uint64_t bytes: a number, or "512m" */
    JSON_KIND_NUMBER,    /* double */
    JSON_KIND_TEXT_LIST, /* json_t *: array of strings, borrowed */
    JSON_KIND_TEXT_MAP,  /* json_t *: object with string values, borrowed */
    JSON_KIND_OBJECT,    /* json_t *: object, borrowed */
    JSON_KIND_LIST,      /* json_t *: array of objects, borrowed; `items` describes their fields */
};

struct json_field {
    const char *name;
    enum json_kind kind;
    size_t offset; /* into the output struct */
    bool required;
    /* For numbers, in their unit (seconds for SECONDS); used when maximum > minimum. */
    double minimum;
    double maximum;
    size_t max_length; /* for texts, also inside lists and maps, in bytes; 0: no limit */
    /* Of a bool set to true when the field was there; 0: none (never the first member). */
    size_t present_offset;
    /* For a LIST: the fields of each object, which the receiver decodes. Ends with a row without a
     * name; NULL: any. */
    const struct json_field *items;
};

/* Fills `out` from `object`. Fields that are absent are left alone; null counts as absent.
 * Durations and sizes are never negative. On failure `out` may be partly filled. */
int json_decode(const json_t *object, const struct json_field *fields, size_t count, void *out,
                struct error *err);

/* --- writing ------------------------------------------------------------------------------- */

/* Text that does not fit is left out: look at buffer->overflowed before sending the document. */
struct json_writer {
    struct buffer *buffer; /* borrowed */
    bool need_comma;
};

#define JSON_WRITER(buffer_pointer) ((struct json_writer){ .buffer = (buffer_pointer) })

/* The key is NULL inside arrays and at the top. */
void json_begin_object(struct json_writer *writer, const char *key);
void json_end_object(struct json_writer *writer);
void json_begin_array(struct json_writer *writer, const char *key);
void json_end_array(struct json_writer *writer);

/* Text that is not UTF-8 is written with U+FFFD for each bad byte. NULL writes null. */
void json_put_text(struct json_writer *writer, const char *key, const char *text);
void json_put_bytes(struct json_writer *writer, const char *key, const void *bytes, size_t length);
void json_put_int(struct json_writer *writer, const char *key, int64_t value);
/* Three decimals; null for infinity and NaN. */
void json_put_double(struct json_writer *writer, const char *key, double value);
void json_put_bool(struct json_writer *writer, const char *key, bool value);
void json_put_null(struct json_writer *writer, const char *key);
/* An amount of micro-dollars as a number of dollars. */
void json_put_money(struct json_writer *writer, const char *key, int64_t amount);
/* RFC 3339; 0 writes null. */
void json_put_time(struct json_writer *writer, const char *key, int64_t wall_us);
/* A value that is JSON already. */
void json_put_raw(struct json_writer *writer, const char *key, const char *json);

/* A whole document: {"error":{"code","message","hint","retryable"}}. The code is err->name. */
void json_put_error(struct json_writer *writer, const struct error *err);
