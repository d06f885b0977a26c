/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The gate: where a daemon reaches the relay through a network. It is a child of init that accepts
 * TCP connections, has each peer prove that it knows the key of the sandbox, and copies between a
 * peer that has and the relay's socket, sealed on the side of the network: see wire/seal.h. Init
 * ends when the gate does.
 *
 * A stranger learns a nonce and costs a few hundred bytes: no connection to the relay is made for
 * one. The gate keeps GATE_STRANGERS of them, for SEAL_HANDSHAKE_MS each; one more takes the place
 * of the oldest. It keeps GATE_LINES connections that are proved, in the same way: the relay serves
 * the one that has logged in last.
 */

#include "wire/seal.h"

#include <stdint.h>

enum { GATE_STRANGERS = 512, GATE_LINES = 4 };

struct gate_setup {
    int listen_fd;    /* TCP, listening, does not block */
    const char *path; /* the relay's socket */
    uint8_t key[AEAD_KEY_SIZE];
};

/* A listening socket on all addresses of the sandbox; -errno without. */
int gate_listen(uint16_t port);

/* In the child. All signals are blocked, 0 to 2 are /dev/null, and other descriptors than the
 * listening one are closed. */
__attribute__((noreturn)) void gate_run(struct gate_setup *setup);
