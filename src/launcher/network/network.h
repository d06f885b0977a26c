/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Network `open`: a pair of interfaces between the sandbox's network namespace and the host's, an
 * address out of 100.127.0.0/16 by the slot, and rules (network_rules.h) that translate outgoing
 * packets and drop those to forbidden destinations: the host itself, private, link-local and
 * loopback addresses, other sandboxes. Incoming connections are dropped as well. IPv4 only.
 */

#include "launcher/context.h"
#include "launcher/fail.h"
#include "launcher/network/network_rules.h"

#include <stdbool.h>
#include <stdint.h>

enum { NETWORK_RESOLVER_SIZE = 1024 };

struct network {
    const struct context *context; /* borrowed */
    struct rules rules;
    int netns;                            /* borrowed: the launcher's own network namespace */
    int watch;                            /* owned: reports changes of the host's rules; or -1 */
    bool available;                       /* root, and the host has nft */
    char resolver[NETWORK_RESOLVER_SIZE]; /* resolv.conf of sandboxes with a network */
};

/* While the host's files are visible. `mounts` and `netns` are the namespaces of the host. */
void network_open(struct network *network, const struct context *context, int mounts, int netns);

/* Once, at the end of the setup: sets the rules again that sandboxes of an earlier launcher need, and
 * opens the watch for network_on_change(). -1 when the rules could not be set. */
int network_start(struct network *network, struct fail *fail);

/* Another program changed the rules of the host: sets ours again if they are needed. -1 on
 * failure. */
int network_on_change(struct network *network, struct fail *fail);

/* Whether the policy of a sandbox with a network is in force in its namespace. */
bool network_holds(const struct network *network, int netns);

/* Removes the rules when no sandbox uses them. */
void network_close(struct network *network);

/* Connects this network namespace, which is of that slot, with the outside. */
int network_attach(struct network *network, uint32_t slot, int netns, struct fail *fail);
