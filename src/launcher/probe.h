/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether native sandboxes can be made here. */

#include "launcher/context.h"
#include "launcher/fail.h"

/* Tries the steps that containers are known to forbid: some allow the namespaces and then refuse a
 * step inside. Called when the clone namespaces exist. 0, or -1 with the step that is refused. */
int probe_native(const struct context *context, struct fail *fail);
