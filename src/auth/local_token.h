/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The token for TCP on this host where authentication is off: a process that can read the daemon's
 * file may use the daemon, as with its unix socket. It is made anew at each start.
 *
 * There is one file for each port, STATE_DIR/token-PORT with mode 0600, so that a client sends the
 * token only to the port that the daemon has said is its own.
 */

#include "base/error.h"

#include <stdbool.h>

enum { LOCAL_TOKEN_SIZE = 72 };

struct local_token {
    char text[LOCAL_TOKEN_SIZE];
};

void local_token_make(struct local_token *token);

/* Compares in constant time. The same digits behind e2b_ are the same token. */
bool local_token_is(const struct local_token *token, const char *given);

/* Writes the file of a port. `state_dir` may be an O_PATH descriptor. */
int local_token_save(const struct local_token *token, int state_dir, unsigned port,
                     struct error *err);

/* Removes the files of all ports: those of a daemon that is no more. */
void local_token_forget(int state_dir);

/* The token for this address, if it is a port of this host and the user may read its token;
 * allocated, NULL otherwise. */
char *local_token_find(const char *state_dir, const char *url);
