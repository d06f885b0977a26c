/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/json.h"

#include "base/alloc.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- reading ------------------------------------------------------------------------------- */

/* Checks the nesting and the number of values. Brackets and commas inside strings do not count.
 * Malformed text may be measured wrongly, but it is refused by the parser, and until then it has no
 * more than this says. */
static int check_shape(const char *text, size_t length, size_t values_maximum, struct error *err)
{
    unsigned depth = 0;
    size_t values = 0;
    bool quoted = false;

    for (size_t i = 0; i < length; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && (text[i] == '{' || text[i] == '[') && ++depth > JSON_DEPTH_MAXIMUM)
            return error_named(err, ERR_INVALID, "invalid_json",
                               "the JSON is nested more than %d levels deep", JSON_DEPTH_MAXIMUM);
        else if (!quoted && (text[i] == '}' || text[i] == ']') && depth > 0)
            depth--;
        else if (!quoted && (text[i] == ',' || text[i] == '{' || text[i] == '[') &&
                 ++values > values_maximum)
            return error_named(err, ERR_TOO_LARGE, "request_too_large",
                               "the JSON has more than %zu values", values_maximum);
    }
    return 0;
}

static json_t *read_object(const void *data, size_t length, size_t values_maximum,
                           struct error *err)
{
    scoped(json_decref) json_t *document = NULL;
    json_error_t problem;

    if (check_shape(data, length, values_maximum, err) < 0)
        return NULL;
    document = json_loadb(data, length, JSON_REJECT_DUPLICATES, &problem);
    if (!document) {
        /* Drops the quoted input from the message: it may be a secret. */
        char *quoted = strstr(problem.text, " near '");

        error_named(err, ERR_INVALID, "invalid_json", "not valid JSON, line %d, column %d: %.*s",
                    problem.line, problem.column,
                    (int)(quoted ? quoted - problem.text : (ptrdiff_t)strlen(problem.text)),
                    problem.text);
        return NULL;
    }
    if (!json_is_object(document)) {
        error_named(err, ERR_INVALID, "invalid_json", "the JSON document must be an object");
        return NULL;
    }
    return steal_ptr(&document);
}

json_t *json_read(const void *data, size_t length, struct error *err)
{
    return read_object(data, length, SIZE_MAX, err);
}

json_t *json_read_request(const void *data, size_t length, struct error *err)
{
    return read_object(data, length, JSON_VALUES_MAXIMUM, err);
}

static const char *const kind_names[] = {
    [JSON_KIND_TEXT] = "a string",
    [JSON_KIND_BOOL] = "true or false",
    [JSON_KIND_INT] = "a whole number",
    [JSON_KIND_SECONDS] = "a number of seconds or a duration such as \"90s\"",
    [JSON_KIND_SIZE] = "a number of bytes or a size such as \"512m\"",
    [JSON_KIND_NUMBER] = "a number",
    [JSON_KIND_TEXT_LIST] = "an array of strings",
    [JSON_KIND_TEXT_MAP] = "an object with strings as values",
    [JSON_KIND_OBJECT] = "an object",
    [JSON_KIND_LIST] = "an array of objects",
};

static int refuse_type(const struct json_field *field, struct error *err)
{
    return error_named(err, ERR_INVALID, "invalid_field", "\"%s\" must be %s", field->name,
                       kind_names[field->kind]);
}

static int check_length(const struct json_field *field, const json_t *text, struct error *err)
{
    if (field->max_length && json_string_length(text) > field->max_length)
        return error_named(err, ERR_INVALID, "invalid_field", "\"%s\" is longer than %zu bytes",
                           field->name, field->max_length);
    return 0;
}

