#pragma once

/*
 * Who is at the other end of an accepted connection. The kernel tells the process and its user for
 * a unix socket; for a TCP connection of this host, sock_diag tells the user.
 */

#include "net/address.h"
#include "net/http_server.h"

/* Call it with the socket as it was accepted, before TLS takes it. */
void peer_read(struct http_peer *peer, int fd, const struct address *address);

/* Whether the address is one of this host's loopback interface. */
bool address_is_loopback(const struct address *address);
