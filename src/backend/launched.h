/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The common part of native and direct, the backends that work through the launcher. They differ in
 * their requests to it and in their reports.
 */

#include "backend/backend.h"
#include "backend/launched_sandbox.h"
#include "backend/launcher.h"
#include "backend/relay_key.h"
#include "base/map.h"

struct launched_backend {
    struct backend base;
    struct launcher *launcher; /* borrowed */
    const struct config *config;
    int state_dir;          /* borrowed */
    const char *state_path; /* borrowed */
    enum launch_mode mode;
    bool makes_relays;                 /* sandboxes get one, and are reached over a bridge */
    uint8_t secret[RELAY_SECRET_SIZE]; /* that the keys of relays come from; read when needed */
    bool has_secret;
    struct map sandboxes; /* owned: struct launched_sandbox by id */
    struct list calls;    /* in flight */
};

/* NULL when the host cannot enforce a wall that sandbox.require names. */
struct backend *launched_open(enum launch_mode mode, const struct backend_options *options,
                              struct error *err);
struct launched_backend *launched_from(struct backend *backend);

/* Reads the secret that the keys of relays come from, once. */
int launched_need_secret(struct launched_backend *launched, struct error *err);
