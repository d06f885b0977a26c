/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/remote/pump.h"

#include "base/fd.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "bridge/carrier.h"

#include <assert.h>

void pump_init(struct pump *pump, struct loop *loop, const struct pump_ops *ops)
{
    *pump = (struct pump){ .loop = loop, .ops = ops, .fd = -1 };
}

void pump_fini(struct pump *pump)
{
    pump->ops->cancel(pump);
    fd_close(steal_fd(&pump->fd));
    pump->state = PUMP_IDLE;
}

/* A start ahead that has failed is forgotten: the bridge makes the next attempt. */
void pump_started(struct pump *pump, int fd, const struct error *err)
{
    struct carrier *carrier = steal_ptr(&pump->carrier);

    pump->state = PUMP_IDLE;
    if (carrier)
        carrier_finish(carrier, fd, err);
    else if (fd >= 0)
        pump_attach(pump, fd);
}

void pump_attach(struct pump *pump, int fd)
{
    assert(pump->state == PUMP_IDLE);
    pump->fd = fd;
    pump->state = PUMP_WAITING;
}

void pump_start(struct pump *pump)
{
    if (pump->state != PUMP_IDLE)
        return;
    pump->state = PUMP_STARTING;
    pump->ops->start(pump);
}

static void open_stream(struct carrier *carrier, void *context)
{
    struct pump *pump = context;

    if (pump->state == PUMP_WAITING) {
        pump->state = PUMP_IDLE;
        carrier_finish(carrier, steal_fd(&pump->fd), NULL);
        return;
    }
    pump->carrier = carrier;
    pump_start(pump);
}

static void cancel_stream(struct carrier *carrier UNUSED, void *context)
{
    struct pump *pump = context;

    pump->carrier = NULL;
    pump->ops->cancel(pump);
    pump->state = PUMP_IDLE;
}

struct carrier *pump_carrier_new(struct pump *pump)
{
    static const struct carrier_stream calls = { .open = open_stream, .cancel = cancel_stream };

    return carrier_stream_new(pump->loop, &calls, pump);
}
