/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenAPI document, made of the tables that requests are matched and decoded by. */

#include "api/document/operations.h"
#include "api/document/schema.h"
#include "api/private.h"
#include "base/str.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *kind_schema(enum json_kind kind)
{
    switch (kind) {
    case JSON_KIND_TEXT:
        return "{\"type\":\"string\"}";
    case JSON_KIND_BOOL:
        return "{\"type\":\"boolean\"}";
    case JSON_KIND_INT:
        return "{\"type\":\"integer\"}";
    case JSON_KIND_SECONDS:
        return "{\"type\":[\"number\",\"string\"],\"description\":\"seconds, or text such as "
               "90s, 30m, 4h\"}";
    case JSON_KIND_SIZE:
        return "{\"type\":[\"integer\",\"string\"],\"description\":\"bytes, or text such as 512m, "
               "2g\"}";
    case JSON_KIND_NUMBER:
        return "{\"type\":\"number\"}";
    case JSON_KIND_TEXT_LIST:
        return "{\"type\":\"array\",\"items\":{\"type\":\"string\"}}";
    case JSON_KIND_TEXT_MAP:
        return "{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}}";
    case JSON_KIND_OBJECT:
        return "{\"type\":\"object\"}";
    case JSON_KIND_LIST:
        break;
    }
    return "{}";
}

static bool is_number(enum json_kind kind)
{
    return kind == JSON_KIND_INT || kind == JSON_KIND_NUMBER;
}

static const struct json_field *find_field(const struct route *route, const char *name)
{
    for (size_t i = 0; i < route->field_count; i++) {
        if (str_equal(route->fields[i].name, name))
            return &route->fields[i];
    }
    return NULL;
}

static void put_field(struct json_writer *json, const struct json_field *field);

static void put_list(struct json_writer *json, const struct json_field *field)
{
    json_begin_object(json, field->name);
    json_put_text(json, "type", "array");
    json_begin_object(json, "items");
    json_put_text(json, "type", "object");
    json_put_bool(json, "additionalProperties", false);
    json_begin_object(json, "properties");
    for (const struct json_field *item = field->items; item && item->name; item++)
        put_field(json, item);
    json_end_object(json);
    json_begin_array(json, "required");
    for (const struct json_field *item = field->items; item && item->name; item++) {
        if (item->required)
            json_put_text(json, NULL, item->name);
    }
    json_end_array(json);
    json_end_object(json);
    json_end_object(json);
}

/* Limits of durations and sizes are checked, too; a schema has none for numbers written as text. */
static void put_field(struct json_writer *json, const struct json_field *field)
{
    const char *schema = kind_schema(field->kind);
    char text[512];
    int length = snprintf(text, sizeof(text), "%.*s", (int)strlen(schema) - 1, schema);

    if (field->kind == JSON_KIND_LIST) {
        put_list(json, field);
        return;
    }
    if (is_number(field->kind) && field->maximum > field->minimum)
        length += snprintf(text + length, sizeof(text) - (size_t)length,
                           ",\"minimum\":%.15g,\"maximum\":%.15g", field->minimum, field->maximum);
    if (field->kind == JSON_KIND_TEXT && field->max_length)
        length += snprintf(text + length, sizeof(text) - (size_t)length, ",\"maxLength\":%zu",
                           field->max_length);
    snprintf(text + length, sizeof(text) - (size_t)length, "}");
    json_put_raw(json, field->name, text);
}

/* Names of earlier versions, which are accepted still: durations and sizes. */
static void put_renamed_fields(struct json_writer *json, const struct route *route)
{
    for (const struct rename *row = api_renames; row->old_name; row++) {
        const struct json_field *field = find_field(route, row->new_name);
        char text[512];

        if (!field || rename_find(api_renames, route, row->old_name, true) != row)
            continue;
        snprintf(text, sizeof(text),
                 "{\"type\":[\"%s\",\"string\"],\"deprecated\":true,\"description\":\"the old "
                 "name of %s\"}",
                 field->kind == JSON_KIND_SIZE ? "integer" : "number", row->new_name);
        json_put_raw(json, row->old_name, text);
    }
}

