#pragma once

/*
 * The stream to the relay of a container: a pump of ours inside, with its input and output as a socket.
 * It is a carrier of the bridge. Two pumps follow each other:
 *
 *   - Init's own, which serves the container's input and output (`--attached`). A create attaches the
 *     daemon to it before the container starts, so the first connection costs no program. It cannot be
 *     used again: nothing in those two pipes tells where one connection ends and the next begins.
 *   - One that the engine's exec starts (`--pump`), for each later connection, and where a create could
 *     not attach. It may be begun before the bridge asks for it: an exec takes as long as all other
 *     steps of a create after the start.
 */

#include "backend/docker/engine.h"

struct carrier;

/* | state         | leads to                    |
 * | PUMP_IDLE     | PUMP_STARTING, PUMP_WAITING |
 * | PUMP_STARTING | PUMP_WAITING, PUMP_IDLE     |
 * | PUMP_WAITING  | PUMP_IDLE                   | */
enum pump_state {
    PUMP_IDLE,
    PUMP_STARTING, /* the engine starts it; the bridge may wait */
    PUMP_WAITING,  /* its stream is there, and the bridge has not asked for it yet */
};

struct pump {
    enum pump_state state;
    struct loop *loop;       /* borrowed */
    struct engine *engine;   /* borrowed */
    const char *container;   /* borrowed: its id */
    struct carrier *carrier; /* borrowed from the bridge while it waits; NULL without */
    struct engine_exec exec;
    int fd; /* owned; valid in PUMP_WAITING */
};

void pump_init(struct pump *pump, struct loop *loop, struct engine *engine, const char *container);
void pump_fini(struct pump *pump); /* after the bridge is freed */

/* Takes over the stream to init's own, for the first use to come. Of an idle one. */
void pump_attach(struct pump *pump, int fd);

/* Starts one by exec now, for the first use to come. One that is under way, or waits, is left alone. */
void pump_start(struct pump *pump);

/* For a bridge; the pump outlives it. */
struct carrier *pump_carrier_new(struct pump *pump);
