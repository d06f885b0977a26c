/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/protobuf.h"

#include "base/macros.h"
#include "wire/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct protobuf_name colors[] = { { "RED", 0 }, { "BLUE", 7 }, { 0 } };

static const struct protobuf_field inner[] = {
    { 1, "cmd", PROTOBUF_TEXT },
    { 2, "args", PROTOBUF_TEXT, .is_repeated = true },
    { 3, "envs", PROTOBUF_TEXT_MAP },
    { 0 },
};

static const struct protobuf_field fields[] = {
    { 1, "inner", PROTOBUF_MESSAGE, .fields = inner },
    { 2, "exitCode", PROTOBUF_SINT32 },
    { 3, "data", PROTOBUF_BYTES },
    { 4, "stdin", PROTOBUF_BOOL },
    { 5, "size", PROTOBUF_INT64 },
    { 6, "color", PROTOBUF_ENUM, .names = colors },
    { 7, "modifiedTime", PROTOBUF_TIMESTAMP },
    { 8, "many", PROTOBUF_MESSAGE, .is_repeated = true, .fields = inner },
    { 9, "pid", PROTOBUF_UINT32 },
    { 0 },
};

static json_t *parse(const char *text)
{
    return json_read(text, strlen(text), NULL);
}

static void expect_json(json_t *value, const char *text)
{
    scoped(json_decref) json_t *wanted = parse(text);

    assert_non_null(value);
    assert_non_null(wanted);
    assert_true(json_equal(value, wanted));
    json_decref(value);
}

static void expect_bytes(const char *text, const void *bytes, size_t length)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(1024);
    scoped(json_decref) json_t *message = parse(text);
    struct error err = { 0 };

    assert_int_equal(protobuf_encode(fields, message, &out, &err), 0);
    assert_int_equal(out.length, length);
    assert_memory_equal(out.data, bytes, length);
}

/* As protobuf's own libraries write them. */
static const uint8_t start_bytes[] = "\x0a\x18\x0a\x07/bin/sh\x12\x02-c\x12\x01x\x1a\x06\x0a\x01"
                                     "A\x12\x01"
                                     "b\x20\x00";

static void a_binary_message_becomes_json(void **state UNUSED)
{
    struct error err = { 0 };

    expect_json(protobuf_decode(fields, start_bytes, sizeof(start_bytes) - 1, &err),
                "{\"inner\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"x\"],\"envs\":{\"A\":\"b\"}},"
                "\"stdin\":false}");
    expect_json(protobuf_decode(fields, "\x10\x01", 2, &err), "{\"exitCode\":-1}");
    expect_json(protobuf_decode(fields, "\x30\x07\x30\x09", 4, &err), "{\"color\":9}");
    expect_json(protobuf_decode(fields, "", 0, &err), "{}");
}

static void json_becomes_a_binary_message(void **state UNUSED)
{
    expect_bytes("{\"inner\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"x\"],\"envs\":{\"A\":\"b\"}},"
                 "\"stdin\":false}",
                 start_bytes, sizeof(start_bytes) - 1);
    expect_bytes("{\"exitCode\":-1,\"color\":\"BLUE\"}", "\x10\x01\x30\x07", 4);
    expect_bytes("{\"size\":\"300\",\"data\":\"aGk=\"}", "\x1a\x02hi\x28\xac\x02", 7);
    expect_bytes("{\"modifiedTime\":\"1970-01-01T00:00:01.500Z\"}",
                 "\x3a\x08\x08\x01\x10\x80\xca\xb5\xee\x01", 10);
    expect_bytes("{\"many\":[{},{\"cmd\":\"a\"}]}",
                 "\x42\x00\x42\x03\x0a\x01"
                 "a",
                 7);
}

static void a_time_comes_back_as_it_was(void **state UNUSED)
{
    expect_json(protobuf_decode(fields, "\x3a\x08\x08\x01\x10\x80\xca\xb5\xee\x01", 10, NULL),
                "{\"modifiedTime\":\"1970-01-01T00:00:01.500Z\"}");
}

static void unknown_fields_are_passed_over(void **state UNUSED)
{
    scoped(json_decref) json_t *message = parse("{\"pid\":4,\"other\":{\"a\":[1]}}");

    expect_json(protobuf_decode(fields,
                                "\x78\x05\x7a\x01z\x7d"
                                "abcd\x79"
                                "abcdefgh\x48\x04",
                                21, NULL),
                "{\"pid\":4}");
    expect_json(protobuf_canonical(fields, message, NULL), "{\"pid\":4}");
}

