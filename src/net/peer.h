/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The peer of an accepted connection. SO_PEERCRED gives the process and user of a unix socket;
 * sock_diag gives the user of a TCP connection from this host.
 */

#include "net/address.h"
#include "net/http_server.h"

/* Call it with the socket as it was accepted, before TLS takes it. */
void peer_read(struct http_peer *peer, int fd, const struct address *address);

/* Whether the address is one of this host's loopback interface. */
bool address_is_loopback(const struct address *address);