static void put_fields(struct json_writer *json, const struct route *route)
{
    json_begin_object(json, "properties");
    for (size_t i = 0; i < route->field_count; i++)
        put_field(json, &route->fields[i]);
    for (const struct route_extra *extra = route->extras; extra && extra->name; extra++)
        json_put_raw(json, extra->name, extra->schema);
    put_renamed_fields(json, route);
    json_end_object(json);
    json_begin_array(json, "required");
    for (size_t i = 0; i < route->field_count; i++) {
        if (route->fields[i].required)
            json_put_text(json, NULL, route->fields[i].name);
    }
    json_end_array(json);
}

/* Tools check their arguments themselves: a row without fields says nothing of what is allowed. */
static bool is_open(const struct route *route)
{
    return route->body == ROUTE_MESSAGE_BODY || strstr(route->path, "/tools/");
}

static bool needs_field(const struct route *route)
{
    for (size_t i = 0; i < route->field_count; i++) {
        if (route->fields[i].required)
            return true;
    }
    return false;
}

static void put_body(struct json_writer *json, const struct route *route)
{
    const struct operation *operation = operation_find(route);
    bool is_json = route->body == ROUTE_JSON_BODY || route->body == ROUTE_MESSAGE_BODY;

    if (route->body == ROUTE_NO_BODY)
        return;
    json_begin_object(json, "requestBody");
    json_put_bool(json, "required", needs_field(route));
    json_begin_object(json, "content");
    json_begin_object(json, is_json ? "application/json" : "application/octet-stream");
    json_begin_object(json, "schema");
    if (is_json) {
        json_put_text(json, "type", "object");
        json_put_bool(json, "additionalProperties", is_open(route));
        put_fields(json, route);
    }
    json_end_object(json);
    if (operation && operation->example)
        json_put_raw(json, "example", operation->example);
    json_end_object(json);
    json_end_object(json);
    json_end_object(json);
}

static void put_parameter(struct json_writer *json, const struct route_parameter *row, bool in_path,
                          bool is_old)
{
    bool repeats = str_equal(row->name, "label");

    json_begin_object(json, NULL);
    json_put_text(json, "name", row->name);
    json_put_text(json, "in", in_path ? "path" : "query");
    json_put_bool(json, "required", in_path || row->required);
    json_begin_object(json, "schema");
    json_put_text(json, "type", repeats ? "array" : row->type);
    if (repeats)
        json_put_raw(json, "items", "{\"type\":\"string\"}");
    json_end_object(json);
    json_put_text(json, "description", row->help);
    if (is_old)
        json_put_bool(json, "deprecated", true);
    json_end_object(json);
}

static void put_renamed_parameters(struct json_writer *json, const struct route *route)
{
    for (const struct rename *old = api_renames; old->old_name; old++) {
        const struct route_parameter *row = route->parameters;
        char help[64];

        while (row && row->name && !str_equal(row->name, old->new_name))
            row++;
        if (!row || !row->name || rename_find(api_renames, route, old->old_name, false) != old)
            continue;
        snprintf(help, sizeof(help), "the old name of %s", row->name);
        put_parameter(json, &(struct route_parameter){ old->old_name, row->type, help, false },
                      false, true);
    }
}

#define IDEMPOTENCY_KEY                                                                        \
    "{\"name\":\"Idempotency-Key\",\"in\":\"header\",\"required\":false,\"schema\":{\"type\":" \
    "\"string\",\"minLength\":1,\"maxLength\":256},\"description\":\"a repeated key returns "  \
    "the object of the first request\"}"

static void put_parameters(struct json_writer *json, const struct route *route)
{
    const char *place = route->path;

    json_begin_array(json, "parameters");
    while ((place = strchr(place, '{'))) {
        char name[32];
        struct route_parameter row = { name, "string", "its id", true };

        snprintf(name, sizeof(name), "%.*s", (int)strcspn(place + 1, "}"), place + 1);
        if (str_equal(name, "session"))
            row.help = "its id, or key:KEY";
        else if (str_equal(name, "port"))
            row.type = "integer";
        put_parameter(json, &row, true, false);
        place++;
    }
    for (const struct route_parameter *row = route->parameters; row && row->name; row++)
        put_parameter(json, row, false, false);
    put_renamed_parameters(json, route);
    if (route->idempotent)
        json_put_raw(json, NULL, IDEMPOTENCY_KEY);
    json_end_array(json);
}

