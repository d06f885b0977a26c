/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/rules.h"

#include "core/events.h"
#include "core/run/execution.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LINE = 64 * 1024 }; /* rules.c looks at a longer line in pieces that overlap */

/* Texts of settings belong to the config; these are never released by it. */
static char allow_name[] = "allow", allow_pattern[] = "^git push --dry-run";
static char push_name[] = "push", push_pattern[] = "git +push", push_message[] = "ask first";
static char any_name[] = "git", any_pattern[] = "^git ", no_message[] = "";

static struct config_rule items[] = {
    { allow_name, allow_pattern, no_message, RULE_PASS },
    { push_name, push_pattern, push_message, RULE_BLOCK },
    { any_name, any_pattern, no_message, RULE_WARN },
};

struct fixture {
    struct world world;
    struct events_watcher watcher;
    unsigned events;
    char type[32], owner[32], data[256]; /* of the last one */
};

static void on_event(struct events_watcher *watcher, const struct event_record *event)
{
    struct fixture *fixture = container_of(watcher, struct fixture, watcher);

    fixture->events++;
    snprintf(fixture->type, sizeof(fixture->type), "%s", event->type);
    snprintf(fixture->owner, sizeof(fixture->owner), "%s", event->owner);
    snprintf(fixture->data, sizeof(fixture->data), "%s", event->data_json);
}

static int setup(void **state)
{
    static struct fixture fixture;

    fixture = (struct fixture){ .watcher.on_event = on_event };
    world_init(&fixture.world);
    fixture.world.config.rules.items = items;
    fixture.world.config.rules.count = ARRAY_LENGTH(items);
    world_start(&fixture.world);
    events_watch(fixture.world.core->events, &fixture.watcher);
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    events_unwatch(&fixture->watcher);
    world_fini(&fixture->world);
    return 0;
}

static const char *decides(const struct fixture *fixture, const char *text)
{
    const struct config_rule *rule = rules_find(fixture->world.core->rules, text, strlen(text));

    return rule ? rule->name : "none";
}

static int check(struct fixture *fixture, const struct execution_request *request,
                 const struct config_rule **out_warning, struct error *err)
{
    int result = rules_check(fixture->world.core, "ses_1", "ann", request, out_warning, err);

    world_settle(&fixture->world);
    return result;
}

static void the_first_rule_that_matches_decides(void **state)
{
    assert_string_equal(decides(*state, "git push --dry-run"), "allow");
    assert_string_equal(decides(*state, "git push"), "push");
    assert_string_equal(decides(*state, "git status"), "git");
    assert_string_equal(decides(*state, "ls"), "none");
    assert_string_equal(decides(*state, ""), "none");
}

static void each_line_is_compared_by_itself(void **state)
{
    assert_string_equal(decides(*state, "ls\ngit status\n"), "git");
    assert_string_equal(decides(*state, "git\npush"), "none");
    assert_string_equal(decides(*state, "git status\ngit push"), "push");
}

static void only_the_given_length_is_compared(void **state)
{
    const struct fixture *fixture = *state;

    assert_null(rules_find(fixture->world.core->rules, "git push", 4 - 1));
    assert_non_null(rules_find(fixture->world.core->rules, "git push", 4));
}

static void a_nul_hides_nothing_behind_it(void **state)
{
    static const char text[] = "x\0 git push";
    const struct fixture *fixture = *state;
    const struct config_rule *rule = rules_find(fixture->world.core->rules, text, sizeof(text) - 1);

    assert_non_null(rule);
    assert_string_equal(rule->name, "push");
}

static void a_match_across_pieces_of_a_long_line_is_found(void **state)
{
    const struct fixture *fixture = *state;
    size_t length = 2 * LINE;
    char *text = malloc(length);

    for (size_t at = LINE - 8; at <= LINE; at++) {
        const struct config_rule *rule;

        memset(text, 'x', length);
        memcpy(text + at, "git push", 8);
        rule = rules_find(fixture->world.core->rules, text, length);
        assert_non_null(rule);
        assert_string_equal(rule->name, "push");
    }
    free(text);
}

