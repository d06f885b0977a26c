/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to TLS: one connection, between a socket with TLS and a plain one. */

#include "base/list.h"
#include "loop/loop.h"

#include <openssl/types.h>

/* The relays of one struct tls. */
struct tls_relays {
    struct loop *loop; /* borrowed */
    struct list list;
    char failure[160]; /* why the last handshake failed */
};

/* Takes all three over; it ends by itself. */
void tls_relay_start(struct tls_relays *relays, SSL *ssl, int secure, int plain);

/* Sends as much as the sockets take at once, then ends all relays. */
void tls_relays_close(struct tls_relays *relays);
