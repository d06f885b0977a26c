/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "cli/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct args {
    bool flag;
    bool other;
    const char *text;
    const char *duration;
    const char *size;
    const char *count;
    const char *choice;
    struct text_list list;
    struct text_list pairs;
};

#define PLACE(field) offsetof(struct args, field)

static const struct option rows[] = {
    { "flag", 'f', OPTION_FLAG, PLACE(flag), NULL, NULL, "a flag" },
    { "other", 'o', OPTION_FLAG, PLACE(other), NULL, NULL, "another" },
    { "text", 't', OPTION_TEXT, PLACE(text), "TEXT", NULL, "a text" },
    { "duration", 0, OPTION_DURATION, PLACE(duration), "T", NULL, "a duration" },
    { "size", 0, OPTION_SIZE, PLACE(size), "SIZE", NULL, "a size" },
    { "count", 0, OPTION_COUNT, PLACE(count), "N", NULL, "a count" },
    { "choice", 0, OPTION_TEXT, PLACE(choice), "WHICH", "red green", "a choice" },
    { "words", 0, OPTION_TEXT, PLACE(text), "TEXT", NULL, NULL },
    { "list", 'l', OPTION_LIST, PLACE(list), "ITEM", NULL, "a list" },
    { "pair", 'p', OPTION_PAIRS, PLACE(pairs), "K=V", NULL, "pairs" },
    { 0 },
};

static const struct option_set sets[] = { { rows, 0, "Options" }, { 0 } };

struct fixture {
    struct args args;
    struct option_result given;
    struct error err;
};

static int parse(struct fixture *fixture, size_t plain_after, const char *const *argv)
{
    return options_parse(sets, plain_after, (char *const *)argv, &fixture->args, &fixture->given,
                         &fixture->err);
}

static void fixture_fini(struct fixture *fixture)
{
    options_release(sets, &fixture->args);
    text_list_fini(&fixture->given.operands);
}

static inline void scoped_fixture_fini(struct fixture *fixture)
{
    fixture_fini(fixture);
}

#define ARGV(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void values_come_behind_a_space_an_equals_sign_or_the_letter(void **state UNUSED)
{
    scoped(fixture_fini) struct fixture fixture = { 0 };

    assert_int_equal(
        parse(&fixture, OPERANDS_MIXED, ARGV("--text", "one", "--size=2g", "-lx", "-l", "y")), 0);
    assert_string_equal(fixture.args.text, "one");
    assert_string_equal(fixture.args.size, "2g");
    assert_int_equal(fixture.args.list.count, 2);
    assert_string_equal(fixture.args.list.items[0], "x");
    assert_string_equal(fixture.args.list.items[1], "y");
}

static void letters_of_flags_may_stand_together(void **state UNUSED)
{
    scoped(fixture_fini) struct fixture fixture = { 0 };

    assert_int_equal(parse(&fixture, OPERANDS_MIXED, ARGV("-fot", "value", "rest")), 0);
    assert_true(fixture.args.flag && fixture.args.other);
    assert_string_equal(fixture.args.text, "value");
    assert_int_equal(fixture.given.operands.count, 1);
}

static void an_empty_value_is_a_value(void **state UNUSED)
{
    scoped(fixture_fini) struct fixture fixture = { 0 };

    assert_int_equal(parse(&fixture, OPERANDS_MIXED, ARGV("--text=", "-p", "K=")), 0);
    assert_string_equal(fixture.args.text, "");
    assert_string_equal(fixture.args.pairs.items[0], "K=");
}

static void options_may_stand_between_operands(void **state UNUSED)
{
    scoped(fixture_fini) struct fixture fixture = { 0 };

    assert_int_equal(parse(&fixture, OPERANDS_MIXED, ARGV("a", "-f", "b")), 0);
    assert_true(fixture.args.flag);
    assert_int_equal(fixture.given.operands.count, 2);
}

static void behind_the_last_plain_operand_nothing_is_an_option(void **state UNUSED)
{
    scoped(fixture_fini) struct fixture fixture = { 0 };

    assert_int_equal(parse(&fixture, 1, ARGV("session", "-f", "ls", "-o", "--", "--text")), 0);
    assert_true(fixture.args.flag);
    assert_false(fixture.args.other);
    assert_int_equal(fixture.given.operands.count, 5);
    assert_string_equal(fixture.given.operands.items[2], "-o");
    assert_string_equal(fixture.given.operands.items[3], "--");
}

static void behind_two_dashes_nothing_is_an_option(void **state UNUSED)
{
    scoped(fixture_fini) struct fixture fixture = { 0 };

    assert_int_equal(parse(&fixture, OPERANDS_MIXED, ARGV("s", "--", "-f", "--unknown")), 0);
    assert_false(fixture.args.flag);
    assert_true(fixture.given.has_separator);
    assert_int_equal(fixture.given.operands_before, 1);
    assert_int_equal(fixture.given.operands.count, 3);
}

static void a_single_dash_is_an_operand(void **state UNUSED)
{
    scoped(fixture_fini) struct fixture fixture = { 0 };

    assert_int_equal(parse(&fixture, OPERANDS_MIXED, ARGV("-")), 0);
    assert_string_equal(fixture.given.operands.items[0], "-");
}

