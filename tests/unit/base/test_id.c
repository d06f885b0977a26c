/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"

#include "base/macros.h"
#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 5000 };

static void ids_have_their_prefix_and_are_valid(void **state UNUSED)
{
    char id[ID_SIZE];

    id_make(id, ID_SESSION);
    assert_int_equal(strlen(id), 30);
    assert_memory_equal(id, "ses_", 4);
    assert_true(id_is_valid(id, ID_SESSION));
    assert_false(id_is_valid(id, ID_EXECUTION));
}

static void ids_do_not_repeat(void **state UNUSED)
{
    char(*ids)[ID_SIZE] = calloc(COUNT, ID_SIZE);
    struct map map = { 0 };

    for (int i = 0; i < COUNT; i++) {
        id_make(ids[i], ID_SANDBOX);
        assert_null(map_get(&map, ids[i]));
        map_put(&map, ids[i], ids[i]);
    }
    map_fini(&map);
    free(ids);
}

static void every_character_varies(void **state UNUSED)
{
    char first[ID_SIZE];
    bool varies[ID_SIZE] = { false };

    id_make(first, ID_REQUEST);
    for (int i = 0; i < 1000; i++) {
        char other[ID_SIZE];

        id_make(other, ID_REQUEST);
        for (size_t at = 4; at < 30; at++)
            varies[at] |= other[at] != first[at];
    }
    for (size_t at = 4; at < 30; at++)
        assert_true(varies[at]);
}

static void anything_else_is_not_an_id(void **state UNUSED)
{
    static const char *const wrong[] = {
        "",
        "ses_",
        "ses_0123456789abcdefghjkmnpqr",
        "ses_0123456789abcdefghjkmnpqrst",
        "ses_0123456789abcdefghjkmnpqrI",
        "ses_0123456789abcdefghjkmnpq/.",
        "ses_0123456789ABCDEFGHJKMNPQRS",
        "SES_0123456789abcdefghjkmnpqrs",
    };

    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
        assert_false(id_is_valid(wrong[i], ID_SESSION));
    assert_true(id_is_valid("ses_0123456789abcdefghjkmnpqrs", ID_SESSION));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_have_their_prefix_and_are_valid),
        cmocka_unit_test(ids_do_not_repeat),
        cmocka_unit_test(every_character_varies),
        cmocka_unit_test(anything_else_is_not_an_id),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
