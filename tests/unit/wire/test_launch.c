/* SPDX-License-Identifier: Apache-2.0 */
#include "base/macros.h"
#include "wire/launch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define HEADER(kind, number) \
    .header = { .length = sizeof(struct kind), .type = (number), .version = LAUNCH_VERSION }

static const char *const good_id = "sbx_0123456789abcdefghjkmnpqrs";

static struct launch_create good_create(void)
{
    return (struct launch_create){
        HEADER(launch_create, LAUNCH_CREATE),
        .id = "sbx_0123456789abcdefghjkmnpqrs",
        .template_name = "host",
        .limits = { .memory_bytes = 64 << 20,
                    .disk_bytes = 64 << 20,
                    .cpu_millis = 1000,
                    .pids = 10 },
        .mode = LAUNCH_NATIVE,
    };
}

static struct launch_setup good_setup(void)
{
    return (struct launch_setup){
        HEADER(launch_setup, LAUNCH_SETUP),
        .instance = "one",
        .hostname = "sandbox",
        .uid_base = 0x40000000,
        .slots = 12288,
    };
}

static const char *check_create(const struct launch_create *create)
{
    return launch_check(create, sizeof(*create), 0);
}

static void a_whole_request_is_taken(void **state)
{
    struct launch_create create = good_create();
    struct launch_setup setup = good_setup();

    (void)state;
    assert_null(check_create(&create));
    assert_null(launch_check(&setup, sizeof(setup), 1));
}

static void ids_have_one_alphabet_and_one_length(void **state)
{
    static const char *const bad[] = { "",
                                       "sbx_",
                                       "ses_0123456789abcdefghjkmnpqrs",
                                       "sbx_0123456789abcdefghjkmnpqr",
                                       "sbx_../../../../../../etc/pass",
                                       "sbx_0123456789abcdefghjkmnpqrS",
                                       "sbx_0123456789abcdefghjkmnpqrsx" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        struct launch_create create = good_create();

        memset(create.id, 0, sizeof(create.id));
        memcpy(create.id, bad[i], strlen(bad[i]));
        assert_string_equal(check_create(&create), "id");
    }
    assert_true(launch_id_is_valid((char[LAUNCH_ID_SIZE]){ "sbx_0123456789abcdefghjkmnpqrs" }));
}

static void a_text_without_an_end_is_refused(void **state)
{
    struct launch_create create = good_create();

    (void)state;
    memset(create.id, '0', sizeof(create.id));
    memcpy(create.id, good_id, strlen(good_id));
    assert_string_equal(check_create(&create), "id");
    create = good_create();
    memset(create.template_name, 'a', sizeof(create.template_name));
    assert_string_equal(check_create(&create), "template name");
}

static void names_are_no_paths(void **state)
{
    static const char *const bad[] = { "", ".", "..", ".hidden", "a/b", "-a", "a b", "a\n" };

    (void)state;
    for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
        struct launch_create create = good_create();

        memset(create.template_name, 0, sizeof(create.template_name));
        memcpy(create.template_name, bad[i], strlen(bad[i]));
        assert_string_equal(check_create(&create), "template name");
    }
}

static void limits_have_ranges(void **state)
{
    struct launch_create create;

    (void)state;
#define REFUSED(field, value, name)                       \
    do {                                                  \
        create = good_create();                           \
        create.field = (value);                           \
        assert_string_equal(check_create(&create), name); \
    } while (0)
    REFUSED(limits.memory_bytes, 0, "memory limit");
    REFUSED(limits.memory_bytes, UINT64_MAX, "memory limit");
    REFUSED(limits.disk_bytes, 0, "disk limit");
    REFUSED(limits.disk_bytes, UINT64_MAX, "disk limit");
    REFUSED(limits.cpu_millis, 0, "cpu limit");
    REFUSED(limits.cpu_millis, UINT32_MAX, "cpu limit");
    REFUSED(limits.pids, 0, "pids limit");
    REFUSED(limits.pids, UINT32_MAX, "pids limit");
    REFUSED(limits.image, 2, "flags");
    REFUSED(limits.reserved, 1, "flags");
    REFUSED(mode, 0, "mode");
    REFUSED(mode, 3, "mode");
    REFUSED(network, LAUNCH_NETWORKS, "network");
#undef REFUSED
}

static void lengths_versions_types_and_descriptors_must_fit(void **state)
{
    struct launch_create create = good_create();

    (void)state;
    assert_string_equal(launch_check(&create, sizeof(create) - 1, 0), "length");
    assert_string_equal(launch_check(&create, 3, 0), "length");
    assert_string_equal(launch_check(&create, sizeof(create), 1), "descriptors");
    create.header.version++;
    assert_string_equal(check_create(&create), "version");
    create = good_create();
    create.header.type = LAUNCH_TYPES;
    assert_string_equal(check_create(&create), "type");
    create.header.type = 0;
    assert_string_equal(check_create(&create), "type");
    create.header.type = LAUNCH_DESTROY;
    assert_string_equal(check_create(&create), "length");
}

