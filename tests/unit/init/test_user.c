#include "init/user.h"

#include "base/macros.h"

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
        cmocka_unit_test(ids_are_numbers_and_nothing_else),
        cmocka_unit_test(random_lines_do_no_harm),
    };

    return cmocka_run_group_tests_name("init/user", tests, NULL, NULL);
}