#define ERROR_CONTENT \
    "{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/Error\"}}}"

/* --- answers --------------------------------------------------------------------------------- */

static void put_media(struct json_writer *json, const struct operation *operation)
{
    json_begin_object(json, operation->media);
    json_begin_object(json, "schema");
    if (str_starts_with(operation->media, "text/") || operation->content)
        json_put_text(json, "type", "string");
    if (operation->content) {
        json_put_text(json, "contentMediaType", "application/json");
        schema_put_type(json, "contentSchema", operation->content, NULL);
    }
    json_end_object(json);
    json_end_object(json);
}

static void put_good_content(struct json_writer *json, const struct route *route)
{
    const struct operation *operation = operation_find(route);
    const char *schema = route->schema ? route->schema : operation ? operation->schema : NULL;

    if (!schema && !(operation && operation->media))
        return;
    json_begin_object(json, "content");
    if (schema) {
        json_begin_object(json, "application/json");
        schema_put_type(json, "schema", schema, NULL);
        json_end_object(json);
    }
    if (operation && operation->media)
        put_media(json, operation);
    json_end_object(json);
}

static void put_answer(struct json_writer *json, const struct route *route,
                       const struct route_answer *answer)
{
    char status[16];

    snprintf(status, sizeof(status), "%d", answer->status);
    json_begin_object(json, status);
    json_put_text(json, "description", answer->help);
    if (answer->status >= 400)
        json_put_raw(json, "content", ERROR_CONTENT);
    else if (answer->status < 300)
        put_good_content(json, route);
    json_end_object(json);
}

static bool has_answer(const struct route *route, int status)
{
    const struct route_answer *answer = route->answers;

    while (answer->status && answer->status != status)
        answer++;
    return answer->status != 0;
}

/* Errors that the daemon answers before a handler is called: rows need not repeat them. */
static const struct {
    int status; /* 0: any other */
    const char *name;
    const char *help;
} common[] = {
    { 400, "BadRequest", "a parameter or field is unknown, missing or has a wrong value" },
    { 401, "Unauthorized", "credentials are missing or wrong" },
    { 403, "Forbidden", "these credentials, or this origin, do not allow it" },
    { 429, "TooMany", "too many requests; see Retry-After" },
    { 503, "Unavailable", "the daemon is starting or stopping; see Retry-After" },
    { 0, "Failure", "any other failure" },
};

static void put_common(struct json_writer *json, size_t index)
{
    char status[16] = "default", text[80];

    if (common[index].status)
        snprintf(status, sizeof(status), "%d", common[index].status);
    snprintf(text, sizeof(text), "{\"$ref\":\"#/components/responses/%s\"}", common[index].name);
    json_put_raw(json, status, text);
}

static void put_answers(struct json_writer *json, const struct route *route)
{
    json_begin_object(json, "responses");
    for (const struct route_answer *answer = route->answers; answer->status; answer++)
        put_answer(json, route, answer);
    for (size_t i = 0; i < ARRAY_LENGTH(common); i++) {
        bool is_public = route->access == ROUTE_ANYBODY && common[i].status == 401;

        if (!has_answer(route, common[i].status) && !is_public)
            put_common(json, i);
    }
    json_end_object(json);
}

static void put_names(struct json_writer *json, const struct route *route)
{
    const struct operation *operation = operation_find(route);
    char id[160];

    operation_derive_id(route, id, sizeof(id));
    json_put_text(json, "operationId",
                  route->operation ? route->operation
                  : operation      ? operation->id
                                   : id);
    json_put_text(json, "summary", route->summary);
    json_begin_array(json, "tags");
    json_put_text(json, NULL, operation_tag(route)->tag);
    json_end_array(json);
    if (route->access == ROUTE_ANYBODY || route->access == ROUTE_PROGRAMS)
        json_put_raw(json, "security", "[]");
}

