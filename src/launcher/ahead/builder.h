#pragma once

/*
 * The maker: a child of the launcher that completes kits, so that a request never waits for one
 * that is being made. Orders and deliveries are the same message, with the parts that the kit has
 * as descriptors beside it; the answers come in the order of the orders.
 */

#include "launcher/ahead/spare.h"

struct launcher;

/* Its socket, or -1. Ends with the launcher, when that end is closed. */
int maker_start(struct launcher *launcher, int *out_pidfd);

/* Orders what the kit lacks, for `kit->limits` and with a root of `kit->template_name`; without a
 * slot, that the trash be emptied. The descriptors stay the caller's. -1 when there is no room. */
int maker_order(int maker, struct kit *kit, const struct launch_limits *limits);

/* What was ordered, or with `out_made` false what it was made of as far as descriptors go: nothing,
 * and why. -1 when the maker is gone. The receiver owns the kit. */
int maker_receive(int maker, struct kit *out_kit, bool *out_made, struct fail *out_fail);
