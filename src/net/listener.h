#pragma once

/*
 * A listening socket. Out of descriptors, it waits a moment instead of spinning.
 *
 * A unix socket is made with mode 0660, in a directory that is made if missing. A socket file
 * without a listener is replaced; anything else at its path is refused. It is unlinked with the
 * listener, but only while it is still the one that was made.
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

/* Takes the address, so that no other process can have it; clients are refused until it is started. */
struct listener *listener_bind(struct loop *loop, const struct address *address,
                               const struct listener_events *events, struct error *err);
int listener_start(struct listener *listener, struct error *err);

/* Both. */
struct listener *listener_new(struct loop *loop, const struct address *address,
                              const struct listener_events *events, struct error *err);
void listener_free(struct listener *listener); /* NULL is fine */

unsigned listener_port(const struct listener *listener); /* 0 for a unix socket */
