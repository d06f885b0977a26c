/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* PROTOCOL_PORTS: the TCP ports with a listener, from the kernel's tables. A sandbox without a
 * network namespace lists only those of its own processes. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct file_work;

/* Makes the pipe; the notes are written after the answer. 0 or -errno. */
int ports_open(struct file_work *work);

/* One line of /proc/net/tcp or tcp6: true for a socket that listens. Pure. */
bool ports_parse_line(const char *line, size_t length, uint32_t *out_port, uint64_t *out_inode);