static void the_uid_range_stays_clear_of_real_users(void **state)
{
    struct launch_setup setup;

    (void)state;
#define REFUSED(field, value)                                                     \
    do {                                                                          \
        setup = good_setup();                                                     \
        setup.field = (value);                                                    \
        assert_string_equal(launch_check(&setup, sizeof(setup), 1), "uid range"); \
    } while (0)
    REFUSED(uid_base, 0);
    REFUSED(uid_base, 1000);
    REFUSED(uid_base, UINT32_MAX);
    REFUSED(slots, 0);
    REFUSED(slots, 20000);
    REFUSED(slots, UINT32_MAX);
#undef REFUSED
}

static struct launch_create_bound good_bound(void)
{
    struct launch_create_bound bound = {
        .create = good_create(),
        .bind_count = 2,
        .binds = { { .source = "", .path = "/d" },
                   { .source = "a/b", .path = "/e/f", .allowed = 63, .read_only = 1 } }
    };

    bound.create.header.type = LAUNCH_CREATE_BOUND;
    bound.create.header.length = sizeof(bound);
    return bound;
}

static const char *check_bound(const struct launch_create_bound *bound)
{
    return launch_check(bound, sizeof(*bound), 0);
}

static void directories_of_the_host_are_below_allowed_ones(void **state)
{
    struct launch_create_bound bound = good_bound();

    (void)state;
    assert_null(check_bound(&bound));
#define REFUSED(member, value, why)                    \
    do {                                               \
        bound = good_bound();                          \
        bound.member = (value);                        \
        assert_string_equal(check_bound(&bound), why); \
    } while (0)
    REFUSED(binds[1].source[0], '/', "source");
    REFUSED(binds[1].path[0], 'e', "path");
    REFUSED(binds[1].path[1], '/', "path");
    REFUSED(binds[1].allowed, LAUNCH_MAX_ALLOWED, "allowed directory");
    REFUSED(binds[1].read_only, 2, "flags");
    REFUSED(bind_count, LAUNCH_MAX_BINDS + 1, "bind count");
    REFUSED(create.mode, LAUNCH_DIRECT, "mode");
    REFUSED(create.limits.pids, 0, "pids limit");
#undef REFUSED
    bound = good_bound();
    memset(bound.binds[0].source, 'x', sizeof(bound.binds[0].source));
    assert_string_equal(check_bound(&bound), "source");
}

static void allowed_directories_are_paths(void **state)
{
    struct launch_allow allow = { HEADER(launch_allow, LAUNCH_ALLOW), .path = "/srv/data" };

    (void)state;
    assert_null(launch_check(&allow, sizeof(allow), 0));
    strcpy(allow.path, "/");
    assert_null(launch_check(&allow, sizeof(allow), 0));
    strcpy(allow.path, "/srv/../etc");
    assert_string_equal(launch_check(&allow, sizeof(allow), 0), "path");
    strcpy(allow.path, "srv");
    assert_string_equal(launch_check(&allow, sizeof(allow), 0), "path");
    memset(allow.path, '/', sizeof(allow.path));
    assert_string_equal(launch_check(&allow, sizeof(allow), 0), "path");
    strcpy(allow.path, "/srv");
    allow.read_only = 2;
    assert_string_equal(launch_check(&allow, sizeof(allow), 0), "flags");
}

/* As the kernel does, which looks a user up in one of 128 chains. */
static void users_of_sandboxes_are_in_different_chains(void **state)
{
    bool seen[128] = { false };

    (void)state;
    for (uint32_t slot = 0; slot < ARRAY_LENGTH(seen); slot++) {
        uint32_t uid = good_setup().uid_base + slot * LAUNCH_IDS_STEP;
        uint32_t chain = ((uid >> 7) + uid) % ARRAY_LENGTH(seen);

        assert_false(seen[chain]);
        seen[chain] = true;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_request_is_taken),
        cmocka_unit_test(users_of_sandboxes_are_in_different_chains),
        cmocka_unit_test(ids_have_one_alphabet_and_one_length),
        cmocka_unit_test(a_text_without_an_end_is_refused),
        cmocka_unit_test(names_are_no_paths),
        cmocka_unit_test(limits_have_ranges),
        cmocka_unit_test(lengths_versions_types_and_descriptors_must_fit),
        cmocka_unit_test(the_uid_range_stays_clear_of_real_users),
        cmocka_unit_test(directories_of_the_host_are_below_allowed_ones),
        cmocka_unit_test(allowed_directories_are_paths),
    };

    return cmocka_run_group_tests_name("wire/launch", tests, NULL, NULL);
}