static void assert_refused(const char *const *argv, const char *part)
{
    scoped(fixture_fini) struct fixture fixture = { 0 };

    assert_int_equal(parse(&fixture, OPERANDS_MIXED, argv), -1);
    assert_int_equal(fixture.err.code, ERR_INVALID);
    if (!strstr(fixture.err.message, part))
        fail_msg("\"%s\" does not say \"%s\"", fixture.err.message, part);
}

static void what_is_wrong_is_refused_with_its_name(void **state UNUSED)
{
    assert_refused(ARGV("--txet", "x"), "did you mean --text?");
    assert_refused(ARGV("--nothing-like-it"), "unknown option --nothing-like-it");
    assert_refused(ARGV("-x"), "unknown option -x");
    assert_refused(ARGV("--text"), "--text needs a value: TEXT");
    assert_refused(ARGV("-t"), "-t needs a value: TEXT");
    assert_refused(ARGV("--flag=yes"), "--flag takes no value");
    assert_refused(ARGV("--duration", "soon"), "--duration");
    assert_refused(ARGV("--size", "big"), "--size");
    assert_refused(ARGV("--count", "1.5"), "--count needs a whole number");
    assert_refused(ARGV("--choice", "re"), "--choice must be one of: red green");
    assert_refused(ARGV("--choice", ""), "--choice must be one of");
    assert_refused(ARGV("--pair", "novalue"), "--pair needs NAME=VALUE");
    assert_refused(ARGV("--pair", "=x"), "--pair needs NAME=VALUE");
}

static void a_choice_is_taken_whole(void **state UNUSED)
{
    scoped(fixture_fini) struct fixture fixture = { 0 };

    assert_int_equal(parse(&fixture, OPERANDS_MIXED, ARGV("--choice", "green")), 0);
    assert_string_equal(fixture.args.choice, "green");
}

static void the_nearest_word_is_near(void **state UNUSED)
{
    const char *const words[] = { "exec", "execute", "inspect", NULL };

    assert_string_equal(options_nearest("exes", words), "exec");
    assert_string_equal(options_nearest("exeucte", words), "execute");
    assert_string_equal(options_nearest("inspct", words), "inspect");
    assert_null(options_nearest("banana", words));
}

static void help_names_every_option_in_columns(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(65536);

    options_describe(sets, &text);
    assert_non_null(strstr(buffer_text(&text), "  -f, --flag                  a flag\n"));
    assert_non_null(strstr(buffer_text(&text), "      --duration T            a duration\n"));
    assert_non_null(strstr(buffer_text(&text), "\nOptions:\n"));
    assert_null(strstr(buffer_text(&text), "--words"));
}

static void another_name_of_an_option_is_taken_and_not_suggested(void **state UNUSED)
{
    scoped(fixture_fini) struct fixture fixture = { 0 };

    assert_int_equal(parse(&fixture, OPERANDS_MIXED, ARGV("--words", "one")), 0);
    assert_string_equal(fixture.args.text, "one");
    assert_refused(ARGV("--wordz"), "unknown option --wordz");
}

static void options_of_other_tools_are_answered(void **state UNUSED)
{
    assert_refused(ARGV("--publish", "80:80"), "sandglass port");
    assert_refused(ARGV("-P"), "sandglass port");
    assert_refused(ARGV("--privileged"), "no privileges");
}

static void options_can_be_written_again(void **state UNUSED)
{
    scoped(fixture_fini) struct fixture fixture = { 0 };
    scoped(text_list_fini) struct text_list words = { 0 };
    scoped(text_list_fini) struct text_list owned = { 0 };
    const char *const expected[] = { "--flag", "--text", "one", "--list", "x", "--list", "y" };

    assert_int_equal(parse(&fixture, OPERANDS_MIXED, ARGV("-lx", "--words", "one", "-f", "-ly")),
                     0);
    options_write(sets, &fixture.args, &words, &owned);
    assert_int_equal(words.count, ARRAY_LENGTH(expected));
    for (size_t i = 0; i < words.count; i++)
        assert_string_equal(words.items[i], expected[i]);
    for (size_t i = 0; i < owned.count; i++)
        free((char *)owned.items[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_behind_a_space_an_equals_sign_or_the_letter),
        cmocka_unit_test(letters_of_flags_may_stand_together),
        cmocka_unit_test(an_empty_value_is_a_value),
        cmocka_unit_test(options_may_stand_between_operands),
        cmocka_unit_test(behind_the_last_plain_operand_nothing_is_an_option),
        cmocka_unit_test(behind_two_dashes_nothing_is_an_option),
        cmocka_unit_test(a_single_dash_is_an_operand),
        cmocka_unit_test(what_is_wrong_is_refused_with_its_name),
        cmocka_unit_test(a_choice_is_taken_whole),
        cmocka_unit_test(the_nearest_word_is_near),
        cmocka_unit_test(help_names_every_option_in_columns),
        cmocka_unit_test(another_name_of_an_option_is_taken_and_not_suggested),
        cmocka_unit_test(options_of_other_tools_are_answered),
        cmocka_unit_test(options_can_be_written_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
