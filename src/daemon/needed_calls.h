/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * System calls that a daemon cannot do without. An old kernel does not have them, and the seccomp
 * profile of a container or of a service may refuse them: a daemon that started all the same would
 * fail later, or could not remove its sandboxes.
 */

#include "base/error.h"

#include <stdbool.h>

/* `with_launcher`: also those of the launcher and of the sandboxes that it makes. Fails with the
 * name of the first call that this host refuses, and with a remedy. */
int needed_calls_check(bool with_launcher, struct error *err);
