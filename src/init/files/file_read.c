/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of a regular file through a pipe, for a daemon that cannot be given the file itself.
 * The answer has the state of the file when it was opened; a pipe that ends before as much has come
 * means that the file has become shorter, or that it could not be read on.
 */

#include "init/files/file_output.h"
#include "init/files/file_work.h"
#include "init/sys.h"

#include <errno.h>

enum { PIPE_SIZE = 512 * 1024 };

int file_read_open(struct file_work *work)
{
    int ends[2];
    int result = file_do_open_read(work);

    if (result < 0)
        return result;
    work->file = work->fd;
    work->fd = -1;
    if (work->job->file->offset > INT64_MAX)
        return -EINVAL;
    result = (int)sys(pipe2, ends, O_CLOEXEC);
    if (result < 0)
        return result;
    work->fd = ends[0];
    work->stream = ends[1];
    (void)sys(fcntl, work->stream, F_SETPIPE_SZ, PIPE_SIZE);
    return 0;
}

void file_read_write(struct file_work *work)
{
    const struct protocol_file *file = work->job->file;
    uint64_t left = file->bytes ? file->bytes : UINT64_MAX;
    uint64_t offset = file->offset;
    struct file_output output = {
        .fd = work->stream,
        .bytes = file_memory(work)->content,
        .size = FILE_OUTPUT_SIZE,
    };

    while (left && !output.is_broken) {
        long count = sys(pread64, work->file, output.bytes,
                         left < output.size ? (size_t)left : output.size, offset);

        if (count == -EINTR)
            continue;
        if (count <= 0)
            break;
        output.filled = (size_t)count;
        file_output_flush(&output);
        offset += (uint64_t)count;
        left -= (uint64_t)count;
    }
}
