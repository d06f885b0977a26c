/* SPDX-License-Identifier: Apache-2.0 */
/* Messages in their binary form. */

#include "base/clock.h"
#include "base/str.h"
#include "wire/base64.h"
#include "wire/json.h"
#include "wire/protobuf_private.h"

#include <stdlib.h>
#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_LENGTH = 2, WIRE_FIXED32 = 5 };

enum { MICROSECONDS = 1000 * 1000 };

static const struct protobuf_field timestamp_fields[] = {
    { 1, "seconds", PROTOBUF_INT64 },
    { 2, "nanos", PROTOBUF_UINT32 },
    { 0 },
};

static const struct protobuf_field pair_fields[] = {
    { 1, "key", PROTOBUF_TEXT },
    { 2, "value", PROTOBUF_TEXT },
    { 0 },
};

static int refuse_bytes(struct error *err)
{
    return error_named(err, ERR_INVALID, "invalid_message", "the binary message is malformed");
}

static const struct protobuf_field *field_by_number(const struct protobuf_field *fields,
                                                    uint64_t number)
{
    while (fields->number && fields->number != number)
        fields++;
    return fields->number ? fields : NULL;
}

/* --- decoding -------------------------------------------------------------------------------- */

struct reader {
    const uint8_t *at, *end;
    unsigned *items; /* borrowed: how many more are taken */
};

static int read_varint(struct reader *reader, uint64_t *out_value)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte;

        if (reader->at == reader->end)
            return -1;
        byte = *reader->at++;
        if (shift == 63 && byte > 1)
            return -1;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *out_value = value;
            return 0;
        }
    }
    return -1;
}

static int read_piece(struct reader *reader, struct reader *out_piece)
{
    uint64_t length;

    if (read_varint(reader, &length) < 0 || length > (uint64_t)(reader->end - reader->at))
        return -1;
    *out_piece = (struct reader){ reader->at, reader->at + length, reader->items };
    reader->at += length;
    return 0;
}

static int skip_value(struct reader *reader, unsigned type)
{
    struct reader piece;
    uint64_t value;
    size_t size = type == WIRE_FIXED64 ? 8 : 4;

    if (type == WIRE_VARINT)
        return read_varint(reader, &value);
    if (type == WIRE_LENGTH)
        return read_piece(reader, &piece);
    if ((type != WIRE_FIXED64 && type != WIRE_FIXED32) || (size_t)(reader->end - reader->at) < size)
        return -1;
    reader->at += size;
    return 0;
}

static int64_t from_wire(enum protobuf_kind kind, uint64_t value)
{
    switch (kind) {
    case PROTOBUF_BOOL:
        return value != 0;
    case PROTOBUF_UINT32:
        return (int64_t)(uint32_t)value;
    case PROTOBUF_SINT32:
        return (int32_t)((uint32_t)value >> 1 ^ -((uint32_t)value & 1));
    case PROTOBUF_ENUM:
        return (int32_t)(uint32_t)value;
    case PROTOBUF_INT64:
    case PROTOBUF_TEXT:
    case PROTOBUF_BYTES:
    case PROTOBUF_MESSAGE:
    case PROTOBUF_TIMESTAMP:
    case PROTOBUF_TEXT_MAP:
        break;
    }
    return (int64_t)value;
}

static json_t *text_value(const struct reader *piece)
{
    size_t length = (size_t)(piece->end - piece->at);

    if (length == 0)
        return json_string("");
    return memchr(piece->at, 0, length) ? NULL : json_stringn((const char *)piece->at, length);
}

static json_t *bytes_value(const struct reader *piece)
{
    scoped(free) char *text = base64_encode(piece->at, (size_t)(piece->end - piece->at));

    return json_string(text);
}

static int decode_into(const struct protobuf_field *fields, struct reader reader, json_t *message);

static json_t *time_value(const struct reader *piece)
{
    scoped(json_decref) json_t *parts = json_object();
    int64_t seconds = 0, nanos = 0;
    char text[CLOCK_TEXT_SIZE];

    if (decode_into(timestamp_fields, *piece, parts) < 0)
        return NULL;
    (void)protobuf_read_number(json_object_get(parts, "seconds"), &seconds);
    (void)protobuf_read_number(json_object_get(parts, "nanos"), &nanos);
    if (seconds < 0 || seconds > INT64_MAX / MICROSECONDS - 1 || nanos > 999999999)
        return NULL;
    clock_format(seconds * MICROSECONDS + nanos / 1000, text);
    return json_string(text);
}

