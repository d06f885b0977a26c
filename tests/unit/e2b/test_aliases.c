/* SPDX-License-Identifier: Apache-2.0 */
/* Names of templates: kept for their owner, across daemons. */

#include "e2b/aliases.h"

#include "base/alloc.h"
#include "harness/world.h"
#include "wire/json.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct world world;
static char directory[] = "/tmp/sandglass-e2b-XXXXXX";

static int setup(void **state UNUSED)
{
    world_init(&world);
    assert_non_null(mkdtemp(directory));
    world.state_dir = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    world_start(&world);
    return 0;
}

static int teardown(void **state UNUSED)
{
    unlinkat(world.state_dir, "e2b-templates.json", 0);
    close(world.state_dir);
    rmdir(directory);
    world_fini(&world);
    return 0;
}

static void build(struct e2b_aliases *aliases, const char *owner, const char *name)
{
    struct error err = { 0 };
    const struct e2b_build *begun =
        e2b_build_begin(aliases, owner, name, E2B_DEFAULT_TAG, NULL, &err);

    assert_non_null(begun);
    assert_int_equal(
        e2b_build_finish(aliases, e2b_build_find(aliases, owner, begun->id), "host", &err), 0);
}

static void a_name_is_its_owners_and_outlives_the_daemon(void **state UNUSED)
{
    struct e2b_aliases *aliases = e2b_aliases_new(world.core);

    build(aliases, "ann", "mine");
    e2b_aliases_free(aliases);
    aliases = e2b_aliases_new(world.core);
    assert_string_equal(e2b_alias_find(aliases, "ann", "mine", E2B_DEFAULT_TAG)->source, "host");
    assert_null(e2b_alias_find(aliases, "bob", "mine", E2B_DEFAULT_TAG));
    e2b_aliases_free(aliases);
}

static void tags_are_added_and_removed(void **state UNUSED)
{
    scoped(e2b_aliases_free) struct e2b_aliases *aliases = e2b_aliases_new(world.core);
    scoped(json_decref) json_t *tags = json_pack("[s, s]", "v1", "v2");
    scoped(json_decref) json_t *one = json_pack("[s]", "v1");
    struct error err = { 0 };

    build(aliases, "ann", "tagged");
    assert_int_equal(e2b_alias_tag(aliases,
                                   e2b_alias_find(aliases, "ann", "tagged", E2B_DEFAULT_TAG), tags,
                                   &err),
                     0);
    assert_non_null(e2b_alias_find(aliases, "ann", "tagged", "v1"));
    assert_int_equal(e2b_alias_remove(aliases, "bob", "tagged", one, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(e2b_alias_remove(aliases, "ann", "tagged", one, &err), 0);
    assert_null(e2b_alias_find(aliases, "ann", "tagged", "v1"));
    assert_non_null(e2b_alias_find(aliases, "ann", "tagged", "v2"));
    assert_int_equal(e2b_alias_remove(aliases, "ann", "tagged", NULL, &err), 0);
    assert_null(e2b_alias_find(aliases, "ann", "tagged", "v2"));
}

static void an_invalid_name_is_refused(void **state UNUSED)
{
    scoped(e2b_aliases_free) struct e2b_aliases *aliases = e2b_aliases_new(world.core);
    static const char *const names[] = { "", "A", "a b", "a\n" };
    struct error err = { 0 };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        assert_null(e2b_build_begin(aliases, "ann", names[i], E2B_DEFAULT_TAG, NULL, &err));
}

static void names_of_one_owner_are_limited(void **state UNUSED)
{
    scoped(e2b_aliases_free) struct e2b_aliases *aliases = e2b_aliases_new(world.core);
    scoped(json_decref) json_t *tags = json_array();
    struct error err = { 0 };
    char tag[16];

    build(aliases, "eve", "many");
    for (int i = 0; i < E2B_ALIAS_PER_OWNER; i++) {
        snprintf(tag, sizeof(tag), "t%d", i);
        json_array_append_new(tags, json_string(tag));
    }
    assert_int_equal(
        e2b_alias_tag(aliases, e2b_alias_find(aliases, "eve", "many", E2B_DEFAULT_TAG), tags, &err),
        -1);
    assert_int_equal(err.code, ERR_LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_its_owners_and_outlives_the_daemon),
        cmocka_unit_test(tags_are_added_and_removed),
        cmocka_unit_test(an_invalid_name_is_refused),
        cmocka_unit_test(names_of_one_owner_are_limited),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
