/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs without a C library: what is left is what the kernel does. `true` ends at once; `pause`
 * says on stdout that it runs, and stays; `init` runs the programs that it is told on descriptor 3,
 * each as its words with a zero byte behind every one, and answers with how it ended.
 */

#include <sys/syscall.h>

/* In place: a child that shares our stack must not return from a function that its parent is in. */
static inline __attribute__((always_inline)) long call(long number, long a, long b, long c)
{
    long result;

#if defined(__x86_64__)
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;

    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    result = x0;
#else
#error "say how this machine calls its kernel"
#endif
    return result;
}

#ifdef INIT
enum { SHARE_UNTIL_EXEC = 0x100 | 0x4000 | 17 }; /* CLONE_VM, CLONE_VFORK, SIGCHLD */

static int run(char *words, long length)
{
    static char *argv[64];
    static char *const environment[] = { 0 };
    int status = 0, count = 0;
    long pid;

    for (long i = 0; i < length && count < 63; i++)
        if (i == 0 || !words[i - 1])
            argv[count++] = words + i;
    argv[count] = 0;
    pid = call(SYS_clone, SHARE_UNTIL_EXEC, 0, 0);
    if (pid == 0) {
        call(SYS_execve, (long)argv[0], (long)argv, (long)environment);
        for (;;)
            call(SYS_exit_group, 127, 0, 0);
    }
    call(SYS_wait4, pid, (long)&status, 0);
    return status;
}
#endif

_Noreturn void _start(void);

_Noreturn void _start(void)
{
#ifdef INIT
    static char words[4096];
    long length;

    while ((length = call(SYS_read, 3, (long)words, sizeof(words))) > 0) {
        int status = run(words, length);

        call(SYS_write, 3, (long)&status, sizeof(status));
    }
#endif
#ifdef PAUSE
    call(SYS_write, 1, (long)"x", 1);
    for (;;)
        call(SYS_ppoll, 0, 0, 0);
#endif
    for (;;)
        call(SYS_exit_group, 0, 0, 0);
}
