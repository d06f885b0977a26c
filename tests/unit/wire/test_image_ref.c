/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "wire/image_ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct good {
    const char *text, *repository, *tag, *digest;
};

static const struct good good[] = {
    { "python", "docker.io/library/python", "latest", "" },
    { "python:3.12", "docker.io/library/python", "3.12", "" },
    { "team/app", "docker.io/team/app", "latest", "" },
    { "docker.io/python", "docker.io/library/python", "latest", "" },
    { "index.docker.io/python", "docker.io/library/python", "latest", "" },
    { "docker.io/library/python:3", "docker.io/library/python", "3", "" },
    { "localhost/app", "localhost/app", "latest", "" },
    { "localhost:5000/app", "localhost:5000/app", "latest", "" },
    { "localhost:5000", "docker.io/library/localhost", "5000", "" },
    { "GHCR.io/team/app", "GHCR.io/team/app", "latest", "" },
    { "127.0.0.1:5000/a/b/c:T_1.x-y", "127.0.0.1:5000/a/b/c", "T_1.x-y", "" },
    { "[::1]:5000/app:1", "[::1]:5000/app", "1", "" },
    { "[fe80::1]/app", "[fe80::1]/app", "latest", "" },
    { "app@" DIGEST, "docker.io/library/app", "", DIGEST },
    { "r.example/app:1@" DIGEST, "r.example/app", "1", DIGEST },
    { "x/a.b-c__d--e/f_g", "docker.io/x/a.b-c__d--e/f_g", "latest", "" },
    { "a-b.example/x", "a-b.example/x", "latest", "" },
};

static void a_reference_is_completed_as_docker_does_it(void **state UNUSED)
{
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct error err = { 0 };
        struct image_ref ref, again;
        char text[IMAGE_REF_TEXT_SIZE];

        if (image_ref_parse(&ref, good[i].text, &err) < 0)
            fail_msg("%s: %s", good[i].text, err.message);
        assert_string_equal(ref.repository, good[i].repository);
        assert_string_equal(ref.tag, good[i].tag);
        assert_string_equal(ref.digest, good[i].digest);
        image_ref_format(&ref, text);
        assert_int_equal(image_ref_parse(&again, text, &err), 0);
        assert_memory_equal(&again, &ref, sizeof(ref));
    }
}

static void the_parts_of_a_reference_can_be_had(void **state UNUSED)
{
    struct image_ref ref;

    assert_int_equal(image_ref_parse(&ref, "r.example:1/team/app:2@" DIGEST, NULL), 0);
    assert_string_equal(image_ref_path(&ref), "team/app");
    assert_int_equal(ref.host_length, strlen("r.example:1"));
    assert_string_equal(image_ref_version(&ref), DIGEST);
    assert_int_equal(image_ref_parse(&ref, "app", NULL), 0);
    assert_string_equal(image_ref_path(&ref), "library/app");
    assert_string_equal(image_ref_version(&ref), "latest");
}

static const struct {
    const char *text, *problem;
} bad[] = {
    { "", "empty" },
    { "a b", "space" },
    { "a\tb", "printable" },
    { "a\nb", "printable" },
    { "p\xc3\xa9", "printable" },
    { "Python", "lower case" },
    { "pyThon", "lower case" },
    { "Team/app", "lower case" },
    { "ghcr.io/Team/app", "lower case" },
    { "/app", "empty" },
    { "app/", "empty" },
    { "a//b", "empty" },
    { "..", "begin with" },
    { "a/..", "begin with" },
    { "../a/b", "host" },
    { "a..b", "separators" },
    { "a___b", "separators" },
    { "a._b", "separators" },
    { "-a", "begin with" },
    { "a-", "end with" },
    { "a/b-/c", "end with" },
    { "a$b", "separators" },
    { "app:", "tag" },
    { "app:.1", "tag" },
    { "app:a b", "space" },
    { "app:1:2", "separators" },
    { "a:b/c", "port" },
    { "r.example:0/a", "port" },
    { "r.example:65536/a", "port" },
    { "r.example:1x/a", "port" },
    { "-r.example/a", "host" },
    { "r-.example/a", "host" },
    { "r..example/a", "host" },
    { ".example/a", "host" },
    { "r.example./a", "host" },
    { "[::g]/a", "host" },
    { "[::1/a", "port" },
    { "[::1]x:1/a", "host" },
    { "app@", "digest" },
    { "app@sha256:12", "digest" },
    { "app@md5:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef000", "digest" },
    { "app@sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef", "digits" },
    { "@" DIGEST, "empty" },
    { ":1", "empty" },
};

static void what_is_no_reference_is_refused_with_the_reason(void **state UNUSED)
{
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct error err = { 0 };
        struct image_ref ref = { .tag = "untouched" };

        if (image_ref_parse(&ref, bad[i].text, &err) == 0)
            fail_msg("\"%s\" was taken", bad[i].text);
        assert_int_equal(err.code, ERR_INVALID);
        if (!strstr(err.message, bad[i].problem))
            fail_msg("\"%s\": %s", bad[i].text, err.message);
        assert_string_equal(ref.tag, "untouched");
    }
}

static void lengths_are_limited(void **state UNUSED)
{
    char text[600] = "";
    struct image_ref ref;
    struct error err;

    memset(text, 'a', 600 - 1);
    text[237] = '\0'; /* with "docker.io/library/" 255 */
    assert_int_equal(image_ref_parse(&ref, text, &err), 0);
    assert_int_equal(strlen(ref.repository), IMAGE_REF_NAME_MAXIMUM);
    text[237] = 'a';
    text[238] = '\0';
    assert_int_equal(image_ref_parse(&ref, text, &err), -1);
    assert_non_null(strstr(err.message, "255"));
    memset(text, 'a', 599);
    assert_int_equal(image_ref_parse(&ref, text, &err), -1);
    text[1] = ':';
    text[2 + 128] = '\0';
    assert_int_equal(image_ref_parse(&ref, text, &err), 0);
    text[2 + 128] = 'a';
    text[2 + 129] = '\0';
    assert_int_equal(image_ref_parse(&ref, text, &err), -1);
    assert_non_null(strstr(err.message, "128"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reference_is_completed_as_docker_does_it),
        cmocka_unit_test(the_parts_of_a_reference_can_be_had),
        cmocka_unit_test(what_is_no_reference_is_refused_with_the_reason),
        cmocka_unit_test(lengths_are_limited),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
