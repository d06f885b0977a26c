/* SPDX-License-Identifier: Apache-2.0 */
/* Values of messages as JSON, and messages in any JSON that proto3 allows. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "wire/base64.h"
#include "wire/json.h"
#include "wire/protobuf_private.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int protobuf_refuse(struct error *err, const char *field, const char *problem)
{
    return error_named(err, ERR_INVALID, "invalid_message", "field \"%.60s\" %s", field, problem);
}

/* Whether `key` is the snake_case of a name in lowerCamelCase. */
static bool is_snake_of(const char *key, const char *name)
{
    for (; *name; name++) {
        if (isupper((unsigned char)*name) && *key++ != '_')
            return false;
        if (*key++ != tolower((unsigned char)*name))
            return false;
    }
    return !*key;
}

json_t *protobuf_field_value(const json_t *message, const char *name)
{
    json_t *value = json_object_get(message, name);
    const char *key;
    json_t *other;

    if (!value) {
        json_object_foreach((json_t *)(uintptr_t)message, key, other)
        {
            if (is_snake_of(key, name))
                value = other;
        }
    }
    return json_is_null(value) ? NULL : value;
}

/* --- values of one kind ---------------------------------------------------------------------- */

static const char *enum_name(const struct protobuf_name *names, int64_t number)
{
    while (names->name && names->number != number)
        names++;
    return names->name;
}

static bool enum_number(const struct protobuf_name *names, const char *name, int64_t *out_number)
{
    while (names->name && strcmp(names->name, name) != 0)
        names++;
    if (names->name)
        *out_number = names->number;
    return names->name != NULL;
}

json_t *protobuf_number_text(int64_t number)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, number);
    return json_string(text);
}

/* A whole number, as a number or as decimal text. */
bool protobuf_read_number(const json_t *value, int64_t *out_number)
{
    const char *text = json_string_value(value);
    uint64_t magnitude;
    double real;

    if (json_is_integer(value)) {
        *out_number = json_integer_value(value);
        return true;
    }
    if (json_is_real(value)) {
        real = json_real_value(value);
        if (!(real >= -9007199254740992.0 && real <= 9007199254740992.0) ||
            (double)(int64_t)real != real)
            return false;
        *out_number = (int64_t)real;
        return true;
    }
    if (!text || str_to_u64(text + (*text == '-'), &magnitude) < 0 || magnitude > INT64_MAX)
        return false;
    *out_number = *text == '-' ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

static bool number_fits(enum protobuf_kind kind, int64_t number)
{
    if (kind == PROTOBUF_UINT32)
        return number >= 0 && number <= UINT32_MAX;
    return kind == PROTOBUF_INT64 || (number >= INT32_MIN && number <= INT32_MAX);
}

bool protobuf_field_number(const struct protobuf_field *field, const json_t *value,
                           int64_t *out_number)
{
    if (field->kind == PROTOBUF_BOOL) {
        *out_number = json_is_true(value);
        return json_is_boolean(value);
    }
    if (field->kind == PROTOBUF_ENUM && json_is_string(value))
        return enum_number(field->names, json_string_value(value), out_number);
    return protobuf_read_number(value, out_number) && number_fits(field->kind, *out_number);
}

/* The canonical form of a number of the field. */
json_t *protobuf_number_value(const struct protobuf_field *field, int64_t number)
{
    const char *name;

    if (field->kind == PROTOBUF_BOOL)
        return json_boolean(number);
    if (field->kind == PROTOBUF_INT64)
        return protobuf_number_text(number);
    if (field->kind != PROTOBUF_ENUM)
        return json_integer(number);
    name = enum_name(field->names, number);
    return name ? json_string(name) : json_integer(number);
}

int protobuf_bytes(const json_t *value, struct buffer *out)
{
    size_t length = json_string_length(value);
    const char *text = json_string_value(value);
    scoped(free) char *standard = NULL;
    size_t padded;

    if (!text)
        return -1;
    while (length && text[length - 1] == '=')
        length--;
    padded = (length + 3) / 4 * 4;
    standard = xmalloc(padded + 1);
    for (size_t i = 0; i < length; i++)
        standard[i] = text[i];
    for (size_t i = 0; i < length; i++) {
        if (standard[i] == '-')
            standard[i] = '+';
        else if (standard[i] == '_')
            standard[i] = '/';
    }
    memset(standard + length, '=', padded - length);
    return base64_decode(standard, padded, out);
}

const char *protobuf_problem(enum protobuf_kind kind)
{
    switch (kind) {
    case PROTOBUF_TEXT:
        return "must be a text";
    case PROTOBUF_BYTES:
        return "must be base64";
    case PROTOBUF_BOOL:
        return "must be true or false";
    case PROTOBUF_UINT32:
    case PROTOBUF_SINT32:
    case PROTOBUF_INT64:
        return "must be a whole number in its range";
    case PROTOBUF_ENUM:
        return "must be one of its names";
    case PROTOBUF_MESSAGE:
    case PROTOBUF_TEXT_MAP:
        return "must be an object";
    case PROTOBUF_TIMESTAMP:
        return "must be a time in RFC 3339";
    }
    return "is wrong";
}

/* From 1970 on, as all our times are. */
bool protobuf_is_time(const json_t *value)
{
    int64_t wall_us;

    return json_is_string(value) && clock_parse(json_string_value(value), &wall_us) == 0 &&
           wall_us >= 0;
}

/* --- canonical ------------------------------------------------------------------------------- */

static json_t *canonical_field(const struct protobuf_field *field, const json_t *value,
                               struct error *err);

static json_t *canonical_list(const struct protobuf_field *field, const json_t *list,
                              struct error *err)
{
    struct protobuf_field element = *field;
    json_t *result = json_array();
    const json_t *value;
    size_t i;

    element.is_repeated = false;
    json_array_foreach(list, i, value)
    {
        json_t *item = canonical_field(&element, value, err);

        if (!item) {
            json_decref(result);
            return NULL;
        }
        json_array_append_new(result, item);
    }
    return result;
}

static json_t *canonical_map(const struct protobuf_field *field, const json_t *map,
                             struct error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        if (!json_is_string(value)) {
            protobuf_refuse(err, field->name, "must be an object of texts");
            return NULL;
        }
    }
    return json_copy((json_t *)(uintptr_t)map);
}

