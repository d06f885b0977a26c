/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Dialling: with --dial init connects to a socket of the daemon, where otherwise the daemon connects
 * to one of init's. It is for containers on the daemon's kernel: a daemon without privilege cannot
 * reach a socket that root inside has made, and root inside must not be able to write to the host's
 * disk.
 *
 * Init does not authenticate the listener. The socket is in a directory of the host that the
 * container has as a read-only mount: without CAP_SYS_ADMIN no program inside can replace the
 * socket or mount over it. The daemon has to check its peer (SO_PEERCRED), since programs inside
 * can reach the socket, too.
 *
 * While there is no connection init tries, for as long as it lives: the daemon may be away for
 * hours, and sandboxes go on. No error is final but one: when the directory itself was removed on the
 * host, the sandbox was given up, and no daemon will ever listen there again.
 */

#include <stdbool.h>
#include <stdint.h>

enum { DIAL_SHORTEST_MS = 10, DIAL_LONGEST_MS = 250 };

/* How long to wait for the next attempt; 0 when it is due. The first one is, and so is the first one
 * after a connection was lost, unless it was only made a moment ago. */
int dial_wait_ms(void);

/* An attempt, which never waits: a connection at settings.socket_path, or -errno. */
int dial_connect(void);

/* Whether the last attempt has found the directory of the socket removed. */
bool dial_is_given_up(void);

/* The daemon has sent a request, so it accepted the connection: resets the back-off. */
void dial_confirm(void);

/* The delay after an attempt: twice the last one, unless this attempt comes so late after the one before
 * that there was a connection in between. A connection that has ended at once, before the daemon asked
 * anything, counts as a failed attempt. */
int dial_next_delay_ms(int last_delay_ms, int64_t since_last_us);
