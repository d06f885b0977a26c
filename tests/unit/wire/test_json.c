/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/json.h"

#include "base/macros.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- reading ------------------------------------------------------------------------------- */

static void assert_refused(const char *text, size_t length, const char *part)
{
    struct error err = { 0 };

    assert_null(json_read(text, length, &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.name, "invalid_json");
    if (!strstr(err.message, part))
        fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

#define REFUSED(text, part) assert_refused(text, sizeof(text) - 1, part)

static void what_is_not_strict_json_is_refused(void **state UNUSED)
{
    REFUSED("", "not valid JSON");
    REFUSED("{", "line 1");
    REFUSED("{} {}", "not valid JSON");
    REFUSED("{\"a\":1,\"a\":1}", "duplicate");
    REFUSED("{\"a\":\"\\u0000\"}", "\\u0000");
    REFUSED("{\"a\":\"\0\"}", "not valid JSON");
    REFUSED("{\"a\":\"\xff\"}", "unable to decode byte");
    REFUSED("{\"a\":\"\xc0\x80\"}", "unable to decode byte");
    REFUSED("{\"a\":\"\xed\xa0\x80\"}", "unable to decode byte");
    REFUSED("{\"a\":\"\\ud800\"}", "not valid JSON");
    REFUSED("{\"a\":01}", "not valid JSON");
    REFUSED("{\"a\":99999999999999999999}", "big");
    REFUSED("{\"a\":1e999}", "not valid JSON");
    REFUSED("{'a':1}", "not valid JSON");
    REFUSED("{\"a\":1,}", "not valid JSON");
    REFUSED("[]", "must be an object");
    REFUSED("3", "not valid JSON");
}

static void nesting_is_bounded_and_brackets_in_text_do_not_count(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(100000);
    scoped(json_decref) json_t *document = NULL;

    buffer_append_text(&text, "{\"a\":\"\\\"");
    for (int i = 0; i < 1000; i++)
        buffer_append_text(&text, "[{");
    buffer_append_text(&text, "\",\"b\":[[[]],[]]}");
    document = json_read(text.data, text.length, NULL);
    assert_non_null(document);
    buffer_clear(&text);
    buffer_append_text(&text, "{\"a\":");
    for (int i = 0; i < JSON_DEPTH_MAXIMUM; i++)
        buffer_append_byte(&text, '[');
    assert_refused((const char *)text.data, text.length, "levels deep");
}

static void a_request_has_a_bounded_number_of_values(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1 << 20);
    scoped(json_decref) json_t *document = NULL;
    struct error err = { 0 };

    buffer_append_text(&text, "{\"a\":[\",[{\"");
    for (int i = 0; i < JSON_VALUES_MAXIMUM - 2; i++)
        buffer_append_text(&text, ",0");
    document = json_read_request("{\"a\":\",,[{\"}", 12, &err);
    assert_non_null(document);
    buffer_append_text(&text, "]}");
    json_decref(document);
    document = json_read_request(text.data, text.length, &err);
    assert_non_null(document);
    text.length -= 2;
    buffer_append_text(&text, ",0]}");
    assert_null(json_read_request(text.data, text.length, &err));
    assert_int_equal(err.code, ERR_TOO_LARGE);
    json_decref(document);
    document = json_read(text.data, text.length, &err);
    assert_non_null(document);
}

struct request {
    const char *name;
    bool has_name;
    bool background;
    int64_t count;
    bool has_count;
    int64_t timeout_ms;
    uint64_t memory_bytes;
    double cpus;
    json_t *argv;
    json_t *env;
    json_t *tty;
};

static const struct json_field fields[] = {
    { .name = "name",
      .kind = JSON_KIND_TEXT,
      .offset = offsetof(struct request, name),
      .max_length = 8,
      .present_offset = offsetof(struct request, has_name) },
    { .name = "background",
      .kind = JSON_KIND_BOOL,
      .offset = offsetof(struct request, background) },
    { .name = "count",
      .kind = JSON_KIND_INT,
      .offset = offsetof(struct request, count),
      .minimum = -5,
      .maximum = 100,
      .present_offset = offsetof(struct request, has_count) },
    { .name = "timeout",
      .kind = JSON_KIND_SECONDS,
      .offset = offsetof(struct request, timeout_ms),
      .maximum = 3600 },
    { .name = "memory", .kind = JSON_KIND_SIZE, .offset = offsetof(struct request, memory_bytes) },
    { .name = "cpus",
      .kind = JSON_KIND_NUMBER,
      .offset = offsetof(struct request, cpus),
      .minimum = 0.1,
      .maximum = 64 },
    { .name = "argv",
      .kind = JSON_KIND_TEXT_LIST,
      .offset = offsetof(struct request, argv),
      .max_length = 8 },
    { .name = "env", .kind = JSON_KIND_TEXT_MAP, .offset = offsetof(struct request, env) },
    { .name = "tty", .kind = JSON_KIND_OBJECT, .offset = offsetof(struct request, tty) },
};

static int decode(const char *text, struct request *out, struct error *err)
{
    scoped(json_decref) json_t *document = json_read(text, strlen(text), err);

    assert_non_null(document);
    return json_decode(document, fields, ARRAY_LENGTH(fields), out, err);
}

static void fields_are_decoded_into_the_struct(void **state UNUSED)
{
    static const char text[] =
        "{\"name\":\"x\",\"background\":true,\"count\":-5,\"timeout\":\"90s\","
        "\"memory\":\"512m\",\"cpus\":2,\"argv\":[\"a\",\"b\"],"
        "\"env\":{\"A\":\"1\"},\"tty\":{\"cols\":80}}";
    scoped(json_decref) json_t *document = json_read(text, strlen(text), NULL);
    struct request request = { 0 };
    struct error err = { 0 };

    assert_int_equal(json_decode(document, fields, ARRAY_LENGTH(fields), &request, &err), 0);
    assert_string_equal(request.name, "x");
    assert_true(request.has_name && request.background && request.has_count);
    assert_int_equal(request.count, -5);
    assert_int_equal(request.timeout_ms, 90000);
    assert_int_equal(request.memory_bytes, 512 * 1024 * 1024);
    assert_true(request.cpus == 2.0);
    assert_int_equal(json_array_size(request.argv), 2);
    assert_string_equal(json_string_value(json_object_get(request.env, "A")), "1");
    assert_int_equal(json_integer_value(json_object_get(request.tty, "cols")), 80);
}

static void absent_and_null_fields_are_left_alone(void **state UNUSED)
{
    struct request request = { .count = 42, .timeout_ms = 7 };

    assert_int_equal(decode("{\"count\":null,\"timeout\":0.25}", &request, NULL), 0);
    assert_int_equal(request.count, 42);
    assert_false(request.has_count);
    assert_int_equal(request.timeout_ms, 250);
}

static void assert_field_refused(const char *text, const char *name, const char *part)
{
    struct request request = { 0 };
    struct error err = { 0 };

    assert_int_equal(decode(text, &request, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.name, name);
    if (!strstr(err.message, part))
        fail_msg("\"%s\" does not say \"%s\"", err.message, part);
}

static void wrong_fields_are_refused_by_name(void **state UNUSED)
{
    static const char *const wrong[][2] = {
        { "{\"name\":3}", "\"name\" must be a string" },
        { "{\"name\":\"123456789\"}", "\"name\" is longer than 8" },
        { "{\"background\":1}", "\"background\" must be true or false" },
        { "{\"count\":1.5}", "\"count\" must be a whole number" },
        { "{\"count\":101}", "\"count\" must be between -5 and 100" },
        { "{\"timeout\":-1}", "\"timeout\" must be" },
        { "{\"timeout\":3601}", "\"timeout\" must be between 0 and 3600 seconds" },
        { "{\"timeout\":\"2h\"}", "\"timeout\" must be between" },
        { "{\"timeout\":\"soon\"}", "\"timeout\" must be a number of seconds" },
        { "{\"timeout\":1e300}", "\"timeout\" must be" },
        { "{\"memory\":-1}", "\"memory\" must be" },
        { "{\"memory\":\"many\"}", "\"memory\" must be a number of bytes" },
        { "{\"cpus\":\"1\"}", "\"cpus\" must be a number" },
        { "{\"cpus\":0}", "\"cpus\" must be between 0.1 and 64" },
        { "{\"argv\":\"ls\"}", "\"argv\" must be an array of strings" },
        { "{\"argv\":[\"ls\",1]}", "\"argv\" must be an array of strings" },
        { "{\"argv\":[\"123456789\"]}", "\"argv\" is longer" },
        { "{\"env\":{\"A\":1}}", "\"env\" must be an object with strings" },
        { "{\"tty\":true}", "\"tty\" must be an object" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
        assert_field_refused(wrong[i][0], "invalid_field", wrong[i][1]);
    assert_field_refused("{\"nonsense\":1}", "unknown_field", "\"nonsense\"");
}

static void an_unknown_field_suggests_the_nearest_known_one(void **state UNUSED)
{
    struct request request = { 0 };
    struct error err = { 0 };

    assert_int_equal(decode("{\"timeuot\":1}", &request, &err), -1);
    assert_string_equal(err.hint, "did you mean \"timeout\"?");
    assert_int_equal(decode("{\"something_else\":1}", &request, &err), -1);
    assert_string_equal(err.hint, "");
}

static void a_required_field_must_be_there_and_not_null(void **state UNUSED)
{
    static const struct json_field required[] = {
        { .name = "id", .kind = JSON_KIND_TEXT, .required = true },
    };
    scoped(json_decref) json_t *empty = json_object();
    scoped(json_decref) json_t *null = json_pack("{sn}", "id");
    const char *id = NULL;
    struct error err = { 0 };

    assert_int_equal(json_decode(empty, required, 1, &id, &err), -1);
    assert_string_equal(err.name, "missing_field");
    assert_int_equal(json_decode(null, required, 1, &id, &err), -1);
    assert_string_equal(err.message, "\"id\" is missing");
}

/* --- writing ------------------------------------------------------------------------------- */

static void a_document_of_all_kinds_is_written_without_spaces(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(4096);
    struct json_writer writer = JSON_WRITER(&buffer);

    json_begin_object(&writer, NULL);
    json_put_text(&writer, "text", "plain");
    json_put_text(&writer, "none", NULL);
    json_begin_array(&writer, "list");
    json_put_int(&writer, NULL, 1);
    json_put_int(&writer, NULL, INT64_MIN);
    json_begin_object(&writer, NULL);
    json_end_object(&writer);
    json_begin_array(&writer, NULL);
    json_end_array(&writer);
    json_end_array(&writer);
    json_put_bool(&writer, "yes", true);
    json_put_bool(&writer, "no", false);
    json_put_time(&writer, "at", 1772366400123000);
    json_put_time(&writer, "never", 0);
    json_put_raw(&writer, "raw", "[1,2]");
    json_put_int(&writer, "last", 0);
    json_end_object(&writer);
    assert_string_equal(buffer_text(&buffer),
                        "{\"text\":\"plain\",\"none\":null,\"list\":[1,-9223372036854775808,{},[]],"
                        "\"yes\":true,\"no\":false,\"at\":\"2026-03-01T12:00:00.123Z\","
                        "\"never\":null,\"raw\":[1,2],\"last\":0}");
}

static void assert_double(double value, const char *expected)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(4096);
    struct json_writer writer = JSON_WRITER(&buffer);

    json_put_double(&writer, NULL, value);
    assert_string_equal(buffer_text(&buffer), expected);
}

static void numbers_have_three_decimals(void **state UNUSED)
{
    assert_double(0, "0.000");
    assert_double(1.5, "1.500");
    assert_double(-0.0625, "-0.063");
    assert_double(-0.0001, "0.000");
    assert_double(0.0456, "0.046");
    assert_double(123456789.9999, "123456790.000");
    assert_double(-12.034, "-12.034");
    assert_double(1e18, "1e+18");
    assert_double(NAN, "null");
    assert_double(INFINITY, "null");
}

static void assert_quoted(const char *bytes, size_t length, const char *expected)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(4096);
    struct json_writer writer = JSON_WRITER(&buffer);

    json_put_bytes(&writer, NULL, bytes, length);
    assert_string_equal(buffer_text(&buffer), expected);
}

#define QUOTED(bytes, expected) assert_quoted(bytes, sizeof(bytes) - 1, expected)

static void text_is_escaped_and_bad_bytes_are_replaced(void **state UNUSED)
{
    QUOTED("", "\"\"");
    QUOTED("a\"b\\c/d", "\"a\\\"b\\\\c/d\"");
    QUOTED("\n\r\t\b\f\x01\x1f\x7f", "\"\\n\\r\\t\\b\\f\\u0001\\u001f\x7f\"");
    QUOTED("a\0b", "\"a\\u0000b\"");
    QUOTED("caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
           "\"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"");
    QUOTED("\xff", "\"\xef\xbf\xbd\"");
    QUOTED("ab\xc3", "\"ab\xef\xbf\xbd\"");
    QUOTED("\xc0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\"");
    QUOTED("\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
}

/* The scan takes eight bytes at a time: a special byte must be seen at any place of a word. */
static void special_bytes_are_found_at_every_position(void **state UNUSED)
{
    static const char specials[] = { '"', '\\', '\n', 0x1f, (char)0x80 };

    for (size_t length = 1; length < 26; length++) {
        for (size_t at = 0; at < length; at++) {
            for (size_t i = 0; i < sizeof(specials); i++) {
                scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(4096);
                scoped(json_decref) json_t *back = NULL;
                struct json_writer writer = JSON_WRITER(&buffer);
                char text[26];
                const char *value;

                memset(text, i % 2 ? ' ' : '~', length);
                text[at] = specials[i];
                json_begin_object(&writer, NULL);
                json_put_bytes(&writer, "t", text, length);
                json_end_object(&writer);
                back = json_read(buffer.data, buffer.length, NULL);
                assert_non_null(back);
                value = json_string_value(json_object_get(back, "t"));
                assert_memory_equal(value, text, at);
                if (specials[i] > 0)
                    assert_memory_equal(value, text, length);
            }
        }
    }
}

static void keys_are_escaped_too(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(4096);
    struct json_writer writer = JSON_WRITER(&buffer);

    json_begin_object(&writer, NULL);
    json_put_int(&writer, "a\"b", 1);
    json_end_object(&writer);
    assert_string_equal(buffer_text(&buffer), "{\"a\\\"b\":1}");
}

static void a_document_that_does_not_fit_marks_the_buffer(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(16);
    struct json_writer writer = JSON_WRITER(&buffer);

    json_begin_object(&writer, NULL);
    json_put_text(&writer, "key", "much longer than sixteen bytes");
    json_end_object(&writer);
    assert_true(buffer.overflowed);
    assert_true(buffer.length <= 16);
}

/* Wherever the end of the buffer falls: in a key, in a plain run, in the rest behind an escape. */
static void a_document_fits_exactly_or_marks_the_buffer(void **state UNUSED)
{
    static const char whole[] = "{\"key\":\"plain, then \\n and \xe2\x82\xac\",\"number\":-17}";
    size_t length = sizeof(whole) - 1;

    for (size_t maximum = 0; maximum <= length; maximum++) {
        scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(maximum);
        struct json_writer writer = JSON_WRITER(&buffer);

        json_begin_object(&writer, NULL);
        json_put_text(&writer, "key", "plain, then \n and \xe2\x82\xac");
        json_put_int(&writer, "number", -17);
        json_end_object(&writer);
        assert_true(buffer.length <= maximum);
        assert_int_equal(buffer.overflowed, maximum < length);
        if (maximum == length)
            assert_string_equal(buffer_text(&buffer), whole);
    }
}

static void an_error_has_its_code_message_hint_and_whether_to_retry(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer buffer = BUFFER_INIT(4096);
    struct json_writer writer = JSON_WRITER(&buffer);
    struct error err;

    error_named(&err, ERR_LIMIT, "too_many", "all %d are taken", 3);
    json_put_error(&writer, &err);
    assert_string_equal(buffer_text(&buffer),
                        "{\"error\":{\"code\":\"too_many\",\"message\":\"all 3 are taken\","
                        "\"hint\":null,\"retryable\":true}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_strict_json_is_refused),
        cmocka_unit_test(nesting_is_bounded_and_brackets_in_text_do_not_count),
        cmocka_unit_test(a_request_has_a_bounded_number_of_values),
        cmocka_unit_test(fields_are_decoded_into_the_struct),
        cmocka_unit_test(absent_and_null_fields_are_left_alone),
        cmocka_unit_test(wrong_fields_are_refused_by_name),
        cmocka_unit_test(an_unknown_field_suggests_the_nearest_known_one),
        cmocka_unit_test(a_required_field_must_be_there_and_not_null),
        cmocka_unit_test(a_document_of_all_kinds_is_written_without_spaces),
        cmocka_unit_test(numbers_have_three_decimals),
        cmocka_unit_test(text_is_escaped_and_bad_bytes_are_replaced),
        cmocka_unit_test(special_bytes_are_found_at_every_position),
        cmocka_unit_test(keys_are_escaped_too),
        cmocka_unit_test(a_document_that_does_not_fit_marks_the_buffer),
        cmocka_unit_test(a_document_fits_exactly_or_marks_the_buffer),
        cmocka_unit_test(an_error_has_its_code_message_hint_and_whether_to_retry),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
