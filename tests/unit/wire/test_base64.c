/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/base64.h"

#include "base/macros.h"
#include "base/scoped.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *decode(const char *text)
{
    static struct buffer out;

    buffer_fini(&out);
    out = BUFFER_INIT(64);
    return base64_decode(text, strlen(text), &out) == 0 ? buffer_text(&out) : NULL;
}

static void the_examples_of_the_standard_come_out(void **state UNUSED)
{
    static const struct {
        const char *bytes, *text;
    } rows[] = {
        { "", "" },
        { "f", "Zg==" },
        { "fo", "Zm8=" },
        { "foo", "Zm9v" },
        { "foob", "Zm9vYg==" },
        { "fooba", "Zm9vYmE=" },
        { "foobar", "Zm9vYmFy" },
        { "\xff\xfe\xfd", "//79" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        scoped(free) char *text = base64_encode(rows[i].bytes, strlen(rows[i].bytes));

        assert_string_equal(text, rows[i].text);
        assert_string_equal(decode(text), rows[i].bytes);
    }
}

static void spaces_between_do_not_count_and_anything_else_is_refused(void **state UNUSED)
{
    static const char *const bad[] = {
        "Z", "Zg", "Zg=", "Zm9v=", "Zg==Zg==", "Z===", "Zm9?", "===="
    };

    assert_string_equal(decode(" Zm9v\r\n YmFy\n"), "foobar");
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_null(decode(bad[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_standard_come_out),
        cmocka_unit_test(spaces_between_do_not_count_and_anything_else_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
