/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/glob.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* Walks the path as a walk through directories does. */
static bool matches(const char *pattern, const char *path, bool hidden)
{
    struct glob glob;
    glob_state state;
    char copy[256];

    assert_int_equal(glob_parse(&glob, pattern, hidden), 0);
    state = glob_start(&glob);
    assert_true(strlen(path) < sizeof(copy));
    strcpy(copy, path);
    for (char *rest = NULL, *name = strtok_r(copy, "/", &rest); name;
         name = strtok_r(NULL, "/", &rest)) {
        if (!glob_goes_on(&glob, state))
            return false;
        state = glob_step(&glob, state, name);
    }
    return glob_is_match(&glob, state);
}

static void patterns_match_what_they_say(void **state)
{
    static const struct {
        const char *pattern, *path;
        bool expected;
    } cases[] = {
        { "a", "a", true },         { "a", "b", false },
        { "a", "a/b", false },      { "*", "a", true },
        { "*", "a/b", false },      { "*.c", "x.c", true },
        { "*.c", ".c", false },     { "a*b*c", "aXbYc", true },
        { "a*b*c", "aXbY", false }, { "?", "a", true },
        { "?", "ab", false },       { "?", "\xc3\xa4", true },
        { "[a-c]x", "bx", true },   { "[a-c]x", "dx", false },
        { "[!a]x", "bx", true },    { "[]]", "]", true },
        { "[a-]", "-", true },      { "\\*", "*", true },
        { "\\*", "a", false },      { "**", "a", true },
        { "**", "a/b/c", true },    { "**/c", "c", true },
        { "**/c", "a/b/c", true },  { "**/c", "a/b/d", false },
        { "a/**", "a", false },     { "a/**", "a/b", true },
        { "a/**/b", "a/b", true },  { "a/**/b", "a/x/y/b", true },
        { "a/**/b", "b", false },   { "**/a/**/b", "x/a/y/b", true },
        { "**/**/a", "a", true },   { "a/*/c", "a/b/c", true },
        { "a/*/c", "a/c", false },  { "a**b", "aXXb", true },
        { "[*]", "*", true },       { "[*]", "a", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (matches(cases[i].pattern, cases[i].path, false) == cases[i].expected)
            continue;
        fail_msg("%s and %s", cases[i].pattern, cases[i].path);
    }
}

static void hidden_names_are_matched_when_they_are_asked_for(void **state)
{
    (void)state;
    assert_false(matches("*", ".a", false));
    assert_false(matches("?a", ".a", false));
    assert_false(matches("[.]a", ".a", false));
    assert_false(matches("**/b", ".a/b", false));
    assert_true(matches(".*", ".a", false));
    assert_true(matches("\\.a", ".a", false));
    assert_true(matches("*", ".a", true));
    assert_true(matches("**/b", ".a/b", true));
}

static void malformed_patterns_are_refused(void **state)
{
    static const char *const patterns[] = { "",   "/",   "/a",      "a/",     "a//b", ".",
                                            "..", "a/.", "../a",    "a/../b", "[",    "a[b",
                                            "[]", "[!]", "a/[b/c]", "[\\]" };
    struct glob glob;
    char many[GLOB_PARTS * 2 + 8] = "";

    (void)state;
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
        if (glob_parse(&glob, patterns[i], false) == 0)
            fail_msg("%s", patterns[i]);
    for (int i = 0; i < GLOB_PARTS; i++)
        strcat(many, i ? "/a" : "a");
    assert_int_equal(glob_parse(&glob, many, false), 0);
    strcat(many, "/a");
    assert_int_equal(glob_parse(&glob, many, false), -1);
}

static void a_pattern_without_a_slash_is_for_the_last_name(void **state)
{
    struct glob glob;

    (void)state;
    assert_int_equal(glob_parse(&glob, "*.py", false), 0);
    assert_true(glob_match_path(&glob, "a/b/c.py"));
    assert_false(glob_match_path(&glob, "a.py/b"));
    assert_int_equal(glob_parse(&glob, "a/*.py", false), 0);
    assert_true(glob_match_path(&glob, "a/c.py"));
    assert_false(glob_match_path(&glob, "b/a/c.py"));
}

static void no_pattern_is_expensive(void **state)
{
    char pattern[256] = "";
    char name[251];
    clock_t began = clock();
    struct glob glob;

    (void)state;
    for (int i = 0; i < 60; i++)
        strcat(pattern, "*a");
    strcat(pattern, "*b");
    memset(name, 'a', 250);
    name[250] = 0;
    assert_int_equal(glob_parse(&glob, pattern, false), 0);
    for (int i = 0; i < 100; i++)
        assert_false(glob_match_path(&glob, name));
    assert_true(clock() - began < CLOCKS_PER_SEC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_what_they_say),
        cmocka_unit_test(hidden_names_are_matched_when_they_are_asked_for),
        cmocka_unit_test(malformed_patterns_are_refused),
        cmocka_unit_test(a_pattern_without_a_slash_is_for_the_last_name),
        cmocka_unit_test(no_pattern_is_expensive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
