/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/seccomp.h"

#include "backend/native/filter.h"
#include "base/alloc.h"
#include "base/macros.h"
#include "base/scoped.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <seccomp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* All flags that make a namespace; CLONE_NEWTIME cannot be given to clone. */
#define CLONE_NAMESPACES 0x7e020000U

/* clang-format off */
static const char *const allowed[] = {
    /* files */
    "access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup",
    "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod",
    "fchmodat", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock",
    "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futimesat", "getcwd",
    "getdents", "getdents64", "getxattr", "lchown", "lgetxattr", "link", "linkat", "listxattr",
    "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat", "newfstatat",
    "open", "openat", "openat2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2",
    "read", "readahead", "readlink", "readlinkat", "readv", "removexattr", "rename", "renameat",
    "renameat2", "rmdir", "setxattr", "stat", "statfs", "statx", "symlink",
    "symlinkat", "sync_file_range", "syncfs", "truncate", "umask", "unlink",
    "unlinkat", "utime", "utimensat", "utimes", "write", "writev", "chroot",
    /* waiting */
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait",
    "eventfd", "eventfd2", "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch",
    "pipe", "pipe2", "poll", "ppoll", "pselect6", "select", "signalfd", "signalfd4",
    "timerfd_create", "timerfd_gettime", "timerfd_settime",
    /* memory */
    "brk", "get_mempolicy", "madvise", "mbind", "membarrier", "mincore", "mlock",
    "mlock2", "mlockall", "mprotect", "mremap", "msync", "munlock", "munlockall", "munmap",
    "pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages", "set_mempolicy",
    /* processes */
    "alarm", "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork",
    "futex", "futex_waitv", "get_robust_list", "get_thread_area", "getcpu", "getegid", "geteuid",
    "getgid", "getgroups", "getitimer", "getpgid", "getpgrp", "getpid", "getppid", "getpriority",
    "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "gettid", "getuid", "ioprio_get",
    "ioprio_set", "kill", "pause", "pidfd_open", "pidfd_send_signal", "process_mrelease",
    "restart_syscall", "rseq", "sched_get_priority_max", "sched_get_priority_min",
    "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
    "sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam",
    "sched_setscheduler", "sched_yield", "set_robust_list", "set_thread_area", "set_tid_address",
    "setfsgid", "setfsuid", "setgid", "setgroups", "setitimer", "setpgid", "setpriority",
    "setregid", "setresgid", "setresuid", "setreuid", "setsid", "setuid",
    "sigaltstack", "tgkill", "time", "times", "tkill", "uname", "vfork", "wait4", "waitid",
    /* signals and time */
    "clock_getres", "clock_gettime", "clock_nanosleep", "gettimeofday", "nanosleep", "rt_sigaction",
    "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend",
    "rt_sigtimedwait", "rt_tgsigqueueinfo", "timer_create", "timer_delete", "timer_getoverrun",
    "timer_gettime", "timer_settime",
    /* sockets, once made */
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen",
    "shutdown",
    /* IPC, in a namespace of its own */
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink",
    "msgctl", "msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat",
    "shmctl", "shmdt",
    /* the rest */
    "getrandom", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "seccomp", "sysinfo",
};
/* clang-format on */

/* Calls that are younger than libseccomp's table. The numbers are those of all architectures. */
static const struct {
    int number;
    const char *name;
} young[] = {
    { 452, "fchmodat2" },     { 453, "map_shadow_stack" }, { 454, "futex_wake" },
    { 455, "futex_wait" },    { 456, "futex_requeue" },    { 462, "mseal" },
    { 463, "setxattrat" },    { 464, "getxattrat" },       { 465, "listxattrat" },
    { 466, "removexattrat" },
};

static const char *const conditional[] = {
    "clone",     "socket",    "socketpair", "ioctl",    "personality",  "mknod",    "mknodat",
    "prlimit64", "setrlimit", "prctl",      "mmap",     "memfd_create", "shmget",   "setsockopt",
    "sendto",    "sendmsg",   "sendmmsg",   "recvfrom", "recvmsg",      "recvmmsg",
};

