/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http/multipart.h"

#include "base/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TYPE "multipart/form-data; boundary=XX"

/* What a body says, told as one text: "<name|filename>content;" for each part, and "." or "!" */
static void tell(const char *type, const char *body, size_t length, size_t piece,
                 struct buffer *out)
{
    scoped(buffer_fini) struct buffer input = BUFFER_INIT(64 * 1024);
    struct multipart multipart;
    size_t given = 0;

    assert_int_equal(multipart_init(&multipart, type), 0);
    while (given < length) {
        enum multipart_event event;
        size_t count = MIN(piece, length - given);

        assert_int_equal(buffer_append(&input, body + given, count), 0);
        given += count;
        do {
            const uint8_t *data = NULL;
            size_t used = 0, data_length = 0;

            event =
                multipart_next(&multipart, input.data, input.length, &used, &data, &data_length);
            if (event == MULTIPART_PART)
                buffer_appendf(out, "<%s|%s>", multipart.name,
                               multipart.has_filename ? multipart.filename : "-");
            else if (event == MULTIPART_DATA)
                buffer_append(out, data, data_length);
            else if (event == MULTIPART_PART_END)
                buffer_append_text(out, ";");
            else if (event == MULTIPART_DONE)
                buffer_append_text(out, ".");
            else if (event == MULTIPART_BAD) {
                buffer_append_text(out, "!");
                return;
            }
            buffer_consume(&input, used);
        } while (event != MULTIPART_MORE);
    }
}

static void expect(const char *type, const char *body, const char *told)
{
    for (size_t piece = 1; piece < 80; piece++) {
        scoped(buffer_fini) struct buffer out = BUFFER_INIT(64 * 1024);

        tell(type, body, strlen(body), piece, &out);
        assert_string_equal(buffer_text(&out), told);
    }
}

#define PART(name, content)                                                                        \
    "--XX\r\nContent-Disposition: form-data; " name "\r\nContent-Type: text/plain\r\n\r\n" content \
    "\r\n"

static void parts_come_with_their_names_however_they_are_cut(void **state UNUSED)
{
    expect(TYPE,
           PART("name=\"file\"; filename=\"a/b.txt\"", "hello") PART("name=\"x\"", "") "--XX--\r\n",
           "<file|a/b.txt>hello;<x|->;.");
    expect("Multipart/Form-Data; charset=utf-8; boundary=\"XX\"",
           PART("name=file; filename=a", "1\r\n--X\r\n--\r\n") "--XX--",
           "<file|a>1\r\n--X\r\n--\r\n;.");
}

static void text_before_and_behind_is_passed_over(void **state UNUSED)
{
    expect(TYPE, "preamble\r\n" PART("name=\"a\"", "1") "--XX--\r\nepilogue", "<a|->1;.");
    expect(TYPE, "--XX  \r\n\r\nx\r\n--XX--", "<|->x;.");
}

static void file_names_are_unescaped_as_browsers_write_them(void **state UNUSED)
{
    expect(TYPE, PART("name=\"file\"; filename=\"a%22b%41\\\"c.txt\"", "1") "--XX--",
           "<file|a\"b%41\"c.txt>1;.");
    expect(TYPE, PART("name=\"file\"; filename=\"x\"; filename*=UTF-8''%C3%A4.txt", "1") "--XX--",
           "<file|\xc3\xa4.txt>1;.");
    expect(TYPE, PART("filename*=UTF-8''y; name=\"file\"; filename=\"x\"", "1") "--XX--",
           "<file|y>1;.");
}

static void malformed_bodies_are_refused(void **state UNUSED)
{
    expect(TYPE, "--XXrubbish\r\n", "!");
    expect(TYPE, PART("name=\"file\"; filename*=UTF-8''%00", "1"), "!");
}

static void a_head_without_end_is_refused(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(64 * 1024);
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(1024);

    buffer_append_text(&body, "--XX\r\n");
    for (unsigned i = 0; i < 2000; i++)
        buffer_append_text(&body, "X-Header: 1\r\n");
    tell(TYPE, (const char *)body.data, body.length, 1000, &out);
    assert_string_equal(buffer_text(&out), "!");
}

static void other_types_are_refused(void **state UNUSED)
{
    struct multipart multipart;

    assert_int_equal(multipart_init(&multipart, "multipart/mixed; boundary=XX"), -1);
    assert_int_equal(multipart_init(&multipart, "multipart/form-data"), -1);
    assert_int_equal(multipart_init(&multipart, "multipart/form-data; boundary="), -1);
    assert_int_equal(multipart_init(&multipart, "multipart/form-data; boundary=\"x"), -1);
    assert_int_equal(multipart_init(&multipart,
                                    "multipart/form-data; boundary="
                                    "01234567890123456789012345678901234567890123456789012345678901"
                                    "234567890123456789"),
                     -1);
    assert_int_equal(multipart_init(&multipart, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_come_with_their_names_however_they_are_cut),
        cmocka_unit_test(text_before_and_behind_is_passed_over),
        cmocka_unit_test(file_names_are_unescaped_as_browsers_write_them),
        cmocka_unit_test(malformed_bodies_are_refused),
        cmocka_unit_test(a_head_without_end_is_refused),
        cmocka_unit_test(other_types_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
