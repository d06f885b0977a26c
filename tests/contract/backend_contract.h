#pragma once

/*
 * What every implementation of backend.h has to do, as one suite. A program for an implementation
 * says how to open one and calls backend_contract_run(). What an implementation cannot do according
 * to its capabilities is left out.
 */

#include "backend/backend.h"

struct backend_contract {
    const char *name;

    /* One in which no sandbox exists, with a loop of its own. */
    struct backend *(*open)(struct loop **out_loop);

    /* The daemon dies and another one comes: what it would open, in the same loop. Sandboxes stay. */
    struct backend *(*restart)(void);

    /* The init of a sandbox is killed by SIGKILL. */
    void (*kill)(const struct backend_sandbox *sandbox);
    void (*close)(void); /* fails the test when anything is left */
};

/* The number of failed tests. */
int backend_contract_run(const struct backend_contract *contract);
