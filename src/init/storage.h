/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The storage socket: programs in the sandbox connect to it to store files of their session.
 *
 * Init listens and the daemon serves. An accepted connection whose peer belongs to a running
 * process is handed to the daemon together with the number of that process, which is all the
 * identity the program has; every other connection is closed. While no daemon is connected,
 * programs wait in the queue of the socket.
 *
 * The socket has an abstract name. In a network namespace of its own that is always
 * "sandglass-storage"; elsewhere a random suffix keeps others from taking the name first.
 */

void storage_prepare(void); /* without a socket, storage_name() is "" */

/* The value of SANDGLASS_STORAGE. */
const char *storage_name(void);

/* The descriptor to poll now; -1 while nothing can be handed on. */
int storage_poll_fd(void);

void storage_accept(void);
