/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The builder: a child of the launcher that completes spares, so that no request waits for the
 * building of a spare. Orders and deliveries are the same message, with the parts of the spare as
 * descriptors beside it; deliveries come in the order of the orders.
 */

#include "launcher/ahead/spare.h"

struct walls;

/* All borrowed. */
struct builder_parts {
    struct spare_parts spare;
    struct walls *walls;
    void (*on_child)(void *user); /* in the new process: closes descriptors of the launcher alone */
    void *user;
};

/* The launcher's end of the builder's socket, or -1. The builder exits when that end is closed. */
int builder_start(const struct builder_parts *parts, int *out_pidfd);

/* Orders the missing parts of the spare, for `limits` and with a root of `spare->template_name`;
 * without a slot, orders the emptying of the trash. The descriptors stay the caller's. -1 when the
 * socket is full. */
int builder_order(int builder, struct spare *spare, const struct launch_limits *limits);

/* The spare that was ordered; with `out_made` false one without descriptors, and why. -1 when the
 * builder is gone. The receiver owns the spare. */
int builder_receive(int builder, struct spare *out_spare, bool *out_made, struct fail *out_fail);
