/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/fd.h"
#include "base/macros.h"
#include "base/scoped.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { LONG_BYTES = 1000 * 1000 }; /* more than a pipe holds */

static void fill(uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 256);
}

static int memory_file(const void *data, size_t length)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, data, length), 0);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static void closing_leaves_errno_alone(void **state UNUSED)
{
    int fd = memory_file("", 0);

    errno = ENOTTY;
    fd_close(fd);
    assert_int_equal(errno, ENOTTY);
    fd_close(fd); /* EBADF is not reported either */
    fd_close(-1);
    assert_int_equal(errno, ENOTTY);
}

/* --- a reader that is slow, and signals meanwhile ------------------------------------------- */

struct slow_reader {
    int fd;
    pthread_t writer;
    struct buffer content;
};

static void on_signal(int number UNUSED)
{
}

static void *read_slowly(void *data)
{
    struct slow_reader *reader = data;
    ssize_t count;

    do {
        void *room = buffer_reserve(&reader->content, 30000);

        pthread_kill(reader->writer, SIGUSR1);
        count = read(reader->fd, room, 30000);
        assert_true(count >= 0);
        buffer_advance(&reader->content, (size_t)count);
    } while (count > 0);
    return NULL;
}

static void a_write_goes_on_after_signals_and_short_counts(void **state UNUSED)
{
    struct sigaction action = { .sa_handler = on_signal }; /* no SA_RESTART */
    struct sigaction old;
    struct slow_reader reader = { .writer = pthread_self(),
                                  .content = BUFFER_INIT(2 * LONG_BYTES) };
    scoped(free) uint8_t *bytes = xmalloc(LONG_BYTES);
    pthread_t thread;
    int pipe[2];

    fill(bytes, LONG_BYTES);
    assert_int_equal(pipe2(pipe, O_CLOEXEC), 0);
    reader.fd = pipe[0];
    sigaction(SIGUSR1, &action, &old);
    assert_int_equal(pthread_create(&thread, NULL, read_slowly, &reader), 0);
    assert_int_equal(fd_write_all(pipe[1], bytes, LONG_BYTES), 0);
    close(pipe[1]);
    pthread_join(thread, NULL);
    sigaction(SIGUSR1, &old, NULL);
    assert_int_equal(reader.content.length, LONG_BYTES);
    assert_memory_equal(reader.content.data, bytes, LONG_BYTES);
    buffer_fini(&reader.content);
    close(pipe[0]);
}

static void a_failed_write_keeps_its_reason(void **state UNUSED)
{
    scoped(fd_close) int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    assert_int_equal(fd_write_all(-1, "x", 1), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(fd_write_all(-1, "x", 0), 0); /* nothing to write, nothing asked */
    assert_int_equal(fd_write_all(full, "x", 1), -1);
    assert_int_equal(errno, ENOSPC);
}

/* --- at an offset ---------------------------------------------------------------------------- */

static void bytes_are_written_at_their_offset(void **state UNUSED)
{
    scoped(fd_close) int fd = memory_file("abcdef", 6);
    char text[8] = "";

    assert_int_equal(fd_write_at(fd, "XY", 2, 3), 2);
    assert_int_equal(pread(fd, text, sizeof(text), 0), 6);
    assert_string_equal(text, "abcXYf");
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 0); /* the position of the file has not moved */
}

static void a_write_that_stops_tells_how_far_it_came(void **state UNUSED)
{
    scoped(fd_close) int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    assert_int_equal(fd_write_at(fd, "abcdef", 6, 4096), 0);
    assert_int_equal(errno, EPERM);
    assert_int_equal(fd_write_at(fd, "abcdef", 6, 0), 6);
}

/* --- reading --------------------------------------------------------------------------------- */

static void a_file_is_read_to_its_end(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer content = BUFFER_INIT(2 * LONG_BYTES);
    scoped(free) uint8_t *bytes = xmalloc(LONG_BYTES);
    scoped(fd_close) int fd = -1;

    fill(bytes, LONG_BYTES);
    fd = memory_file(bytes, LONG_BYTES);
    buffer_append_text(&content, "before");
    assert_int_equal(fd_read_all(fd, &content), 0);
    assert_int_equal(content.length, LONG_BYTES + 6);
    assert_memory_equal(content.data + 6, bytes, LONG_BYTES);
}

static void the_maximum_of_the_buffer_is_exact(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer exact = BUFFER_INIT(10);
    scoped(buffer_fini) struct buffer small = BUFFER_INIT(9);
    scoped(fd_close) int fd = memory_file("0123456789", 10);

    assert_int_equal(fd_read_all(fd, &exact), 0);
    assert_string_equal(buffer_text(&exact), "0123456789");
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_int_equal(fd_read_all(fd, &small), -1);
    assert_int_equal(errno, EFBIG);
}

static void an_unreadable_descriptor_is_a_failure(void **state UNUSED)
{
    scoped(buffer_fini) struct buffer content = BUFFER_INIT(100);
    scoped(fd_close) int directory = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(fd_read_all(directory, &content), -1);
    assert_int_equal(errno, EISDIR);
    assert_int_equal(content.length, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closing_leaves_errno_alone),
        cmocka_unit_test(a_write_goes_on_after_signals_and_short_counts),
        cmocka_unit_test(a_failed_write_keeps_its_reason),
        cmocka_unit_test(bytes_are_written_at_their_offset),
        cmocka_unit_test(a_write_that_stops_tells_how_far_it_came),
        cmocka_unit_test(a_file_is_read_to_its_end),
        cmocka_unit_test(the_maximum_of_the_buffer_is_exact),
        cmocka_unit_test(an_unreadable_descriptor_is_a_failure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
