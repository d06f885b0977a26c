/* SPDX-License-Identifier: Apache-2.0 */
#include "api/document/schema.h"

#include "api/document/codes.h"

#include "base/alloc.h"
#include "base/str.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { TYPE_MAXIMUM = 256 };

static const struct {
    const char *name, *type, *format;
} scalars[] = {
    { "text", "string", NULL },  { "int", "integer", NULL },        { "number", "number", NULL },
    { "bool", "boolean", NULL }, { "time", "string", "date-time" },
};

const struct schema_object *schema_find(const char *name)
{
    for (const struct schema_object *object = schema_objects; object->name; object++) {
        if (str_equal(object->name, name))
            return object;
    }
    return NULL;
}

static void put_json_type(struct json_writer *json, const char *name, bool nullable)
{
    if (!nullable) {
        json_put_text(json, "type", name);
        return;
    }
    json_begin_array(json, "type");
    json_put_text(json, NULL, name);
    json_put_text(json, NULL, "null");
    json_end_array(json);
}

static void put_scalar(struct json_writer *json, const char *type, bool nullable)
{
    for (size_t i = 0; i < ARRAY_LENGTH(scalars); i++) {
        if (!str_equal(scalars[i].name, type))
            continue;
        put_json_type(json, scalars[i].type, nullable);
        if (scalars[i].format)
            json_put_text(json, "format", scalars[i].format);
    }
}

static void put_reference(struct json_writer *json, const char *name)
{
    char text[TYPE_MAXIMUM + 32];

    snprintf(text, sizeof(text), "#/components/schemas/%s", name);
    json_put_text(json, "$ref", text);
}

/* "=a|b": one of these texts. */
static void put_choice(struct json_writer *json, char *type, bool nullable)
{
    char *rest = type;

    put_json_type(json, "string", nullable);
    json_begin_array(json, "enum");
    for (char *name; (name = strsep(&rest, "|"));)
        json_put_text(json, NULL, name);
    if (nullable)
        json_put_null(json, NULL);
    json_end_array(json);
}

/* "A|B": one of these objects. */
static void put_union(struct json_writer *json, char *type, bool nullable)
{
    char *rest = type;

    json_begin_array(json, "anyOf");
    for (char *name; (name = strsep(&rest, "|"));) {
        json_begin_object(json, NULL);
        put_reference(json, name);
        json_end_object(json);
    }
    if (nullable)
        json_put_raw(json, NULL, "{\"type\":\"null\"}");
    json_end_array(json);
}

static void put_inside(struct json_writer *json, char *type, bool nullable)
{
    bool is_array = *type == '[';

    type[strlen(type) - 1] = '\0';
    put_json_type(json, is_array ? "array" : "object", nullable);
    schema_put_type(json, is_array ? "items" : "additionalProperties", type + 1, NULL);
}

static void put_typed(struct json_writer *json, const char *key, const char *type, const char *help,
                      bool is_deprecated)
{
    char text[TYPE_MAXIMUM];
    bool nullable = *type == '?';

    if (str_equal(type, "code")) {
        codes_put_schema(json, key, help);
        return;
    }
    snprintf(text, sizeof(text), "%s", type + (nullable ? 1 : 0));
    json_begin_object(json, key);
    if (*text == '=')
        put_choice(json, text + 1, nullable);
    else if (*text == '[' || *text == '{')
        put_inside(json, text, nullable);
    else if (isupper((unsigned char)*text) && (nullable || strchr(text, '|')))
        put_union(json, text, nullable);
    else if (isupper((unsigned char)*text))
        put_reference(json, text);
    else
        put_scalar(json, text, nullable);
    if (help)
        json_put_text(json, "description", help);
    if (is_deprecated)
        json_put_bool(json, "deprecated", true);
    json_end_object(json);
}

void schema_put_type(struct json_writer *json, const char *key, const char *type, const char *help)
{
    put_typed(json, key, type, help, false);
}

static void put_properties(struct json_writer *json, const struct schema_object *object)
{
    if (object->base)
        put_properties(json, schema_find(object->base));
    for (const struct schema_field *field = object->fields; field && field->name; field++)
        put_typed(json, field->name, field->type, field->help, field->deprecated);
}

static void put_required(struct json_writer *json, const struct schema_object *object)
{
    if (object->base)
        put_required(json, schema_find(object->base));
    for (const struct schema_field *field = object->fields; field && field->name; field++) {
        if (!field->optional)
            json_put_text(json, NULL, field->name);
    }
}

void schema_put_objects(struct json_writer *json)
{
    json_begin_object(json, "schemas");
    for (const struct schema_object *object = schema_objects; object->name; object++) {
        json_begin_object(json, object->name);
        json_put_text(json, "type", "object");
        json_put_text(json, "description", object->help);
        json_begin_object(json, "properties");
        put_properties(json, object);
        json_end_object(json);
        json_begin_array(json, "required");
        put_required(json, object);
        json_end_array(json);
        if (object->example)
            json_put_raw(json, "example", object->example);
        json_end_object(json);
    }
    json_end_object(json);
}
