/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The mark of a process that comes from a direct sandbox, which may have the daemon's own user id.
 *
 * A hard limit is inherited and can be read; any process can lower it, and raising it takes
 * privilege. A limit below the daemon's own therefore marks all processes of a sandbox, also those
 * that have left its session and lost their parents. RLIMIT_LOCKS has had no effect since Linux
 * 2.4, so no other program sets it. In nested sandboxes it is lower at each level.
 */

#include <stdint.h>

#define INSIDE_RESOURCE 10 /* RLIMIT_LOCKS, which not every libc names */

enum { INSIDE_FIRST = 1 << 20 };

/* The limit of a sandbox, from the one of the daemon that makes it. */
static inline uint64_t inside_limit(uint64_t own)
{
    if (own > INSIDE_FIRST)
        return INSIDE_FIRST;
    return own ? own - 1 : 0;
}
