/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include "base/buffer.h"

#include <errno.h>
#include <unistd.h>

enum { READ_BYTES = 64 * 1024 };

void fd_close(int fd)
{
    int number = errno;

    if (fd >= 0)
        close(fd);
    errno = number;
}

int fd_write_all(int fd, const void *data, size_t length)
{
    const char *at = data;

    while (length > 0) {
        ssize_t count = write(fd, at, length);

        if (count < 0 && errno == EINTR)
            continue;
        if (count == 0)
            errno = EIO; /* a device that takes nothing would be asked without end */
        if (count <= 0)
            return -1;
        at += count;
        length -= (size_t)count;
    }
    return 0;
}

size_t fd_write_at(int fd, const void *data, size_t length, off_t offset)
{
    size_t done = 0;

    while (done < length) {
        ssize_t count = pwrite(fd, (const char *)data + done, length - done, offset + (off_t)done);

        if (count < 0 && errno == EINTR)
            continue;
        if (count == 0)
            errno = EIO;
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    return done;
}

size_t fd_read_at(int fd, void *data, size_t length, off_t offset)
{
    size_t done = 0;

    errno = 0;
    while (done < length) {
        ssize_t count = pread(fd, (char *)data + done, length - done, offset + (off_t)done);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            break;
        done += (size_t)count;
    }
    return done;
}

int fd_read_all(int fd, struct buffer *out)
{
    for (;;) {
        size_t room = MIN((size_t)READ_BYTES, out->maximum - out->length);
        char one_more; /* a full buffer: is this the end of the file? */
        ssize_t count = read(fd, room ? buffer_reserve(out, room) : &one_more, room ? room : 1);

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return (int)count;
        if (!room) {
            errno = EFBIG;
            return -1;
        }
        buffer_advance(out, (size_t)count);
    }
}
