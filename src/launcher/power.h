#pragma once

/* What the launcher may do here: its capabilities, and what a container around it forbids. */

#include <stdbool.h>

/* Root of the host, or of a container that may map any id. */
bool power_is_root(void);

/* Whether something with another id can be started, killed and removed. */
bool power_changes_ids(void);

/* Whether limits of the host are ours to lower. */
bool power_has_resources(void);

/* What native sandboxes need beyond that: namespaces of other ids are opened, and a network is set up
 * from outside. */
bool power_traces(void);
bool power_administers_networks(void);
