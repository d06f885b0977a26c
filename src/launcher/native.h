#pragma once

/* What a native sandbox needs beyond spawn.h: its root, its namespaces, its store. */

#include "launcher/spawn.h"

/* Prepares the host for native sandboxes; fails with the step that this host refuses. */
int host_open(struct launcher *launcher, struct fail *fail);

/* A directory that the operator named; takes over nothing. */
int host_add_template(struct launcher *launcher, const char *name, int dir, struct fail *fail);

/* NULL with a failure when there is none of that name. */
const struct template *host_template(struct launcher *launcher, const char *name,
                                     struct fail *fail);

bool native_has_open_network(const struct launcher *launcher);
int native_start(struct spawn *spawn);
int native_resize_store(int store, const struct launch_limits *limits, struct fail *fail);
