/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http/challenge.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct challenge parse(const char *value)
{
    struct challenge challenge = { 0 };
    struct error err = { 0 };

    if (challenge_parse(&challenge, value, &err) < 0)
        fail_msg("%s: %s", value, err.message);
    return challenge;
}

static void a_registry_asks_for_a_token(void **state)
{
    struct challenge challenge =
        parse("Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\","
              "scope=\"repository:library/python:pull,push\",error=\"invalid_token\"");

    (void)state;
    assert_int_equal(challenge.scheme, CHALLENGE_BEARER);
    assert_string_equal(challenge.realm, "https://auth.docker.io/token");
    assert_string_equal(challenge.service, "registry.docker.io");
    assert_string_equal(challenge.scope, "repository:library/python:pull,push");
}

static void spaces_case_and_quotes_do_not_matter(void **state)
{
    struct challenge challenge =
        parse(" , bEaReR  Realm = \"a\\\"b\\\\c\" , SERVICE=plain,scope=\"\"");

    (void)state;
    assert_int_equal(challenge.scheme, CHALLENGE_BEARER);
    assert_string_equal(challenge.realm, "a\"b\\c");
    assert_string_equal(challenge.service, "plain");
    assert_string_equal(challenge.scope, "");
}

static void bearer_wins_over_basic_wherever_it_stands(void **state)
{
    struct challenge challenge = parse("Basic realm=\"x\", Bearer realm=\"y\",service=s");

    (void)state;
    assert_int_equal(challenge.scheme, CHALLENGE_BEARER);
    assert_string_equal(challenge.realm, "y");
    assert_int_equal(challenge_parse(&challenge, "Basic realm=\"z\"", NULL), 0);
    assert_string_equal(challenge.realm, "y");
    challenge = parse("Bearer realm=\"y\", Basic realm=\"x\"");
    assert_string_equal(challenge.realm, "y");
    challenge = parse("Negotiate, Digest realm=\"x\",nonce=\"n\", Basic realm=\"b\"");
    assert_int_equal(challenge.scheme, CHALLENGE_BASIC);
    assert_string_equal(challenge.realm, "b");
    assert_int_equal(parse("Negotiate").scheme, CHALLENGE_NONE);
    assert_int_equal(parse("").scheme, CHALLENGE_NONE);
    assert_int_equal(parse("Basic").scheme, CHALLENGE_BASIC);
}

static void malformed_headers_change_nothing(void **state)
{
    static const char *const bad[] = {
        "Bearer realm=\"open", "Bearer realm=",          "Bearer realm=\"a\" service=\"b\"",
        "\"quoted\"",          "Bearer realm=\"a\\",     "=",
        "Bearer=\"x\"",        "Bearer realm=\"a\"junk", "Bearer \"x\"",
        "Negotiate dG9rZW4==", "Bearer realm=a/b",
    };
    struct error err = { 0 };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        struct challenge challenge = { .scheme = CHALLENGE_BASIC, .realm = "before" };

        if (challenge_parse(&challenge, bad[i], &err) == 0)
            fail_msg("%s was taken", bad[i]);
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(challenge.realm, "before");
    }
}

static void long_headers_are_refused(void **state)
{
    static char value[2 * CHALLENGE_MAXIMUM];
    struct challenge challenge = { 0 };

    (void)state;
    snprintf(value, sizeof(value), "Bearer realm=\"%*s\"", CHALLENGE_TEXT_SIZE, "");
    assert_int_equal(challenge_parse(&challenge, value, NULL), -1);
    snprintf(value, sizeof(value), "Bearer realm=\"%*s\"", CHALLENGE_TEXT_SIZE - 1, "");
    assert_int_equal(challenge_parse(&challenge, value, NULL), 0);
    memset(value, ',', CHALLENGE_MAXIMUM + 1);
    value[CHALLENGE_MAXIMUM + 1] = '\0';
    assert_int_equal(challenge_parse(&challenge, value, NULL), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_registry_asks_for_a_token),
        cmocka_unit_test(spaces_case_and_quotes_do_not_matter),
        cmocka_unit_test(bearer_wins_over_basic_wherever_it_stands),
        cmocka_unit_test(malformed_headers_change_nothing),
        cmocka_unit_test(long_headers_are_refused),
    };

    return cmocka_run_group_tests_name("wire/challenge", tests, NULL, NULL);
}
