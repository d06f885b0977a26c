/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/tool.h"

#include "base/str.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static int check(const char *name, const char *json, struct error *err)
{
    scoped(json_decref) json_t *arguments = json_read(json, strlen(json), NULL);

    *err = (struct error){ 0 };
    assert_non_null(arguments);
    return tool_check(tool_find(name), arguments, err);
}

static void arguments_are_checked_by_the_table(void **state)
{
    struct error err;

    (void)state;
    assert_int_equal(check("bash", "{\"command\": \"ls\", \"timeout\": null}", &err), 0);
    assert_int_equal(check("bash", "{}", &err), -1);
    assert_string_equal(err.message, "command is missing");
    assert_int_equal(check("bash", "{\"command\": null}", &err), -1);
    assert_string_equal(err.name, "missing_field");
    assert_int_equal(check("bash", "{\"command\": [\"ls\"]}", &err), -1);
    assert_string_equal(err.message, "command must be a string");
    assert_int_equal(check("bash", "{\"command\": \"ls\", \"cmd\": 1}", &err), -1);
    assert_string_equal(err.hint, "it takes command, description, work_dir, timeout");
    assert_null(tool_find("nothing"));
}

/* What models and their frameworks expect of a list of tools. */
static void every_tool_is_fit_to_be_shown(void **state)
{
    const struct tool *tool;

    (void)state;
    for (size_t i = 0; (tool = tool_at(i)); i++) {
        scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
        scoped(json_decref) json_t *read = NULL;
        struct json_writer json = JSON_WRITER(&text);

        assert_ptr_equal(tool_find(tool->name), tool);
        for (const char *at = tool->name; *at; at++)
            assert_true(islower((unsigned char)*at) || *at == '_');
        assert_true(strlen(tool->description) > 40 && strlen(tool->description) < 1500);
        assert_false(tool->is_read_only && tool->is_destructive);
        tool_write_json(tool, &json, NULL);
        read = json_read(text.data, text.length, NULL);
        assert_non_null(read);
        assert_true(json_is_false(
            json_object_get(json_object_get(read, "input_schema"), "additionalProperties")));
        for (const struct tool_argument *at = tool->arguments; at->name; at++) {
            assert_true(strlen(at->description) > 10);
            assert_false(at->required && at->fallback);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_are_checked_by_the_table),
        cmocka_unit_test(every_tool_is_fit_to_be_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
