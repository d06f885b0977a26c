/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The stream to the relay of a sandbox of an engine or a cluster: a program of ours inside, with
 * its input and output as a socket. The bridge uses it as its carrier. The backend starts the
 * program, perhaps before the bridge asks for it, because a start takes as long as the rest of a
 * create.
 */

#include "base/error.h"

struct carrier;
struct loop;
struct pump;

struct pump_ops {
    void (*start)(struct pump *pump);  /* pump_started() is called later, or at once */
    void (*cancel)(struct pump *pump); /* a start; fine without one */
};

/* | state         | leads to                    |
 * | PUMP_IDLE     | PUMP_STARTING, PUMP_WAITING |
 * | PUMP_STARTING | PUMP_WAITING, PUMP_IDLE     |
 * | PUMP_WAITING  | PUMP_IDLE                   | */
enum pump_state {
    PUMP_IDLE,
    PUMP_STARTING, /* it is being started; the bridge may wait */
    PUMP_WAITING,  /* its stream is there, and the bridge has not asked for it yet */
};

struct pump {
    enum pump_state state;
    struct loop *loop;          /* borrowed */
    const struct pump_ops *ops; /* static */
    struct carrier *carrier;    /* borrowed from the bridge while it waits; NULL without */
    int fd;                     /* owned; valid in PUMP_WAITING */
};

void pump_init(struct pump *pump, struct loop *loop, const struct pump_ops *ops);
void pump_fini(struct pump *pump); /* after the bridge is freed */

/* Takes over an existing stream for the next use. The pump must be idle. */
void pump_attach(struct pump *pump, int fd);

/* Starts a stream now, for the next use. No effect while one is starting or waiting. */
void pump_start(struct pump *pump);

/* The result of ops->start(): a descriptor, taken over, or -1 with the reason. */
void pump_started(struct pump *pump, int fd, const struct error *err);

/* For a bridge; the pump outlives it. */
struct carrier *pump_carrier_new(struct pump *pump);
