#pragma once

/*
 * The templates that sessions may ask for: "host", the one of the settings, and those that were
 * imported, which are directories of the state directory.
 */

#include "base/error.h"

#include <stddef.h>

struct core;

/* Sorted, but for the first one, "host"; the caller frees them with templates_free(). */
char **templates_list(const struct core *core, size_t *out_count);
void templates_free(char **names, size_t count);

/* Refuses a name that is not among them, and lists those that are. Only what is certain: one that
 * exists may still be one that the launcher refuses. NULL and "" are the default. */
int templates_check(const struct core *core, const char *name, struct error *err);
