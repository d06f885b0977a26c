/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/filter.h"
#include "base/alloc.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "daemon/confine_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef SECCOMP_FILTER_FLAG_SPEC_ALLOW
#define SECCOMP_FILTER_FLAG_SPEC_ALLOW (1UL << 2)
#endif

#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1 /* why SIGSYS came; libc's headers do not have it */
#endif

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define HAS_SANITIZER 1
#endif
#ifndef HAS_SANITIZER
#define HAS_SANITIZER 0
#endif

/*
 * A list of what is refused, not of what is allowed. The daemon's calls are those of libc, OpenSSL,
 * SQLite and libevent as well, which differ between the versions and architectures of the hosts
 * that it is built on: a list of allowed calls breaks with an update of a library, and is switched
 * off by the operator whom it has woken. Calls that are younger than this list do not exist for the
 * daemon: libraries try them and go on without, so that the future is not allowed by default.
 *
 * A refused call fails with EPERM and is reported in the log. It does not end the daemon: should a
 * library try one, sessions go on.
 */
/* clang-format off */
static const char *const refused[] = {
    /* other programs: the launcher, which starts them, is not started here */
    "execve", "execveat", "fork", "vfork",
    /* mounts and roots */
    "chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount",
    "open_tree", "pivot_root", "umount", "umount2",
    /* namespaces and identities */
    "setns", "unshare", "setfsgid", "setfsuid", "setgid", "setgroups", "setregid", "setresgid",
    "setresuid", "setreuid", "setuid", "capset", "personality",
    /* other processes */
    "kcmp", "migrate_pages", "move_pages", "pidfd_getfd", "process_madvise", "process_mrelease",
    "process_vm_readv", "process_vm_writev", "ptrace", "rt_sigqueueinfo",
    /* files by other ways than their paths */
    "fanotify_init", "fanotify_mark", "name_to_handle_at", "open_by_handle_at",
    /* parts of the kernel with a history */
    "add_key", "bpf", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup",
    "io_submit", "io_uring_enter", "io_uring_register", "io_uring_setup", "keyctl",
    "memfd_secret", "modify_ldt", "perf_event_open", "remap_file_pages", "request_key",
    "userfaultfd", "vm86", "vm86old", "vmsplice",
    /* the host */
    "acct", "adjtimex", "clock_adjtime", "clock_settime", "create_module", "delete_module",
    "finit_module", "get_kernel_syms", "init_module", "ioperm", "iopl", "kexec_file_load",
    "kexec_load", "lookup_dcookie", "nfsservctl", "query_module", "quotactl", "quotactl_fd",
    "reboot", "setdomainname", "sethostname", "settimeofday", "stime", "swapoff", "swapon",
    "sysfs", "_sysctl", "syslog", "uselib", "ustat", "vhangup",
};
/* clang-format on */

/* statmount, listmount, lsm_set_self_attr and open_tree_attr, younger than libseccomp's table. The
 * numbers are those of all architectures. */
static const int refused_numbers[] = { 457, 458, 460, 467 };

enum { YOUNGEST_CALL = 469 };

/* Everything that makes a namespace by clone. */
#define CLONE_NAMESPACES 0x7e020000U

static int number_of(const char *name)
{
    return seccomp_syscall_resolve_name(name); /* negative where this architecture lacks it */
}

static void add_plain(struct filter *filter)
{
    for (int number = 0; number < FILTER_CALLS; number++) {
        if (number <= YOUNGEST_CALL)
            filter_allow(filter, number);
        else
            filter_hide(filter, number);
    }
    for (size_t i = 0; i < ARRAY_LENGTH(refused); i++)
        filter_refuse(filter, number_of(refused[i]));
    for (size_t i = 0; i < ARRAY_LENGTH(refused_numbers); i++)
        filter_refuse(filter, refused_numbers[i]);
}

#define ALL_BITS(argument, bits)                       \
    {                                                  \
        (argument), (uint32_t)(bits), (uint32_t)(bits) \
    }
#define EQUALS(argument, value)                   \
    {                                             \
        (argument), UINT32_MAX, (uint32_t)(value) \
    }

/* Threads, and nothing else. With clone3, whose flags cannot be looked at, libc goes on without. */
static void add_threads(struct filter *filter)
{
    const struct filter_condition is_thread[] = { ALL_BITS(0, CLONE_THREAD) };

    filter_add_row(filter_allow_if(filter, number_of("clone")), is_thread, 1);
    filter_hide(filter, number_of("clone3"));
}

/* Sockets of listeners and resolvers, and the netlink socket that tells whose the other end of a
 * connection is. */
