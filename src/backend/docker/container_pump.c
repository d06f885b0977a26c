/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/docker/container_pump.h"

#include "backend/docker/docker_private.h"
#include "base/macros.h"

enum { START_MS = 20 * 1000 };

static struct container_pump *pump_from(struct pump *base)
{
    return container_of(base, struct container_pump, base);
}

static void on_started(struct engine_exec *exec)
{
    struct container_pump *pump = container_of(exec, struct container_pump, exec);

    pump_started(&pump->base, exec->fd, &exec->err);
}

static void start(struct pump *base)
{
    static const char *const argv[] = { DOCKER_INIT, "--pump=" DOCKER_RELAY_SOCKET, NULL };
    static const char *const env[] = { RELAY_KEY_VARIABLE "=", NULL }; /* for init alone */
    struct container_pump *pump = pump_from(base);

    engine_exec_open(pump->engine, &pump->exec, pump->container, argv, env, "0", START_MS,
                     on_started);
}

static void cancel(struct pump *base)
{
    engine_exec_cancel(&pump_from(base)->exec);
}

void container_pump_init(struct container_pump *pump, struct loop *loop, struct engine *engine,
                         const char *container)
{
    static const struct pump_ops ops = { .start = start, .cancel = cancel };

    *pump = (struct container_pump){ .engine = engine, .container = container };
    pump_init(&pump->base, loop, &ops);
}
