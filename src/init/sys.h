/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * System calls without libc: each returns the result or -errno and touches no memory but its
 * arguments. Init and the processes that it clones share one address space, so nothing in init may
 * use errno, thread-local storage or anything else that libc keeps.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#ifndef __x86_64__
#error "sandglass-init knows the system call convention of x86_64 only"
#endif

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

enum {
    RESOLVE_NO_XDEV_ = 0x01,
    RESOLVE_NO_MAGICLINKS_ = 0x02,
    RESOLVE_NO_SYMLINKS_ = 0x04,
    RESOLVE_BENEATH_ = 0x08,
    CLOSE_RANGE_UNSHARE_ = 0x02,
    SIGNAL_SET_SIZE = 8,
    PROC_MAGIC = 0x9fa0,
    SYS_MAX_DESCRIPTORS = 4096, /* of init: as many as its tables can need, and some */
};

struct sys_open_how {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

struct sys_dirent {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

struct sys_filter_program {
    uint16_t length;
    const void *instructions;
};

struct sys_capability_header {
    uint32_t version;
    int32_t pid;
};

struct sys_capability_data {
    uint32_t effective;
    uint32_t permitted;
    uint32_t inheritable;
};

enum { SYS_CAPABILITY_VERSION = 0x20080522 };

static inline long sys_call6(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static inline long sys_call3(long number, long a, long b, long c)
{
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return result;
}

#define SYS_PICK_(_1, _2, _3, _4, _5, _6, _7, chosen, ...) chosen
#define SYS_ARG_(x) ((long)(x))
#define SYS_CALL_0_(n) sys_call3(n, 0, 0, 0)
#define SYS_CALL_1_(n, a) sys_call3(n, SYS_ARG_(a), 0, 0)
#define SYS_CALL_2_(n, a, b) sys_call3(n, SYS_ARG_(a), SYS_ARG_(b), 0)
#define SYS_CALL_3_(n, a, b, c) sys_call3(n, SYS_ARG_(a), SYS_ARG_(b), SYS_ARG_(c))
#define SYS_CALL_4_(n, a, b, c, d) \
    sys_call6(n, SYS_ARG_(a), SYS_ARG_(b), SYS_ARG_(c), SYS_ARG_(d), 0, 0)
#define SYS_CALL_5_(n, a, b, c, d, e) \
    sys_call6(n, SYS_ARG_(a), SYS_ARG_(b), SYS_ARG_(c), SYS_ARG_(d), SYS_ARG_(e), 0)
#define SYS_CALL_6_(n, a, b, c, d, e, f) \
    sys_call6(n, SYS_ARG_(a), SYS_ARG_(b), SYS_ARG_(c), SYS_ARG_(d), SYS_ARG_(e), SYS_ARG_(f))

/* sys(open, path, flags) is open(2). */
#define sys(name, ...) sys_number(SYS_##name, ##__VA_ARGS__)
#define sys_number(...)                                                                     \
    SYS_PICK_(__VA_ARGS__, SYS_CALL_6_, SYS_CALL_5_, SYS_CALL_4_, SYS_CALL_3_, SYS_CALL_2_, \
              SYS_CALL_1_, SYS_CALL_0_)                                                     \
    (__VA_ARGS__)

/* Clones the caller; the child runs entry(argument) on its own stack, in the caller's memory when
 * flags have CLONE_VM, and never returns. With CLONE_PARENT_SETTID its pid is in *out_pid before it
 * runs. */
long sys_clone_call(unsigned long flags, void *stack_top, void (*entry)(void *), void *argument,
                    int *out_pid);

static inline void sys_close(int fd)
{
    if (fd >= 0)
        (void)sys(close, fd);
}

/* Closes the descriptor and sets the variable to -1. */
static inline void sys_drop(int *fd)
{
    sys_close(*fd);
    *fd = -1;
}

static inline __attribute__((noreturn)) void sys_exit(int code)
{
    for (;;)
        (void)sys(exit_group, code);
}

static inline int64_t sys_now_us(void)
{
    struct timespec now = { 0 };

    (void)sys(clock_gettime, CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* The same without openat2. */
int sys_open_by_steps(int dir, const char *path, int flags, unsigned mode, unsigned resolve);

/* openat2 that never goes through the links of /proc that lead to other places. */
static inline int sys_open(int dir, const char *path, int flags, unsigned mode, unsigned resolve)
{
    struct sys_open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .mode = mode,
        .resolve = RESOLVE_NO_MAGICLINKS_ | resolve,
    };

    long result = sys(openat2, dir, path, &how, sizeof how);

    return result == -ENOSYS ? sys_open_by_steps(dir, path, flags, mode, resolve) : (int)result;
}

/* A name that init itself has chosen, relative to its own /proc: nothing of a sandbox is in it. */
static inline int sys_open_proc(int proc_fd, const char *path, int flags)
{
    return (int)sys(openat, proc_fd, path, flags | O_CLOEXEC);
}

/* The upper end is the largest descriptor that there can be: gVisor refuses larger ones. */
static inline void sys_close_from(int first)
{
    if (sys(close_range, first, INT32_MAX, 0) >= 0)
        return;
    for (int fd = first; fd < SYS_MAX_DESCRIPTORS; fd++)
        (void)sys(close, fd);
}
