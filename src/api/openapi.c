/* The OpenAPI document, made of the tables that requests are matched and decoded by. */

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
    }
    return "{}";
}

static void put_fields(struct json_writer *json, const struct route *route)
{
    json_begin_object(json, "properties");
    for (size_t i = 0; i < route->field_count; i++)
        json_put_raw(json, route->fields[i].name, kind_schema(route->fields[i].kind));
    for (const struct route_extra *extra = route->extras; extra && extra->name; extra++)
        json_put_raw(json, extra->name, extra->schema);
    json_end_object(json);
    json_begin_array(json, "required");
    for (size_t i = 0; i < route->field_count; i++) {
        if (route->fields[i].required)
            json_put_text(json, NULL, route->fields[i].name);
    }
    json_end_array(json);
}

static void put_body(struct json_writer *json, const struct route *route)
{
    bool is_json = route->body == ROUTE_JSON_BODY || route->body == ROUTE_MESSAGE_BODY;

    if (route->body == ROUTE_NO_BODY)
        return;
    json_begin_object(json, "requestBody");
    json_begin_object(json, "content");
    json_begin_object(json, is_json ? "application/json" : "application/octet-stream");
    json_begin_object(json, "schema");
    json_put_text(json, "type", is_json ? "object" : "string");
    if (is_json) {
        json_put_bool(json, "additionalProperties", route->body == ROUTE_MESSAGE_BODY);
        put_fields(json, route);
    } else {
        json_put_text(json, "format", "binary");
    }
    json_end_object(json);
    json_end_object(json);
    json_end_object(json);
    json_end_object(json);
}

static void put_parameter(struct json_writer *json, const char *name, const char *where,
                          const char *type, const char *help)
{
    json_begin_object(json, NULL);
    json_put_text(json, "name", name);
    json_put_text(json, "in", where);
    json_put_bool(json, "required", str_equal(where, "path"));
    json_begin_object(json, "schema");
    json_put_text(json, "type", type);
    json_end_object(json);
    if (help)
        json_put_text(json, "description", help);
    json_end_object(json);
}

static void put_parameters(struct json_writer *json, const struct route *route)
{
    const char *place = route->path;

    json_begin_array(json, "parameters");
    while ((place = strchr(place, '{'))) {
        char name[32];

        snprintf(name, sizeof(name), "%.*s", (int)strcspn(place + 1, "}"), place + 1);
        put_parameter(json, name, "path", "string",
                      str_equal(name, "session") ? "its id, or key:KEY" : "its id");
        place++;
    }
    for (const struct route_parameter *row = route->parameters; row && row->name; row++)
        put_parameter(json, row->name, "query", row->type, row->help);
    json_end_array(json);
}

static void put_answers(struct json_writer *json, const struct route *route)
{
    json_begin_object(json, "responses");
    for (const struct route_answer *answer = route->answers; answer->status; answer++) {
        char status[16];

        snprintf(status, sizeof(status), "%d", answer->status);
        json_begin_object(json, status);
        json_put_text(json, "description", answer->help);
        if (answer->status >= 400)
            json_put_raw(json, "content",
                         "{\"application/json\":{\"schema\":{\"$ref\":"
                         "\"#/components/schemas/Error\"}}}");
        json_end_object(json);
    }
    json_end_object(json);
}

static void put_operation(struct json_writer *json, const struct route *route)
{
    char method[16];
    size_t i = 0;

    for (const char *name = http_method_name(route->method); name[i]; i++)
        method[i] = (char)tolower((unsigned char)name[i]);
    method[i] = '\0';
    json_begin_object(json, method);
    json_put_text(json, "summary", route->summary);
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

static void put_path(const struct faces *faces, struct json_writer *json, const char *path)
{
    json_begin_object(json, path);
    for (size_t i = 0; i < faces->route_count; i++) {
        if (str_equal(faces->routes[i]->path, path))
            put_operation(json, faces->routes[i]);
    }
    json_end_object(json);
}

void api_make_openapi(const struct faces *faces, struct buffer *out)
{
    struct json_writer json = JSON_WRITER(out);

    json_begin_object(&json, NULL);
    json_put_text(&json, "openapi", "3.1.0");
    json_put_raw(&json, "info",
                 "{\"title\":\"Sandglass\",\"version\":\"" SANDGLASS_VERSION
                 "\",\"license\":{\"name\":\"Apache-2.0\",\"identifier\":\"Apache-2.0\"}}");
    json_begin_object(&json, "paths");
    for (size_t i = 0; i < faces->route_count; i++) {
        if (is_first_of_path(faces, faces->routes[i]))
            put_path(faces, &json, faces->routes[i]->path);
    }
    json_end_object(&json);
    json_put_raw(&json, "components",
                 "{\"schemas\":{\"Error\":{\"type\":\"object\",\"properties\":{\"error\":{\"type\":"
                 "\"object\",\"properties\":{\"code\":{\"type\":\"string\"},\"message\":{\"type\":"
                 "\"string\"},\"hint\":{\"type\":\"string\"},\"retryable\":{\"type\":\"boolean\"}},"
                 "\"required\":[\"code\",\"message\",\"hint\",\"retryable\"]}},\"required\":["
                 "\"error\"]}}}");
    json_end_object(&json);
}
