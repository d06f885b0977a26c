/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The door of a container on this kernel: a listening SOCK_SEQPACKET socket of the daemon, in a
 * directory that is mounted into the container, read-only. Init connects to it (`--dial`), and again
 * whenever the connection is lost, so that the next daemon is found as well.
 *
 * The socket is the daemon's and not init's: an unprivileged daemon could not connect to a socket of
 * the container's root, and a directory in which init makes one would be a place on the disk of the
 * host that root inside can fill.
 *
 * Programs inside can connect too. Only a connection of the container's first process is taken.
 */

#include "base/error.h"
#include "base/id.h"
#include "base/scoped.h"
#include "loop/loop.h"

#include <sys/types.h>

struct door;
typedef void door_fn(struct door *door, void *user);

/* Listens at docker/doors/ID/ID.sock of the state directory; replaces the socket of an earlier
 * daemon. NULL with an error. */
struct door *door_open(struct loop *loop, int state_dir, const char *id, struct error *err);
void door_free(struct door *door); /* NULL is fine; the files stay */
SCOPED_DEFINE(door_free, struct door);

/* The process whose connections are accepted; none is accepted before it is known. */
void door_set_pid(struct door *door, pid_t pid);

/* The latest connection of init that was not taken yet; -1 when there is none. */
int door_take(struct door *door);

/* `on_arrival` is called, from the loop, when door_take() has something to give; NULL: no more. The
 * connection that was taken before is ended, so that init makes the next one. */
void door_wait(struct door *door, door_fn *on_arrival, void *user);

/* Removes the files, for good. Files that are not there are fine. */
int door_remove(int state_dir, const char *id, struct error *err);

/* Calls `add` for each sandbox that has files of a door. */
void door_list(int state_dir, void (*add)(void *user, const char *id), void *user);
