/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The launcher's rights here: its capabilities, and the restrictions of a container around it. */

#include <stdbool.h>

/* Root of the host, or of a container that may map any id. */
bool power_is_root(void);

/* Whether something with another id can be started, killed and removed. */
bool power_changes_ids(void);

/* Whether limits of the host are ours to lower. */
bool power_has_resources(void);

/* Further rights for native sandboxes: to open namespaces of other ids, and to set up a network
 * from outside. */
bool power_traces(void);
bool power_administers_networks(void);
