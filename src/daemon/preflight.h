/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Checks of the settings on this host before anything is started. 'serve' and 'config check' make
 * the same checks.
 */

#include "base/error.h"
#include "config/config.h"
#include "daemon/privileges.h"

/* Backend, template, mounts, ids, files of keys and certificates. */
int preflight_check(const struct config *config, const struct identity *identity,
                    struct error *err);

/* The directories that 'serve' would make or use; nothing is made. */
int preflight_check_places(const struct config *config, const struct identity *identity,
                           struct error *err);
