/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files in the body of a request or of an answer, of any size. */

#include "cli/cli.h"

/* Progress is a line on stderr while that is a terminal. */

/* PUT target with what `fd` has, to its end. The answer goes to `answer` unless that is NULL.
 * `expected` bytes are shown as the total; 0: the size of a file, else unknown. */
int transfer_send(struct cli *cli, const char *target, const char *content_type, int fd,
                  uint64_t expected, struct buffer *answer, struct error *err);

/* GET target into `fd`, as it comes. */
int transfer_receive_into(struct cli *cli, const char *target, int fd, struct error *err);

/* GET target, a tar, into the directory at `path`, which is made if it is missing. */
int transfer_unpack(struct cli *cli, const char *target, const char *path, struct error *err);

/* GET target into the file at `path`, which changes only when all of it has come. */
int transfer_receive(struct cli *cli, const char *target, const char *path, struct error *err);
