/* SPDX-License-Identifier: Apache-2.0 */
#include "init/user.h"

#include "base/macros.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool match(const char *line, const char *name, uint32_t uid, struct user *user)
{
    struct user_query query = { .name = name, .name_length = name ? strlen(name) : 0, .uid = uid };

    return user_match_passwd(line, strlen(line), &query, user);
}

static void an_entry_is_found_by_name_and_by_number(void **state UNUSED)
{
    struct user user = { 0 };

    assert_true(match("dev:x:1000:1001:Developer,,:/home/dev:/bin/zsh", "dev", 0, &user));
    assert_int_equal(user.uid, 1000);
    assert_int_equal(user.gid, 1001);
    assert_string_equal(user.name, "dev");
    assert_string_equal(user.home, "/home/dev");
    assert_string_equal(user.shell, "/bin/zsh");
    assert_true(match("dev:x:1000:1001::/:", NULL, 1000, &user));
    assert_string_equal(user.shell, "");
}

static void lines_that_are_no_entries_match_nobody(void **state UNUSED)
{
    static const char *const bad[] = {
        "",
        "dev",
        "dev:x:1000:1001:gecos:/home/dev",
        "dev:x::1001:gecos:/home/dev:/bin/sh",
        "dev:x:-1:1001:gecos:/home/dev:/bin/sh",
        "dev:x:4294967295:1001:gecos:/home/dev:/bin/sh",
        "dev:x:0x10:1001:gecos:/home/dev:/bin/sh",
        "devx:x:1:1:gecos:/home/dev:/bin/sh",
        "de:x:1:1:gecos:/home/dev:/bin/sh",
        " dev:x:1:1:gecos:/home/dev:/bin/sh",
    };
    struct user user = { .uid = 99 };

    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_false(match(bad[i], "dev", 0, &user));
    assert_int_equal(user.uid, 99);
}

static void texts_that_do_not_fit_are_left_out(void **state UNUSED)
{
    char line[USER_LINE_SIZE];
    char home[400];
    struct user user = { 0 };

    memset(home, 'h', sizeof(home) - 1);
    home[0] = '/';
    home[sizeof(home) - 1] = 0;
    strcpy(line, "dev:x:1:2::");
    strcat(line, home);
    strcat(line, ":/bin/sh");
    assert_true(match(line, "dev", 0, &user));
    assert_string_equal(user.home, "");
    assert_string_equal(user.shell, "/bin/sh");
}

static void groups_are_those_that_name_the_user(void **state UNUSED)
{
    static const char *const lines[] = {
        "one:x:1:dev",     "two:x:2:devx,xdev,de", "three:x:3:a,dev,b",
        "four:x:4:",       "five:x:nonsense:dev",  "six:x:6",
        "seven:x:7:b,dev",
    };
    struct user user = { .name = "dev" };

    for (size_t i = 0; i < ARRAY_LENGTH(lines); i++)
        user_add_group(lines[i], strlen(lines[i]), &user);
    assert_int_equal(user.group_count, 3);
    assert_int_equal(user.groups[0], 1);
    assert_int_equal(user.groups[1], 3);
    assert_int_equal(user.groups[2], 7);
    for (int i = 0; i < 100; i++)
        user_add_group(lines[0], strlen(lines[0]), &user);
    assert_int_equal(user.group_count, USER_MAX_GROUPS);
}

static void a_group_is_found_by_its_name(void **state UNUSED)
{
    static const char *const bad[] = {
        "",           "staff",          "staff:x:50",         "staffs:x:50:",
        "staf:x:50:", "staff:x:fifty:", "staff:x:4294967295:"
    };
    uint32_t gid = 99;
    char name[USER_NAME_SIZE];

    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_false(user_match_group(bad[i], strlen(bad[i]), "staff", &gid));
    assert_int_equal(gid, 99);
    assert_true(user_match_group("staff:x:50:a,b", strlen("staff:x:50:a,b"), "staff", &gid));
    assert_int_equal(gid, 50);
    assert_true(user_match_group_number("staff:x:50:a,b", strlen("staff:x:50:a,b"), 50, name));
    assert_string_equal(name, "staff");
    assert_false(user_match_group_number("staff:x:50:a,b", strlen("staff:x:50:a,b"), 5, name));
    assert_false(user_match_group_number("staff:x:50", strlen("staff:x:50"), 50, name));
}