/* A message that comes twice is one message with the fields of both. */
static int take_message(const struct protobuf_field *field, const struct reader *piece,
                        json_t *message)
{
    json_t *inner = field->is_repeated ? NULL : json_object_get(message, field->name);

    if (!inner) {
        inner = json_object();
        if (field->is_repeated)
            json_array_append_new(json_object_get(message, field->name), inner);
        else
            json_object_set_new(message, field->name, inner);
    }
    return decode_into(field->fields, *piece, inner);
}

static int take_pair(const struct protobuf_field *field, const struct reader *piece,
                     json_t *message)
{
    scoped(json_decref) json_t *pair = json_object();
    const char *key, *value;

    if (decode_into(pair_fields, *piece, pair) < 0)
        return -1;
    key = json_string_value(json_object_get(pair, "key"));
    value = json_string_value(json_object_get(pair, "value"));
    if (!json_object_get(message, field->name))
        json_object_set_new(message, field->name, json_object());
    return json_object_set_new(json_object_get(message, field->name), key ? key : "",
                               json_string(value ? value : ""));
}

static int put_value(const struct protobuf_field *field, json_t *value, json_t *message)
{
    if (!value)
        return -1;
    if (field->is_repeated)
        return json_array_append_new(json_object_get(message, field->name), value);
    return json_object_set_new(message, field->name, value);
}

static int take_piece(const struct protobuf_field *field, const struct reader *piece,
                      json_t *message)
{
    if (*piece->items == 0)
        return -1;
    --*piece->items;
    if (field->is_repeated && !json_object_get(message, field->name))
        json_object_set_new(message, field->name, json_array());
    switch (field->kind) {
    case PROTOBUF_TEXT:
        return put_value(field, text_value(piece), message);
    case PROTOBUF_BYTES:
        return put_value(field, bytes_value(piece), message);
    case PROTOBUF_TIMESTAMP:
        return put_value(field, time_value(piece), message);
    case PROTOBUF_MESSAGE:
        return take_message(field, piece, message);
    case PROTOBUF_TEXT_MAP:
        return take_pair(field, piece, message);
    case PROTOBUF_BOOL:
    case PROTOBUF_UINT32:
    case PROTOBUF_SINT32:
    case PROTOBUF_INT64:
    case PROTOBUF_ENUM:
        break;
    }
    return -1;
}

static bool is_number(enum protobuf_kind kind)
{
    return kind == PROTOBUF_BOOL || kind == PROTOBUF_UINT32 || kind == PROTOBUF_SINT32 ||
           kind == PROTOBUF_INT64 || kind == PROTOBUF_ENUM;
}

static int take_field(const struct protobuf_field *field, unsigned type, struct reader *reader,
                      json_t *message)
{
    struct reader piece;
    uint64_t value;

    if (is_number(field->kind)) {
        if (type != WIRE_VARINT || read_varint(reader, &value) < 0)
            return -1;
        return put_value(field, protobuf_number_value(field, from_wire(field->kind, value)),
                         message);
    }
    if (type != WIRE_LENGTH || read_piece(reader, &piece) < 0)
        return -1;
    return take_piece(field, &piece, message);
}

static int decode_into(const struct protobuf_field *fields, struct reader reader, json_t *message)
{
    while (reader.at < reader.end) {
        const struct protobuf_field *field;
        uint64_t tag;

        if (read_varint(&reader, &tag) < 0 || tag > UINT32_MAX || tag >> 3 == 0)
            return -1;
        field = field_by_number(fields, tag >> 3);
        if (field ? take_field(field, tag & 7, &reader, message) < 0
                  : skip_value(&reader, tag & 7) < 0)
            return -1;
    }
    return 0;
}

json_t *protobuf_decode(const struct protobuf_field *fields, const void *bytes, size_t length,
                        struct error *err)
{
    unsigned items = PROTOBUF_MAX_ITEMS;
    struct reader reader = { bytes, length ? (const uint8_t *)bytes + length : bytes, &items };
    json_t *message = json_object();

    if (decode_into(fields, reader, message) == 0)
        return message;
    json_decref(message);
    refuse_bytes(err);
    return NULL;
}

/* --- encoding -------------------------------------------------------------------------------- */

static int put_varint(struct buffer *out, uint64_t value)
{
    while (value >= 0x80) {
        if (buffer_append_byte(out, (uint8_t)(value | 0x80)) < 0)
            return -1;
        value >>= 7;
    }
    return buffer_append_byte(out, (uint8_t)value);
}

static int put_tag(struct buffer *out, const struct protobuf_field *field, enum wire_type type)
{
    return put_varint(out, (uint64_t)field->number << 3 | type);
}

static int put_piece(struct buffer *out, const struct protobuf_field *field, const void *bytes,
                     size_t length)
{
    return put_tag(out, field, WIRE_LENGTH) < 0 || put_varint(out, length) < 0
               ? -1
               : buffer_append(out, bytes, length);
}

