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

/* What this side of a connection shows: a certificate (with those that signed it) and its key, both
 * PEM files. The loop is borrowed. */
struct tls *tls_new(struct loop *loop, const char *certificate, const char *key, struct error *err);

/* PEM files of a client; "" or NULL: none. */
struct tls_files {
    const char *ca;          /* trusted, instead of those whom the system trusts */
    const char *certificate; /* shown to the server, with those that signed it; and its key */
    const char *key;
};

/* The other side. Without files (NULL) it shows nothing, and trusts those whom the system trusts
 * (SSL_CERT_FILE and SSL_CERT_DIR say others). */
struct tls *tls_new_client(struct loop *loop, const struct tls_files *files, struct error *err);

/* Ends all connections; what can be sent at once is sent. NULL is fine. */
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
