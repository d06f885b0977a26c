/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a login, and how a cookie is found in a header. */

#include "auth/login.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct login example(void)
{
    struct login login = { .mode = 1,
                           .issued_us = 1794938303473642,
                           .expires_us = 1794981503473642,
                           .roles = 7,
                           .is_operator = true,
                           .principal = "ann \xc3\xa9/x.y",
                           .on_behalf_of = "bob" };

    id_make(login.id, ID_LOGIN);
    id_make(login.key_id, "key_");
    return login;
}

static void a_login_is_read_as_it_was_written(void **state)
{
    struct login login = example();
    char text[LOGIN_TEXT_SIZE];
    struct login read;

    (void)state;
    login_write(&login, text);
    assert_int_equal(login_read(&read, text), 0);
    assert_string_equal(read.id, login.id);
    assert_string_equal(read.key_id, login.key_id);
    assert_string_equal(read.principal, login.principal);
    assert_string_equal(read.on_behalf_of, login.on_behalf_of);
    assert_int_equal(read.expires_us, login.expires_us);
    assert_int_equal(read.roles, login.roles);
    assert_true(read.is_operator);
}

static void the_longest_names_fit_and_empty_ones_stay_empty(void **state)
{
    struct login login = example();
    char text[LOGIN_TEXT_SIZE];
    struct login read;

    (void)state;
    memset(login.principal, 'p', OWNER_MAXIMUM);
    memset(login.on_behalf_of, 'o', OWNER_MAXIMUM);
    login_write(&login, text);
    assert_true(strlen(text) < LOGIN_TEXT_SIZE - 1);
    assert_int_equal(login_read(&read, text), 0);
    assert_string_equal(read.principal, login.principal);
    assert_string_equal(read.on_behalf_of, login.on_behalf_of);

    login = example();
    login.key_id[0] = login.principal[0] = login.on_behalf_of[0] = '\0';
    login_write(&login, text);
    assert_int_equal(login_read(&read, text), 0);
    assert_string_equal(read.key_id, "");
    assert_string_equal(read.principal, "");
}

static void other_texts_are_no_logins(void **state)
{
    static const char *const texts[] = {
        "",
        "1",
        "2.0.log_x.1.2.3.1.-.-.-",
        "1.0.nolog.1.2.3.1.-.-.-",
        "1.0.log_9f1a9ht517fzhnaxgz2g1dgrq8.1.2.3.1.-.6.-",   /* half a byte */
        "1.0.log_9f1a9ht517fzhnaxgz2g1dgrq8.1.2.3.1.-.00.-",  /* a NUL in a name */
        "1.0.log_9f1a9ht517fzhnaxgz2g1dgrq8.1.2.3.1.-.-.-.x", /* more behind it */
        "1.0.log_9f1a9ht517fzhnaxgz2g1dgrq8.1.2.3.1.-.-",
    };
    struct login read;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        assert_int_equal(login_read(&read, texts[i]), -1);
}

static void a_cookie_is_found_by_its_whole_name(void **state)
{
    size_t length;
    const char *value = login_find_cookie("a=1; bb=22 ; b=333;c=", "b", &length);

    (void)state;
    assert_non_null(value);
    assert_int_equal(length, 3);
    assert_memory_equal(value, "333", 3);
    assert_non_null(login_find_cookie("a=1; c=", "c", &length));
    assert_int_equal(length, 0);
    assert_null(login_find_cookie("ab=1; xb=2", "b", &length));
    assert_null(login_find_cookie("", "b", &length));
    assert_null(login_find_cookie(";;; ;", "b", &length));
    assert_null(login_find_cookie("b", "b", &length));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_login_is_read_as_it_was_written),
        cmocka_unit_test(the_longest_names_fit_and_empty_ones_stay_empty),
        cmocka_unit_test(other_texts_are_no_logins),
        cmocka_unit_test(a_cookie_is_found_by_its_whole_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
