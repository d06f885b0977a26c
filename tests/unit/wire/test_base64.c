#include "wire/base64.h"

#include "base/macros.h"
#include "base/scoped.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_standard_come_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
