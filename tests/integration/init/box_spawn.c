/* SPDX-License-Identifier: Apache-2.0 */
#include "box_spawn.h"

#include "base/macros.h"
#include "wire/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_ARGUMENTS = 16, NOBODY = 65534 };

/* As the launcher does: init lets nobody in who has this limit. */
static void mark_as_inside(void)
{
    struct rlimit limit;

    if (getrlimit(INSIDE_RESOURCE, &limit) < 0)
        _exit(113);
    limit.rlim_max = inside_limit(limit.rlim_max);
    limit.rlim_cur = limit.rlim_cur < limit.rlim_max ? limit.rlim_cur : limit.rlim_max;
    if (setrlimit(INSIDE_RESOURCE, &limit) < 0)
        _exit(113);
}

/* A kernel such as gVisor, which lacks some calls: see src/init/README.md. */
static void become_poor(void)
{
    enum {
        CALL = offsetof(struct seccomp_data, nr),
        ARGUMENTS = offsetof(struct seccomp_data, args)
    };
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, CALL),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 11, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setfsuid, 10, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setfsgid, 9, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENTS + 8),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ~0u, 0, 3),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENTS + 8),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCGPTPEER, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    };
    struct sock_fprog filter = { ARRAY_LENGTH(program), program };

    if (geteuid() != 0)
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        _exit(114);
}

/* What container engines leave to root, of which an exec gives root no more than the bounding set. */
static void become_root_of_container(void)
{
    static const unsigned kept[] = {
        CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,  CAP_FSETID,           CAP_KILL,
        CAP_SETGID, CAP_SETUID,       CAP_SETPCAP, CAP_NET_BIND_SERVICE,
    };
    uint64_t keep = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(kept); i++)
        keep |= 1ull << kept[i];
    for (unsigned i = 0; i <= CAP_LAST_CAP; i++)
        if (!(keep & 1ull << i))
            prctl(PR_CAPBSET_DROP, i, 0, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        _exit(115);
}

static void take_rights(enum box_rights rights)
{
    switch (rights) {
    case BOX_ALL_RIGHTS:
        return;
    case BOX_ROOT_OF_CONTAINER:
        become_root_of_container();
        return;
    case BOX_NOBODY:
        if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
            setresuid(NOBODY, NOBODY, NOBODY) < 0)
            _exit(116);
        return;
    }
}

static void place_descriptors(const struct box_spawn *options)
{
    int high = options->socket >= 0 ? fcntl(options->socket, F_DUPFD, 10) : -1;
    int filter = options->filter_fd >= 0 ? fcntl(options->filter_fd, F_DUPFD, 10) : -1;

    if (high >= 0)
        dup2(high, 3);
    else
        close(3);
    if (filter >= 0)
        dup2(filter, 4);
}

static void become_init(const struct box_spawn *options, char *const *argv)
{
    static const char *const nothing[] = { NULL };
    const char *const *environment = options->environment ? options->environment : nothing;

    if (options->mode == BOX_NAMESPACE &&
        (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
         mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0))
        _exit(111);
    if (options->mode == BOX_DIRECT)
        mark_as_inside();
    place_descriptors(options);
    take_rights(options->rights);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing running */
    if (getenv("SANDGLASS_KERNEL_IS_POOR"))
        become_poor();
    execve(getenv("SANDGLASS_INIT"), argv, (char *const *)(uintptr_t)environment);
    _exit(112);
}

pid_t box_spawn(const struct box_spawn *options)
{
    char *argv[MAX_ARGUMENTS] = { (char *)(uintptr_t) "sandglass-init" };
    const char *const *argument = options->arguments;
    unsigned long flags = SIGCHLD;
    size_t count = 1;
    pid_t pid;

    assert_non_null(getenv("SANDGLASS_INIT"));
    if (options->mode == BOX_DIRECT)
        argv[count++] = (char *)(uintptr_t) "--direct";
    else
        flags |= CLONE_NEWPID | CLONE_NEWNS;
    for (; argument && *argument; argument++)
        argv[count++] = (char *)(uintptr_t)*argument;
    assert_true(count < MAX_ARGUMENTS);
    pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
    if (!pid)
        become_init(options, argv);
    assert_true(pid > 0);
    return pid;
}
