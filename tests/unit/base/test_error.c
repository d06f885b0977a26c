/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void an_error_carries_code_name_and_message(void **state UNUSED)
{
    struct error err = { 0 };

    assert_int_equal(error_set(&err, ERR_NOT_FOUND, "no session %s", "x"), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.name, "not_found");
    assert_string_equal(err.message, "no session x");
    assert_false(err.retryable);
    assert_int_equal(error_named(&err, ERR_CONFLICT, "parameters_differ", "differs"), -1);
    assert_string_equal(err.name, "parameters_differ");
    assert_int_equal(error_hint(&err, "use %d", 2), -1);
    assert_string_equal(err.hint, "use 2");
}

static void every_code_has_a_name(void **state UNUSED)
{
    for (int code = 0; code < ERR_CODES; code++)
        assert_true(*error_code_name((enum error_code)code));
}

static void what_may_pass_is_retryable(void **state UNUSED)
{
    struct error err = { 0 };

    error_set(&err, ERR_LIMIT, "full");
    assert_true(err.retryable);
    error_set(&err, ERR_TIMEOUT, "late");
    assert_true(err.retryable);
    error_set(&err, ERR_INVALID, "wrong");
    assert_false(err.retryable);
}

static void context_comes_before_the_message(void **state UNUSED)
{
    struct error err = { 0 };

    error_set(&err, ERR_BACKEND, "no such file");
    error_wrap(&err, "open %s", "a");
    error_wrap(&err, "start");
    assert_string_equal(err.message, "start: open a: no such file");
    assert_int_equal(err.code, ERR_BACKEND);
}

static void system_failures_keep_errno_and_their_kind(void **state UNUSED)
{
    struct error err = { 0 };

    errno = ENOENT;
    error_sys(&err, "open %s", "/a");
    assert_string_equal(err.message, "open /a: No such file or directory");
    assert_int_equal(err.sys_errno, ENOENT);
    assert_int_equal(err.code, ERR_INTERNAL);
    assert_int_equal(errno, ENOENT);
    errno = ENOSPC;
    error_sys(&err, "write");
    assert_int_equal(err.code, ERR_NO_SPACE);
}

static void long_messages_are_cut(void **state UNUSED)
{
    struct error err = { 0 };

    error_set(&err, ERR_INVALID, "%0600d", 1);
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
    error_wrap(&err, "%0600d", 1);
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
    errno = EIO;
    error_sys(&err, "%0600d", 1);
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
}

static void nobody_has_to_ask_for_the_error(void **state UNUSED)
{
    assert_int_equal(error_set(NULL, ERR_INVALID, "x"), -1);
    assert_int_equal(error_sys(NULL, "x"), -1);
    assert_int_equal(error_wrap(NULL, "x"), -1);
    assert_int_equal(error_hint(NULL, "x"), -1);
    assert_int_equal(error_named(NULL, ERR_INVALID, "x", "x"), -1);
}

static void one_that_is_kept_replaces_the_one_before(void **state UNUSED)
{
    struct error *kept = NULL;
    struct error err = { 0 };

    error_keep(&kept, &err);
    assert_null(kept);
    error_set(&err, ERR_BACKEND, "first");
    error_keep(&kept, &err);
    error_set(&err, ERR_TIMEOUT, "second");
    assert_string_equal(kept->message, "first");
    error_keep(&kept, &err);
    assert_int_equal(kept->code, ERR_TIMEOUT);
    error_keep(&kept, kept);
    assert_string_equal(kept->message, "second");
    error_keep(&kept, NULL);
    assert_null(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_carries_code_name_and_message),
        cmocka_unit_test(every_code_has_a_name),
        cmocka_unit_test(what_may_pass_is_retryable),
        cmocka_unit_test(context_comes_before_the_message),
        cmocka_unit_test(system_failures_keep_errno_and_their_kind),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(nobody_has_to_ask_for_the_error),
        cmocka_unit_test(one_that_is_kept_replaces_the_one_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
