#pragma once

/*
 * What the backends that work through the launcher have in common: native and direct differ in what
 * they ask it for and in what they can report.
 */

#include "backend/backend.h"
#include "backend/launcher.h"
#include "base/map.h"

/* A sandbox that this daemon has made or adopted. */
struct launched_sandbox {
    char id[ID_SIZE];
    struct launch_made made;
    struct sandbox_limits limits; /* as asked for; zero for one that was adopted */
};

struct launched_backend {
    struct backend base;
    struct launcher *launcher; /* borrowed */
    const struct config *config;
    int state_dir; /* borrowed */
    enum launch_mode mode;
    struct map sandboxes; /* owned: struct launched_sandbox by id */
    struct list calls;    /* in flight */
};

/* NULL where the host cannot give what sandbox.require names. */
struct backend *launched_open(enum launch_mode mode, const struct backend_options *options,
                              struct error *err);
struct launched_backend *launched_from(struct backend *backend);
