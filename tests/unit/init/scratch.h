/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A directory of its own for a test, removed with all that is in it. */

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define UNUSED __attribute__((unused))

static char scratch[32];

static inline int scratch_remove_one(const char *path, const struct stat *status UNUSED,
                                     int type UNUSED, struct FTW *where UNUSED)
{
    return remove(path);
}

/* The test runs inside of it. */
static inline int scratch_make(void **state UNUSED)
{
    snprintf(scratch, sizeof(scratch), "/tmp/init-unit-XXXXXX");
    return mkdtemp(scratch) && chdir(scratch) == 0 ? 0 : -1;
}

static inline int scratch_remove(void **state UNUSED)
{
    return chdir("/") || nftw(scratch, scratch_remove_one, 64, FTW_DEPTH | FTW_PHYS);
}
