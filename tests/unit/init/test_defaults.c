/* SPDX-License-Identifier: Apache-2.0 */
/* Which variables of init's own environment programs get, and where they begin. */

#include "init/defaults.h"

#include "init/init.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define UNUSED __attribute__((unused))

static void only_variables_for_programs_are_kept(void **state UNUSED)
{
    char texts[][24] = { "HOME=/root", "A=1",          "SANDGLASS_KEY=", "SANDGLASS=2",
                         "USER=root",  "odd",          "=nameless",      "SHELL=/bin/sh",
                         "B=",         "LOGNAME=root", "HOMES=3" };
    static const char *const kept[] = { "A=1", "SANDGLASS=2", "B=", "HOMES=3" };
    char *environment[12] = { 0 };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        environment[i] = texts[i];
    assert_int_equal(defaults_select_variables(environment), 0);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        assert_string_equal(environment[i], kept[i]);
    assert_null(environment[4]);
}

static void nothing_is_nothing(void **state UNUSED)
{
    char *environment[] = { NULL };

    assert_int_equal(defaults_select_variables(environment), 0);
    assert_null(environment[0]);
    assert_null(defaults_environment()[0]);
}

static void more_than_fits_is_an_error(void **state UNUSED)
{
    static char *environment[MAX_VARIABLES + 2];
    static char large[DEFAULTS_MAX_BYTES + 1];
    char small[] = "A=1";
    char own[] = "HOME=/";

    for (int i = 0; i < MAX_VARIABLES; i++)
        environment[i] = small;
    environment[MAX_VARIABLES] = own; /* which does not count */
    assert_int_equal(defaults_select_variables(environment), 0);
    environment[MAX_VARIABLES] = small;
    assert_int_equal(defaults_select_variables(environment), -1);

    memset(large, '=', sizeof(large) - 1);
    large[0] = 'L';
    environment[0] = large;
    environment[1] = NULL;
    assert_int_equal(defaults_select_variables(environment), -1);
    large[sizeof(large) - 2] = 0;
    assert_int_equal(defaults_select_variables(environment), 0);
}

static void programs_begin_in_the_workspace_or_at_home(void **state UNUSED)
{
    char dir[] = "/tmp/sandglass-defaults-test-XXXXXX";
    struct user user = { 0 };
    char cwd[256];

    assert_non_null(mkdtemp(dir));
    strcpy(user.home, dir);
    assert_string_equal(defaults_directory(&user), dir);
    assert_int_equal(defaults_enter_directory(&user), 0);
    assert_string_equal(getcwd(cwd, sizeof(cwd)), dir);
    settings.workspace = "/usr";
    assert_string_equal(defaults_directory(&user), "/usr");
    assert_int_equal(defaults_enter_directory(&user), 0);
    assert_string_equal(getcwd(cwd, sizeof(cwd)), "/usr");
    settings.workspace = "/proc/nothing/here";
    assert_int_equal(defaults_enter_directory(&user), 0);
    assert_string_equal(getcwd(cwd, sizeof(cwd)), dir);
    strcpy(user.home, "/proc/nothing");
    assert_int_equal(defaults_enter_directory(&user), 0);
    assert_string_equal(getcwd(cwd, sizeof(cwd)), "/");
    settings.workspace = "";
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_variables_for_programs_are_kept),
        cmocka_unit_test(nothing_is_nothing),
        cmocka_unit_test(more_than_fits_is_an_error),
        cmocka_unit_test(programs_begin_in_the_workspace_or_at_home),
    };

    return cmocka_run_group_tests_name("init/defaults", tests, NULL, NULL);
}
