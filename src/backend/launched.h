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
struct backend *launched_open(const struct backend_ops *ops, enum launch_mode mode,
                              const struct backend_options *options, struct error *err);
struct launched_backend *launched_from(struct backend *backend);

/* The operations. */
void launched_free(struct backend *backend);
void launched_create(struct backend *backend, const struct sandbox_spec *spec,
                     struct backend_op *op);
struct sandbox_limits launched_limits_in_force(const struct backend *backend,
                                               const struct sandbox_limits *limits);
void launched_adopt(struct backend *backend, const struct backend_sandbox *sandbox,
                    struct backend_op *op);
int launched_connect(struct backend *backend, const char *id, struct error *err);
void launched_update(struct backend *backend, const char *id, const struct sandbox_limits *limits,
                     struct backend_op *op);
void launched_freeze(struct backend *backend, const char *id, bool frozen, struct backend_op *op);
void launched_inspect(struct backend *backend, const char *id, struct backend_op *op);
void launched_destroy(struct backend *backend, const char *id, struct backend_op *op);
void launched_list(struct backend *backend, struct backend_op *op);
int launched_check(struct backend *backend, struct error *err);
int launched_report(struct backend *backend, const char *id, struct buffer *json,
                    struct error *err);
