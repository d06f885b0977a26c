/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What every implementation of backend.h has to do, as one suite. A program for an implementation
 * says how to open one and calls backend_contract_run(). What an implementation cannot do according
 * to its capabilities is left out.
 */

#include "backend/backend.h"

struct backend_contract {
    const char *name;
    const char *template; /* what sandboxes are made from; NULL: "host" */

    /* One in which no sandbox exists, with a loop of its own. */
    struct backend *(*open)(struct loop **out_loop);

    /* The daemon dies and another one comes: what it would open, in the same loop. Sandboxes stay. */
    struct backend *(*restart)(void);

    /* Its handle becomes that of another one, that would be in its place by now. */
    void (*make_stale)(struct backend_sandbox *sandbox);

    /* The init of a sandbox is killed by SIGKILL; it exits with 0. */
    void (*kill)(const struct backend_sandbox *sandbox);
    void (*shut_down)(const struct backend_sandbox *sandbox);

    /* A program in it needs more memory than the sandbox has, and dies of that. NULL: not tried. */
    void (*exhaust)(const struct backend_sandbox *sandbox);

    /* For a while the backend cannot tell whether a sandbox lives. */
    void (*make_blind)(void);
    void (*close)(void); /* fails the test when anything is left */
};

/* The number of failed tests. */
int backend_contract_run(const struct backend_contract *contract);
