#include "init/seat.h"

#include "init/sys.h"

#include <errno.h>

enum {
    FUTEX_WAIT_ = 128,
    FUTEX_WAKE_ = 129,
};

static const struct timespec patience = { .tv_sec = 5 };

void seat_wake(struct seat *seat)
{
    (void)sys(futex, &seat->state, FUTEX_WAKE_, 1);
}

bool seat_park(struct seat *seat)
{
    int parked = SEAT_PARKED;

    while (atomic_load(&seat->state) == SEAT_PARKED)
        if (sys(futex, &seat->state, FUTEX_WAIT_, SEAT_PARKED, &patience) == -ETIMEDOUT)
            (void)atomic_compare_exchange_strong(&seat->state, &parked, SEAT_LEAVING);
    return atomic_load(&seat->state) == SEAT_BUSY;
}
