/* SPDX-License-Identifier: Apache-2.0 */
#include "auth/encoding.h"

#include "base/macros.h"
#include "wire/base64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void assert_decodes(const char *text, const char *expected)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(64);

    assert_int_equal(base64url_decode(text, strlen(text), &out), 0);
    assert_string_equal(buffer_text(&out), expected);
}

static void assert_refused(const char *text)
{
    scoped(buffer_fini) struct buffer out = BUFFER_INIT(64);

    if (base64url_decode(text, strlen(text), &out) == 0)
        fail_msg("decoded: %s", text);
}

static void base64url_is_read_without_padding(void **state UNUSED)
{
    assert_decodes("", "");
    assert_decodes("Zg", "f");
    assert_decodes("Zm8", "fo");
    assert_decodes("Zm9v", "foo");
    assert_decodes("Zm9vYmFy", "foobar");
    assert_decodes("fn5-fj8_", "~~~~??");
}

static void there_is_one_base64url_text_for_each_value(void **state UNUSED)
{
    assert_refused("Zg==");
    assert_refused("Zh");
    assert_refused("Zm9");
    assert_refused("Z");
    assert_refused("Zm9vY");
    assert_refused("Zm 9v");
    assert_refused("Zm9v\n");
    assert_refused("Zm9+");
    assert_refused("Zm9/");
}

static void hexadecimal_is_exact(void **state UNUSED)
{
    uint8_t bytes[2];
    char text[5];

    assert_int_equal(hex_decode("0aff", bytes, 2), 0);
    hex_encode(bytes, 2, text);
    assert_string_equal(text, "0aff");
    assert_int_equal(hex_decode("0aF0", bytes, 2), -1);
    assert_int_equal(hex_decode("0af", bytes, 2), -1);
    assert_int_equal(hex_decode("0aff0", bytes, 2), -1);
    assert_int_equal(hex_decode("", bytes, 2), -1);
}

static void sha256_is_that_of_both_parts(void **state UNUSED)
{
    uint8_t digest[SHA256_BYTES];
    char text[SHA256_TEXT_SIZE];

    sha256_of("a", 1, "bc", 2, digest);
    hex_encode(digest, sizeof(digest), text);
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64url_is_read_without_padding),
        cmocka_unit_test(there_is_one_base64url_text_for_each_value),
        cmocka_unit_test(hexadecimal_is_exact),
        cmocka_unit_test(sha256_is_that_of_both_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
