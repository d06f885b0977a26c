#pragma once

/*
 * Network `open`: a pair of interfaces between the sandbox's network namespace and the host's, an
 * address out of 100.127.0.0/16 by the slot, and rules (network_rules.h) that translate what leaves
 * and drop what is not meant to be reached: the host itself, private, link-local and loopback
 * addresses, other sandboxes, and everything that comes in by itself. IPv4 only.
 */

#include "launcher/fail.h"

#include <stdbool.h>
#include <stdint.h>

struct launcher;

#define NETWORK_NFT "/usr/sbin/nft"

enum { NETWORK_RESOLVER_SIZE = 1024 };

struct network {
    bool available;      /* root, and the host has nft */
    uint32_t generation; /* of the host's rules when ours were in place; 0: unknown */
    int watch;           /* owned: tells of changes of the host's rules; or -1 */
    char resolver[NETWORK_RESOLVER_SIZE]; /* resolv.conf of sandboxes with a network */
};

/* While the host's files are there. */
void network_open(struct launcher *launcher);

/* Once, at the end of the setup. What to watch for network_on_change(); -1 for nothing. */
int network_start(struct launcher *launcher);

/* Somebody changed the rules of the host: ours are set again if they are needed. */
void network_on_change(struct launcher *launcher);

/* Whether the policy of a sandbox with a network is in force in its namespace. */
bool network_holds(struct launcher *launcher, int netns);

/* Takes the rules away when no sandbox is left that they could concern. */
void network_close(struct launcher *launcher);

/* Connects this network namespace, which is of that slot, with the outside. */
int network_attach(struct launcher *launcher, uint32_t slot, int netns, struct fail *fail);
