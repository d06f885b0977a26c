#include "init/seat.h"

#include "init/init.h"
#include "init/payload.h"
#include "init/sys.h"

#include <errno.h>

enum {
    READY_FLAGS = CLONE_VM | CLONE_VFORK | CLONE_PARENT_SETTID | CLONE_FILES | SIGCHLD,
    READY_STACK = 1024,
    FUTEX_WAIT_ = 128,
    FUTEX_WAKE_ = 129,
};

/* The child is made when whoever waits for the last program has its answer. It does not stay for
 * long: a parent in vfork() counts as load. */
static const struct timespec lull = { .tv_nsec = 200 * 1000 };
static const struct timespec ready_patience = { .tv_sec = 1 };
static const struct timespec patience = { .tv_sec = 5 };

/* While the seat is parked; false when the time is over. */
static bool sleep_on(struct seat *seat, const struct timespec *time)
{
    while (atomic_load(&seat->state) == SEAT_PARKED)
        if (sys(futex, &seat->state, FUTEX_WAIT_, SEAT_PARKED, time) == -ETIMEDOUT)
            return false;
    return true;
}

/* --- the child that is made ahead --------------------------------------------------------------
 */

static bool may_take(const struct seat *seat)
{
    return atomic_load(&seat->state) == SEAT_BUSY && atomic_load(&seat->ready_pid) &&
           !seat->process->zygote_number;
}

/* Until then it shares init's descriptors: those of the process are yet to be made. */
static __attribute__((noreturn)) void ready_run(void *argument)
{
    struct seat *seat = argument;
    struct process *process;

    payload_prepare();
    if (!sleep_on(seat, &ready_patience) || !may_take(seat))
        sys_exit(0);
    process = seat->process;
    process->started_us = sys_now_us();
    process->main_pid = atomic_load(&seat->ready_pid);
    atomic_store(&seat->ready_pid, 0);
    seat->is_taken = true;
    sys_run_on(process->job->room->stack + JOB_STACK, payload_go, process->job);
}

/* Comes back when the child has become a program, or is gone. */
static void make_ready(struct seat *seat)
{
    alignas(16) char stack[READY_STACK];
    long pid =
        sys_clone_call(READY_FLAGS, stack + sizeof stack, ready_run, seat, (int *)&seat->ready_pid);

    if (pid < 0 || seat->is_taken)
        return;
    atomic_store(&seat->ready_pid, 0);
    (void)sys(wait4, pid, NULL, __WALL, NULL);
}

void seat_drop_ready(struct seat *seat)
{
    int pid = atomic_load(&seat->ready_pid);

    if (!pid)
        return;
    (void)sys(kill, pid, SIGKILL);
    (void)sys(wait4, pid, NULL, __WALL, NULL);
    atomic_store(&seat->ready_pid, 0);
    if (seat->process->main_pid == pid) /* taken in its last moment */
        seat->process->main_pid = 0;
}

/* --- parking -----------------------------------------------------------------------------------
 */

void seat_wake(struct seat *seat)
{
    (void)sys(futex, &seat->state, FUTEX_WAKE_, 1);
}

bool seat_park(struct seat *seat)
{
    int parked = SEAT_PARKED;

    seat->is_taken = false;
    if (seat->programs > 1 && !sleep_on(seat, &lull))
        make_ready(seat);
    if (!sleep_on(seat, &patience))
        (void)atomic_compare_exchange_strong(&seat->state, &parked, SEAT_LEAVING);
    return atomic_load(&seat->state) == SEAT_BUSY;
}