static void malformed_bytes_are_refused(void **state UNUSED)
{
    static const struct {
        const char *bytes;
        size_t length;
    } cases[] = {
        { "\x0a\x05", 2 },                                      /* a piece that is cut short */
        { "\x48", 1 },                                          /* a tag alone */
        { "\x48\xff", 2 },                                      /* a number that is cut short */
        { "\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 11 }, /* more than 64 bits */
        { "\x4a\x00", 2 },                                      /* a number that is a piece */
        { "\x08\x01", 2 },                                      /* a message that is a number */
        { "\x0a\x03\x0a\x01\xff", 5 },                          /* no UTF-8 */
        { "\x0a\x03\x0a\x01\x00", 5 },                          /* a NUL */
        { "\x0b\x0c", 2 },                                      /* a group */
        { "\x00\x00", 2 },                                      /* field 0 */
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct error err = { 0 };

        assert_null(protobuf_decode(fields, cases[i].bytes, cases[i].length, &err));
        assert_int_equal(err.code, ERR_INVALID);
    }
}

static void a_message_with_too_many_items_is_refused(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(1024 * 1024);

    for (unsigned i = 0; i <= PROTOBUF_MAX_ITEMS; i++)
        assert_int_equal(buffer_append(&bytes, "\x42\x00", 2), 0);
    assert_null(protobuf_decode(fields, bytes.data, bytes.length, NULL));
}

static void json_is_made_canonical(void **state UNUSED)
{
    scoped(json_decref) json_t *message =
        parse("{\"exit_code\":\"-3\",\"color\":7,\"size\":12,\"pid\":4.0,\"data\":\"aGk\","
              "\"modified_time\":\"2026-01-02T03:04:05.006Z\",\"stdin\":null,\"inner\":{}}");

    expect_json(protobuf_canonical(fields, message, NULL),
                "{\"exitCode\":-3,\"color\":\"BLUE\",\"size\":\"12\",\"pid\":4,\"data\":\"aGk\","
                "\"modifiedTime\":\"2026-01-02T03:04:05.006Z\",\"inner\":{}}");
}

static void a_wrong_value_is_refused_with_its_name(void **state UNUSED)
{
    static const struct {
        const char *message, *field;
    } cases[] = {
        { "{\"pid\":-1}", "pid" },
        { "{\"pid\":4294967296}", "pid" },
        { "{\"pid\":1.5}", "pid" },
        { "{\"exitCode\":\"x\"}", "exitCode" },
        { "{\"inner\":[]}", "inner" },
        { "{\"inner\":{\"args\":\"x\"}}", "args" },
        { "{\"inner\":{\"args\":[1]}}", "args" },
        { "{\"inner\":{\"envs\":{\"A\":1}}}", "envs" },
        { "{\"color\":\"GREEN\"}", "color" },
        { "{\"stdin\":1}", "stdin" },
        { "{\"data\":1}", "data" },
        { "{\"modifiedTime\":\"now\"}", "modifiedTime" },
        { "{\"modifiedTime\":\"1969-12-31T23:59:59Z\"}", "modifiedTime" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        scoped(json_decref) json_t *message = parse(cases[i].message);
        scoped(buffer_fini) struct buffer out = BUFFER_INIT(1024);
        struct error err = { 0 };

        assert_null(protobuf_canonical(fields, message, &err));
        assert_non_null(strstr(err.message, cases[i].field));
        assert_int_equal(protobuf_encode(fields, message, &out, &err), -1);
    }
}

static void bytes_are_read_in_both_alphabets(void **state UNUSED)
{
    static const char *const texts[] = { "+/8=", "-_8", "+/8", "-_8=" };
    scoped(json_decref) json_t *bad = json_string("a*b=");
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(16);

    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        scoped(json_decref) json_t *value = json_string(texts[i]);

        buffer_clear(&out);
        assert_int_equal(protobuf_bytes(value, &out), 0);
        assert_int_equal(out.length, 2);
        assert_memory_equal(out.data, "\xfb\xff", 2);
    }
    assert_int_equal(protobuf_bytes(bad, &out), -1);
    assert_int_equal(protobuf_bytes(NULL, &out), -1);
}

static void a_message_that_does_not_fit_is_too_large(void **state UNUSED)
{
    scoped(json_decref) json_t *message = parse("{\"inner\":{\"cmd\":\"0123456789\"}}");
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(12);
    struct error err = { 0 };

    assert_int_equal(protobuf_encode(fields, message, &out, &err), -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_binary_message_becomes_json),
        cmocka_unit_test(json_becomes_a_binary_message),
        cmocka_unit_test(a_time_comes_back_as_it_was),
        cmocka_unit_test(unknown_fields_are_passed_over),
        cmocka_unit_test(malformed_bytes_are_refused),
        cmocka_unit_test(a_message_with_too_many_items_is_refused),
        cmocka_unit_test(json_is_made_canonical),
        cmocka_unit_test(a_wrong_value_is_refused_with_its_name),
        cmocka_unit_test(bytes_are_read_in_both_alphabets),
        cmocka_unit_test(a_message_that_does_not_fit_is_too_large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
