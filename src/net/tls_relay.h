#pragma once

/* Inside of TLS: one connection, between a socket that carries TLS and one that carries bytes. */

#include "base/list.h"
#include "loop/loop.h"

#include <openssl/types.h>

/* Takes all three over and adds itself to the list; it removes itself when it has ended. */
void tls_relay_start(struct loop *loop, struct list *relays, SSL *ssl, int secure, int plain);

/* Sends what can be sent at once, then ends them all. */
void tls_relays_close(struct list *relays);
