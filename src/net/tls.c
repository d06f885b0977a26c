/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls.h"

#include "base/alloc.h"
#include "base/str.h"
#include "net/tls_relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct tls {
    char *certificate; /* owned, as is all below; of a client without one NULL, as is the key */
    char *key;
    SSL_CTX *context;
    struct tls_relays relays;
};

/* ALPN selects HTTP/1.1; a client that offers only other protocols is refused. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_length,
                   const unsigned char *in, unsigned in_length, void *context)
{
    static const unsigned char ours[] = "\x08http/1.1";

    (void)ssl;
    (void)context;
    if (SSL_select_next_proto((unsigned char **)out, out_length, ours, sizeof(ours) - 1, in,
                              in_length) == OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_OK;
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int fail(struct error *err, const char *what, const char *path)
{
    char reason[200] = "unknown reason";
    unsigned long number = ERR_peek_last_error();

    if (number)
        ERR_error_string_n(number, reason, sizeof(reason));
    ERR_clear_error();
    return error_set(err, ERR_INVALID, "%s %s: %s", what, path, reason);
}

/* OpenSSL does not report why a file cannot be opened. */
static int check_readable(const char *what, const char *path, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    int failure = errno;

    if (fd >= 0)
        return 0;
    error_set(err, ERR_INVALID, "read %s %s: %s", what, path, strerror(failure));
    return failure == EACCES
               ? error_hint(err, "uid %u must be able to read it", (unsigned)geteuid())
               : -1;
}

static int context_load(struct tls *tls, SSL_CTX *context, struct error *err)
{
    if (check_readable("the certificate", tls->certificate, err) < 0 ||
        check_readable("the key", tls->key, err) < 0)
        return -1;
    if (SSL_CTX_use_certificate_chain_file(context, tls->certificate) != 1)
        return fail(err, "read the certificate", tls->certificate);
    if (SSL_CTX_use_PrivateKey_file(context, tls->key, SSL_FILETYPE_PEM) != 1)
        return fail(err, "read the key", tls->key);
    if (SSL_CTX_check_private_key(context) != 1)
        return fail(err, "the key does not belong to the certificate", tls->certificate);
    return 0;
}

static int no_passphrase(char *text, int size, int writing, void *context)
{
    (void)text;
    (void)size;
    (void)writing;
    (void)context;
    return -1;
}

static SSL_CTX *context_new(const SSL_METHOD *method, struct error *err)
{
    SSL_CTX *context = SSL_CTX_new(method);

    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") != 1) {
        SSL_CTX_free(context);
        error_set(err, ERR_INTERNAL, "TLS cannot be set up");
        return NULL;
    }
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    return context;
}

static SSL_CTX *server_context_new(struct tls *tls, struct error *err)
{
    SSL_CTX *context = context_new(TLS_server_method(), err);

    if (!context)
        return NULL;
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    SSL_CTX_set_alpn_select_cb(context, on_alpn, NULL);
    if (context_load(tls, context, err) == 0)
        return context;
    SSL_CTX_free(context);
    return NULL;
}

static struct tls *tls_make(struct loop *loop)
{
    struct tls *tls = xnew(struct tls);

    tls->relays.loop = loop;
    list_init(&tls->relays.list);
    return tls;
}

struct tls *tls_new(struct loop *loop, const char *certificate, const char *key, struct error *err)
{
    struct tls *tls = tls_make(loop);

    tls->certificate = xstrdup(certificate);
    tls->key = xstrdup(key);
    tls->context = server_context_new(tls, err);
    if (!tls->context) {
        tls_free(tls);
        return NULL;
    }
    return tls;
}

static int client_context_trust(SSL_CTX *context, const char *ca, struct error *err)
{
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (str_is_empty(ca)) {
        (void)SSL_CTX_set_default_verify_paths(context);
        return 0;
    }
    if (check_readable("the certificates of the CA", ca, err) < 0)
        return -1;
    if (SSL_CTX_load_verify_locations(context, ca, NULL) != 1)
        return fail(err, "read the certificates of the CA", ca);
    return 0;
}

static int client_load(struct tls *tls, const struct tls_files *files, struct error *err)
{
    if (client_context_trust(tls->context, files->ca, err) < 0)
        return -1;
    if (str_is_empty(files->certificate) != str_is_empty(files->key))
        return error_set(err, ERR_INVALID, "a certificate for TLS and its key belong together");
    if (str_is_empty(files->certificate))
        return 0;
    SSL_CTX_set_default_passwd_cb(tls->context, no_passphrase);
    tls->certificate = xstrdup(files->certificate);
    tls->key = xstrdup(files->key);
    return context_load(tls, tls->context, err);
}

struct tls *tls_new_client(struct loop *loop, const struct tls_files *files, struct error *err)
{
    static const struct tls_files none = { 0 };
    struct tls *tls = tls_make(loop);

    tls->context = context_new(TLS_client_method(), err);
    if (!tls->context || client_load(tls, files ? files : &none, err) < 0) {
        tls_free(tls);
        return NULL;
    }
    return tls;
}

int tls_reload_client(struct tls *tls, const struct tls_files *files, struct error *err)
{
    scoped(tls_free) struct tls *fresh = tls_new_client(tls->relays.loop, files, err);

    if (!fresh)
        return -1;
    SSL_CTX_free(tls->context);
    free(tls->certificate);
    free(tls->key);
    tls->context = steal_ptr(&fresh->context);
    tls->certificate = steal_ptr(&fresh->certificate);
    tls->key = steal_ptr(&fresh->key);
    return 0;
}

void tls_free(struct tls *tls)
{
    if (!tls)
        return;
    tls_relays_close(&tls->relays);
    SSL_CTX_free(tls->context);
    free(tls->certificate);
    free(tls->key);
    free(tls);
}

int tls_reload(struct tls *tls, struct error *err)
{
    SSL_CTX *context = server_context_new(tls, err);

    if (!context)
        return -1;
    SSL_CTX_free(tls->context);
    tls->context = context;
    return 0;
}

/* Gives the plain end, or -1; both the socket and the SSL are taken over. */
static int relay_through(struct tls *tls, SSL *ssl, int socket)
{
    scoped(fd_close) int secure = socket;
    int pair[2];

    if (!ssl || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0) {
        SSL_free(ssl);
        return -1;
    }
    tls_relay_start(&tls->relays, ssl, steal_fd(&secure), pair[0]);
    return pair[1];
}

int tls_accept(struct tls *tls, int socket)
{
    SSL *ssl = SSL_new(tls->context);

    if (ssl)
        SSL_set_accept_state(ssl);
    return relay_through(tls, ssl, socket);
}

static bool is_address(const char *host)
{
    struct in6_addr address;

    return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

int tls_connect(struct tls *tls, int socket, const char *host)
{
    SSL *ssl = SSL_new(tls->context);

    *tls->relays.failure = '\0';
    if (ssl && (!SSL_set1_host(ssl, host) ||
                (!is_address(host) && !SSL_set_tlsext_host_name(ssl, host)))) {
        SSL_free(ssl);
        ssl = NULL;
    }
    if (ssl)
        SSL_set_connect_state(ssl);
    return relay_through(tls, ssl, socket);
}

const char *tls_failure(const struct tls *tls)
{
    return tls ? tls->relays.failure : "";
}
