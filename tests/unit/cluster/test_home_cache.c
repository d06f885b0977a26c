/* SPDX-License-Identifier: Apache-2.0 */
/* Homes that were looked up a while ago. */

#include "cluster/home_cache.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void only_its_owner_finds_a_session(void **state UNUSED)
{
    scoped(home_cache_free) struct home_cache *cache = home_cache_new(4);

    assert_null(home_cache_get(cache, "s", "alice"));
    home_cache_put(cache, "s", "alice", "a");
    assert_string_equal(home_cache_get(cache, "s", "alice"), "a");
    assert_string_equal(home_cache_get(cache, "s", NULL), "a");
    assert_null(home_cache_get(cache, "s", "bob"));
    assert_null(home_cache_get(cache, "s", ""));
    home_cache_put(cache, "s", "alice", "b");
    assert_string_equal(home_cache_get(cache, "s", "alice"), "b");
    home_cache_forget(cache, "s");
    home_cache_forget(cache, "s");
    assert_null(home_cache_get(cache, "s", "alice"));
}

static void the_one_that_was_not_used_for_longest_goes(void **state UNUSED)
{
    scoped(home_cache_free) struct home_cache *cache = home_cache_new(3);
    char id[8];

    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof(id), "s%d", i);
        home_cache_put(cache, id, "", "a");
    }
    assert_non_null(home_cache_get(cache, "s0", ""));
    home_cache_put(cache, "s3", "", "a");
    assert_null(home_cache_get(cache, "s1", ""));
    assert_non_null(home_cache_get(cache, "s0", ""));
    assert_non_null(home_cache_get(cache, "s2", ""));
    assert_non_null(home_cache_get(cache, "s3", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_its_owner_finds_a_session),
        cmocka_unit_test(the_one_that_was_not_used_for_longest_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
