/* SPDX-License-Identifier: Apache-2.0 */
#include "core/output/displays.h"

#include "base/fd.h"
#include "core/output/spool_files.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];
static int state_dir = -1;

static int setup(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/test-displays-XXXXXX");
    assert_non_null(mkdtemp(root));
    state_dir = open(root, O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(state_dir, SPOOL_DIRECTORY, 0700), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    spool_files_unlink(state_dir, "exe_1");
    assert_int_equal(unlinkat(state_dir, SPOOL_DIRECTORY, AT_REMOVEDIR), 0);
    close(state_dir);
    return rmdir(root);
}

static uint64_t keep(const char *text, char hash[DISPLAY_HASH_SIZE])
{
    struct error err = { 0 };
    uint64_t grown = 0;

    assert_int_equal(
        display_keep(state_dir, "exe_1", "image/png", text, strlen(text), hash, &grown, &err), 0);
    return grown;
}

static void assert_has(const char *hash, const char *text)
{
    struct display_place place;
    scoped(fd_close) int file = display_open(state_dir, "exe_1", hash, &place);
    char bytes[64] = "";

    assert_true(file >= 0);
    assert_int_equal(place.length, strlen(text));
    assert_string_equal(place.type, "image/png");
    assert_int_equal(pread(file, bytes, sizeof(bytes) - 1, (off_t)place.offset) >= 0, 1);
    assert_memory_equal(bytes, text, strlen(text));
}

static void the_same_bytes_are_kept_once(void **state)
{
    char one[DISPLAY_HASH_SIZE], two[DISPLAY_HASH_SIZE], again[DISPLAY_HASH_SIZE];

    (void)state;
    assert_true(keep("one", one) > 3);
    assert_true(keep("two", two) > 3);
    assert_int_equal(keep("one", again), 0);
    assert_string_equal(one, again);
    assert_has(one, "one");
    assert_has(two, "two");
}

static void a_display_is_dropped_without_a_trace(void **state)
{
    char one[DISPLAY_HASH_SIZE], two[DISPLAY_HASH_SIZE];
    struct display_place place;

    (void)state;
    keep("one", one);
    display_drop(state_dir, "exe_1", keep("two", two));
    assert_has(one, "one");
    assert_int_equal(display_open(state_dir, "exe_1", two, &place), -1);
    display_drop(state_dir, "exe_1", 1 << 20); /* more than there is */
    assert_has(one, "one");
}

/* Whatever its bytes are: nothing outside of it is read, and what follows is kept. */
static void a_damaged_file_has_no_displays_and_takes_new_ones(void **state)
{
    char name[SPOOL_NAME_SIZE], hash[DISPLAY_HASH_SIZE], more[DISPLAY_HASH_SIZE];
    struct display_place place;

    (void)state;
    spool_file_name(name, "exe_1", SPOOL_SHOWN);
    for (int size = 0; size < 400; size += 7) {
        scoped(fd_close) int file = openat(state_dir, name, O_RDWR | O_CREAT | O_TRUNC, 0600);

        for (int i = 0; i < size; i++)
            assert_int_equal(write(file, "\xff", 1), 1);
        memset(hash, 'f', sizeof(hash) - 1);
        hash[sizeof(hash) - 1] = '\0';
        assert_int_equal(display_open(state_dir, "exe_1", hash, &place), -1);
        keep("new", hash);
        assert_has(hash, "new");
        display_drop(state_dir, "exe_1", keep("more", more));
        assert_has(hash, "new");
        assert_int_equal(display_open(state_dir, "exe_1", more, &place), -1);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    static const char *const types[] = { "png", "/png", "image/", "image/png; a=b", "image/\r\nx" };
    char *large = calloc(1, DISPLAY_MAXIMUM + 1);
    char hash[DISPLAY_HASH_SIZE];
    struct error err = { 0 };
    uint64_t grown;
    int kept = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        assert_int_equal(display_keep(state_dir, "exe_1", types[i], "", 0, hash, &grown, &err), -1);
    assert_int_equal(display_keep(state_dir, "exe_1", "image/png", large, DISPLAY_MAXIMUM + 1, hash,
                                  &grown, &err),
                     -1);
    assert_int_equal(err.code, ERR_TOO_LARGE);
    for (int i = 0; i < 12; i++) {
        memset(large, 'a' + i, 16);
        kept += display_keep(state_dir, "exe_1", "image/png", large, DISPLAY_MAXIMUM, hash, &grown,
                             &err) == 0;
    }
    assert_int_equal(kept, DISPLAYS_MAXIMUM / DISPLAY_MAXIMUM - 1); /* and their headers */
    free(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_same_bytes_are_kept_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_display_is_dropped_without_a_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(a_damaged_file_has_no_displays_and_takes_new_ones, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_refused, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
