/* SPDX-License-Identifier: Apache-2.0 */
/* Init as a file for mounts, and as an archive for uploads. */

#include "backend/docker/docker_private.h"

#include "backend/embed.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "wire/tar.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define FILE_NAME "docker/bin/sandglass-init"

static char root[64];
static int state_dir;

static size_t init_size(void)
{
    return (size_t)(embedded_init_end - embedded_init);
}

static int open_state(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/sandglass-init-XXXXXX");
    assert_non_null(mkdtemp(root));
    state_dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return 0;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

static int close_state(void **state)
{
    (void)state;
    close(state_dir);
    return nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static struct stat make(void)
{
    struct error err = { 0 };
    struct stat status;

    if (init_file_make(state_dir, &err) < 0)
        fail_msg("%s", err.message);
    assert_int_equal(fstatat(state_dir, FILE_NAME, &status, AT_SYMLINK_NOFOLLOW), 0);
    return status;
}

static bool is_init(int fd)
{
    scoped(free) char *bytes = xmalloc(init_size() + 1);

    return fd_read_at(fd, bytes, init_size() + 1, 0) == init_size() &&
           memcmp(bytes, embedded_init, init_size()) == 0;
}

static bool file_is_init(void)
{
    scoped(fd_close) int fd = openat(state_dir, FILE_NAME, O_RDONLY | O_CLOEXEC);

    return is_init(fd);
}

static void the_file_is_made_once(void **state)
{
    struct stat first = make();
    struct stat second = make();

    (void)state;
    assert_true(file_is_init());
    assert_int_equal(first.st_mode & 07777, 0755);
    assert_int_equal(first.st_ino, second.st_ino);
}

/* Containers of an earlier release have the old one mounted. */
static void a_file_that_differs_is_replaced_and_not_written_to(void **state)
{
    struct stat first = make();
    scoped(fd_close) int old = openat(state_dir, FILE_NAME, O_RDWR | O_CLOEXEC);
    struct stat second;
    char byte = '!';

    (void)state;
    assert_int_equal(pwrite(old, &byte, 1, 100), 1);
    second = make();
    assert_int_not_equal(first.st_ino, second.st_ino);
    assert_true(file_is_init());
    assert_false(is_init(old));
}

static void other_modes_sizes_and_kinds_of_file_are_replaced(void **state)
{
    (void)state;
    (void)make();
    assert_int_equal(fchmodat(state_dir, FILE_NAME, 0600, 0), 0);
    assert_int_equal(make().st_mode & 07777, 0755);
    {
        scoped(fd_close) int fd = openat(state_dir, FILE_NAME, O_WRONLY | O_CLOEXEC);

        assert_int_equal(ftruncate(fd, 10), 0);
    }
    (void)make();
    assert_true(file_is_init());
    assert_int_equal(unlinkat(state_dir, FILE_NAME, 0), 0);
    assert_int_equal(symlinkat("/bin/sh", state_dir, FILE_NAME), 0);
    assert_true(S_ISREG(make().st_mode));
    assert_true(file_is_init());
}

static void what_a_crash_has_left_is_no_obstacle(void **state)
{
    int fd;

    (void)state;
    (void)make();
    assert_int_equal(unlinkat(state_dir, FILE_NAME, 0), 0);
    fd = openat(state_dir, FILE_NAME ".new", O_CREAT | O_WRONLY | O_CLOEXEC, 0400);
    fd_close(fd);
    (void)make();
    assert_true(file_is_init());
}

static void a_file_that_cannot_be_made_is_told(void **state)
{
    struct error err = { 0 };
    int fd = openat(state_dir, "docker", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    (void)state;
    fd_close(fd);
    assert_int_equal(init_file_make(state_dir, &err), -1);
    assert_int_not_equal(err.code, ERR_NONE);
}

/* --- the archive ----------------------------------------------------------------------------------- */

struct content {
    char paths[8][64];
    unsigned members;
    uint8_t *bytes; /* of the file */
    size_t length;
};

static enum tar_event read_archive(const char *archive, size_t length, struct content *content)
{
    static struct tar_parser parser;
    enum tar_event event = TAR_NEED_MORE;
    const void *data;
    size_t data_length;
    size_t used;

    tar_parser_init(&parser);
    while (length) {
        event = tar_parser_feed(&parser, archive, length, &used, &data, &data_length);
        archive += used;
        length -= used;
        if (event == TAR_MEMBER) {
            assert_int_equal(parser.member.mode, 0755);
            snprintf(content->paths[content->members++], 64, "%s", parser.member.path);
        } else if (event == TAR_DATA) {
            memcpy(content->bytes + content->length, data, data_length);
            content->length += data_length;
        } else if (event == TAR_END || event == TAR_BAD) {
            break;
        }
    }
    return event;
}

static void the_archive_has_init_where_the_container_starts_it(void **state)
{
    size_t length = 0;
    scoped(free) char *archive = init_file_archive(&length);
    scoped(free) uint8_t *bytes = xmalloc(init_size());
    struct content content = { .bytes = bytes };

    (void)state;
    assert_int_equal(length % TAR_BLOCK, 0);
    assert_int_equal(read_archive(archive, length, &content), TAR_END);
    assert_int_equal(content.members, 3);
    assert_string_equal(content.paths[2], ".sandglass/bin/sandglass-init");
    assert_int_equal(content.length, init_size());
    assert_memory_equal(bytes, embedded_init, init_size());
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, open_state, close_state)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_file_is_made_once),
        TEST(a_file_that_differs_is_replaced_and_not_written_to),
        TEST(other_modes_sizes_and_kinds_of_file_are_replaced),
        TEST(what_a_crash_has_left_is_no_obstacle),
        TEST(a_file_that_cannot_be_made_is_told),
        TEST(the_archive_has_init_where_the_container_starts_it),
    };

    return cmocka_run_group_tests_name("docker/init_file", tests, NULL, NULL);
}
