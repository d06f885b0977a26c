/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Scoped release: a variable declared `scoped(release)` is given back when its scope ends, however
 * it ends. `steal_ptr()` and `steal_fd()` hand the value over to another owner.
 *
 *     scoped(free) char *path = NULL;
 *     scoped(fd_close) int fd = -1;
 *
 * A release named X is a function `scoped_X(T *variable)`; SCOPED_DEFINE writes it for pointer
 * types.
 */

#include <stdlib.h>
#include <unistd.h>

/* `unused`: clang warns about a variable that is only released. */
#define scoped(release) __attribute__((cleanup(scoped_##release), unused))

#define SCOPED_DEFINE(release, type)                     \
    static inline void scoped_##release(type **variable) \
    {                                                    \
        if (*variable)                                   \
            release(*variable);                          \
    }                                                    \
    struct scoped_##release##_needs_a_semicolon

static inline void scoped_free(void *variable)
{
    free(*(void **)variable);
}

/* Closes a descriptor; -1 is fine, and errno is left alone. Defined in base/fd.c. */
void fd_close(int fd);

static inline void scoped_fd_close(int *fd)
{
    fd_close(*fd);
}

#define steal_ptr(variable)                            \
    ({                                                 \
        __typeof__(*(variable)) stolen_ = *(variable); \
        *(variable) = NULL;                            \
        stolen_;                                       \
    })

static inline int steal_fd(int *fd)
{
    int stolen = *fd;

    *fd = -1;
    return stolen;
}
