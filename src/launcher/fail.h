/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How things fail in the launcher: the step that failed, by a fixed name, and the errno of the
 * system call. The daemon turns both into an error for people.
 */

#include "wire/launch.h"

#include <errno.h>

struct fail {
    const char *step; /* static: a literal, or the text of a failure in a child */
    int error;
};

/* Both return -1. */
static inline int fail_set(struct fail *fail, const char *step, int error)
{
    *fail = (struct fail){ .step = step, .error = error };
    return -1;
}

static inline int fail_sys(struct fail *fail, const char *step)
{
    return fail_set(fail, step, errno ? errno : EIO);
}
