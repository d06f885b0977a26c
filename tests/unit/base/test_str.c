/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include "base/macros.h"
#include "base/scoped.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void texts_are_compared_also_when_one_is_missing(void **state UNUSED)
{
    assert_true(str_equal("a", "a"));
    assert_false(str_equal("a", "b"));
    assert_false(str_equal(NULL, ""));
    assert_true(str_equal(NULL, NULL));
    assert_true(str_is_empty(NULL) && str_is_empty("") && !str_is_empty("a"));
    assert_true(str_starts_with("unix:/a", "unix:"));
    assert_false(str_starts_with("un", "unix:"));
    assert_true(str_ends_with("a.yaml", ".yaml"));
    assert_false(str_ends_with("yaml", ".yaml"));
    assert_true(str_ends_with("a", ""));
}

#define ASSERT_UTF8(text) assert_true(str_is_utf8(text, sizeof(text) - 1))
#define ASSERT_NOT_UTF8(text) assert_false(str_is_utf8(text, sizeof(text) - 1))

static void only_well_formed_utf8_without_nul_passes(void **state UNUSED)
{
    ASSERT_UTF8("");
    ASSERT_UTF8("plain\n\x7f");
    ASSERT_UTF8("\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf");
    ASSERT_UTF8("\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf");
    ASSERT_NOT_UTF8("a\0b");
    ASSERT_NOT_UTF8("\x80");
    ASSERT_NOT_UTF8("\xbf");
    ASSERT_NOT_UTF8("\xc0\x80");
    ASSERT_NOT_UTF8("\xc1\xbf");
    ASSERT_NOT_UTF8("\xe0\x9f\xbf");
    ASSERT_NOT_UTF8("\xed\xa0\x80");
    ASSERT_NOT_UTF8("\xf0\x8f\xbf\xbf");
    ASSERT_NOT_UTF8("\xf4\x90\x80\x80");
    ASSERT_NOT_UTF8("\xf8\x88\x80\x80\x80");
    ASSERT_NOT_UTF8("\xff");
    ASSERT_NOT_UTF8("ab\xe2\x82");
    ASSERT_NOT_UTF8("\xc3(");
}

#define UNFINISHED(text) str_utf8_unfinished((const unsigned char *)(text), sizeof(text) - 1)

static void only_a_beginning_that_can_be_finished_is_unfinished(void **state UNUSED)
{
    assert_int_equal(UNFINISHED(""), 0);
    assert_int_equal(UNFINISHED("ab"), 0);
    assert_int_equal(UNFINISHED("a\xc3"), 1);
    assert_int_equal(UNFINISHED("a\xe2\x82"), 2);
    assert_int_equal(UNFINISHED("a\xf4\x8f\xbf"), 3);
    assert_int_equal(UNFINISHED("a\xe2\x82\xac"), 0);
    assert_int_equal(UNFINISHED("a\xc0"), 0);
    assert_int_equal(UNFINISHED("a\xc1"), 0);
    assert_int_equal(UNFINISHED("a\xf5\x80"), 0);
    assert_int_equal(UNFINISHED("a\xff"), 0);
}

static void distance_counts_edits(void **state UNUSED)
{
    assert_int_equal(str_distance("", ""), 0);
    assert_int_equal(str_distance("abc", "abc"), 0);
    assert_int_equal(str_distance("abc", ""), 3);
    assert_int_equal(str_distance("", "abc"), 3);
    assert_int_equal(str_distance("kitten", "sitting"), 3);
    assert_int_equal(str_distance("idel", "idle"), 2);
}

static void whole_numbers_are_strict(void **state UNUSED)
{
    static const char *const wrong[] = { "", "-", "+1", " 1", "1 ", "1.0", "0x1", "--1", "1a" };
    uint64_t natural = 7;

    assert_int_equal(str_to_u64("18446744073709551615", &natural), 0);
    assert_true(natural == UINT64_MAX);
    assert_int_equal(str_to_u64("18446744073709551616", &natural), -1);
    assert_int_equal(str_to_u64("-1", &natural), -1);
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
        assert_int_equal(str_to_u64(wrong[i], &natural), -1);
    assert_true(natural == UINT64_MAX);
    assert_int_equal(str_to_u64("007", &natural), 0);
    assert_int_equal(natural, 7);
}

static void durations_have_units(void **state UNUSED)
{
    static const struct {
        const char *text;
        int64_t ms;
    } right[] = {
        { "90s", 90000 },
        { "30m", 1800000 },
        { "4h", 14400000 },
        { "1d", 86400000 },
        { "250ms", 250 },
        { "1.5", 1500 },
        { "90", 90000 },
        { "0", 0 },
        { "29m58s", 1798000 },
        { "1h30m", 5400000 },
        { "2H", 7200000 },
        { "0.001", 1 },
        { "1d2h3m4s5ms", 93784005 },
    };
    static const char *const wrong[] = {
        "", "s", "-1", "1x", "1 s", "1..5", ".5", "1e3", "NaN", "1m junk", "99999999999999999999"
    };
    int64_t ms;

    for (size_t i = 0; i < ARRAY_LENGTH(right); i++) {
        assert_int_equal(str_to_duration_ms(right[i].text, &ms, NULL), 0);
        assert_int_equal(ms, right[i].ms);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++) {
        struct error err = { 0 };

        if (str_to_duration_ms(wrong[i], &ms, &err) == 0)
            fail_msg("accepted: %s", wrong[i]);
    }
}