/* These calls pass pages of files without a copy. With the template host they are pages of the
 * host's own /usr, and a kernel bug that writes into one of them changes the host. The strict
 * filter hides these calls: programs work without them. */
static const char *const handing_on[] = { "splice", "vmsplice", "tee", "sendfile" };

/* Asynchronous input and output draws on one number for the whole host. */
static const char *const hidden[] = { "io_setup", "io_destroy", "io_submit", "io_cancel",
                                      "io_getevents" };

bool seccomp_allows(const char *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(allowed); i++) {
        if (strcmp(allowed[i], name) == 0)
            return true;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(conditional); i++) {
        if (strcmp(conditional[i], name) == 0)
            return true;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(handing_on); i++) {
        if (strcmp(handing_on[i], name) == 0)
            return true;
    }
    return false;
}

static int number_of(const char *name)
{
    return seccomp_syscall_resolve_name(name); /* negative where this architecture lacks it */
}

char *seccomp_name_of(int number)
{
    for (size_t i = 0; i < ARRAY_LENGTH(young); i++)
        if (young[i].number == number)
            return xstrdup(young[i].name);
    return seccomp_syscall_resolve_num_arch(seccomp_arch_native(), number);
}

static void add_plain(struct filter *filter)
{
    for (size_t i = 0; i < ARRAY_LENGTH(allowed); i++)
        filter_allow(filter, number_of(allowed[i]));
    for (size_t i = 0; i < ARRAY_LENGTH(young); i++)
        filter_allow(filter, young[i].number);
    for (size_t i = 0; i < ARRAY_LENGTH(hidden); i++)
        filter_hide(filter, number_of(hidden[i]));
    /* sync() would flush all file systems of the host; a sandbox's files are in memory. */
    filter_ignore(filter, number_of("sync"));
}

/* An argument with a value, and one of which only some bits count. */
#define IS(argument, value)                       \
    {                                             \
        (argument), UINT32_MAX, (uint32_t)(value) \
    }
#define HAS(argument, mask, value)                      \
    {                                                   \
        (argument), (uint32_t)(mask), (uint32_t)(value) \
    }

static void add_clone(struct filter *filter)
{
    const struct filter_condition no_namespace[] = { HAS(0, CLONE_NAMESPACES, 0) };

    filter_add_row(filter_allow_if(filter, number_of("clone")), no_namespace, 1);
    filter_hide(filter, number_of("clone3"));
}

/* Unix sockets, TCP and UDP, and the one netlink family that resolvers ask for addresses. */
static void add_sockets(struct filter *filter)
{
    /* The program is compiled for each sandbox, so pairs that differ in one bit share a row. */
    enum { FLAGS = SOCK_CLOEXEC | SOCK_NONBLOCK, INET_BIT = AF_INET ^ AF_INET6 };
    static const struct filter_condition kinds[][3] = {
        { IS(0, AF_NETLINK), HAS(1, ~(FLAGS | (SOCK_RAW ^ SOCK_DGRAM)), SOCK_DGRAM), IS(2, 0) },
        { HAS(0, ~INET_BIT, AF_INET), HAS(1, ~FLAGS, SOCK_STREAM), IS(2, IPPROTO_IP) },
        { HAS(0, ~INET_BIT, AF_INET), HAS(1, ~FLAGS, SOCK_STREAM), IS(2, IPPROTO_TCP) },
        { HAS(0, ~INET_BIT, AF_INET), HAS(1, ~FLAGS, SOCK_DGRAM), IS(2, IPPROTO_IP) },
        { HAS(0, ~INET_BIT, AF_INET), HAS(1, ~FLAGS, SOCK_DGRAM), IS(2, IPPROTO_UDP) },
    };
    const struct filter_condition is_unix[] = { IS(0, AF_UNIX) };
    const struct filter_condition is_audit[] = { IS(0, AF_NETLINK), IS(2, NETLINK_AUDIT) };
    struct filter_check *check = filter_allow_if(filter, number_of("socket"));

    filter_add_row(check, is_unix, 1);
    /* Programs that manage accounts fail if the audit socket is refused, but not if the protocol is
     * absent. */
    filter_add_absent(check, is_audit, ARRAY_LENGTH(is_audit));
    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++)
        filter_add_row(check, kinds[i], ARRAY_LENGTH(kinds[i]));
    filter_add_row(filter_allow_if(filter, number_of("socketpair")), is_unix, 1);
}

