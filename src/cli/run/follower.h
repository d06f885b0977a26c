/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One stream of an execution, copied byte for byte to an outlet.
 *
 * It knows how far it has read, so a connection that breaks (the daemon was restarted, the reader
 * of our stdout slept for too long) is taken up again at that offset, and no byte is missing or
 * doubled. A line on stderr says how many bytes the daemon has dropped.
 */

#include "cli/cli.h"
#include "cli/run/outlet.h"

struct follower;
struct http_call;
typedef void follower_fn(struct follower *follower);

struct follower_options {
    const char *session; /* borrowed, as are those below */
    const char *execution;
    const char *stream; /* "stdout" or "stderr" */
    uint64_t offset;    /* where to begin */
    bool follow;        /* until the program has ended; else what there is now */
    int fd;             /* where it goes */
};

struct follower {
    struct cli *cli; /* borrowed */
    struct follower_options options;
    struct outlet outlet;
    struct http_call *call; /* NULL between two attempts */
    struct buffer refusal;  /* body of an answer that is not a success */
    struct timer retry;
    int64_t lost_since_us; /* 0 while connected */
    uint64_t offset;       /* of the next byte */
    uint64_t gap_start;    /* bytes that the daemon has dropped and leaves out; */
    uint64_t gap_end;      /* the same as gap_start when there are none */
    bool ended;            /* the daemon has sent all */
    bool finished;         /* and all was written, or it failed */
    struct error err;      /* ERR_NONE on success */
    follower_fn *on_finished;
    follower_fn *on_closed; /* the reader of our output is gone; NULL: let it be */
};

void follower_start(struct follower *follower, struct cli *cli,
                    const struct follower_options *options, follower_fn *on_finished,
                    follower_fn *on_closed);
void follower_fini(struct follower *follower); /* safe on a zeroed one */

/* 0, or -1 when our output could not be written although its reader is there. */
int follower_check_written(const struct follower *follower, struct error *err);

/* How long a daemon may be away before its callers give up. */
enum { LOST_LIMIT_US = 30 * 1000 * 1000, RETRY_DELAY_US = 100 * 1000 };
