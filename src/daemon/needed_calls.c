/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/needed_calls.h"

#include "base/macros.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *name;
    long number;
    bool of_launcher; /* only the launcher and its sandboxes need it */
} calls[] = {
    { "accept4", SYS_accept4, false },
    { "epoll_create1", SYS_epoll_create1, false },
    { "eventfd2", SYS_eventfd2, false },
    { "getrandom", SYS_getrandom, false },
    { "close_range", SYS_close_range, true },
    { "dup3", SYS_dup3, true },
    { "execveat", SYS_execveat, true },
    { "getsockopt", SYS_getsockopt, true },
    { "memfd_create", SYS_memfd_create, true },
    { "openat2", SYS_openat2, true },
    { "pidfd_open", SYS_pidfd_open, true },
    { "pidfd_send_signal", SYS_pidfd_send_signal, true },
    { "prlimit64", SYS_prlimit64, true },
    { "renameat2", SYS_renameat2, true },
    { "socketpair", SYS_socketpair, true },
};

/* With these arguments each of the calls changes nothing. A kernel that has it finds them invalid. */
static bool is_refused(long number)
{
    if (syscall(number, -1L, -1L, -1L, -1L, -1L, -1L) >= 0)
        return false;
    return errno == ENOSYS || errno == EPERM || errno == EACCES;
}

int needed_calls_check(bool with_launcher, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LENGTH(calls); i++) {
        if ((calls[i].of_launcher && !with_launcher) || !is_refused(calls[i].number))
            continue;
        error_named(err, ERR_BACKEND, "system_call_refused",
                    "this host refuses the system call %s, which a daemon needs: %s", calls[i].name,
                    strerror(errno));
        return error_hint(
            err,
            "use Linux 5.11 or later; in a container: allow %s in its seccomp profile "
            "(--security-opt seccomp=unconfined); in a service of systemd: in "
            "SystemCallFilter",
            calls[i].name);
    }
    return 0;
}
