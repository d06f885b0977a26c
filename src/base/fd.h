/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Descriptors: the loops around read() and write() that everybody needs. fd_close() and steal_fd()
 * are in base/scoped.h.
 *
 * The loops go on after a signal (EINTR) and after a short count. They are for files, memory files
 * and descriptors that block; on a non-blocking one EAGAIN is a failure like any other.
 */

#include "base/scoped.h"

#include <stddef.h>
#include <sys/types.h>

struct buffer;

/* Writes all bytes: 0, or -1 with errno; the number of written bytes is unknown then. */
int fd_write_all(int fd, const void *data, size_t length);

/* Writes at an offset of a file. The result is the number of bytes that are written there; when it
 * is less than `length`, errno says why. */
size_t fd_write_at(int fd, const void *data, size_t length, off_t offset);

/* Reads at an offset of a file. The result is the number of bytes that were read; less than `length`
 * at the end of the file, or when errno, which is 0 otherwise, says why. */
size_t fd_read_at(int fd, void *data, size_t length, off_t offset);

/* Appends to the buffer until the end of the file: 0, or -1 with errno, which is EFBIG when there
 * is more than the maximum of the buffer. Bytes read before a failure stay in the buffer. */
int fd_read_all(int fd, struct buffer *out);
