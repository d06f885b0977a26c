/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Rules for a sandbox with a network. The policy is in the network namespace of the sandbox, which
 * belongs to the host's user namespace: neither the payload nor a flush of the host's own rules can
 * change it. It is in force before the first process of the sandbox, and is removed with the
 * namespace. A table on the host repeats the policy and translates addresses; without it a sandbox
 * reaches nothing.
 *
 * Conntrack entries of a sandbox are limited here too, because the host's table is shared by all.
 */

#include "launcher/fail.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RULES_NFT "/usr/sbin/nft"

/* The policy of this instance, and whose rules are in force on the host. */
struct rules {
    const char *instance; /* borrowed */
    bool allow_private;   /* sandboxes may reach private addresses */
    int mounts;           /* borrowed: the host's mount namespace, for nft */
    uint32_t generation;  /* of the host's rules when ours were set; 0: unknown */
};

/* Sets the table on the host unless it is in force. */
int rules_set_host(struct rules *rules, struct fail *fail);
bool rules_host_hold(const struct rules *rules);

/* Removes the table; 0 when it is gone. */
int rules_remove_host(struct rules *rules);

/* Watches for changes of the host's rules by others; -1 when that is not possible. */
int rules_watch(void);

/* Empties the watch. */
void rules_drain(int watch);

/* In the network namespace that we are in, which is a sandbox's. `resolver` is its resolv.conf;
 * `addresses` are the host's own, as rules_host_addresses() found them. */
int rules_set_sandbox(const struct rules *rules, const char *resolver, const char *addresses,
                      struct fail *fail);

/* Whether the policy of the namespace that we are in is in force, by the kernel's word. */
bool rules_hold_here(void);

enum { RULES_ADDRESSES_SIZE = 2048, RULES_TEXT_SIZE = 8192 };

/* IPv4 addresses of the namespace that we are in, each followed by ", ". -1 when they do not fit.
 */
int rules_host_addresses(char text[RULES_ADDRESSES_SIZE]);

/* The tables as nft reads them. -1 when the text does not fit. */
int rules_format_host(const struct rules *rules, char *text, size_t size);
int rules_format_sandbox(const struct rules *rules, const char *resolver, const char *addresses,
                         char *bytes, size_t size);
