/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The templates that sessions may ask for: "host", the one of the settings, and those that were
 * imported, which are directories of the state directory; and what backends with sources of their
 * own have, such as the images of an engine.
 */

#include "base/error.h"

#include <stddef.h>

struct backend;
struct core;

/* The templates of all backends, sorted; "host" comes first if it is there. The caller frees them
 * with templates_free(). */
char **templates_list(const struct core *core, size_t *out_count);
void templates_free(char **names, size_t count);

/* Refuses a name that is not among those of the backend, and lists those that are. Only what is
 * certain: one that exists may still be one that the launcher refuses. NULL and "" are the default.
 */
int templates_check(const struct core *core, const struct backend *backend, const char *name,
                    struct error *err);
