/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/relay_key.h"
#include "base/scoped.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/sandglass-relay-key-XXXXXX";
static int state_dir = -1;

static int set_up(void **state)
{
    (void)state;
    memcpy(path + sizeof(path) - 7, "XXXXXX", 6);
    if (!mkdtemp(path))
        return -1;
    state_dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return state_dir < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlinkat(state_dir, "relay.key", 0);
    (void)unlinkat(state_dir, "relay.key.new", 0);
    close(state_dir);
    return rmdir(path);
}

static void the_secret_is_made_once_and_for_its_owner_alone(void **state)
{
    uint8_t first[RELAY_SECRET_SIZE] = { 0 };
    uint8_t second[RELAY_SECRET_SIZE] = { 0 };
    static const uint8_t zeros[RELAY_SECRET_SIZE];
    struct stat status;
    struct error err = { 0 };

    (void)state;
    assert_int_equal(relay_secret_open(state_dir, first, &err), 0);
    assert_int_equal(relay_secret_open(state_dir, second, &err), 0);
    assert_memory_equal(first, second, sizeof(first));
    assert_memory_not_equal(first, zeros, sizeof(first));
    assert_int_equal(fstatat(state_dir, "relay.key", &status, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
}

static void a_secret_that_was_cut_short_is_refused_by_name(void **state)
{
    scoped(fd_close) int fd = openat(state_dir, "relay.key", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    uint8_t secret[RELAY_SECRET_SIZE] = { 7 };
    struct error err = { 0 };

    (void)state;
    assert_int_equal(write(fd, "short", 5), 5);
    assert_int_equal(relay_secret_open(state_dir, secret, &err), -1);
    assert_non_null(strstr(err.message, "relay.key"));
    assert_int_equal(secret[0], 7);
}

static void a_link_in_the_place_of_the_secret_is_not_followed(void **state)
{
    uint8_t secret[RELAY_SECRET_SIZE];
    struct error err = { 0 };

    (void)state;
    assert_int_equal(symlinkat("/dev/zero", state_dir, "relay.key"), 0);
    assert_int_equal(relay_secret_open(state_dir, secret, &err), -1);
}

static void a_half_written_secret_of_a_killed_daemon_is_replaced(void **state)
{
    scoped(fd_close) int fd =
        openat(state_dir, "relay.key.new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    uint8_t secret[RELAY_SECRET_SIZE];
    struct error err = { 0 };

    (void)state;
    assert_int_equal(write(fd, "half", 4), 4);
    assert_int_equal(relay_secret_open(state_dir, secret, &err), 0);
    assert_int_equal(faccessat(state_dir, "relay.key.new", F_OK, 0), -1);
}

static void each_sandbox_and_each_instance_has_a_key_of_its_own(void **state)
{
    static const char *const ids[] = { "sbx_0123456789abcdefghjkmnpqrs",
                                       "sbx_0123456789abcdefghjkmnpqrt" };
    static const uint8_t secrets[2][RELAY_SECRET_SIZE] = { { 1 }, { 2 } };
    uint8_t keys[4][RELAY_KEY_SIZE];
    uint8_t again[RELAY_KEY_SIZE];

    (void)state;
    for (unsigned i = 0; i < 4; i++)
        relay_key_derive(secrets[i / 2], ids[i % 2], keys[i]);
    for (unsigned i = 0; i < 4; i++) {
        relay_key_derive(secrets[i / 2], ids[i % 2], again);
        assert_memory_equal(keys[i], again, sizeof(again));
        for (unsigned other = 0; other < i; other++)
            assert_memory_not_equal(keys[i], keys[other], sizeof(again));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_secret_is_made_once_and_for_its_owner_alone, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_secret_that_was_cut_short_is_refused_by_name, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_link_in_the_place_of_the_secret_is_not_followed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_half_written_secret_of_a_killed_daemon_is_replaced,
                                        set_up, tear_down),
        cmocka_unit_test(each_sandbox_and_each_instance_has_a_key_of_its_own),
    };

    return cmocka_run_group_tests_name("backend/relay_key", tests, NULL, NULL);
}