static void a_blocked_command_is_refused_and_its_owner_hears_of_it(void **state)
{
    struct fixture *fixture = *state;
    const struct config_rule *warning = NULL;
    struct error err = { 0 };

    assert_int_equal(
        check(fixture, &(struct execution_request){ .command = "git push secret" }, &warning, &err),
        -1);
    assert_null(warning);
    assert_int_equal(err.code, ERR_FORBIDDEN);
    assert_string_equal(err.name, "command_blocked");
    assert_string_equal(err.message, "the command was blocked by rule push: ask first");
    assert_int_equal(fixture->events, 1);
    assert_string_equal(fixture->type, "command.blocked");
    assert_string_equal(fixture->owner, "ann");
    assert_non_null(strstr(fixture->data, "\"push\""));
    assert_non_null(strstr(fixture->data, "\"ses_1\""));
    assert_null(strstr(fixture->data, "secret"));
}

static void a_warning_lets_the_command_run(void **state)
{
    struct fixture *fixture = *state;
    const struct config_rule *warning = NULL;
    struct error err = { 0 };

    assert_int_equal(
        check(fixture, &(struct execution_request){ .command = "git status" }, &warning, &err), 0);
    assert_ptr_equal(warning, &items[2]);
    assert_int_equal(err.code, ERR_NONE);
    assert_int_equal(fixture->events, 1);
    assert_string_equal(fixture->type, "command.warned");
}

static void a_caller_that_wants_no_warnings_causes_no_event_of_one(void **state)
{
    struct fixture *fixture = *state;
    struct error err = { 0 };

    assert_int_equal(
        check(fixture, &(struct execution_request){ .command = "git status" }, NULL, &err), 0);
    assert_int_equal(fixture->events, 0);
    assert_int_equal(
        check(fixture, &(struct execution_request){ .command = "git push" }, NULL, &err), -1);
    assert_int_equal(fixture->events, 1);
}

static void a_passing_rule_and_no_rule_are_silent(void **state)
{
    struct fixture *fixture = *state;
    const struct config_rule *warning = NULL;
    struct error err = { 0 };

    assert_int_equal(check(fixture, &(struct execution_request){ .command = "git push --dry-run" },
                           &warning, &err),
                     0);
    assert_int_equal(check(fixture, &(struct execution_request){ .command = "ls" }, &warning, &err),
                     0);
    assert_null(warning);
    assert_int_equal(fixture->events, 0);
}

static void code_and_arguments_are_compared_too(void **state)
{
    static const char *const argv[] = { "git", "push", NULL };
    static const char *const apart[] = { "git", NULL };
    struct fixture *fixture = *state;
    struct error err = { 0 };

    assert_int_equal(check(fixture, &(struct execution_request){ .argv = argv }, NULL, &err), -1);
    assert_int_equal(check(fixture, &(struct execution_request){ .argv = apart }, NULL, &err), 0);
    assert_int_equal(check(fixture,
                           &(struct execution_request){ .code = "a\ngit push", .code_length = 10 },
                           NULL, &err),
                     -1);
    assert_int_equal(check(fixture,
                           &(struct execution_request){ .code = "a\ngit push", .code_length = 6 },
                           NULL, &err),
                     0);
}

static void a_rule_is_described_by_its_name_and_its_message(void **state UNUSED)
{
    char text[RULE_TEXT_SIZE];

    rule_describe(&items[1], text, sizeof(text));
    assert_string_equal(text, "rule push: ask first");
    rule_describe(&items[2], text, sizeof(text));
    assert_string_equal(text, "rule git");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_rule_that_matches_decides),
        TEST(each_line_is_compared_by_itself),
        TEST(only_the_given_length_is_compared),
        TEST(a_nul_hides_nothing_behind_it),
        TEST(a_match_across_pieces_of_a_long_line_is_found),
        TEST(a_blocked_command_is_refused_and_its_owner_hears_of_it),
        TEST(a_warning_lets_the_command_run),
        TEST(a_caller_that_wants_no_warnings_causes_no_event_of_one),
        TEST(a_passing_rule_and_no_rule_are_silent),
        TEST(code_and_arguments_are_compared_too),
        TEST(a_rule_is_described_by_its_name_and_its_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
