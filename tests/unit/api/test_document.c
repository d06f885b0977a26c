/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the OpenAPI document: what they name exists. */

#include "api/document/operations.h"
#include "api/document/schema.h"
#include "base/alloc.h"
#include "base/str.h"
#include "face/route.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static bool is_scalar(const char *type)
{
    static const char *const names[] = { "text", "int", "number", "bool", "time", "any", "code" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (str_equal(names[i], type))
            return true;
    }
    return false;
}

static bool is_type(const char *type)
{
    char text[256];
    char *inside = text, *name;

    snprintf(text, sizeof(text), "%s", type);
    inside += *inside == '?';
    if (*inside == '=')
        return inside[1] != '\0';
    while (*inside == '[' || *inside == '{') {
        inside[strlen(inside) - 1] = '\0';
        inside++;
    }
    if (!isupper((unsigned char)*inside))
        return is_scalar(inside);
    while ((name = strsep(&inside, "|"))) {
        if (!schema_find(name))
            return false;
    }
    return true;
}

static void every_field_has_a_type_that_exists(void **state)
{
    (void)state;
    for (const struct schema_object *object = schema_objects; object->name; object++) {
        assert_ptr_equal(schema_find(object->name), object);
        assert_non_null(object->help);
        assert_true(!object->base || schema_find(object->base));
        for (const struct schema_field *field = object->fields; field->name; field++) {
            if (!is_type(field->type))
                fail_msg("%s.%s: %s is no type", object->name, field->name, field->type);
        }
    }
    assert_null(schema_find("Nothing"));
}

static void check_schema(const char *type, const char *expected)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);

    schema_put_type(&json, NULL, type, NULL);
    assert_string_equal(buffer_text(&text), expected);
}

static void types_become_json_schemas(void **state)
{
    (void)state;
    check_schema("text", "{\"type\":\"string\"}");
    check_schema("?int", "{\"type\":[\"integer\",\"null\"]}");
    check_schema("time", "{\"type\":\"string\",\"format\":\"date-time\"}");
    check_schema("any", "{}");
    check_schema("=a|b", "{\"type\":\"string\",\"enum\":[\"a\",\"b\"]}");
    check_schema("?=a", "{\"type\":[\"string\",\"null\"],\"enum\":[\"a\",null]}");
    check_schema("File", "{\"$ref\":\"#/components/schemas/File\"}");
    check_schema("?File",
                 "{\"anyOf\":[{\"$ref\":\"#/components/schemas/File\"},{\"type\":\"null\"}]}");
    check_schema("[{bool}]", "{\"type\":\"array\",\"items\":{\"type\":\"object\","
                             "\"additionalProperties\":{\"type\":\"boolean\"}}}");
}

static void a_route_without_a_row_has_a_name_and_a_tag(void **state)
{
    const struct route route = { HTTP_GET, "/api/v1/things/{thing}/big-parts" };
    const struct route files = { HTTP_POST, "/api/v1/sessions/{session}/files/turn" };
    char id[80], small[8];

    (void)state;
    assert_null(operation_find(&route));
    operation_derive_id(&route, id, sizeof(id));
    assert_string_equal(id, "getThingsByThingBigParts");
    operation_derive_id(&route, small, sizeof(small));
    assert_true(strlen(small) < sizeof(small));
    assert_string_equal(operation_tag(&route)->tag, "system");
    assert_string_equal(operation_tag(&files)->tag, "files");
}

static void a_row_is_found_by_method_and_path(void **state)
{
    const struct route route = { HTTP_POST, "/api/v1/sessions" };

    (void)state;
    assert_string_equal(operation_find(&route)->id, "createSession");
    assert_string_equal(operation_find(&route)->schema, "Session");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_has_a_type_that_exists),
        cmocka_unit_test(types_become_json_schemas),
        cmocka_unit_test(a_route_without_a_row_has_a_name_and_a_tag),
        cmocka_unit_test(a_row_is_found_by_method_and_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
