#pragma once

/*
 * Slots: each live sandbox has one, and with it a range of 65536 user and group ids that no other
 * has. Which are taken follows from the marks on disk, so nothing is remembered elsewhere.
 */

#include "launcher/state.h"
#include "launcher/uid_blocks.h"

#include <stdint.h>

enum { SLOTS_MAX = 32768, SLOTS_NONE = -1 };

struct slots {
    uint64_t taken[SLOTS_MAX / 64];
    uint32_t count; /* how many there are */
    uint32_t next;  /* a released slot is used again as late as possible */
    struct leases leases;
};

/* `shared`: the ids are those of the host, where others may want them too. */
int slots_open(struct slots *slots, uint32_t count, int state, bool shared, struct fail *fail);

/* Gives back the leases of blocks in which no slot is taken. */
void slots_close(struct slots *slots);
int slots_take(struct slots *slots); /* SLOTS_NONE when there is none, with errno */
int slots_fail(struct fail *fail);   /* says why, by errno */
void slots_mark(struct slots *slots, uint32_t slot);
void slots_release(struct slots *slots, uint32_t slot);

/* Takes those of every sandbox on disk, and of what still lies in the trash. */
void slots_scan(struct slots *slots, struct state *state);
