/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The system calls that libc has no wrapper for, with the few kernel structures and constants that
 * go with them. Written out here because the launcher is built against musl alone.
 *
 * All of them are plain calls without hidden state: they are safe in a child that shares its
 * parent's memory.
 */

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_move_mount 429
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#define SYS_fspick 433
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_send_signal 424
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif

#define SYS_CLONE_NEWCGROUP 0x02000000ULL
#define SYS_CLONE_INTO_CGROUP 0x200000000ULL
#define SYS_CLONE_PIDFD 0x1000ULL

#define SYS_RESOLVE_NO_XDEV 0x01
#define SYS_RESOLVE_NO_MAGICLINKS 0x02
#define SYS_RESOLVE_NO_SYMLINKS 0x04
#define SYS_RESOLVE_BENEATH 0x08
#define SYS_RESOLVE_IN_ROOT 0x10

#define SYS_OPEN_TREE_CLONE 1
#define SYS_AT_RECURSIVE 0x8000
#define SYS_MOVE_MOUNT_F_EMPTY_PATH 0x04
#define SYS_MOVE_MOUNT_T_EMPTY_PATH 0x40
#define SYS_FSMOUNT_CLOEXEC 1
#define SYS_FSOPEN_CLOEXEC 1
#define SYS_FSPICK_CLOEXEC 1
#define SYS_FSPICK_NO_SYMLINK 2
#define SYS_FSPICK_EMPTY_PATH 8

enum {
    SYS_FSCONFIG_FLAG = 0,
    SYS_FSCONFIG_STRING = 1,
    SYS_FSCONFIG_CREATE = 6,
    SYS_FSCONFIG_RECONFIGURE = 7
};

#define SYS_MOUNT_RDONLY 0x1
#define SYS_MOUNT_NOSUID 0x2
#define SYS_MOUNT_NODEV 0x4
#define SYS_MOUNT_NOEXEC 0x8
#define SYS_MOUNT_RELATIME 0x0
#define SYS_MOUNT_IDMAP 0x100000

#define SYS_CLOSE_RANGE_UNSHARE 2
#define SYS_CLOSE_RANGE_CLOEXEC 4
#define SYS_SO_COOKIE 57

struct sys_clone_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
        set_tid_size, cgroup;
};

/* One instruction of a seccomp program. */
struct sys_filter {
    uint16_t code;
    uint8_t if_true, if_false;
    uint32_t value;
};

struct sys_open_how {
    uint64_t flags, mode, resolve;
};

struct sys_mount_attr {
    uint64_t set, clear, propagation, userns_fd;
};

static inline int sys_openat2(int dir, const char *path, uint64_t flags, uint64_t resolve)
{
    struct sys_open_how how = { .flags = flags | O_CLOEXEC, .resolve = resolve };

    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

/* A name below a directory, through no link of any kind. */
static inline int sys_open_beneath(int dir, const char *path, int flags)
{
    return sys_openat2(dir, path, (uint64_t)flags,
                       SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_SYMLINKS | SYS_RESOLVE_NO_MAGICLINKS);
}

/* Closes a descriptor; -1 is fine. */
static inline void sys_close(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

/* Closes the descriptor and sets the variable to -1. */
static inline void sys_drop(int *fd)
{
    sys_close(*fd);
    *fd = -1;
}

static inline int64_t sys_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* libc's fcntl() would set the flag once more. */
static inline int sys_duplicate(int fd)
{
    return (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);
}

static inline int sys_pidfd_open(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static inline int sys_pidfd_kill(int pidfd, int signal_number)
{
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signal_number, NULL, 0);
}

/* A zombie is dead. */
static inline bool sys_pidfd_is_dead(int pidfd)
{
    struct pollfd watch = { .fd = pidfd, .events = POLLIN };

    return poll(&watch, 1, 0) == 1;
}

/* A copy of a descriptor of that process. */
static inline int sys_pidfd_getfd(int pidfd, int fd)
{
    return (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

/* 0 on failure. */
static inline uint64_t sys_inode(int fd)
{
    struct stat status;

    return fd < 0 || fstat(fd, &status) < 0 ? 0 : status.st_ino;
}

/* The kernel's unique number of a socket; 0 on failure. */
static inline uint64_t sys_socket_cookie(int fd)
{
    uint64_t cookie = 0;
    socklen_t length = sizeof(cookie);

    return getsockopt(fd, SOL_SOCKET, SYS_SO_COOKIE, &cookie, &length) < 0 ? 0 : cookie;
}

static inline int sys_close_range(unsigned first, unsigned last, unsigned flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

static inline int sys_fsopen(const char *type)
{
    return (int)syscall(SYS_fsopen, type, SYS_FSOPEN_CLOEXEC);
}

static inline int sys_fsconfig(int fd, unsigned command, const char *key, const char *value)
{
    return (int)syscall(SYS_fsconfig, fd, command, key, value, 0);
}

static inline int sys_fsmount(int fd, uint64_t attributes)
{
    return (int)syscall(SYS_fsmount, fd, SYS_FSMOUNT_CLOEXEC, attributes);
}

static inline int sys_fspick(int dir, const char *path, unsigned flags)
{
    return (int)syscall(SYS_fspick, dir, path, flags);
}

/* A detached copy of the mount at the path; with SYS_AT_RECURSIVE also of the mounts below. */
static inline int sys_clone_tree(int dir, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, dir, path,
                        SYS_OPEN_TREE_CLONE | O_CLOEXEC | AT_SYMLINK_NOFOLLOW | flags);
}

static inline int sys_attach(int mount, int dir, const char *path)
{
    return (int)syscall(SYS_move_mount, mount, "", dir, path, SYS_MOVE_MOUNT_F_EMPTY_PATH);
}

static inline int sys_mount_setattr(int fd, unsigned flags, const struct sys_mount_attr *attr)
{
    return (int)syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | flags, attr, sizeof(*attr));
}
