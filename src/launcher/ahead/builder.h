#pragma once

/*
 * The builder: a child of the launcher that completes spares, so that a request never waits for one
 * that is being made. Orders and deliveries are the same message, with the parts that the spare has as
 * descriptors beside it; the answers come in the order of the orders.
 */

#include "launcher/ahead/spare.h"

struct walls;

/* All borrowed. */
struct builder_parts {
    struct spare_parts spare;
    struct walls *walls;
    void (*on_child)(void *user); /* in the new process: closes what only the launcher may hold */
    void *user;
};

/* Its socket, or -1. Ends with the launcher, when that end is closed. */
int builder_start(const struct builder_parts *parts, int *out_pidfd);

/* Orders what the spare lacks, for `limits` and with a root of `spare->template_name`; without a slot,
 * that the trash be emptied. The descriptors stay the caller's. -1 when the socket is full. */
int builder_order(int builder, struct spare *spare, const struct launch_limits *limits);

/* The spare that was ordered; with `out_made` false one without descriptors, and why. -1 when the
 * builder is gone. The receiver owns the spare. */
int builder_receive(int builder, struct spare *out_spare, bool *out_made, struct fail *out_fail);
