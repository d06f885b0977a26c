#include "backend/native/seccomp.h"

#include "base/macros.h"
#include "base/scoped.h"

#include <errno.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* Everything that makes a namespace; CLONE_NEWTIME cannot be given to clone. */
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
    "renameat2", "rmdir", "sendfile", "setxattr", "splice", "stat", "statfs", "statx", "symlink",
    "symlinkat", "sync", "sync_file_range", "syncfs", "tee", "truncate", "umask", "unlink",
    "unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write", "writev", "chroot",
    /* waiting */
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait",
    "eventfd", "eventfd2", "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch",
    "pipe", "pipe2", "poll", "ppoll", "pselect6", "select", "signalfd", "signalfd4",
    "timerfd_create", "timerfd_gettime", "timerfd_settime",
    /* memory */
    "brk", "get_mempolicy", "madvise", "mbind", "membarrier", "memfd_create", "mincore", "mlock",
    "mlock2", "mlockall", "mmap", "mprotect", "mremap", "msync", "munlock", "munlockall", "munmap",
    "pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages", "set_mempolicy",
    /* processes */
    "alarm", "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork",
    "futex", "futex_waitv", "get_robust_list", "get_thread_area", "getcpu", "getegid", "geteuid",
    "getgid", "getgroups", "getitimer", "getpgid", "getpgrp", "getpid", "getppid", "getpriority",
    "getresgid", "getresuid", "getrlimit", "getrusage", "getsid", "gettid", "getuid", "ioprio_get",
    "ioprio_set", "kill", "pause", "pidfd_open", "pidfd_send_signal", "prctl", "process_mrelease",
    "restart_syscall", "rseq", "sched_get_priority_max", "sched_get_priority_min",
    "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
    "sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam",
    "sched_setscheduler", "sched_yield", "set_robust_list", "set_thread_area", "set_tid_address",
    "setfsgid", "setfsuid", "setgid", "setgroups", "setitimer", "setpgid", "setpriority",
    "setregid", "setresgid", "setresuid", "setreuid", "setrlimit", "setsid", "setuid",
    "sigaltstack", "tgkill", "time", "times", "tkill", "uname", "vfork", "wait4", "waitid",
    /* signals and time */
    "clock_getres", "clock_gettime", "clock_nanosleep", "gettimeofday", "nanosleep", "rt_sigaction",
    "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend",
    "rt_sigtimedwait", "rt_tgsigqueueinfo", "timer_create", "timer_delete", "timer_getoverrun",
    "timer_gettime", "timer_settime",
    /* sockets, once made */
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen",
    "recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown",
    /* IPC, in a namespace of its own */
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink",
    "msgctl", "msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat",
    "shmctl", "shmdt", "shmget",
    /* the rest */
    "getrandom", "io_cancel", "io_destroy", "io_getevents", "io_setup", "io_submit",
    "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "seccomp", "sysinfo",
};
/* clang-format on */

/* Calls that are younger than libseccomp's table: cachestat, fchmodat2, map_shadow_stack, the futex
 * trio, mseal, and the xattr calls relative to a directory. The numbers are those of all
 * architectures. */
static const int allowed_numbers[] = { 451, 452, 453, 454, 455, 456, 462, 463, 464, 465, 466 };

static const char *const conditional[] = { "clone",       "socket", "socketpair", "ioctl",
                                           "personality", "mknod",  "mknodat",    "prlimit64" };

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
    return false;
}

/* A rule is added for the call if this architecture has it. */
static int allow_if(scmp_filter_ctx filter, const char *name, unsigned count,
                    const struct scmp_arg_cmp *conditions)
{
    int number = seccomp_syscall_resolve_name(name);

    if (number == __NR_SCMP_ERROR || number < 0)
        return 0;
    return seccomp_rule_add_array(filter, SCMP_ACT_ALLOW, number, count, conditions);
}

static int add_plain(scmp_filter_ctx filter)
{
    for (size_t i = 0; i < ARRAY_LENGTH(allowed); i++) {
        if (allow_if(filter, allowed[i], 0, NULL) < 0)
            return -1;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(allowed_numbers); i++) {
        if (seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed_numbers[i], 0) < 0)
            return -1;
    }
    return 0;
}

static int add_clone(scmp_filter_ctx filter)
{
    struct scmp_arg_cmp no_namespace = SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NAMESPACES, 0);
    int clone3 = seccomp_syscall_resolve_name("clone3");

    if (allow_if(filter, "clone", 1, &no_namespace) < 0)
        return -1;
    return seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), clone3, 0);
}

