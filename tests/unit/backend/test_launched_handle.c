/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/launched_handle.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void a_handle_comes_back_as_it_was(void **state)
{
    const struct launched_handle handles[] = {
        { .pid = 2, .start_time = 0, .slot = 0 },
        { .pid = 4711, .start_time = 123456789012345, .slot = 17 },
        { .pid = INT32_MAX, .start_time = UINT64_MAX, .slot = UINT32_MAX },
        { .pid = 4711, .start_time = 5, .slot = 3, .has_relay = true },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(handles); i++) {
        struct launched_handle got = { 0 };
        char text[64];

        launched_handle_write(&handles[i], text, sizeof(text));
        assert_true(launched_handle_parse(text, &got));
        assert_int_equal(got.pid, handles[i].pid);
        assert_true(got.start_time == handles[i].start_time);
        assert_int_equal(got.slot, handles[i].slot);
        assert_int_equal(got.has_relay, handles[i].has_relay);
    }
}

/* The store writes it from the columns that earlier versions had. */
static void it_is_written_as_the_migration_of_the_store_does(void **state)
{
    char text[64];

    (void)state;
    launched_handle_write(&(struct launched_handle){ .pid = 4711, .start_time = 5, .slot = 3 },
                          text, sizeof(text));
    assert_string_equal(text, "4711:5:3");
}

static void other_text_is_no_handle(void **state)
{
    static const char *const others[] = {
        "",
        "1:1:1",
        "0:1:1",
        "-2:1:1",
        "2:1",
        "2:1:",
        "2::1",
        ":1:1",
        "2:1:1 ",
        " 2:1:1",
        "2:1:1:",
        "2:1:1:relays",
        "2:1:1:relay:",
        "2:1:1relay",
        "2:1:x",
        "2:-1:1",
        "2:1:-1",
        "+2:1:1",
        "2147483648:1:1",
        "0x2:1:1",
        "2:1:4294967296",
        "docker://0123456789ab",
        "2:18446744073709551616:1",
    };
    struct launched_handle handle = { .pid = 77 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        assert_false(launched_handle_parse(others[i], &handle));
    assert_int_equal(handle.pid, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_comes_back_as_it_was),
        cmocka_unit_test(it_is_written_as_the_migration_of_the_store_does),
        cmocka_unit_test(other_text_is_no_handle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
