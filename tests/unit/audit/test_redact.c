/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/redact.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void assert_redacted(const char *body, bool with_code, const char *expected)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(65536);
    json_t *object = json_loads(body, 0, NULL);

    assert_non_null(object);
    redact_body(object, NULL, with_code, &out);
    json_decref(object);
    assert_string_equal(buffer_text(&out), expected);
}

static void variables_that_sound_like_secrets_lose_their_values(void **state UNUSED)
{
    assert_redacted("{\"env\":{\"HF_TOKEN\":\"x\",\"Api_Key\":\"x\",\"DB_PASSWORD\":\"x\","
                    "\"MY_SECRET_1\":\"x\",\"AWS_CREDENTIALS\":\"x\",\"LANG\":\"C\"}}",
                    false,
                    "{\"env\":{\"HF_TOKEN\":\"[redacted]\",\"Api_Key\":\"[redacted]\","
                    "\"DB_PASSWORD\":\"[redacted]\",\"MY_SECRET_1\":\"[redacted]\","
                    "\"AWS_CREDENTIALS\":\"[redacted]\",\"LANG\":\"C\"}}");
}

static void the_key_of_a_session_is_no_secret(void **state UNUSED)
{
    assert_redacted("{\"key\":\"mine\",\"api_key\":\"x\",\"token\":\"x\"}", false,
                    "{\"key\":\"mine\",\"api_key\":\"[redacted]\",\"token\":\"[redacted]\"}");
}

static void code_is_there_only_when_it_is_wanted(void **state UNUSED)
{
    const char *body = "{\"code\":\"1+1\",\"argv\":[\"ls\"],\"timeout\":5}";

    assert_redacted(body, false, "{\"code\":\"[left out]\",\"argv\":\"[left out]\",\"timeout\":5}");
    assert_redacted(body, true, "{\"code\":\"1+1\",\"argv\":[\"ls\"],\"timeout\":5}");
}

static void what_is_too_long_is_counted_instead(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(65536);
    char text[20001];
    json_t *object = json_object();

    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    json_object_set_new(object, "x", json_string(text));
    redact_body(object, NULL, false, &out);
    json_decref(object);
    assert_string_equal(buffer_text(&out), "{\"bytes\":20008}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_that_sound_like_secrets_lose_their_values),
        cmocka_unit_test(the_key_of_a_session_is_no_secret),
        cmocka_unit_test(code_is_there_only_when_it_is_wanted),
        cmocka_unit_test(what_is_too_long_is_counted_instead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