/* Unix sockets, TCP and UDP, and the one netlink family that resolvers ask for addresses. */
static int add_sockets(scmp_filter_ctx filter)
{
    static const struct {
        int family, type, protocol;
    } kinds[] = {
        { AF_INET, SOCK_STREAM, 0 },   { AF_INET, SOCK_STREAM, 6 },  { AF_INET, SOCK_DGRAM, 0 },
        { AF_INET, SOCK_DGRAM, 17 },   { AF_INET6, SOCK_STREAM, 0 }, { AF_INET6, SOCK_STREAM, 6 },
        { AF_INET6, SOCK_DGRAM, 0 },   { AF_INET6, SOCK_DGRAM, 17 }, { AF_NETLINK, SOCK_RAW, 0 },
        { AF_NETLINK, SOCK_DGRAM, 0 },
    };
    struct scmp_arg_cmp is_unix = SCMP_A0(SCMP_CMP_EQ, AF_UNIX);

    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        const struct scmp_arg_cmp conditions[] = {
            SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)kinds[i].family),
            SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff & ~(SOCK_CLOEXEC | SOCK_NONBLOCK),
                    (scmp_datum_t)kinds[i].type),
            SCMP_A2(SCMP_CMP_EQ, (scmp_datum_t)kinds[i].protocol),
        };

        if (allow_if(filter, "socket", ARRAY_LENGTH(conditions), conditions) < 0)
            return -1;
    }
    if (allow_if(filter, "socket", 1, &is_unix) < 0)
        return -1;
    return allow_if(filter, "socketpair", 1, &is_unix);
}

/*
 * All ioctls but TIOCSTI (0x5412) and TIOCLINUX (0x541c), which put characters into a terminal. The
 * kernel looks at the low 32 bits only, so "not equal" over 64 bits would let both through; the
 * complement is written with masks instead. The two have all bits but 0x0e in common.
 */
static int add_ioctl(scmp_filter_ctx filter)
{
    const uint32_t common = 0x5410;
    const uint32_t differing = 0x0e;

    for (unsigned bit = 0; bit < 32; bit++) {
        uint32_t mask = (uint32_t)1 << bit;
        struct scmp_arg_cmp differs = SCMP_A1(SCMP_CMP_MASKED_EQ, mask, ~common & mask);

        if (!(mask & differing) && allow_if(filter, "ioctl", 1, &differs) < 0)
            return -1;
    }
    for (uint32_t value = 0; value <= differing; value += 2) {
        struct scmp_arg_cmp is_other = SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffff, common | value);

        if (value == 0x02 || value == 0x0c)
            continue;
        if (allow_if(filter, "ioctl", 1, &is_other) < 0)
            return -1;
    }
    return 0;
}

/* No device nodes: overlayfs takes a character device 0:0 for a deletion. */
static int add_nodes(scmp_filter_ctx filter)
{
    static const unsigned kinds[] = { 0, S_IFREG, S_IFIFO, S_IFSOCK };

    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++) {
        struct scmp_arg_cmp second = SCMP_A1(SCMP_CMP_MASKED_EQ, S_IFMT, kinds[i]);
        struct scmp_arg_cmp third = SCMP_A2(SCMP_CMP_MASKED_EQ, S_IFMT, kinds[i]);

        if (allow_if(filter, "mknod", 1, &second) < 0 || allow_if(filter, "mknodat", 1, &third) < 0)
            return -1;
    }
    return 0;
}

/* The plain personality and the question which one it is; limits of oneself alone, because root of
 * the sandbox has init's user id. */
static int add_others(scmp_filter_ctx filter)
{
    struct scmp_arg_cmp plain = SCMP_A0(SCMP_CMP_EQ, 0);
    struct scmp_arg_cmp query = SCMP_A0(SCMP_CMP_EQ, 0xffffffff);

    if (allow_if(filter, "personality", 1, &plain) < 0 ||
        allow_if(filter, "prlimit64", 1, &plain) < 0)
        return -1;
    return allow_if(filter, "personality", 1, &query);
}

static void scoped_filter(scmp_filter_ctx *filter)
{
    if (*filter)
        seccomp_release(*filter);
}

int seccomp_compile(struct error *err)
{
    scoped(filter) scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    scoped(fd_close) int fd = -1;

    if (!filter)
        return error_set(err, ERR_INTERNAL, "seccomp: cannot make a filter");
    /* 2 is the binary tree: the kernel runs the filter once for each call number. */
    if (seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2) < 0 ||
        seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(EPERM)) < 0)
        return error_set(err, ERR_INTERNAL, "seccomp: the library is too old");
    if (add_plain(filter) < 0 || add_clone(filter) < 0 || add_sockets(filter) < 0 ||
        add_ioctl(filter) < 0 || add_nodes(filter) < 0 || add_others(filter) < 0)
        return error_set(err, ERR_INTERNAL, "seccomp: a rule was refused");
    fd = memfd_create("seccomp", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return error_sys(err, "seccomp: make a memory file");
    if (seccomp_export_bpf(filter, fd) < 0)
        return error_set(err, ERR_INTERNAL, "seccomp: export failed");
    return steal_fd(&fd);
}
