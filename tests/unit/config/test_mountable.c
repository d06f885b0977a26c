/* SPDX-License-Identifier: Apache-2.0 */
#include "config/mountable.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[] = "/tmp/test-mountable-XXXXXX";

static const char *at(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof(path), "%s/%s", root, name);
    return path;
}

static int make_tree(void **state UNUSED)
{
    char target[4096];

    assert_non_null(mkdtemp(root));
    assert_int_equal(mkdir(at("data"), 0755), 0);
    assert_int_equal(mkdir(at("data/sub"), 0755), 0);
    assert_int_equal(mkdir(at("data-not"), 0755), 0);
    assert_int_equal(mkdir(at("secret"), 0755), 0);
    snprintf(target, sizeof(target), "%s/secret", root);
    assert_int_equal(symlink(target, at("data/out")), 0);
    assert_int_equal(symlink("sub", at("data/near")), 0);
    assert_int_equal(symlink("/not/there", at("data/nowhere")), 0);
    assert_int_equal(symlink("data", at("alias")), 0);
    return 0;
}

static int remove_tree(void **state UNUSED)
{
    scoped(free) char *command = xasprintf("rm -rf %s", root);

    return system(command) == 0 ? 0 : -1;
}

/* A file in which ROOT stands for the directory of the test. */
static void load(struct config *config, const char *format)
{
    struct error err = { 0 };
    scoped(free) char *text = xstrdup(format);
    const char *mark;

    while ((mark = strstr(text, "ROOT"))) {
        char *more = xasprintf("%.*s%s%s", (int)(mark - text), text, root, mark + 4);

        free(text);
        text = more;
    }
    if (config_load_text(config, text, strlen(text), "test.yaml", &err) < 0 ||
        config_check(config, &err) < 0)
        fail_msg("%s", err.message);
}

static const char *find(const struct config *config, const char *owner, const char *name,
                        bool read_only, struct config_mount_source *out)
{
    static struct error err;

    err = (struct error){ 0 };
    return config_mount_find(config, owner, at(name), read_only, out, &err) == 0 ? NULL : err.name;
}

static void the_way_from_an_entry_is_found(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };
    struct config_mount_source source;

    load(&config, "sandbox: {max: {mounts: ['ROOT/secret', 'ROOT/data']}}");
    assert_null(find(&config, "", "data", true, &source));
    assert_int_equal(source.index, 1);
    assert_string_equal(source.relative, "");
    assert_null(find(&config, "", "data/sub", true, &source));
    assert_string_equal(source.relative, "sub");
    assert_null(find(&config, "", "data/near", true, &source));
    assert_string_equal(source.relative, "sub");
    /* A link from one allowed directory into another is no way. */
    assert_string_equal(find(&config, "", "data/out", true, &source), "mount_not_allowed");
}

static void an_entry_may_be_a_link_itself(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };
    struct config_mount_source source;

    load(&config, "sandbox: {max: {mounts: ['ROOT/alias']}}");
    assert_null(find(&config, "", "alias/sub", true, &source));
    assert_string_equal(source.relative, "sub");
    assert_null(find(&config, "", "data/sub", true, &source));
    assert_string_equal(source.relative, "sub");
}

static void other_directories_are_refused(void **state UNUSED)
{
    static const char *const outside[] = {
        "",          "secret",  "data-not",     "data/../secret",   "data/./sub",    "data/out",
        "data//sub", "missing", "data/nowhere", "data/out/missing", "data/nowhere/x"
    };
    scoped(config_fini) struct config config = { 0 };
    struct config_mount_source source;

    load(&config, "sandbox: {max: {mounts: ['ROOT/data']}}");
    for (size_t i = 0; i < ARRAY_LENGTH(outside); i++)
        assert_string_equal(find(&config, "", outside[i], true, &source), "mount_not_allowed");
    assert_string_equal(find(&config, "", "data/missing", true, &source), "invalid_field");
}

static void writing_is_for_entries_that_say_so(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };
    struct config_mount_source source;

    load(&config, "sandbox: {max: {mounts: ['ROOT/data', 'ROOT/data/sub:rw', 'ROOT/secret:ro']}}");
    assert_string_equal(find(&config, "", "data", false, &source), "mount_not_allowed");
    assert_string_equal(find(&config, "", "secret", false, &source), "mount_not_allowed");
    assert_null(find(&config, "", "data/sub", false, &source));
    assert_int_equal(source.index, 1);
    assert_null(find(&config, "", "data/sub", true, &source));
    assert_int_equal(source.index, 0);
}

static void the_list_of_an_owner_holds_in_place_of_the_general_one(void **state UNUSED)
{
    scoped(config_fini) struct config config = { 0 };
    struct config_mount_source source;

    load(&config,
         "{sandbox: {max: {mounts: ['ROOT/data']}}, owners: [{name: eve, max: {mounts: [none]}},"
         " {name: bob, max: {mounts: ['ROOT/secret']}}, {name: ann, sessions: 3}]}");
    assert_null(find(&config, "ann", "data", true, &source));
    assert_null(find(&config, "bob", "secret", true, &source));
    assert_int_equal(source.index, 1);
    assert_null(find(&config, "bob/agent", "secret", true, &source));
    assert_string_equal(find(&config, "bob", "data", true, &source), "mount_not_allowed");
    assert_string_equal(find(&config, "eve", "data", true, &source), "mount_not_allowed");
    assert_string_equal(find(&config, "", "secret", true, &source), "mount_not_allowed");
    assert_null(config_mountable_entry(&config, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_way_from_an_entry_is_found),
        cmocka_unit_test(an_entry_may_be_a_link_itself),
        cmocka_unit_test(other_directories_are_refused),
        cmocka_unit_test(writing_is_for_entries_that_say_so),
        cmocka_unit_test(the_list_of_an_owner_holds_in_place_of_the_general_one),
    };

    return cmocka_run_group_tests_name("config/mountable", tests, make_tree, remove_tree);
}