static void a_default_user_needs_no_entry(void **state UNUSED)
{
    struct user user;

    assert_int_equal(user_find_default("4242:4343", &user), 0);
    assert_int_equal(user.uid, 4242);
    assert_int_equal(user.gid, 4343);
    assert_int_equal(user.group_count, 1);
    assert_int_equal(user.groups[0], 4343);
    assert_string_equal(user.name, "4242");
    assert_string_equal(user.home, "/");
    assert_string_equal(user.shell, "/bin/sh");
    assert_int_equal(user_find_default("4242", &user), 0);
    assert_int_equal(user.gid, 0);
    assert_int_equal(user.group_count, 1);
    assert_int_equal(user_find_default("root:4343", &user), 0);
    assert_int_equal(user.uid, 0);
    assert_int_equal(user.gid, 4343);
    assert_string_equal(user.name, "root");
}

static void what_names_no_default_user_is_invalid(void **state UNUSED)
{
    static const char *const bad[] = {
        ":", ":1", "1:", "1:2:3", "no such user", "4294967295", "root:no such group", "-1", "1:-1"
    };
    struct user user;

    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_int_equal(user_find_default(bad[i], &user), EINVAL);
}

/* The last user that was looked up is remembered, whoever asked. */
static void requests_may_not_name_a_group(void **state UNUSED)
{
    struct user user;

    assert_int_equal(user_find_default("root:root", &user), 0);
    assert_int_equal(user_find("root:root", true, &user), EINVAL);
    assert_int_equal(user_find("root", true, &user), 0);
    assert_int_equal(user_find_default("1", &user), 0);
    assert_int_equal(user_find("4242", true, &user), 0);
    assert_int_equal(user.gid, 4242);
}

static void ids_are_numbers_and_nothing_else(void **state UNUSED)
{
    static const char *const bad[] = {
        "", ":", "1:", ":1", "1:2:3", "a", "1a", "4294967295", "-1"
    };
    struct user user = { 0 };
    bool has_gid;

    assert_true(user_parse_ids("12", &user, &has_gid));
    assert_int_equal(user.uid, 12);
    assert_false(has_gid);
    assert_true(user_parse_ids("0:34", &user, &has_gid));
    assert_int_equal(user.uid, 0);
    assert_int_equal(user.gid, 34);
    assert_true(has_gid);
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_false(user_parse_ids(bad[i], &user, &has_gid));
}

static void random_lines_do_no_harm(void **state UNUSED)
{
    static const char alphabet[] = ":,01x\n\0\xff/dev";
    struct user user = { .name = "dev" };

    srand(1);
    for (int round = 0; round < 20000; round++) {
        size_t length = (size_t)rand() % 64;
        char *line = malloc(length + 1);
        struct user_query query = { .name = "dev", .name_length = 3 };

        for (size_t i = 0; i < length; i++)
            line[i] = alphabet[(size_t)rand() % sizeof(alphabet)];
        (void)user_match_passwd(line, length, &query, &user);
        (void)user_match_group(line, length, "dev", &(uint32_t){ 0 });
        (void)user_match_group_number(line, length, 50, (char[USER_NAME_SIZE]){ 0 });
        memcpy(user.name, "dev", 4);
        user_add_group(line, length, &user);
        free(line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_is_found_by_name_and_by_number),
        cmocka_unit_test(lines_that_are_no_entries_match_nobody),
        cmocka_unit_test(texts_that_do_not_fit_are_left_out),
        cmocka_unit_test(groups_are_those_that_name_the_user),
        cmocka_unit_test(a_group_is_found_by_its_name),
        cmocka_unit_test(a_default_user_needs_no_entry),
        cmocka_unit_test(what_names_no_default_user_is_invalid),
        cmocka_unit_test(requests_may_not_name_a_group),
        cmocka_unit_test(ids_are_numbers_and_nothing_else),
        cmocka_unit_test(random_lines_do_no_harm),
    };

    return cmocka_run_group_tests_name("init/user", tests, NULL, NULL);
}
