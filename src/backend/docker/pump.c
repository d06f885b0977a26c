#include "backend/docker/pump.h"

#include "backend/docker/docker_private.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "bridge/carrier.h"

#include <assert.h>

enum { START_MS = 20 * 1000 };

void pump_init(struct pump *pump, struct loop *loop, struct engine *engine, const char *container)
{
    *pump = (struct pump){ .loop = loop, .engine = engine, .container = container, .fd = -1 };
}

void pump_fini(struct pump *pump)
{
    engine_exec_cancel(&pump->exec);
    fd_close(steal_fd(&pump->fd));
    pump->state = PUMP_IDLE;
}

/* A start ahead that has failed is forgotten: the bridge makes the next attempt. */
static void on_started(struct engine_exec *exec)
{
    struct pump *pump = container_of(exec, struct pump, exec);
    struct carrier *carrier = steal_ptr(&pump->carrier);

    pump->state = PUMP_IDLE;
    if (carrier) {
        carrier_finish(carrier, exec->fd, &exec->err);
    } else if (exec->fd >= 0) {
        pump_attach(pump, exec->fd);
    }
}

void pump_attach(struct pump *pump, int fd)
{
    assert(pump->state == PUMP_IDLE);
    pump->fd = fd;
    pump->state = PUMP_WAITING;
}

void pump_start(struct pump *pump)
{
    static const char *const argv[] = { DOCKER_INIT, "--pump=" DOCKER_RELAY_SOCKET, NULL };
    static const char *const env[] = { RELAY_KEY_VARIABLE "=", NULL }; /* for init alone */

    if (pump->state != PUMP_IDLE)
        return;
    pump->state = PUMP_STARTING;
    engine_exec_open(pump->engine, &pump->exec, pump->container, argv, env, "0", START_MS,
                     on_started);
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
    engine_exec_cancel(&pump->exec);
    pump->state = PUMP_IDLE;
}

struct carrier *pump_carrier_new(struct pump *pump)
{
    static const struct carrier_stream calls = { .open = open_stream, .cancel = cancel_stream };

    return carrier_stream_new(pump->loop, &calls, pump);
}
