/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/jsonrpc.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int read_text(const char *text, struct jsonrpc_message *out)
{
    struct error err = { 0 };
    int code = jsonrpc_read(text, strlen(text), out, &err);

    assert_true(code == 0 || err.message[0]);
    return code;
}

static void the_three_kinds_of_message_are_told_apart(void **state UNUSED)
{
    static const struct {
        const char *text;
        enum jsonrpc_kind kind;
        const char *id;
    } rows[] = {
        { "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}", JSONRPC_REQUEST, "7" },
        { "{\"jsonrpc\":\"2.0\",\"id\":\"a\\\"b\",\"method\":\"ping\",\"params\":{}}",
          JSONRPC_REQUEST, "\"a\\\"b\"" },
        { "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}", JSONRPC_NOTIFICATION,
          NULL },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", JSONRPC_RESPONSE, "1" },
        { "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}", JSONRPC_RESPONSE, NULL },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(jsonrpc_message_fini) struct jsonrpc_message message;

        assert_int_equal(read_text(rows[i].text, &message), 0);
        assert_int_equal(message.kind, rows[i].kind);
        if (rows[i].id)
            assert_string_equal(message.id, rows[i].id);
        else
            assert_null(message.id);
    }
}

static void what_is_wrong_has_its_own_code(void **state UNUSED)
{
    static const struct {
        const char *text;
        int code;
    } rows[] = {
        { "", JSONRPC_PARSE_ERROR },
        { "{", JSONRPC_PARSE_ERROR },
        { "7", JSONRPC_PARSE_ERROR },
        { "{\"jsonrpc\":\"2.0\",\"id\":99999999999999999999,\"method\":\"ping\"}",
          JSONRPC_PARSE_ERROR },
        { " [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", JSONRPC_INVALID_REQUEST },
        { "{\"id\":1,\"method\":\"ping\"}", JSONRPC_INVALID_REQUEST },
        { "{\"jsonrpc\":2.0,\"id\":1,\"method\":\"ping\"}", JSONRPC_INVALID_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}", JSONRPC_INVALID_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", JSONRPC_INVALID_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}", JSONRPC_INVALID_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1}", JSONRPC_INVALID_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\"}", JSONRPC_INVALID_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":[]}", JSONRPC_INVALID_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"result\":1}", JSONRPC_INVALID_REQUEST },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":[]}", JSONRPC_INVALID_PARAMS },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(jsonrpc_message_fini) struct jsonrpc_message message;

        assert_int_equal(read_text(rows[i].text, &message), rows[i].code);
    }
}

static void the_id_of_a_wrong_request_is_known_all_the_same(void **state UNUSED)
{
    scoped(jsonrpc_message_fini) struct jsonrpc_message message;

    assert_int_equal(
        read_text("{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"m\",\"params\":1}", &message),
        JSONRPC_INVALID_PARAMS);
    assert_string_equal(message.id, "4");
}

static void a_huge_id_is_refused(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    scoped(jsonrpc_message_fini) struct jsonrpc_message message;

    buffer_append_text(&text, "{\"jsonrpc\":\"2.0\",\"method\":\"ping\",\"id\":\"");
    for (int i = 0; i <= JSONRPC_ID_MAXIMUM; i++)
        buffer_append_byte(&text, 'x');
    buffer_append_text(&text, "\"}");
    assert_int_equal(read_text(buffer_text(&text), &message), JSONRPC_INVALID_REQUEST);
    assert_null(message.id);
}

static void answers_are_written_with_the_id_as_it_came(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);

    jsonrpc_begin_result(&json, "\"a\"");
    json_begin_object(&json, "result");
    json_end_object(&json);
    json_end_object(&json);
    assert_string_equal(buffer_text(&text), "{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}");

    buffer_clear(&text);
    json = JSON_WRITER(&text);
    jsonrpc_write_error(&json, NULL, JSONRPC_PARSE_ERROR, "no", "{\"a\":1}");
    assert_string_equal(buffer_text(&text),
                        "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":"
                        "\"no\",\"data\":{\"a\":1}}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_three_kinds_of_message_are_told_apart),
        cmocka_unit_test(what_is_wrong_has_its_own_code),
        cmocka_unit_test(the_id_of_a_wrong_request_is_known_all_the_same),
        cmocka_unit_test(a_huge_id_is_refused),
        cmocka_unit_test(answers_are_written_with_the_id_as_it_came),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
