#pragma once

/* Inside of TLS: one connection, between a socket that carries TLS and one that carries bytes. */

#include "base/list.h"
#include "loop/loop.h"

#include <openssl/types.h>

/* What the relays of one side share. */
struct tls_relays {
    struct loop *loop; /* borrowed */
    struct list list;
    char failure[160]; /* why the last handshake failed */
};

/* Takes all three over; it ends by itself. */
void tls_relay_start(struct tls_relays *relays, SSL *ssl, int secure, int plain);

/* Sends what can be sent at once, then ends them all. */
void tls_relays_close(struct tls_relays *relays);
