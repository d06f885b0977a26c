/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The relay: the peer of a daemon on another kernel. It is a child of init with memory of its own,
 * made before anything else runs. To init it is a daemon: it makes a socketpair of SOCK_SEQPACKET,
 * sends init one end over `init_fd` and gets messages and descriptors through the other. To the
 * outside it speaks frames over the stream sockets that it accepts. Init ends when the relay does.
 */

#include "wire/relay_frame.h"

#include <stdint.h>

struct relay_setup {
    int listen_fd; /* SOCK_STREAM, listening, does not block */
    int init_fd;   /* SOCK_SEQPACKET, does not block: a packet of one byte with one descriptor is a
                      new connection to init, which replaces the one before */
    bool has_key;  /* false: the first bridge gives it one, by BIND */
    uint8_t key[RELAY_KEY_SIZE];
};

/* In the child. All signals are blocked, 0 to 2 are /dev/null, and other descriptors than the two
 * are closed. */
__attribute__((noreturn)) void relay_run(struct relay_setup *setup);