static void add_sockets(struct filter *filter)
{
    enum { FLAGS = SOCK_CLOEXEC | SOCK_NONBLOCK };
    static const struct filter_condition kinds[][2] = {
        { EQUALS(0, AF_NETLINK), EQUALS(2, NETLINK_ROUTE) },
        { EQUALS(0, AF_NETLINK), EQUALS(2, NETLINK_SOCK_DIAG) },
        { EQUALS(0, AF_INET), { 1, (uint32_t)~FLAGS, SOCK_STREAM } },
        { EQUALS(0, AF_INET), { 1, (uint32_t)~FLAGS, SOCK_DGRAM } },
        { EQUALS(0, AF_INET6), { 1, (uint32_t)~FLAGS, SOCK_STREAM } },
        { EQUALS(0, AF_INET6), { 1, (uint32_t)~FLAGS, SOCK_DGRAM } },
    };
    const struct filter_condition is_unix[] = { EQUALS(0, AF_UNIX) };
    struct filter_check *check = filter_allow_if(filter, number_of("socket"));

    filter_add_row(check, is_unix, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++)
        filter_add_row(check, kinds[i], ARRAY_LENGTH(kinds[i]));
}

/* A daemon in the foreground shares the operator's terminal: it does not type there. */
static void add_terminals(struct filter *filter)
{
    static const unsigned long requests[] = { TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD };
    struct filter_check *check = filter_refuse_if(filter, number_of("ioctl"));

    for (size_t i = 0; i < ARRAY_LENGTH(requests); i++) {
        const struct filter_condition request[] = { EQUALS(1, requests[i]) };

        filter_add_row(check, request, 1);
    }
}

/* Pages cannot be written and executed, and device nodes cannot be made. */
static void add_pages_and_nodes(struct filter *filter)
{
    const struct filter_condition writable[] = { ALL_BITS(2, PROT_WRITE | PROT_EXEC) };
    const struct filter_condition executable[] = { ALL_BITS(2, PROT_EXEC) };

    filter_add_row(filter_refuse_if(filter, number_of("mmap")), writable, 1);
    filter_add_row(filter_refuse_if(filter, number_of("mprotect")), executable, 1);
    filter_add_row(filter_refuse_if(filter, number_of("pkey_mprotect")), executable, 1);
    filter_refuse(filter, number_of("mknod"));
    filter_refuse(filter, number_of("mknodat"));
}

/* Its check for leaks, at the end of the process, starts a child that looks at this process. */
static void add_sanitizer(struct filter *filter)
{
    const struct filter_condition no_namespace[] = { { 0, CLONE_NAMESPACES, 0 } };

    if (!HAS_SANITIZER)
        return;
    filter_add_row(filter_allow_if(filter, number_of("clone")), no_namespace, 1);
    filter_allow(filter, number_of("ptrace"));
}

/* --- telling about it ---------------------------------------------------------------------- */

static int refused_pipe[2] = { -1, -1 };

int confine_calls_pipe(void)
{
    return refused_pipe[0];
}

#if defined(__x86_64__)
#define RESULT_REGISTER(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define RESULT_REGISTER(context) ((context)->uc_mcontext.regs[0])
#endif

#ifdef RESULT_REGISTER

/* Runs in place of the refused call, on the thread that made it, as a signal handler. */
static void on_refused(int signal_number UNUSED, siginfo_t *info, void *context)
{
    int saved = errno;

    if (info->si_code == SYS_SECCOMP) {
        (void)!write(refused_pipe[1], &info->si_syscall, sizeof(info->si_syscall));
        RESULT_REGISTER((ucontext_t *)context) = -EPERM;
    }
    errno = saved;
}

static int tell_refusals(struct filter *filter)
{
    struct sigaction action = { .sa_sigaction = on_refused, .sa_flags = SA_SIGINFO | SA_RESTART };

    if (refused_pipe[0] < 0 && pipe2(refused_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    filter->refusal = SECCOMP_RET_TRAP;
    return sigaction(SIGSYS, &action, NULL);
}

#else

/* How a handler answers for the kernel is not known here: the kernel refuses in silence. */
static int tell_refusals(struct filter *filter UNUSED)
{
    return 0;
}

#endif

/* --- putting it up ------------------------------------------------------------------------- */

int confine_calls_probe(void)
{
    unsigned action = SECCOMP_RET_TRAP;

    return (int)syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action);
}

static int install(const struct filter *filter)
{
    struct sock_fprog program = { .len = (unsigned short)filter->length,
                                  .filter = (struct sock_filter *)filter->code };

    /* Without the second flag older kernels also switch speculation off, which costs more than the
     * filter. */
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                        SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program);
}

int confine_calls(void)
{
    scoped(free) struct filter *filter = xnew(struct filter);

    add_plain(filter);
    add_threads(filter);
    add_sockets(filter);
    add_terminals(filter);
    add_pages_and_nodes(filter);
    add_sanitizer(filter);
    if (tell_refusals(filter) < 0)
        return -1;
    if (filter_compile(filter, seccomp_arch_native()) < 0) {
        errno = E2BIG;
        return -1;
    }
    return install(filter);
}
