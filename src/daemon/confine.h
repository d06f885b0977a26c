/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's own walls. It parses what strangers send, so on the day that an attacker finds a hole,
 * the process behind it should be worth little: no programs, no new privileges, no part of
 * the kernel that serving HTTP does not need, no files but its own.
 *
 * Put up once, after the keeper and its launcher were forked and power was given up, and before the
 * first thread: Landlock holds for a thread and what it starts. Nothing else inherits any of it.
 */

#include "base/error.h"
#include "config/config.h"
#include "loop/loop.h"

#include <stdbool.h>

enum { CONFINEMENT_MISSING_SIZE = 192 };

struct confinement {
    int mode; /* enum config_confine */
    bool seccomp;
    unsigned landlock;                      /* its version; 0 without */
    char missing[CONFINEMENT_MISSING_SIZE]; /* features that the kernel lacks, for people; or "" */
};

const char *confinement_mode_name(const struct confinement *confinement);

/* The confinement that a daemon would get on this host; the caller stays unconfined. */
void confine_probe(const struct config *config, struct confinement *out_confinement);

/* Puts it up, for good. -1 where the settings require what the kernel does not have, with its name.
 */
int confine_apply(const struct config *config, struct confinement *out_confinement,
                  struct error *err);

/* Writes a line into the log for each system call that is refused, once for each of them. */
struct confine_watch {
    struct io_watch pipe;
    uint64_t seen[16];
};

void confine_watch_start(struct confine_watch *watch, struct loop *loop);
void confine_watch_stop(struct confine_watch *watch);
