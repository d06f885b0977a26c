/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A listening socket. When the process is out of descriptors, it pauses instead of spinning.
 *
 * A unix socket is made with mode 0660, in a directory that is made if missing. A socket file
 * without a listener is replaced; anything else at its path is refused. The file is unlinked with
 * the listener, unless another one has replaced it.
 */

#include "loop/loop.h"
#include "net/address.h"

struct listener;

/* The descriptor is non-blocking and the callee's from now on. */
typedef void listener_accept_fn(void *context, int fd, const struct address *peer);

/* Out of descriptors while a client waits: close something if possible. */
typedef void listener_exhausted_fn(void *context);

struct listener_events {
    listener_accept_fn *on_accept;
    listener_exhausted_fn *on_exhausted;
    void *context; /* borrowed */
};

/* Binds the address, so that no other process can have it; clients are refused until
 * listener_start(). */
struct listener *listener_bind(struct loop *loop, const struct address *address,
                               const struct listener_events *events, struct error *err);
int listener_start(struct listener *listener, struct error *err);

/* Both. */
struct listener *listener_new(struct loop *loop, const struct address *address,
                              const struct listener_events *events, struct error *err);
void listener_free(struct listener *listener); /* NULL is fine */

unsigned listener_port(const struct listener *listener); /* 0 for a unix socket */
