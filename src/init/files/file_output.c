/* SPDX-License-Identifier: Apache-2.0 */
#include "init/files/file_output.h"

#include "init/sys.h"

#include <errno.h>
#include <string.h>

static void write_all(struct file_output *output, const char *bytes, size_t length)
{
    while (length && !output->is_broken) {
        long result = sys(write, output->fd, bytes, length);

        if (result < 0 && result != -EINTR) {
            output->is_broken = true;
        } else if (result > 0) {
            bytes += result;
            length -= (size_t)result;
        }
    }
}

void file_output_flush(struct file_output *output)
{
    write_all(output, output->bytes, output->filled);
    output->filled = 0;
}

void file_output_put(struct file_output *output, const void *bytes, size_t length)
{
    if (length > output->size - output->filled)
        file_output_flush(output);
    if (length > output->size) {
        write_all(output, bytes, length);
        return;
    }
    memcpy(output->bytes + output->filled, bytes, length);
    output->filled += length;
}

void file_output_note(struct file_output *output, const struct protocol_note *note,
                      const char *path, const char *text, size_t text_length)
{
    size_t path_length = path ? strlen(path) : 0;
    long length;

    if (sizeof *note + path_length + text_length > output->size - output->filled)
        file_output_flush(output);
    length = protocol_note_encode(output->bytes + output->filled, output->size - output->filled,
                                  note, path ? path : "", path_length, text ? text : "",
                                  text_length);
    if (length > 0)
        output->filled += (size_t)length;
}

bool file_output_is_wanted(struct file_output *output)
{
    struct pollfd poll = { .fd = output->fd };

    if (sys(poll, &poll, 1, 0) > 0 && poll.revents & (POLLERR | POLLHUP))
        output->is_broken = true;
    return !output->is_broken;
}
