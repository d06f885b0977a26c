/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Our stdin, sent to an execution piece by piece: the next piece is read when the program's pipe
 * has taken the one before, so a program that reads slowly slows down the writer of our stdin.
 */

#include "cli/cli.h"
#include "loop/loop.h"

struct http_call;

struct feeder {
    struct cli *cli;       /* borrowed */
    const char *session;   /* borrowed */
    const char *execution; /* borrowed */
    int fd;                /* borrowed */
    bool terminal;         /* of the program: its end of input is a byte */
    bool pollable;         /* see feeder_is_pollable() */
    bool ended;
    struct io_watch watch;
    struct deferred ready;
    struct timer pause; /* after a failure */
    struct http_call *call;
    uint8_t *piece; /* owned */
};

/* Whether an input can be waited for: files and /dev/null are always ready. */
bool feeder_is_pollable(int fd);

void feeder_start(struct feeder *feeder, struct cli *cli, const char *session,
                  const char *execution, int fd, bool terminal);
void feeder_stop(struct feeder *feeder); /* safe on a zeroed one */
