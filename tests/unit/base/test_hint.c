/* SPDX-License-Identifier: Apache-2.0 */
/* Remedies in the words of their readers. */

#include "base/error.h"
#include "base/hint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_remedy_has_a_text_for_every_reader(void **state UNUSED)
{
    for (unsigned hint = HINT_NONE + 1; hint < HINTS; hint++) {
        for (unsigned surface = 0; surface < SURFACES; surface++) {
            const char *text = hint_text((enum hint)hint, (enum surface)surface);

            assert_non_null(text);
            assert_true(strlen(text) < sizeof(((struct error *)NULL)->hint));
        }
    }
}

static void the_command_line_is_told_no_routes(void **state UNUSED)
{
    for (unsigned hint = HINT_NONE + 1; hint < HINTS; hint++) {
        const char *text = hint_text((enum hint)hint, SURFACE_CLI);

        if (text != hint_text((enum hint)hint, SURFACE_HTTP)) {
            assert_null(strstr(text, "/api/"));
            assert_null(strstr(text, "Authorization"));
        }
    }
}

static void an_error_is_rendered_for_its_reader(void **state UNUSED)
{
    struct error err = { 0 };

    error_named(&err, ERR_NOT_FOUND, "session_not_found", "no such session");
    assert_string_equal(error_hint_for(&err, SURFACE_CLI), "");
    error_hint_known(&err, HINT_SESSIONS);
    assert_string_equal(err.hint, "GET /api/v1/sessions lists your sessions");
    assert_string_equal(error_hint_for(&err, SURFACE_HTTP), err.hint);
    assert_non_null(strstr(error_hint_for(&err, SURFACE_CLI), "sandglass ls"));
    assert_non_null(strstr(error_hint_for(&err, SURFACE_SDK), "client.sessions()"));
    assert_null(strstr(error_hint_for(&err, SURFACE_MCP), "GET"));
}

static void another_remedy_takes_its_place(void **state UNUSED)
{
    struct error err = { 0 };

    error_hint_known(&err, HINT_SESSIONS);
    error_hint(&err, "give more of the text around it");
    assert_string_equal(error_hint_for(&err, SURFACE_CLI), "give more of the text around it");
    assert_int_equal(error_hint_known(NULL, HINT_SESSIONS), -1);
}

static void a_reader_that_is_not_known_gets_the_text_for_http(void **state UNUSED)
{
    assert_int_equal(surface_from_name("cli"), SURFACE_CLI);
    assert_int_equal(surface_from_name("sdk"), SURFACE_SDK);
    assert_int_equal(surface_from_name("browser"), SURFACE_HTTP);
    assert_int_equal(surface_from_name(NULL), SURFACE_HTTP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_remedy_has_a_text_for_every_reader),
        cmocka_unit_test(the_command_line_is_told_no_routes),
        cmocka_unit_test(an_error_is_rendered_for_its_reader),
        cmocka_unit_test(another_remedy_takes_its_place),
        cmocka_unit_test(a_reader_that_is_not_known_gets_the_text_for_http),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
