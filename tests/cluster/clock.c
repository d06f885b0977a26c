/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into a daemon by the rig: its clocks jump when the rig says so.
 *
 * SANDGLASS_CLOCK names a file of two int64_t: microseconds to add to the wall clock, and to the
 * clock that counts since boot, as a machine that was suspended would. The kernel's own timers go
 * on as they are, so a sleep that is under way does not become shorter, as after a real suspend
 * with CLOCK_MONOTONIC. The launcher and init are static programs: their clocks do not jump.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

enum { MICROSECONDS = 1000000 };

static const volatile int64_t *offsets_us;

__attribute__((constructor)) static void find_offsets(void)
{
    const char *path = getenv("SANDGLASS_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd < 0)
        return;
    void *mapped = mmap(NULL, 2 * sizeof(*offsets_us), PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED)
        offsets_us = mapped;
    close(fd);
}

PUBLIC int clock_gettime(clockid_t id, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, id, now);
    int64_t add_us = 0;

    if (result < 0 || !offsets_us)
        return result;
    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
        add_us = offsets_us[0];
    else if (id == CLOCK_BOOTTIME)
        add_us = offsets_us[1];
    int64_t total_us = now->tv_nsec / 1000 + add_us % MICROSECONDS;
    now->tv_sec += add_us / MICROSECONDS;
    if (total_us < 0)
        now->tv_sec--, total_us += MICROSECONDS;
    now->tv_sec += total_us / MICROSECONDS;
    now->tv_nsec = total_us % MICROSECONDS * 1000;
    return 0;
}
