/* SPDX-License-Identifier: Apache-2.0 */
/* Which port of which sandbox a request is for. */

#include "e2b/target.h"

#include "base/macros.h"
#include "wire/http/http.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define DIGITS "0123456789abcdefghjkmnpqrs"

static struct e2b_target read_target(const char *name, const char *value, const char *other,
                                     const char *other_value, const char *domain)
{
    struct http_header headers[] = { { name, value }, { other, other_value } };
    char path[] = "/x";
    struct http_head head = {
        .path = path, .query = "", .headers = headers, .header_count = other ? 2 : 1
    };

    return e2b_target_read(&head, domain);
}

static void headers_name_sandbox_and_port(void **state UNUSED)
{
    struct e2b_target target =
        read_target("e2b-sandbox-id", "i" DIGITS, "e2b-sandbox-port", "49983", NULL);

    assert_int_equal(target.kind, E2B_TARGET_HEADERS);
    assert_int_equal(target.port, 49983);
    assert_string_equal(target.session_id, "ses_" DIGITS);
}

static void one_header_without_the_other_is_invalid(void **state UNUSED)
{
    assert_int_equal(read_target("e2b-sandbox-id", "i" DIGITS, NULL, NULL, NULL).kind,
                     E2B_TARGET_INVALID);
    assert_int_equal(read_target("e2b-sandbox-port", "80", NULL, NULL, NULL).kind,
                     E2B_TARGET_INVALID);
    assert_int_equal(read_target("e2b-sandbox-id", "i" DIGITS, "e2b-sandbox-port", "0", NULL).kind,
                     E2B_TARGET_INVALID);
    assert_int_equal(
        read_target("e2b-sandbox-id", "i" DIGITS, "e2b-sandbox-port", "65536", NULL).kind,
        E2B_TARGET_INVALID);
}

static void text_that_names_no_sandbox_gives_no_session(void **state UNUSED)
{
    static const char *const texts[] = {
        "", "i", "x" DIGITS, "i" DIGITS "0", "i../../etc/passwd", "i0123456789abcdefghjkmnpqr!"
    };

    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        struct e2b_target target =
            read_target("e2b-sandbox-id", texts[i], "e2b-sandbox-port", "80", NULL);

        assert_int_equal(target.kind, E2B_TARGET_HEADERS);
        assert_string_equal(target.session_id, "");
    }
}

static void host_names_of_the_domain_name_both(void **state UNUSED)
{
    struct e2b_target target =
        read_target("host", "3000-I" DIGITS ".sbx.example:8443", NULL, NULL, "https://sbx.example");

    assert_int_equal(target.kind, E2B_TARGET_HOST);
    assert_int_equal(target.port, 3000);
    assert_string_equal(target.session_id, "ses_" DIGITS);
}

static void other_host_names_are_not_for_a_sandbox(void **state UNUSED)
{
    static const char *const hosts[] = { "localhost",
                                         "127.0.0.1:3000",
                                         "3000-i" DIGITS ".other.example",
                                         "i" DIGITS ".sbx.example",
                                         "3000-i" DIGITS ".sbx.example.org",
                                         "3000-ses-" DIGITS ".sbx.example",
                                         "x-i" DIGITS ".sbx.example" };

    for (size_t i = 0; i < ARRAY_LENGTH(hosts); i++)
        assert_int_equal(read_target("host", hosts[i], NULL, NULL, "sbx.example").kind,
                         E2B_TARGET_NONE);
    assert_int_equal(read_target("host", "3000-i" DIGITS ".sbx.example", NULL, NULL, "").kind,
                     E2B_TARGET_NONE);
}

static void a_signed_file_is_for_a_sandbox_that_the_signature_says(void **state UNUSED)
{
    char path[] = "/files";
    struct http_head head = { .path = path, .query = "path=a&signature=v1_x" };

    assert_int_equal(e2b_target_read(&head, NULL).kind, E2B_TARGET_SIGNED);
    head.query = "path=signature=x";
    assert_int_equal(e2b_target_read(&head, NULL).kind, E2B_TARGET_NONE);
}

static void ids_read_back_and_suffixes_are_ignored(void **state UNUSED)
{
    char sandbox[ID_SIZE], session[ID_SIZE];

    e2b_id_write("ses_" DIGITS, sandbox);
    assert_string_equal(sandbox, "i" DIGITS);
    assert_true(e2b_id_read(sandbox, strlen(sandbox), session));
    assert_string_equal(session, "ses_" DIGITS);
    assert_true(e2b_id_read("i" DIGITS "-client", strlen("i" DIGITS "-client"), session));
    assert_true(e2b_id_read("ses_" DIGITS, strlen("ses_" DIGITS), session));
    assert_false(e2b_id_read(DIGITS, strlen(DIGITS), session));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_name_sandbox_and_port),
        cmocka_unit_test(one_header_without_the_other_is_invalid),
        cmocka_unit_test(text_that_names_no_sandbox_gives_no_session),
        cmocka_unit_test(host_names_of_the_domain_name_both),
        cmocka_unit_test(other_host_names_are_not_for_a_sandbox),
        cmocka_unit_test(a_signed_file_is_for_a_sandbox_that_the_signature_says),
        cmocka_unit_test(ids_read_back_and_suffixes_are_ignored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
