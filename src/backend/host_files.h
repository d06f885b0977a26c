/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Checks of settings for the backends whose sandboxes have files of this host: whether the template
 * is there, and whether programs inside would find the Python of the settings.
 */

#include "base/error.h"

struct config;

int host_files_check_template(const struct config *config, struct error *err);

/* `shown` are the directories of the host that sandboxes of the template "host" have, each with a
 * slash at the end; ends with NULL. */
int host_files_check_python(const struct config *config, const char *const *shown,
                            struct error *err);
