/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * TLS, 1.2 and newer, in front of plain streams.
 *
 * A relay stands between a client's socket and one end of a socket pair; the holder of the other end
 * reads and writes plain bytes and knows nothing of TLS. So everything that holds for a plain
 * connection (backpressure, half-closed streams, a client that left) holds here as well, for the
 * price of one more copy.
 */

#include "base/error.h"
#include "base/scoped.h"
#include "loop/loop.h"

struct tls;

/* The server side, with a certificate chain and its key, both PEM files. The loop is borrowed. */
struct tls *tls_new(struct loop *loop, const char *certificate, const char *key, struct error *err);

/* PEM files of a client; "" or NULL: none. */
struct tls_files {
    const char *ca;          /* trusted instead of the system's authorities */
    const char *certificate; /* the chain that is sent to the server, and its key */
    const char *key;
};

/* The client side. Without files (NULL) it sends no certificate, and trusts the system's
 * authorities (SSL_CERT_FILE and SSL_CERT_DIR name others). */
struct tls *tls_new_client(struct loop *loop, const struct tls_files *files, struct error *err);

/* Other files of a client, for connections to come; on failure it goes on with the old ones. */
int tls_reload_client(struct tls *tls, const struct tls_files *files, struct error *err);

/* Ends all connections after sending as much as the sockets take at once. NULL is fine. */
void tls_free(struct tls *tls);
SCOPED_DEFINE(tls_free, struct tls);

/* Reads both files again, for connections to come; on failure it goes on with the old ones. */
int tls_reload(struct tls *tls, struct error *err);

/* Takes the client's socket over and gives the plain end, non-blocking; -1 on failure, and then the
 * socket is closed. */
int tls_accept(struct tls *tls, int socket);

/* As tls_accept(), for a socket that is connected to a server, which has to prove that it is
 * `host`. */
int tls_connect(struct tls *tls, int socket, const char *host);

/* Why the last connection could not be made: the plain end only shows that it was closed. "" when
 * there is nothing to say, and for NULL. */
const char *tls_failure(const struct tls *tls);
