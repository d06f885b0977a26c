/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of uid ranges between two daemons of one host, in a directory of the test. */

#include "launcher/uid_blocks.h"

#include "base/macros.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[64];
static struct uid_blocks first, second;

static void open_blocks(struct uid_blocks *blocks, const char *name)
{
    *blocks = (struct uid_blocks){ .count = 2 };
    for (unsigned i = 0; i < UID_BLOCKS_MAX; i++)
        blocks->locks[i] = -1;
    snprintf(blocks->path, sizeof(blocks->path), "%s/uids", directory);
    blocks->dir = open(blocks->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    blocks->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(blocks->path, sizeof(blocks->path), "%s/%s", directory, name);
    assert_int_equal(mkdir(blocks->path, 0700), 0);
}

static int setup(void **state UNUSED)
{
    char path[96];

    snprintf(directory, sizeof(directory), "/tmp/test-uid-blocks-XXXXXX");
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/uids", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    open_blocks(&first, "first");
    open_blocks(&second, "second");
    return 0;
}

static void close_blocks(struct uid_blocks *blocks)
{
    uid_blocks_forget(blocks);
    close(blocks->dir);
    close(blocks->root);
}

static int teardown(void **state UNUSED)
{
    char command[96];

    close_blocks(&first);
    close_blocks(&second);
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    return system(command);
}

static void two_daemons_never_have_the_same_block(void **state UNUSED)
{
    assert_int_equal(uid_blocks_take(&first), 0);
    assert_int_equal(uid_blocks_take(&second), 1);
    assert_true(uid_blocks_has(&first, 0) && !uid_blocks_has(&second, 0));
    assert_int_equal(uid_blocks_take(&first), -1);
    assert_int_equal(errno, EAGAIN);
}

static void a_released_block_is_free_for_others(void **state UNUSED)
{
    assert_int_equal(uid_blocks_take(&first), 0);
    uid_blocks_release(&first, 0);
    assert_false(uid_blocks_has(&first, 0));
    assert_int_equal(uid_blocks_take(&second), 0);
}

/* A launcher that was killed holds no lock any more; its sandboxes go on. */
static void a_block_stays_taken_while_sandboxes_are_left(void **state UNUSED)
{
    char path[sizeof(first.path) + 32];

    assert_int_equal(uid_blocks_take(&first), 0);
    uid_blocks_forget(&first);
    snprintf(path, sizeof(path), "%s/sandboxes", first.path);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/sandboxes/sbx_1", first.path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(uid_blocks_take(&second), 1);
    uid_blocks_release(&second, 1);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(uid_blocks_take(&second), 0);
}

static void without_others_every_block_is_ours(void **state UNUSED)
{
    struct uid_blocks own;
    struct fail fail;

    assert_int_equal(uid_blocks_open(&own, 3 * UID_BLOCK_RANGES, -1, false, &fail), 0);
    assert_true(uid_blocks_has(&own, 2));
    assert_false(uid_blocks_has(&own, 3));
    assert_int_equal(uid_blocks_take(&own), -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_daemons_never_have_the_same_block),
        TEST(a_released_block_is_free_for_others),
        TEST(a_block_stays_taken_while_sandboxes_are_left),
        TEST(without_others_every_block_is_ours),
    };

    return cmocka_run_group_tests_name("launcher/uid_blocks", tests, NULL, NULL);
}