static uint64_t to_wire(enum protobuf_kind kind, int64_t number)
{
    if (kind == PROTOBUF_SINT32)
        return (uint32_t)number << 1 ^ (uint32_t) - (number < 0);
    return (uint64_t)number;
}

static int too_large(struct error *err)
{
    return error_named(err, ERR_TOO_LARGE, "message_too_large", "the message is too large");
}

static int put_number(struct buffer *out, const struct protobuf_field *field, const json_t *value,
                      struct error *err)
{
    int64_t number = 0;

    if (!protobuf_field_number(field, value, &number))
        return protobuf_refuse(err, field->name, protobuf_problem(field->kind));
    if (put_tag(out, field, WIRE_VARINT) < 0 || put_varint(out, to_wire(field->kind, number)) < 0)
        return too_large(err);
    return 0;
}

static int put_bytes(struct buffer *out, const struct protobuf_field *field, const json_t *value,
                     struct error *err)
{
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(out->maximum);

    if (protobuf_bytes(value, &bytes) < 0)
        return protobuf_refuse(err, field->name, protobuf_problem(field->kind));
    return put_piece(out, field, bytes.data, bytes.length) < 0 ? too_large(err) : 0;
}

static int put_message(struct buffer *out, const struct protobuf_field *field,
                       const struct protobuf_field *fields, const json_t *value, struct error *err)
{
    scoped(buffer_fini) struct buffer inner = BUFFER_INIT(out->maximum);

    if (!json_is_object(value))
        return protobuf_refuse(err, field->name, protobuf_problem(field->kind));
    if (protobuf_encode(fields, value, &inner, err) < 0)
        return -1;
    return put_piece(out, field, inner.data, inner.length) < 0 ? too_large(err) : 0;
}

static int put_time(struct buffer *out, const struct protobuf_field *field, const json_t *value,
                    struct error *err)
{
    scoped(json_decref) json_t *parts = NULL;
    int64_t wall_us;

    if (!protobuf_is_time(value))
        return protobuf_refuse(err, field->name, protobuf_problem(field->kind));
    (void)clock_parse(json_string_value(value), &wall_us);
    parts = json_pack("{s:o, s:I}", "seconds", protobuf_number_text(wall_us / MICROSECONDS),
                      "nanos", (json_int_t)(wall_us % MICROSECONDS * 1000));
    return put_message(out, field, timestamp_fields, parts, err);
}

static int put_map(struct buffer *out, const struct protobuf_field *field, const json_t *map,
                   struct error *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(map))
        return protobuf_refuse(err, field->name, protobuf_problem(field->kind));
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        scoped(json_decref) json_t *pair = json_pack("{s:s, s:O}", "key", key, "value", value);

        if (put_message(out, field, pair_fields, pair, err) < 0)
            return -1;
    }
    return 0;
}

static int put_one(struct buffer *out, const struct protobuf_field *field, const json_t *value,
                   struct error *err)
{
    switch (field->kind) {
    case PROTOBUF_TEXT:
        if (!json_is_string(value))
            return protobuf_refuse(err, field->name, protobuf_problem(field->kind));
        return put_piece(out, field, json_string_value(value), json_string_length(value)) < 0
                   ? too_large(err)
                   : 0;
    case PROTOBUF_BYTES:
        return put_bytes(out, field, value, err);
    case PROTOBUF_TIMESTAMP:
        return put_time(out, field, value, err);
    case PROTOBUF_MESSAGE:
        return put_message(out, field, field->fields, value, err);
    case PROTOBUF_TEXT_MAP:
        return put_map(out, field, value, err);
    case PROTOBUF_BOOL:
    case PROTOBUF_UINT32:
    case PROTOBUF_SINT32:
    case PROTOBUF_INT64:
    case PROTOBUF_ENUM:
        break;
    }
    return put_number(out, field, value, err);
}

static int put_list(struct buffer *out, const struct protobuf_field *field, const json_t *list,
                    struct error *err)
{
    const json_t *value;
    size_t i;

    if (!json_is_array(list))
        return protobuf_refuse(err, field->name, "must be a list");
    json_array_foreach(list, i, value)
    {
        if (put_one(out, field, value, err) < 0)
            return -1;
    }
    return 0;
}

int protobuf_encode(const struct protobuf_field *fields, const json_t *message, struct buffer *out,
                    struct error *err)
{
    for (const struct protobuf_field *field = fields; field->number; field++) {
        const json_t *value = protobuf_field_value(message, field->name);

        if (value && (field->is_repeated ? put_list(out, field, value, err)
                                         : put_one(out, field, value, err)) < 0)
            return -1;
    }
    return 0;
}