/* All ioctls but the two that put characters into a terminal, the one that takes over the console,
 * and the one that puts a driver of the kernel on top of a terminal. */
static void add_ioctl(struct filter *filter)
{
    static const unsigned long requests[] = { TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD };
    struct filter_check *check = filter_refuse_if(filter, number_of("ioctl"));

    for (size_t i = 0; i < ARRAY_LENGTH(requests); i++) {
        const struct filter_condition request[] = { IS(1, requests[i]) };

        filter_add_row(check, request, 1);
    }
}

/* Pages of the host's own pool, which no limit of the sandbox counts. */
static void add_huge_pages(struct filter *filter)
{
    const struct filter_condition mapped[] = { HAS(3, MAP_HUGETLB, MAP_HUGETLB) };
    const struct filter_condition file[] = { HAS(1, MFD_HUGETLB, MFD_HUGETLB) };
    const struct filter_condition segment[] = { HAS(2, SHM_HUGETLB, SHM_HUGETLB) };

    filter_add_row(filter_refuse_if(filter, number_of("mmap")), mapped, 1);
    filter_add_row(filter_refuse_if(filter, number_of("memfd_create")), file, 1);
    filter_add_row(filter_refuse_if(filter, number_of("shmget")), segment, 1);
}

/* Core scheduling is a matter of the whole host; protocols above TCP and UDP and leases of flow
 * labels are kernel code that no program inside needs. */
static void add_options(struct filter *filter)
{
    enum { IPV6_FLOW_LABELS = 32 }; /* in a header that excludes netinet/in.h */
    static const struct filter_condition options[][2] = {
        { IS(1, IPPROTO_TCP), IS(2, TCP_ULP) },
        { IS(1, IPPROTO_UDP), IS(2, UDP_ENCAP) },
        { IS(1, IPPROTO_IPV6), IS(2, IPV6_FLOW_LABELS) },
    };
    const struct filter_condition scheduling[] = { IS(0, PR_SCHED_CORE) };
    struct filter_check *check = filter_refuse_if(filter, number_of("setsockopt"));

    filter_add_row(filter_refuse_if(filter, number_of("prctl")), scheduling, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(options); i++)
        filter_add_row(check, options[i], ARRAY_LENGTH(options[i]));
}

/* Urgent data: nothing but old protocols uses it, and on unix sockets it has had more bugs than
 * users. */
static void add_urgent(struct filter *filter)
{
    static const struct {
        const char *name;
        unsigned flags; /* which argument */
    } calls[] = { { "sendto", 3 },   { "sendmsg", 2 }, { "sendmmsg", 3 },
                  { "recvfrom", 3 }, { "recvmsg", 2 }, { "recvmmsg", 3 } };

    for (size_t i = 0; i < ARRAY_LENGTH(calls); i++) {
        const struct filter_condition urgent[] = { HAS(calls[i].flags, MSG_OOB, MSG_OOB) };

        filter_add_row(filter_refuse_if(filter, number_of(calls[i].name)), urgent, 1);
    }
}

static void add_handing_on(struct filter *filter, enum seccomp_tier tier)
{
    for (size_t i = 0; i < ARRAY_LENGTH(handing_on); i++) {
        if (tier == SECCOMP_STRICT)
            filter_hide(filter, number_of(handing_on[i]));
        else
            filter_allow(filter, number_of(handing_on[i]));
    }
}

