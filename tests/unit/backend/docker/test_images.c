/* SPDX-License-Identifier: Apache-2.0 */
/* Names of images, without an engine. */

#include "backend/docker/docker_private.h"

#include "base/alloc.h"
#include "base/macros.h"
#include "config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct config config;
static struct docker_backend docker;

static void load(const char *settings)
{
    struct error err = { 0 };
    char text[1024];

    config_fini(&config);
    snprintf(text, sizeof(text), "sandbox.backend: docker\n%s", settings);
    if (config_load_text(&config, text, strlen(text), "test", &err) < 0)
        fail_msg("%s", err.message);
    docker = (struct docker_backend){ .config = &config, .ops.name = "docker" };
    docker.base.ops = &docker.ops;
}

static int unload(void **state)
{
    (void)state;
    config_fini(&config);
    config = (struct config){ 0 };
    return 0;
}

static const char *resolve(const char *name)
{
    struct error err = { 0 };

    return images_resolve(&docker, name, &err);
}

/* --- which image ------------------------------------------------------------------------------- */

static void without_a_name_the_default_is_meant(void **state)
{
    (void)state;
    load("docker.image: python:3.12\n");
    assert_string_equal(resolve(""), "python:3.12");
    assert_string_equal(resolve(NULL), "python:3.12");
    assert_string_equal(resolve("host"), "python:3.12");
    assert_string_equal(resolve("alpine"), "alpine");
}

static void the_template_of_the_settings_is_a_default_unless_it_is_of_this_host(void **state)
{
    (void)state;
    load("sandbox.template: alpine:3\n");
    assert_string_equal(images_default(&docker), "alpine:3");
    load("sandbox.template: host\n");
    assert_string_equal(images_default(&docker), "");
}

static void without_a_default_the_remedy_is_named(void **state)
{
    struct error err = { 0 };

    (void)state;
    load("");
    assert_null(images_resolve(&docker, "host", &err));
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.name, "template_unknown");
    assert_non_null(strstr(err.hint, "docker.image"));
}

static void what_is_no_reference_is_refused(void **state)
{
    static const char *const names[] = { "Upper",   "a b",      "../x", "/abs",      "x:", ":x",
                                         "x@y",     "x:?tag=1", "a//b", "x\n",       "-x", "x/../y",
                                         "x?all=1", "x%2f",     "x#y",  ("@" DIGEST) };

    (void)state;
    load("");
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        struct error err = { 0 };

        if (images_resolve(&docker, names[i], &err))
            fail_msg("\"%s\" is taken for a reference", names[i]);
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.name, "template_unknown");
    }
}

static void references_of_all_kinds_are_taken_as_they_are(void **state)
{
    static const char *const names[] = { "alpine",
                                         "alpine:3.19",
                                         "library/alpine",
                                         "docker.io/library/alpine",
                                         "localhost/alpine:1",
                                         "registry.example.org/team/tool:1.0_rc-1",
                                         "registry.example.org:5000/tool",
                                         "localhost:5000/tool:v1",
                                         "alpine@" DIGEST,
                                         "alpine:3@" DIGEST };

    (void)state;
    load("");
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        assert_string_equal(resolve(names[i]), names[i]);
}

/* --- which are certain to be refused ------------------------------------------------------------- */

static void know(const char *const *names, size_t count)
{
    docker.images.names = (char **)names;
    docker.images.count = count;
    docker.images.are_known = true;
}

static int check(const char *name)
{
    struct error err = { 0 };

    return images_check(&docker, name, &err);
}

/* As engines list them, sorted. */
static const char *const listed[] = {
    "alpine:3",           "alpine:latest", "docker.io/foo/bar:1", "localhost:5000/tool:latest",
    "quay.io/team/app:2", "team/tool:v1"
};

static void an_image_is_known_by_each_of_its_names(void **state)
{
    static const char *const names[] = { "alpine",
                                         "alpine:3",
                                         "alpine:latest",
                                         "library/alpine",
                                         "docker.io/alpine",
                                         "docker.io/library/alpine:3",
                                         "localhost/alpine",
                                         "foo/bar:1",
                                         "docker.io/foo/bar:1",
                                         "docker.io/team/tool:v1",
                                         "localhost:5000/tool",
                                         "quay.io/team/app:2",
                                         "team/app:2" };

    (void)state;
    load("docker.pull: never\n");
    know(listed, ARRAY_LENGTH(listed));
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (check(names[i]) < 0)
            fail_msg("%s is refused", names[i]);
}

/* The engine finds images by parts of their ids too. */
static void what_may_be_an_id_or_has_a_digest_is_left_to_the_engine(void **state)
{
    (void)state;
    load("docker.pull: never\n");
    know(listed, ARRAY_LENGTH(listed));
    assert_int_equal(check("nothing@" DIGEST), 0);
    assert_int_equal(check("0123456789ab"), 0);
    assert_int_equal(check(DIGEST), 0);
}

static void an_image_that_is_missing_names_the_known_ones(void **state)
{
    static const char *const names[] = { "alpine:4", "python", "foo/bar", "tool:v1x", "r/tool:v1" };
    struct error err = { 0 };

    (void)state;
    load("docker.pull: never\n");
    know(listed, ARRAY_LENGTH(listed));
    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (check(names[i]) == 0)
            fail_msg("%s is known", names[i]);
    assert_int_equal(images_check(&docker, "python", &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.name, "image_not_found");
    assert_non_null(strstr(err.message, "python"));
    assert_non_null(strstr(err.message, "alpine:latest"));
    assert_non_null(strstr(err.hint, "docker.pull"));
}

static void an_engine_that_pulls_or_was_not_asked_may_have_any_image(void **state)
{
    (void)state;
    load("docker.pull: missing\n");
    know(listed, ARRAY_LENGTH(listed));
    assert_int_equal(check("python"), 0);
    load("docker.pull: never\n");
    assert_int_equal(check("python"), 0);
}

static void many_known_images_are_counted(void **state)
{
    static const char *const many[] = { "a:1", "b:1", "c:1", "d:1", "e:1", "f:1",
                                        "g:1", "h:1", "i:1", "j:1", "k:1", "l:1" };
    struct error err = { 0 };

    (void)state;
    load("docker.pull: never\n");
    know(many, ARRAY_LENGTH(many));
    assert_int_equal(images_check(&docker, "x", &err), -1);
    assert_non_null(strstr(err.message, "j:1 and 2 more"));
    know(NULL, 0);
    assert_int_equal(images_check(&docker, "x", &err), -1);
    assert_non_null(strstr(err.message, "known images: none"));
    docker.images.are_known = false;
    images_refuse(&docker, "x", "", &err);
    assert_non_null(strstr(err.message, "known images: not listed yet"));
}

#define TEST(function) cmocka_unit_test_teardown(function, unload)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_name_the_default_is_meant),
        TEST(the_template_of_the_settings_is_a_default_unless_it_is_of_this_host),
        TEST(without_a_default_the_remedy_is_named),
        TEST(what_is_no_reference_is_refused),
        TEST(references_of_all_kinds_are_taken_as_they_are),
        TEST(an_image_is_known_by_each_of_its_names),
        TEST(what_may_be_an_id_or_has_a_digest_is_left_to_the_engine),
        TEST(an_image_that_is_missing_names_the_known_ones),
        TEST(an_engine_that_pulls_or_was_not_asked_may_have_any_image),
        TEST(many_known_images_are_counted),
    };

    return cmocka_run_group_tests_name("docker/images", tests, NULL, NULL);
}
