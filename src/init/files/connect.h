/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* PROTOCOL_CONNECT: a stream to a server inside the sandbox, made by a helper. */

struct file_work;

/* work->fd becomes the connected socket, which does not block. 0 or -errno. */
int connect_open(struct file_work *work);
