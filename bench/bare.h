/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the kernel alone takes for the walls of a sandbox: the same namespaces, groups, file
 * systems, masks, capabilities, landlock rules and system call filter as a native sandbox of
 * Sandglass, put up and taken down by hand. There is no daemon, no record, no request and no check;
 * network and user namespaces and groups are made before the clock runs and used again without a
 * look. Our own times are held against it. It is no lower bound: everything else is made anew for
 * each, one thing after the other.
 */

#include "base/error.h"

#include <stdbool.h>

enum { BARE_GROUPS = 6, BARE_MASKS = 32 };

/* What outlives a sandbox. */
struct bare_slot {
    int network; /* owned descriptors */
    int user;
    int tasks[BARE_GROUPS]; /* -1 where there is no such hierarchy */
    unsigned owner;         /* the first of its ids */
};

/* What all of them share. */
struct bare_host {
    char folder[160];              /* everything is mounted below it, in a namespace of our own */
    const char *masks[BARE_MASKS]; /* names in /proc; ends with NULL */
    bool mask_is_folder[BARE_MASKS];
    void *filter; /* owned */
    unsigned short filter_length;
    int init; /* owned: the program that becomes the first process */
    int landlock_abi;
};

/* One sandbox: for the child, which shares our memory until it executes init. */
struct bare_start {
    const struct bare_host *host;
    const struct bare_slot *slot;
    int channel;      /* becomes init's descriptor 3 */
    const char *step; /* what failed, with error_number */
    int error_number;
};

/* The child's way from its birth to init; returns only when something failed. */
void bare_child(struct bare_start *start);

/* What sandboxes share; this process gets a mount namespace of its own for it. */
int bare_open(struct bare_host *host, const char *tools, struct error *err);
int bare_slot_make(struct bare_slot *slot, unsigned number, struct error *err);
void bare_slot_drop(struct bare_slot *slot, unsigned number);
void bare_close(struct bare_host *host);
