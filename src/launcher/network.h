#pragma once

/*
 * Network `open`: a pair of interfaces between the sandbox's network namespace and the host's, an
 * address out of 100.127.0.0/16 by the slot, and rules of nftables that translate what leaves and
 * drop what is not meant to be reached: the host itself, link-local and loopback addresses, other
 * sandboxes, and everything that comes in by itself. IPv4 only.
 */

#include "launcher/fail.h"

#include <stdbool.h>
#include <stdint.h>

struct launcher;

enum { NETWORK_RESOLVER_SIZE = 1024 };

struct network {
    bool available;                       /* root, and the host has nft */
    bool prepared;                        /* the rules are in place */
    char resolver[NETWORK_RESOLVER_SIZE]; /* resolv.conf of sandboxes with a network */
};

/* While the host's files are there. */
void network_open(struct launcher *launcher);

/* Takes the rules away when no sandbox is left that they could concern. */
void network_close(struct launcher *launcher);

/* Connects this network namespace, which is of that slot, with the outside. */
int network_attach(struct launcher *launcher, uint32_t slot, int netns, struct fail *fail);
