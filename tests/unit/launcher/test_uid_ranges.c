/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/uid_ranges.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static struct uid_ranges ranges;
static char directory[64];

/* One block of uid ranges in a directory of the test's own. */
static int setup(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "/tmp/test-uid-ranges-XXXXXX");
    assert_non_null(mkdtemp(directory));
    memset(&ranges, 0, sizeof(ranges));
    ranges.count = UID_BLOCK_RANGES;
    ranges.blocks.dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ranges.blocks.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    ranges.blocks.count = 1;
    for (unsigned i = 0; i < UID_BLOCKS_MAX; i++)
        ranges.blocks.locks[i] = -1;
    snprintf(ranges.blocks.path, sizeof(ranges.blocks.path), "%s", directory);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    uid_blocks_release(&ranges.blocks, 0);
    close(ranges.blocks.dir);
    close(ranges.blocks.root);
    return rmdir(directory);
}

static void when_all_are_taken_that_is_what_is_said(void **state)
{
    struct fail fail = { 0 };

    (void)state;
    for (unsigned i = 0; i < UID_BLOCK_RANGES; i++)
        assert_int_not_equal(uid_ranges_take(&ranges), UID_RANGE_NONE);
    assert_int_equal(uid_ranges_take(&ranges), UID_RANGE_NONE);
    assert_int_equal(uid_ranges_fail(&fail), -1);
    assert_string_equal(fail.step, "all uid ranges are in use");
    assert_int_equal(fail.error, EAGAIN);
}

static void a_lack_of_descriptors_is_not_a_lack_of_ranges(void **state)
{
    struct rlimit before, none = { 0 };
    struct fail fail = { 0 };
    int slot, reason;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    slot = uid_ranges_take(&ranges);
    reason = errno;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(slot, UID_RANGE_NONE);
    errno = reason;
    assert_int_equal(uid_ranges_fail(&fail), -1);
    assert_string_equal(fail.step, "keep user ids in /run/sandglass/uids");
    assert_int_equal(fail.error, EMFILE);
    assert_int_not_equal(uid_ranges_take(&ranges), UID_RANGE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(when_all_are_taken_that_is_what_is_said, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lack_of_descriptors_is_not_a_lack_of_ranges, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