static void put_operation(struct json_writer *json, const struct route *route)
{
    char method[16];
    size_t i = 0;

    for (const char *name = http_method_name(route->method); name[i]; i++)
        method[i] = (char)tolower((unsigned char)name[i]);
    method[i] = '\0';
    json_begin_object(json, method);
    put_names(json, route);
    put_parameters(json, route);
    put_body(json, route);
    put_answers(json, route);
    json_end_object(json);
}

static bool is_first_of_path(const struct faces *faces, const struct route *route)
{
    for (size_t i = 0; i < faces->route_count; i++) {
        if (str_equal(faces->routes[i]->path, route->path))
            return faces->routes[i] == route;
    }
    return false;
}

/* Two faces may have the same path, each for its own host. */
static bool is_repeated(const struct faces *faces, size_t index)
{
    const struct route *route = faces->routes[index];

    for (size_t i = 0; i < index; i++) {
        if (faces->routes[i]->method == route->method &&
            str_equal(faces->routes[i]->path, route->path))
            return true;
    }
    return false;
}

static void put_path(const struct faces *faces, struct json_writer *json, const char *path)
{
    json_begin_object(json, path);
    for (size_t i = 0; i < faces->route_count; i++) {
        if (str_equal(faces->routes[i]->path, path) && !is_repeated(faces, i))
            put_operation(json, faces->routes[i]);
    }
    json_end_object(json);
}

/* --- the document ---------------------------------------------------------------------------- */

static bool is_used(const struct faces *faces, const struct operation_tag *tag)
{
    for (size_t i = 0; i < faces->route_count; i++) {
        if (str_equal(operation_tag(faces->routes[i])->tag, tag->tag))
            return true;
    }
    return false;
}

static void put_tags(const struct faces *faces, struct json_writer *json)
{
    json_begin_array(json, "tags");
    for (const struct operation_tag *tag = operation_tags; tag->segment; tag++) {
        if (!tag->help || !is_used(faces, tag))
            continue;
        json_begin_object(json, NULL);
        json_put_text(json, "name", tag->tag);
        json_put_text(json, "description", tag->help);
        json_end_object(json);
    }
    json_end_array(json);
}

static const char security_schemes[] =
    "{\"bearer\":{\"type\":\"http\",\"scheme\":\"bearer\",\"description\":\"an API key, a JWT, or "
    "the "
    "token of a local TCP listener\"},\"apiKey\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":"
    "\"X-API-Key\"}}";

static void put_responses(struct json_writer *json)
{
    json_begin_object(json, "responses");
    for (size_t i = 0; i < ARRAY_LENGTH(common); i++) {
        json_begin_object(json, common[i].name);
        json_put_text(json, "description", common[i].help);
        json_put_raw(json, "content", ERROR_CONTENT);
        json_end_object(json);
    }
    json_end_object(json);
}

static void put_components(struct json_writer *json)
{
    json_begin_object(json, "components");
    schema_put_objects(json);
    put_responses(json);
    json_put_raw(json, "securitySchemes", security_schemes);
    json_end_object(json);
}

void api_make_openapi(const struct faces *faces, struct buffer *out)
{
    struct json_writer json = JSON_WRITER(out);

    json_begin_object(&json, NULL);
    json_put_text(&json, "openapi", "3.1.0");
    json_put_raw(
        &json, "info",
        "{\"title\":\"Sandglass\",\"version\":\"" SANDGLASS_VERSION
        "\",\"description\":\"Sandboxes for programs of agents. Within /api/v1 fields may be "
        "added to answers and members to enumerations; nothing is removed or renamed.\","
        "\"license\":{\"name\":\"Apache-2.0\",\"identifier\":\"Apache-2.0\"}}");
    json_put_raw(&json, "servers",
                 "[{\"url\":\"/\",\"description\":\"the daemon that serves this document\"}]");
    /* The empty one: over a unix socket the kernel says who connects. */
    json_put_raw(&json, "security", "[{},{\"bearer\":[]},{\"apiKey\":[]}]");
    put_tags(faces, &json);
    json_begin_object(&json, "paths");
    for (size_t i = 0; i < faces->route_count; i++) {
        if (is_first_of_path(faces, faces->routes[i]))
            put_path(faces, &json, faces->routes[i]->path);
    }
    json_end_object(&json);
    put_components(&json);
    json_end_object(&json);
}
