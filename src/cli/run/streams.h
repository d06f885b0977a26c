/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The streams of an execution, copied to ours. */

#include "cli/cli.h"

enum streams_which { STREAMS_BOTH, STREAMS_STDOUT, STREAMS_STDERR, STREAMS_MERGED };

struct streams_options {
    const char *session;      /* borrowed */
    const char *execution;    /* borrowed; encoded for a path */
    enum streams_which which; /* a single one goes to stdout */
    uint64_t offset;
    bool follow; /* until the program has ended */
};

/* Returns when all was written, or its reader is gone. */
int streams_copy(struct cli *cli, const struct streams_options *options, struct error *err);
