#pragma once

/*
 * Where one supervisor lives, and how it waits there for the next process.
 *
 * One that has started several programs makes a child ahead, which does what is the same for all
 * and waits in its place: the next program starts in it, without the supervisor. That child has
 * init's memory and a score that the OOM killer takes it by; as long as its parent is in the
 * vfork() that made it, the kernel knows better than to kill both.
 */

#include <stdatomic.h>
#include <stdbool.h>

struct process;

enum seat_state { SEAT_FREE, SEAT_BUSY, SEAT_PARKED, SEAT_LEAVING };

struct seat {
    atomic_int state; /* who waits for the next process sleeps on it while it is parked */
    int pid;
    bool is_for_root; /* else it has no capability left to hand on */
    struct process *process;
    unsigned programs;    /* that were started here */
    atomic_int ready_pid; /* of the child that waits; 0 without */
    bool is_taken;        /* the process, by that child */
};

/* By the supervisor: waits for the next process; false when it is time to go. */
bool seat_park(struct seat *seat);

/* By init, when it has changed the state of a parked one. */
void seat_wake(struct seat *seat);

/* By init, when the supervisor was killed: nobody works in the memory of seat and job any more. */
void seat_drop_ready(struct seat *seat);
