/*
 * Programs without a C library: what is left is what the kernel does. `true` ends at once; `pause`
 * says on stdout that it runs, and stays.
 */

#include <sys/syscall.h>

static long call(long number, long a, long b, long c)
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

_Noreturn void _start(void);

_Noreturn void _start(void)
{
#ifdef PAUSE
    call(SYS_write, 1, (long)"x", 1);
    for (;;)
        call(SYS_ppoll, 0, 0, 0);
#endif
    for (;;)
        call(SYS_exit_group, 0, 0, 0);
}
