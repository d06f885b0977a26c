/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/image_manifest.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define INDEX "application/vnd.oci.image.index.v1+json"
#define DIGEST_A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define DIGEST_B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define LAYER "application/vnd.oci.image.layer.v1.tar+gzip"
#define CONFIG "\"config\":{\"digest\":\"" DIGEST_A "\",\"size\":7},"
#define ONE_LAYER "{\"mediaType\":\"" LAYER "\",\"digest\":\"" DIGEST_B "\",\"size\":5}"
#define IMAGE "{" CONFIG "\"layers\":[" ONE_LAYER "," ONE_LAYER "]}"

#define PLATFORM(os, architecture, variant)                              \
    "{\"digest\":\"" DIGEST_A "\",\"size\":1,\"platform\":{\"os\":\"" os \
    "\",\"architecture\":\"" architecture "\"" variant "}}"

static int parse(struct image_manifest *manifest, const char *text, const char *type,
                 struct error *err)
{
    return image_manifest_parse(manifest, text, strlen(text), type, err);
}

static void a_manifest_names_its_layers(void **state)
{
    scoped(image_manifest_fini) struct image_manifest manifest = { 0 };
    struct error err = { 0 };

    (void)state;
    if (parse(&manifest, IMAGE, MANIFEST "; charset=utf-8", &err) < 0)
        fail_msg("%s", err.message);
    assert_false(manifest.is_index);
    assert_string_equal(manifest.config.digest, DIGEST_A);
    assert_int_equal(manifest.config.size, 7);
    assert_int_equal(manifest.count, 2);
    assert_int_equal(manifest.bytes, 10);
    assert_string_equal(manifest.items[1].digest, DIGEST_B);
    assert_string_equal(manifest.items[1].type, LAYER);
}

