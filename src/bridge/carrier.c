/* SPDX-License-Identifier: Apache-2.0 */
#include "bridge/carrier.h"

#include <assert.h>

static void on_answer(struct deferred *deferred)
{
    struct carrier_attempt *attempt = container_of(deferred, struct carrier_attempt, answer);

    attempt->carrier->attempt = NULL;
    attempt->carrier = NULL;
    attempt->done(attempt);
}

void carrier_open(struct carrier *carrier, struct carrier_attempt *attempt, carrier_done_fn *done)
{
    assert(!carrier->attempt);
    *attempt = (struct carrier_attempt){ .done = done, .fd = -1, .carrier = carrier };
    carrier->attempt = attempt;
    carrier->ops->open(carrier, attempt);
}

void carrier_finish(struct carrier *carrier, int fd, const struct error *err)
{
    struct carrier_attempt *attempt = carrier->attempt;

    assert(attempt && !attempt->answer.queued);
    attempt->fd = fd;
    if (fd < 0 && err)
        attempt->err = *err;
    loop_defer(carrier->loop, &attempt->answer, on_answer);
}

void carrier_cancel(struct carrier_attempt *attempt)
{
    struct carrier *carrier = attempt->carrier;

    if (!carrier)
        return;
    if (attempt->answer.queued) {
        loop_undefer(carrier->loop, &attempt->answer);
        fd_close(steal_fd(&attempt->fd));
    } else {
        carrier->ops->cancel(carrier, attempt);
    }
    carrier->attempt = NULL;
    attempt->carrier = NULL;
}

void carrier_free(struct carrier *carrier)
{
    if (!carrier)
        return;
    if (carrier->attempt)
        carrier_cancel(carrier->attempt);
    carrier->ops->free(carrier);
}