static json_t *canonical_scalar(const struct protobuf_field *field, const json_t *value)
{
    int64_t number = 0;

    switch (field->kind) {
    case PROTOBUF_TEXT:
    case PROTOBUF_BYTES:
        return json_is_string(value) ? json_incref((json_t *)(uintptr_t)value) : NULL;
    case PROTOBUF_TIMESTAMP:
        return protobuf_is_time(value) ? json_incref((json_t *)(uintptr_t)value) : NULL;
    case PROTOBUF_BOOL:
    case PROTOBUF_UINT32:
    case PROTOBUF_SINT32:
    case PROTOBUF_INT64:
    case PROTOBUF_ENUM:
        return protobuf_field_number(field, value, &number) ? protobuf_number_value(field, number)
                                                            : NULL;
    case PROTOBUF_MESSAGE:
    case PROTOBUF_TEXT_MAP:
        break;
    }
    return NULL;
}

static json_t *canonical_field(const struct protobuf_field *field, const json_t *value,
                               struct error *err)
{
    json_t *result = NULL;

    if (field->is_repeated) {
        if (json_is_array(value))
            return canonical_list(field, value, err);
        protobuf_refuse(err, field->name, "must be a list");
        return NULL;
    }
    if (field->kind == PROTOBUF_MESSAGE && json_is_object(value))
        return protobuf_canonical(field->fields, value, err);
    if (field->kind == PROTOBUF_TEXT_MAP && json_is_object(value))
        return canonical_map(field, value, err);
    result = canonical_scalar(field, value);
    if (!result)
        protobuf_refuse(err, field->name, protobuf_problem(field->kind));
    return result;
}

json_t *protobuf_canonical(const struct protobuf_field *fields, const json_t *message,
                           struct error *err)
{
    json_t *result = json_object();

    for (const struct protobuf_field *field = fields; field->number; field++) {
        const json_t *value = protobuf_field_value(message, field->name);
        json_t *made = value ? canonical_field(field, value, err) : NULL;

        if (value && !made) {
            json_decref(result);
            return NULL;
        }
        if (made)
            json_object_set_new(result, field->name, made);
    }
    return result;
}
