/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The directories that the daemon works in. A directory is made where it is missing; one that
 * exists keeps its owner and its mode. The exception are files that an earlier daemon made as
 * another user: they are given to the present one.
 */

#include "base/error.h"
#include "daemon/privileges.h"

/* The state directory, with what an earlier daemon left in it. Refuses one that holds directories
 * which the daemon would empty and that are not its own. */
int place_prepare_state(const char *path, const struct identity *identity, struct error *err);

/* Whether the identity can make files in a directory, or could make it; nothing is made. `purpose`
 * is what for, as in "create a socket". */
int place_check(const char *path, const struct identity *identity, const char *purpose,
                struct error *err);
int place_check_socket(const char *socket_path, const struct identity *identity, struct error *err);

/* Whether the identity can read the file; errno tells why not. */
bool place_may_read(const char *path, const struct identity *identity);

/* The directory of a unix socket. */
int place_prepare_socket(const char *socket_path, const struct identity *identity,
                         struct error *err);
