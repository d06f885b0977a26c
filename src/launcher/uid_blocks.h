#pragma once

/*
 * Leases of user ids: two daemons on one host must not give the same ids to two sandboxes. The
 * slots are divided into blocks, and a file in /run/sandglass/uids says which state directory a
 * block belongs to. Its lock is held as long as the launcher of that directory lives; after that
 * the block stays taken while sandboxes are left there.
 */

#include "launcher/fail.h"

#include <stdbool.h>
#include <stdint.h>

enum { LEASE_SLOTS = 128, LEASE_BLOCKS = 256, LEASE_PATH = 4096 };

struct leases {
    int dir;                 /* owned; -1 when there is nobody to share with */
    int root;                /* owned: the host's "/" */
    int locks[LEASE_BLOCKS]; /* owned: of our blocks, -1 for the others */
    uint32_t blocks;         /* how many there are */
    char path[LEASE_PATH];   /* of our state directory */
};

/* Without `shared`, all blocks are ours: ids of a user namespace concern nobody else. */
int leases_open(struct leases *leases, uint32_t slots, int state, bool shared, struct fail *fail);

/* One more block: its number, or -1 when none is free. */
int leases_take(struct leases *leases);
bool leases_has(const struct leases *leases, uint32_t block);
void leases_release(struct leases *leases, uint32_t block);

/* In a child that must not hold them: closes the descriptors, the leases stay. */
void leases_forget(struct leases *leases);