static int check_range(const struct json_field *field, double value, struct error *err)
{
    bool limited = field->maximum > field->minimum;
    char least[STR_UNIT_SIZE];
    char most[STR_UNIT_SIZE];

    if (!limited || (value >= field->minimum && value <= field->maximum))
        return 0;
    if (field->kind == JSON_KIND_SIZE) {
        str_format_size((uint64_t)field->minimum, least);
        str_format_size((uint64_t)field->maximum, most);
    } else {
        snprintf(least, sizeof(least), "%.15g", field->minimum);
        snprintf(most, sizeof(most), "%.15g", field->maximum);
    }
    return error_named(err, ERR_INVALID, "invalid_field", "\"%s\" must be between %s and %s%s",
                       field->name, least, most,
                       field->kind == JSON_KIND_SECONDS ? " seconds" : "");
}

static int decode_int(const struct json_field *field, const json_t *value, void *out,
                      struct error *err)
{
    if (!json_is_integer(value))
        return refuse_type(field, err);
    if (check_range(field, (double)json_integer_value(value), err) < 0)
        return -1;
    *(int64_t *)out = json_integer_value(value);
    return 0;
}

static int decode_number(const struct json_field *field, const json_t *value, void *out,
                         struct error *err)
{
    if (!json_is_number(value))
        return refuse_type(field, err);
    if (check_range(field, json_number_value(value), err) < 0)
        return -1;
    *(double *)out = json_number_value(value);
    return 0;
}

static int decode_seconds(const struct json_field *field, const json_t *value, void *out,
                          struct error *err)
{
    static const double largest_s = 9e12;
    double seconds = json_number_value(value);
    int64_t ms;

    if (json_is_string(value)) {
        if (str_to_duration_ms(json_string_value(value), &ms, NULL) < 0)
            return refuse_type(field, err);
        seconds = (double)ms / 1000;
    } else if (!json_is_number(value) || !(seconds >= 0 && seconds <= largest_s)) {
        return refuse_type(field, err);
    } else {
        ms = llround(seconds * 1000);
    }
    if (check_range(field, seconds, err) < 0)
        return -1;
    *(int64_t *)out = ms;
    return 0;
}

static int decode_size(const struct json_field *field, const json_t *value, void *out,
                       struct error *err)
{
    uint64_t bytes;

    if (json_is_string(value)) {
        if (str_to_size(json_string_value(value), &bytes, NULL) < 0)
            return refuse_type(field, err);
    } else if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return refuse_type(field, err);
    } else {
        bytes = (uint64_t)json_integer_value(value);
    }
    if (check_range(field, (double)bytes, err) < 0)
        return -1;
    *(uint64_t *)out = bytes;
    return 0;
}

static int decode_text(const struct json_field *field, const json_t *value, void *out,
                       struct error *err)
{
    if (!json_is_string(value))
        return refuse_type(field, err);
    if (check_length(field, value, err) < 0)
        return -1;
    *(const char **)out = json_string_value(value);
    return 0;
}

static int decode_bool(const struct json_field *field, const json_t *value, void *out,
                       struct error *err)
{
    if (!json_is_boolean(value))
        return refuse_type(field, err);
    *(bool *)out = json_is_true(value);
    return 0;
}

static int decode_list(const struct json_field *field, json_t *value, void *out, struct error *err)
{
    json_t *item;
    size_t i;

    if (!json_is_array(value))
        return refuse_type(field, err);
    json_array_foreach(value, i, item)
    {
        if (!json_is_string(item))
            return refuse_type(field, err);
        if (check_length(field, item, err) < 0)
            return -1;
    }
    *(json_t **)out = value;
    return 0;
}

static int decode_map(const struct json_field *field, json_t *value, void *out, struct error *err)
{
    const char *key;
    json_t *item;

    if (!json_is_object(value))
        return refuse_type(field, err);
    json_object_foreach(value, key, item)
    {
        if (!json_is_string(item))
            return refuse_type(field, err);
        if (check_length(field, item, err) < 0)
            return -1;
    }
    *(json_t **)out = value;
    return 0;
}