static void sizes_have_units(void **state UNUSED)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } right[] = {
        { "0", 0 },
        { "1024", 1024 },
        { "64k", 65536 },
        { "512m", 536870912 },
        { "2g", 2147483648 },
        { "2GB", 2147483648 },
        { "1.5k", 1536 },
        { "10b", 10 },
        { "1t", UINT64_C(1) << 40 },
    };
    static const char *const wrong[] = { "", "m", "-1", "1x", "1 m", "1m1k", "1e9", "99999t" };
    uint64_t bytes;

    for (size_t i = 0; i < ARRAY_LENGTH(right); i++) {
        assert_int_equal(str_to_size(right[i].text, &bytes, NULL), 0);
        assert_true(bytes == right[i].bytes);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
        if (str_to_size(wrong[i], &bytes, NULL) == 0)
            fail_msg("accepted: %s", wrong[i]);
}

static void formatted_durations_read_back(void **state UNUSED)
{
    static const int64_t values[] = { 0, 1, 999, 1000, 59000, 60000, 1798000, 3600000, 86400000 };
    char text[STR_UNIT_SIZE];
    int64_t back;

    for (size_t i = 0; i < ARRAY_LENGTH(values); i++) {
        str_format_duration(values[i], text);
        assert_int_equal(str_to_duration_ms(text, &back, NULL), 0);
        assert_int_equal(back, values[i]);
    }
    str_format_duration(1798000, text);
    assert_string_equal(text, "29m58s");
    str_format_duration(14400000, text);
    assert_string_equal(text, "4h0m");
}

static void sizes_are_formatted_for_people(void **state UNUSED)
{
    char text[STR_UNIT_SIZE];

    str_format_size(12, text);
    assert_string_equal(text, "12 B");
    str_format_size(1536, text);
    assert_string_equal(text, "1.5 KB");
    str_format_size(UINT64_MAX, text);
    assert_string_equal(text, "16384.0 PB");
}

static void a_plain_name_stays_in_its_directory(void **state UNUSED)
{
    char long_name[258];

    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[256] = '\0';
    assert_false(path_is_plain_name(long_name));
    long_name[255] = '\0';
    assert_true(path_is_plain_name(long_name));
    assert_true(path_is_plain_name("a.b") && path_is_plain_name("...") && path_is_plain_name("-"));
}

static void a_clean_path_has_no_detours(void **state)
{
    static const char *const others[] = { "",      "a",  "a/b",   "/a/",   "//",
                                          "/a//b", "/.", "/a/..", "/a/./b" };

    (void)state;
    assert_true(path_is_clean("/") && path_is_clean("/a") && path_is_clean("/a/.b/c..d/..."));
    for (size_t i = 0; i < ARRAY_LENGTH(others); i++)
        assert_false(path_is_clean(others[i]));
    assert_false(path_is_plain_name(""));
    assert_false(path_is_plain_name("."));
    assert_false(path_is_plain_name(".."));
    assert_false(path_is_plain_name("a/b"));
}

static void directories_are_made_with_their_parents(void **state UNUSED)
{
    char root[] = "/tmp/sandglass-str-XXXXXX";
    scoped(free) char *middle = NULL;
    scoped(free) char *deep = NULL;
    struct error err = { 0 };
    struct stat info;

    assert_non_null(mkdtemp(root));
    middle = path_join(root, "a");
    deep = path_join(middle, "b/");
    assert_int_equal(path_make_dirs(deep, 0700, &err), 0);
    assert_int_equal(path_make_dirs(deep, 0700, &err), 0);
    assert_int_equal(stat(deep, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    assert_int_equal(path_make_dirs("/proc/nothing/here", 0700, &err), -1);
    assert_non_null(strstr(err.message, "/proc/nothing"));
    assert_int_equal(rmdir(deep), 0);
    assert_int_equal(rmdir(middle), 0);
    assert_int_equal(rmdir(root), 0);
}

static void joining_adds_one_slash(void **state UNUSED)
{
    scoped(free) char *plain = path_join("/a", "b");
    scoped(free) char *slashed = path_join("/a/", "b");

    assert_string_equal(plain, "/a/b");
    assert_string_equal(slashed, "/a/b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_compared_also_when_one_is_missing),
        cmocka_unit_test(only_well_formed_utf8_without_nul_passes),
        cmocka_unit_test(only_a_beginning_that_can_be_finished_is_unfinished),
        cmocka_unit_test(distance_counts_edits),
        cmocka_unit_test(whole_numbers_are_strict),
        cmocka_unit_test(durations_have_units),
        cmocka_unit_test(sizes_have_units),
        cmocka_unit_test(formatted_durations_read_back),
        cmocka_unit_test(sizes_are_formatted_for_people),
        cmocka_unit_test(a_plain_name_stays_in_its_directory),
        cmocka_unit_test(a_clean_path_has_no_detours),
        cmocka_unit_test(directories_are_made_with_their_parents),
        cmocka_unit_test(joining_adds_one_slash),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
