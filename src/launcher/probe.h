#pragma once

/* Whether native sandboxes can be made here. */

#include "launcher/context.h"
#include "launcher/fail.h"

/* Tries what containers are known to forbid: they let the namespaces be made and then refuse one of
 * the steps inside. Called when the namespaces that sandboxes are cloned from are there. 0, or -1 with
 * the step that is refused. */
int probe_native(const struct context *context, struct fail *fail);