static int decode_object(const struct json_field *field, json_t *value, void *out,
                         struct error *err)
{
    if (!json_is_object(value))
        return refuse_type(field, err);
    *(json_t **)out = value;
    return 0;
}

static int decode_objects(const struct json_field *field, json_t *value, void *out,
                          struct error *err)
{
    json_t *item;
    size_t i;

    if (!json_is_array(value))
        return refuse_type(field, err);
    json_array_foreach(value, i, item)
    {
        if (!json_is_object(item))
            return refuse_type(field, err);
    }
    *(json_t **)out = value;
    return 0;
}

static int decode_value(const struct json_field *field, json_t *value, void *out, struct error *err)
{
    switch (field->kind) {
    case JSON_KIND_TEXT:
        return decode_text(field, value, out, err);
    case JSON_KIND_BOOL:
        return decode_bool(field, value, out, err);
    case JSON_KIND_INT:
        return decode_int(field, value, out, err);
    case JSON_KIND_SECONDS:
        return decode_seconds(field, value, out, err);
    case JSON_KIND_SIZE:
        return decode_size(field, value, out, err);
    case JSON_KIND_NUMBER:
        return decode_number(field, value, out, err);
    case JSON_KIND_TEXT_LIST:
        return decode_list(field, value, out, err);
    case JSON_KIND_TEXT_MAP:
        return decode_map(field, value, out, err);
    case JSON_KIND_OBJECT:
        return decode_object(field, value, out, err);
    case JSON_KIND_LIST:
        return decode_objects(field, value, out, err);
    }
    return -1;
}

static const struct json_field *find_field(const struct json_field *fields, size_t count,
                                           const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}

/* A missing unit does not add to the distance. */
static unsigned distance_to(const char *name, const char *known)
{
    static const char *const units[] = { "_seconds", "_bytes" };
    unsigned distance = str_distance(name, known);

    for (size_t i = 0; i < ARRAY_LENGTH(units); i++) {
        size_t unit = strlen(units[i]), length = strlen(known);
        scoped(free) char *bare = NULL;

        if (length <= unit || strcmp(known + length - unit, units[i]) != 0)
            continue;
        bare = xstrndup(known, length - unit);
        distance = MIN(distance, str_distance(name, bare));
    }
    return distance;
}

static int refuse_unknown(const struct json_field *fields, size_t count, const char *name,
                          struct error *err)
{
    const char *nearest = NULL;
    unsigned smallest = 3;

    error_named(err, ERR_INVALID, "unknown_field", "unknown field \"%.100s\"", name);
    if (strlen(name) > 100)
        return -1;
    for (size_t i = 0; i < count; i++) {
        unsigned distance = distance_to(name, fields[i].name);

        if (distance < smallest) {
            smallest = distance;
            nearest = fields[i].name;
        }
    }
    return nearest ? error_hint(err, "did you mean \"%s\"?", nearest) : -1;
}

static int check_required(const json_t *object, const struct json_field *fields, size_t count,
                          struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_object_get(object, fields[i].name);

        if (fields[i].required && (!value || json_is_null(value)))
            return error_named(err, ERR_INVALID, "missing_field", "\"%s\" is missing",
                               fields[i].name);
    }
    return 0;
}

int json_decode(const json_t *object, const struct json_field *fields, size_t count, void *out,
                struct error *err)
{
    const char *name;
    json_t *value;

    /* The macro only reads, but the functions that it calls do not say so. */
    json_object_foreach((json_t *)object, name, value)
    {
        const struct json_field *field = find_field(fields, count, name);

        if (!field)
            return refuse_unknown(fields, count, name, err);
        if (json_is_null(value))
            continue;
        if (decode_value(field, value, (char *)out + field->offset, err) < 0)
            return -1;
        if (field->present_offset)
            *(bool *)((char *)out + field->present_offset) = true;
    }
    return check_required(object, fields, count, err);
}
