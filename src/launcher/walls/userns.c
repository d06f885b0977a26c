/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/userns.h"

#include "launcher/sys.h"
#include "launcher/walls/ids.h"
#include "launcher/walls/mounts.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { CAPABILITY_VERSION = 0x20080522 };

static int write_at(int dir, const char *path, const char *text)
{
    int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);
    ssize_t written;
    int failure;

    if (fd < 0)
        return -1;
    written = write(fd, text, strlen(text));
    failure = errno;
    close(fd);
    errno = failure;
    return written < 0 ? -1 : 0;
}

/* The kernel charges inotify and other per-user limits to the user that made the namespace, which
 * must differ between sandboxes. Capabilities are restored by hand, because leaving uid 0 drops
 * them. */
static void change_owner(uid_t uid)
{
    struct {
        uint32_t version;
        int pid;
    } header = { .version = CAPABILITY_VERSION };
    struct {
        uint32_t effective, permitted, inheritable;
    } sets[2];

    if (syscall(SYS_setresuid, -1, uid, -1) < 0 || syscall(SYS_capget, &header, sets) < 0)
        return;
    sets[0].effective = sets[0].permitted;
    sets[1].effective = sets[1].permitted;
    (void)syscall(SYS_capset, &header, sets);
}

/* The steps of the process that holds a new namespace, as it reports them. */
enum hold_step { HOLD_MADE, HOLD_MAKE, HOLD_FORBID };

static const char *const hold_steps[] = {
    [HOLD_MAKE] = "make a user namespace",
    [HOLD_FORBID] = "forbid user namespaces inside (write /proc/sys)",
};

struct hold_report {
    int32_t failed; /* enum hold_step; HOLD_MADE: nothing did */
    int32_t error;
};

static void report(int channel, enum hold_step failed)
{
    struct hold_report report = { .failed = failed, .error = failed ? errno : 0 };

    if (write(channel, &report, sizeof(report)) != sizeof(report) || failed)
        _exit(1);
}

/* Holds the namespace until the launcher has it: two reports there, one byte back. */
static _Noreturn void hold(const struct context *context, uint32_t slot, int channel)
{
    int proc = mount_procfs(context->state.proc); /* no longer allowed in a namespace of our own */
    char byte = 0;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (context->root)
        change_owner(ids_first(context, slot));
    report(channel, unshare(CLONE_NEWUSER) < 0 ? HOLD_MAKE : HOLD_MADE);
    if (read(channel, &byte, 1) != 1)
        _exit(1);
    report(channel,
           write_at(proc, "sys/user/max_user_namespaces", "0") < 0 ? HOLD_FORBID : HOLD_MADE);
    (void)!read(channel, &byte, 1);
    _exit(0);
}

/* Any process inside could write it, once, and the next owner would read it. Without root the
 * launcher's own namespace maps no project ids, so no namespace below it can have any. */
static int write_project_map(const struct context *context, pid_t pid, const char *map)
{
    char path[48];

    snprintf(path, sizeof(path), "%d/projid_map", (int)pid);
    if (write_at(context->state.proc, path, map) == 0)
        return 0;
    return !context->root && errno == EPERM ? 0 : -1;
}

static int write_maps(const struct context *context, pid_t pid, uint32_t slot)
{
    char path[48];
    char map[64];

    if (ids_are_many(context))
        snprintf(map, sizeof(map), "0 %u %u", ids_first(context, slot), LAUNCH_IDS_PER_SLOT);
    else
        snprintf(map, sizeof(map), "%u 0 1", IDS_USER);
    snprintf(path, sizeof(path), "%d/uid_map", (int)pid);
    if (write_at(context->state.proc, path, map) < 0)
        return -1;
    if (!ids_are_many(context)) {
        snprintf(path, sizeof(path), "%d/setgroups", (int)pid);
        (void)write_at(context->state.proc, path, "deny");
    }
    snprintf(path, sizeof(path), "%d/gid_map", (int)pid);
    if (write_at(context->state.proc, path, map) < 0)
        return -1;
    return write_project_map(context, pid, map);
}

static int await_report(int channel, struct fail *fail)
{
    struct hold_report report = { 0 };

    if (read(channel, &report, sizeof(report)) != sizeof(report))
        return fail_set(fail, "make a user namespace", ECHILD);
    if (report.failed == HOLD_MADE)
        return 0;
    assert(report.failed == HOLD_MAKE || report.failed == HOLD_FORBID);
    return fail_set(fail, hold_steps[report.failed], report.error ? report.error : EIO);
}

static int take_namespace(const struct context *context, pid_t pid, uint32_t slot, int channel,
                          struct fail *fail)
{
    char path[48];
    char byte = 0;
    int fd;

    if (await_report(channel, fail) < 0)
        return -1;
    if (write_maps(context, pid, slot) < 0)
        return fail_sys(fail, "map the ids of a user namespace");
    if (write(channel, &byte, 1) != 1)
        return fail_sys(fail, "make a user namespace");
    if (await_report(channel, fail) < 0)
        return -1;
    snprintf(path, sizeof(path), "%d/ns/user", (int)pid);
    fd = openat(context->state.proc, path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? fail_sys(fail, "open a user namespace") : fd;
}

int userns_make(const struct context *context, uint32_t slot, struct fail *fail)
{
    int channel[2];
    pid_t pid;
    int fd;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) < 0)
        return fail_sys(fail, "make a socket pair");
    pid = fork();
    if (pid == 0) {
        close(channel[0]);
        hold(context, slot, channel[1]);
    }
    close(channel[1]);
    fd = pid < 0 ? fail_sys(fail, "fork") : take_namespace(context, pid, slot, channel[0], fail);
    close(channel[0]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    return fd;
}
