/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/probe.h"

#include "launcher/power.h"
#include "launcher/sys.h"
#include "launcher/walls/mounts.h"
#include "launcher/walls/userns.h"

#include <sched.h>
#include <sys/wait.h>

/* The exit status of a child in a pid namespace of its own; -1 where there can be none. */
static int run_in_pid_namespace(int (*attempt)(void))
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        if (unshare(CLONE_NEWPID) < 0)
            _exit(errno);
        child = fork();
        if (child == 0)
            _exit(attempt());
        _exit(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
                  ? WEXITSTATUS(status)
                  : EIO);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return EIO;
    return WEXITSTATUS(status);
}

static int attempt_procfs(void)
{
    static const struct mount_option none[] = { { 0 } };

    return mount_make("proc", none, 0) < 0 ? errno : 0;
}

/* The launcher goes to namespaces and comes back, and could not go on where it does not come back.
 * The arguments are invalid: a host that allows the call says that. */
static int attempt_calls(struct fail *fail)
{
    if (setns(-1, 0) < 0 && errno != EBADF)
        return fail_sys(fail, "enter a namespace (setns)");
    if (syscall(SYS_chroot, NULL) < 0 && errno != EFAULT)
        return fail_sys(fail, "change the root (chroot)");
    return 0;
}

int probe_native(const struct context *context, struct fail *fail)
{
    int userns;
    int error;

    if (context->root && !power_traces())
        return fail_set(fail, "the capability SYS_PTRACE is missing", EPERM);
    if (context->root && !power_administers_networks())
        return fail_set(fail, "the capability NET_ADMIN is missing", EPERM);
    if (attempt_calls(fail) < 0)
        return -1;
    error = run_in_pid_namespace(attempt_procfs);
    if (error)
        return fail_set(fail, "mount /proc (the one here is masked)", error);
    userns = userns_make(context, 0, fail);
    if (userns < 0)
        return -1;
    close(userns);
    return 0;
}