static void an_index_offers_platforms(void **state)
{
    static const char text[] =
        "{\"mediaType\":\"" INDEX
        "\",\"manifests\":[" PLATFORM("linux", "arm", ",\"variant\":\"v6\"") "," PLATFORM(
            "linux", "arm",
            ",\"variant\":\"v7\"") "," PLATFORM("linux", "amd64",
                                                "") "," PLATFORM("unknown", "unknown",
                                                                 "") "," PLATFORM("a\\u001b[2J",
                                                                                  "amd64", "") "]}";
    scoped(image_manifest_fini) struct image_manifest index = { 0 };
    struct error err = { 0 };

    (void)state;
    if (parse(&index, text, "", &err) < 0)
        fail_msg("%s", err.message);
    assert_true(index.is_index);
    assert_ptr_equal(image_manifest_choose(&index, "linux/amd64", &err), &index.items[2]);
    assert_ptr_equal(image_manifest_choose(&index, "linux/arm/v7", &err), &index.items[1]);
    assert_ptr_equal(image_manifest_choose(&index, "linux/arm", &err), &index.items[0]);
    assert_null(image_manifest_choose(&index, "linux/arm64", &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(err.message, "the image is not there for linux/arm64; it is there for "
                                     "linux/arm/v6, linux/arm/v7, linux/amd64");
}

static void what_is_not_an_image_is_refused(void **state)
{
    static const struct {
        const char *text, *type;
    } cases[] = {
        { "", MANIFEST },
        { "[]", MANIFEST },
        { "{}", MANIFEST },
        { IMAGE, "" },
        { IMAGE, INDEX },
        { IMAGE, "text/html" },
        { "{\"mediaType\":\"" INDEX "\"," CONFIG "\"layers\":[" ONE_LAYER "]}", MANIFEST },
        { "{" CONFIG "\"layers\":[" ONE_LAYER "],\"manifests\":[]}", MANIFEST },
        { "{" CONFIG "\"layers\":{}}", MANIFEST },
        { "{" CONFIG "\"layers\":[]}", MANIFEST },
        { "{" CONFIG "\"layers\":[5]}", MANIFEST },
        { "{\"layers\":[" ONE_LAYER "]}", MANIFEST },
        { "{" CONFIG "\"layers\":[{\"mediaType\":\"" LAYER
          "\",\"digest\":\"sha256:../../../etc/passwd\","
          "\"size\":5}]}",
          MANIFEST },
        { "{" CONFIG "\"layers\":[{\"mediaType\":\"" LAYER "\",\"digest\":\"sha512:"
          "00\",\"size\":5}]}",
          MANIFEST },
        { "{" CONFIG "\"layers\":[{\"mediaType\":\"" LAYER "\",\"digest\":\"" DIGEST_A "\"}]}",
          MANIFEST },
        { "{" CONFIG "\"layers\":[{\"mediaType\":\"" LAYER "\",\"digest\":\"" DIGEST_A
          "\",\"size\":-1}]}",
          MANIFEST },
        { "{" CONFIG "\"layers\":[{\"mediaType\":\"" LAYER "\",\"digest\":\"" DIGEST_A
          "\",\"size\":99999999999999}]}",
          MANIFEST },
        { "{" CONFIG "\"layers\":[{\"mediaType\":\"a\\u001bb\",\"digest\":\"" DIGEST_A
          "\",\"size\":1}]}",
          MANIFEST },
        { "{\"config\":{\"digest\":\"" DIGEST_A "\",\"size\":5000000},\"layers\":[" ONE_LAYER "]}",
          MANIFEST },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        struct image_manifest manifest = { 0 };
        struct error err = { 0 };

        if (parse(&manifest, cases[i].text, cases[i].type, &err) == 0)
            fail_msg("%s was taken", cases[i].text);
        assert_true(err.code == ERR_INVALID || err.code == ERR_TOO_LARGE);
        assert_null(strchr(err.message, '\033'));
        assert_null(manifest.items);
    }
}

static void a_layer_of_another_kind_is_named(void **state)
{
    struct image_manifest manifest = { 0 };
    struct error err = { 0 };

    (void)state;
    assert_int_equal(parse(&manifest,
                           "{" CONFIG "\"layers\":[{\"mediaType\":"
                           "\"application/vnd.oci.image.layer.v1.tar+zstd\",\"digest\":\"" DIGEST_A
                           "\",\"size\":1}]}",
                           MANIFEST, &err),
                     -1);
    assert_non_null(strstr(err.message, "application/vnd.oci.image.layer.v1.tar+zstd"));
    assert_non_null(strstr(err.hint, "gzip"));
}

static void a_configuration_says_its_platform(void **state)
{
    static const char text[] = "{\"os\":\"linux\",\"architecture\":\"arm64\",\"variant\":\"v8\"}";
    struct image_config config = { 0 };

    (void)state;
    assert_int_equal(image_config_parse(&config, text, strlen(text), NULL), 0);
    assert_string_equal(config.platform, "linux/arm64/v8");
    assert_true(image_platform_fits(config.platform, "linux/arm64"));
    assert_false(image_platform_fits(config.platform, "linux/arm"));
    assert_int_equal(image_config_parse(&config, "{}", 2, NULL), 0);
    assert_string_equal(config.platform, "");
    assert_int_equal(image_config_parse(&config, "[]", 2, NULL), -1);
}

static void platforms_and_digests_are_plain_words(void **state)
{
    static const char *const bad[] = { "",          "linux",   "linux/",   "/amd64",
                                       "linux/a b", "a/b/c/d", "linux//v7" };
    char here[IMAGE_PLATFORM_SIZE];

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
        assert_false(image_platform_is_valid(bad[i]));
    assert_true(image_platform_is_valid("linux/arm/v7"));
    image_platform_here(here);
    assert_true(image_platform_is_valid(here));
    assert_true(image_digest_is_valid(DIGEST_A));
    assert_false(image_digest_is_valid(DIGEST_A "a"));
    assert_false(image_digest_is_valid("sha256:"));
    assert_false(image_digest_is_valid(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_names_its_layers),
        cmocka_unit_test(an_index_offers_platforms),
        cmocka_unit_test(what_is_not_an_image_is_refused),
        cmocka_unit_test(a_layer_of_another_kind_is_named),
        cmocka_unit_test(a_configuration_says_its_platform),
        cmocka_unit_test(platforms_and_digests_are_plain_words),
    };

    return cmocka_run_group_tests_name("wire/image_manifest", tests, NULL, NULL);
}
