#pragma once

/*
 * The stream to the relay of a container: a program of ours that the engine starts inside (`--pump`),
 * with its input and output as a socket. It is a carrier of the bridge, and may be begun before the
 * bridge asks for it: an exec takes as long as all other steps of a create after the start.
 */

#include "backend/docker/engine.h"

struct carrier;

/* | state         | leads to                    |
 * | PUMP_IDLE     | PUMP_STARTING               |
 * | PUMP_STARTING | PUMP_WAITING, PUMP_IDLE     |
 * | PUMP_WAITING  | PUMP_IDLE                   | */
enum pump_state {
    PUMP_IDLE,
    PUMP_STARTING, /* the engine starts it; the bridge may wait */
    PUMP_WAITING,  /* it runs, and the bridge has not asked for it yet */
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

/* Starts it now, for the first use to come. One that is under way is left alone. */
void pump_start(struct pump *pump);

/* For a bridge; the pump outlives it. */
struct carrier *pump_carrier_new(struct pump *pump);
