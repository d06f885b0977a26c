#pragma once

/* Where one supervisor lives, and how it waits there for the next process. */

#include <stdatomic.h>
#include <stdbool.h>

struct process;

enum seat_state { SEAT_FREE, SEAT_BUSY, SEAT_PARKED, SEAT_LEAVING };

struct seat {
    atomic_int state; /* who waits for the next process sleeps on it while it is parked */
    int pid;
    bool is_for_root; /* else it has no capability left to hand on */
    struct process *process;
};

/* By the supervisor: waits for the next process; false when it is time to go. */
bool seat_park(struct seat *seat);

/* By init, when it has changed the state of a parked one. */
void seat_wake(struct seat *seat);
