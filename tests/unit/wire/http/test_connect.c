/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http/connect.h"

#include "base/macros.h"
#include "wire/http/gzip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

static void types_name_codec_and_kind(void **state UNUSED)
{
    struct connect_type type;

    assert_int_equal(connect_type_parse("Application/JSON; charset=utf-8", &type), 0);
    assert_int_equal(type.codec, CONNECT_JSON);
    assert_false(type.is_stream);
    assert_int_equal(connect_type_parse("application/connect+proto", &type), 0);
    assert_int_equal(type.codec, CONNECT_BINARY);
    assert_true(type.is_stream);
    assert_string_equal(connect_type_name(type), "application/connect+proto");
    assert_int_equal(connect_type_parse("application/jsonx", &type), -1);
    assert_int_equal(connect_type_parse("application/grpc", &type), -1);
    assert_int_equal(connect_type_parse(NULL, &type), -1);
}

static void a_timeout_is_a_number_of_at_most_ten_digits(void **state UNUSED)
{
    int64_t ms = 0;

    assert_int_equal(connect_timeout_parse("60000", &ms), 0);
    assert_int_equal(ms, 60000);
    assert_int_equal(connect_timeout_parse("0", &ms), -1);
    assert_int_equal(connect_timeout_parse("12345678901", &ms), -1);
    assert_int_equal(connect_timeout_parse("-1", &ms), -1);
    assert_int_equal(connect_timeout_parse("", &ms), -1);
}

static void an_envelope_comes_back_as_it_was_written(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(64);
    struct connect_envelope envelope;

    assert_int_equal(connect_envelope_append(&bytes, 0, "{\"a\":1}", 7), 0);
    assert_int_equal(connect_envelope_append(&bytes, CONNECT_END, "{}", 2), 0);
    for (size_t length = 0; length < 12; length++)
        assert_int_equal(connect_envelope_decode(bytes.data, length, 100, &envelope), 0);
    assert_int_equal(connect_envelope_decode(bytes.data, bytes.length, 100, &envelope), 12);
    assert_int_equal(envelope.flags, 0);
    assert_int_equal(envelope.length, 7);
    assert_memory_equal(envelope.message, "{\"a\":1}", 7);
    assert_int_equal(connect_envelope_decode(bytes.data + 12, 7, 100, &envelope), 7);
    assert_int_equal(envelope.flags, CONNECT_END);
}

static void a_wrong_or_large_envelope_is_refused(void **state UNUSED)
{
    struct connect_envelope envelope;

    assert_int_equal(connect_envelope_decode("\x04\0\0\0\0", 5, 100, &envelope), -1);
    assert_int_equal(connect_envelope_decode("\x80", 1, 100, &envelope), -1);
    assert_int_equal(connect_envelope_decode("\0\0\0\0\x65", 5, 100, &envelope), -1);
    assert_int_equal(connect_envelope_decode("\0\xff\xff\xff\xff", 5, SIZE_MAX, &envelope), 0);
}

static void an_envelope_that_does_not_fit_changes_nothing(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(8);

    assert_int_equal(connect_envelope_append(&bytes, 0, "0123", 4), -1);
    assert_int_equal(bytes.length, 0);
}

static void the_end_of_a_stream_has_the_error(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer bytes = BUFFER_INIT(256);

    assert_int_equal(connect_end_append(&bytes, CONNECT_OK, NULL), 0);
    assert_memory_equal(bytes.data, "\x02\0\0\0\x02{}", 7);
    buffer_clear(&bytes);
    assert_int_equal(connect_end_append(&bytes, CONNECT_NOT_FOUND, "no \"x\""), 0);
    buffer_consume(&bytes, CONNECT_ENVELOPE);
    assert_string_equal(buffer_text(&bytes),
                        "{\"error\":{\"code\":\"not_found\",\"message\":\"no \\\"x\\\"\"}}");
}

static void every_code_has_a_name_and_a_status(void **state UNUSED)
{
    for (int code = CONNECT_CANCELED; code < CONNECT_CODES; code++) {
        assert_true(*connect_code_name((enum connect_code)code));
        assert_true(connect_code_status((enum connect_code)code) >= 400);
    }
    for (int code = ERR_INVALID; code < ERR_CODES; code++) {
        struct error err = { .code = (enum error_code)code };

        assert_int_not_equal(connect_code_of(&err), CONNECT_OK);
    }
}

static size_t compress_gzip(const char *text, uint8_t *out, size_t size)
{
    z_stream zlib = { 0 };

    assert_int_equal(deflateInit2(&zlib, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    zlib.next_in = (uint8_t *)(uintptr_t)text;
    zlib.avail_in = (unsigned)strlen(text);
    zlib.next_out = out;
    zlib.avail_out = (unsigned)size;
    assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
    deflateEnd(&zlib);
    return size - zlib.avail_out;
}

static int collect(void *context, const uint8_t *data, size_t length)
{
    return buffer_append(context, data, length);
}

static void gzip_is_undone_byte_by_byte(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(64);
    struct gunzip *gunzip = gunzip_new();
    uint8_t bytes[256];
    size_t length = compress_gzip("hello", bytes, sizeof(bytes));

    length += compress_gzip(" world", bytes + length, sizeof(bytes) - length);
    for (size_t i = 0; i < length; i++)
        assert_int_equal(gunzip_add(gunzip, bytes + i, 1, collect, &out), 0);
    assert_true(gunzip_is_complete(gunzip));
    assert_string_equal(buffer_text(&out), "hello world");
    gunzip_free(gunzip);
}

static void gzip_that_is_broken_cut_or_too_large_is_refused(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(4);
    uint8_t bytes[256];
    size_t length = compress_gzip("hello", bytes, sizeof(bytes));

    assert_int_equal(gunzip_message(bytes, length, &out), -1);
    out.maximum = 64;
    assert_int_equal(gunzip_message(bytes, length - 1, &out), -1);
    assert_int_equal(gunzip_message("hello", 5, &out), -1);
    assert_int_equal(gunzip_message("", 0, &out), -1);
    buffer_clear(&out);
    assert_int_equal(gunzip_message(bytes, length, &out), 0);
    assert_string_equal(buffer_text(&out), "hello");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_name_codec_and_kind),
        cmocka_unit_test(a_timeout_is_a_number_of_at_most_ten_digits),
        cmocka_unit_test(an_envelope_comes_back_as_it_was_written),
        cmocka_unit_test(a_wrong_or_large_envelope_is_refused),
        cmocka_unit_test(an_envelope_that_does_not_fit_changes_nothing),
        cmocka_unit_test(the_end_of_a_stream_has_the_error),
        cmocka_unit_test(every_code_has_a_name_and_a_status),
        cmocka_unit_test(gzip_is_undone_byte_by_byte),
        cmocka_unit_test(gzip_that_is_broken_cut_or_too_large_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
