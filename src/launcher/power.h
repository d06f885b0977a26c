#pragma once

/* What the launcher may do here: its capabilities, and what a container around it forbids. */

#include "launcher/fail.h"

#include <stdbool.h>

struct launcher;

/* Root of the host, or of a container that may map any id. */
bool power_is_root(void);

/* Whether something with another id can be started, killed and removed. */
bool power_changes_ids(void);

/* Whether limits of the host are ours to lower. */
bool power_has_resources(void);

/* Whether native sandboxes can be made, as far as containers are known to forbid it: their walls
 * let the namespaces be made and then refuse one of the steps inside. Called when the namespaces
 * that sandboxes grow from are there. 0, or -1 with the step that is refused. */
int power_prove_native(struct launcher *launcher, struct fail *fail);