static bool dumps_are_piped(void)
{
    scoped(fd_close) int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY | O_CLOEXEC);
    char first = 0;

    return fd >= 0 && read(fd, &first, 1) == 1 && first == '|';
}

/* Limits are for oneself alone, because root of the sandbox has init's user id; with asks_limits
 * those of others may be read. Where the host pipes core dumps into a program of its own, the limit
 * that keeps them off is 1 and must stay: 0 does not count then. */
static void add_limits(struct filter *filter, const struct seccomp_options *options)
{
    bool is_core_free = !options->is_foreign && !dumps_are_piped();
    const struct filter_condition own[] = { IS(0, 0) };
    const struct filter_condition ask[] = { IS(2, 0), IS(2 + FILTER_HIGH, 0) };
    const struct filter_condition set_core[] = { IS(1, RLIMIT_CORE) };
    const struct filter_condition old_set_core[] = { IS(0, RLIMIT_CORE) };
    struct filter_check *check = filter_allow_if(filter, number_of("prlimit64"));

    if (options->asks_limits)
        filter_add_row(check, ask, ARRAY_LENGTH(ask));
    if (is_core_free) {
        filter_add_row(check, own, 1);
        filter_allow(filter, number_of("setrlimit"));
        return;
    }
    filter_add_refused(check, set_core, 1);
    filter_add_row(check, own, 1);
    filter_add_row(filter_refuse_if(filter, number_of("setrlimit")), old_set_core, 1);
}

/* No device nodes: overlayfs takes a character device 0:0 for a deletion. */
static void add_nodes(struct filter *filter)
{
    /* Nothing or a pipe, a file or a socket. */
    static const struct {
        unsigned mask, value;
    } kinds[] = { { S_IFMT & ~S_IFIFO, 0 }, { S_IFMT & ~(S_IFREG ^ S_IFSOCK), S_IFREG } };
    struct filter_check *mknod_check = filter_allow_if(filter, number_of("mknod"));
    struct filter_check *mknodat_check = filter_allow_if(filter, number_of("mknodat"));

    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        const struct filter_condition second[] = { HAS(1, kinds[i].mask, kinds[i].value) };
        const struct filter_condition third[] = { HAS(2, kinds[i].mask, kinds[i].value) };

        filter_add_row(mknod_check, second, 1);
        filter_add_row(mknodat_check, third, 1);
    }
}

/* Allows the plain personality and the query of the current one. */
static void add_others(struct filter *filter)
{
    const struct filter_condition zero[] = { IS(0, 0) };
    const struct filter_condition query[] = { IS(0, UINT32_MAX) };
    struct filter_check *check = filter_allow_if(filter, number_of("personality"));

    filter_add_row(check, zero, 1);
    filter_add_row(check, query, 1);
}

static int write_program(const struct filter *filter, struct error *err)
{
    size_t size = filter->length * sizeof(filter->code[0]);
    scoped(fd_close) int fd = memfd_create("seccomp", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || write(fd, filter->code, size) != (ssize_t)size)
        return error_sys(err, "seccomp: write the program");
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return error_sys(err, "seccomp: seal the program");
    return steal_fd(&fd);
}

void seccomp_fill(struct filter *filter, const struct seccomp_options *options)
{
    add_plain(filter);
    add_clone(filter);
    add_sockets(filter);
    add_ioctl(filter);
    add_nodes(filter);
    add_others(filter);
    add_huge_pages(filter);
    add_options(filter);
    add_urgent(filter);
    add_handing_on(filter, options->tier);
    add_limits(filter, options);
}

int seccomp_compile(const struct seccomp_options *options, struct error *err)
{
    scoped(free) struct filter *filter = xnew(struct filter);

    seccomp_fill(filter, options);
    if (filter_compile(filter, seccomp_arch_native()) < 0)
        return error_set(err, ERR_INTERNAL, "seccomp: the program is too long");
    return write_program(filter, err);
}
