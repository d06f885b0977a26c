/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls_relay.h"

#include "base/alloc.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum {
    CHUNK_BYTES = 16 * 1024, /* the most that one record of TLS holds */
    ROUNDS_PER_TURN = 16,
    LINGER_US = 3 * 1000 * 1000,
    PEER_CHECK_US = 1000 * 1000,
    LINGER_BYTES = 16 * 1024 * 1024,
};

/* Bytes in transit; the next ones are read when these are sent. */
struct chunk {
    uint8_t *data; /* owned; NULL while there is none */
    size_t sent, length;
    bool ended; /* no more come */
};

struct relay {
    struct tls_relays *relays; /* borrowed */
    struct list node;
    SSL *ssl;               /* owned */
    struct io_watch secure; /* the fds of both are owned */
    struct io_watch plain;
    struct chunk in;  /* from the client */
    struct chunk out; /* to the client */
    unsigned secure_wants, plain_wants;
    bool broken;
    bool deaf;     /* the plain side reads no more, but may still write */
    bool told_end; /* the plain side knows that the client has ended */
    bool lingers;  /* all is sent: further input is dropped until the client closes */
    bool said_end; /* the server knows that we have ended; its side goes on */
    size_t dropped;
    struct timer timer; /* while it lingers, and while the client is not read from */
};

static void relay_close(struct relay *relay)
{
    list_remove(&relay->node);
    timer_stop(&relay->timer);
    io_watch_stop(&relay->secure);
    io_watch_stop(&relay->plain);
    SSL_free(relay->ssl);
    fd_close(relay->secure.fd);
    fd_close(relay->plain.fd);
    free(relay->in.data);
    free(relay->out.data);
    free(relay);
}

/* --- chunks ---------------------------------------------------------------------------------- */

static bool chunk_is_empty(const struct chunk *chunk)
{
    return chunk->sent == chunk->length;
}

static uint8_t *chunk_room(struct chunk *chunk)
{
    if (!chunk->data)
        chunk->data = xmalloc(CHUNK_BYTES);
    return chunk->data;
}

/* An idle connection holds no memory for bytes. */
static void chunk_trim(struct chunk *chunk)
{
    if (!chunk_is_empty(chunk))
        return;
    free(chunk->data);
    *chunk = (struct chunk){ .ended = chunk->ended };
}

/* --- steps: each returns whether it got anywhere --------------------------------------------- */

static void note_failure(struct relay *relay)
{
    char *failure = relay->relays->failure;
    long verified = SSL_get_verify_result(relay->ssl);
    unsigned long number = ERR_peek_last_error();

    if (verified != X509_V_OK)
        snprintf(failure, sizeof(relay->relays->failure), "its certificate is not trusted: %s",
                 X509_verify_cert_error_string(verified));
    else if (number)
        ERR_error_string_n(number, failure, sizeof(relay->relays->failure));
    else
        snprintf(failure, sizeof(relay->relays->failure), "it does not speak TLS");
}

/* Notes the event that OpenSSL waits for, or the end. */
static void secure_blocked(struct relay *relay, int result, struct chunk *chunk)
{
    int reason = SSL_get_error(relay->ssl, result);

    switch (reason) {
    case SSL_ERROR_WANT_READ:
        relay->secure_wants |= IO_READ;
        return;
    case SSL_ERROR_WANT_WRITE:
        relay->secure_wants |= IO_WRITE;
        return;
    case SSL_ERROR_ZERO_RETURN:
        chunk->ended = true;
        return;
    }
    /* In TLS 1.3 a server refuses the client's certificate when the client is done already. */
    if (!SSL_is_init_finished(relay->ssl) || reason == SSL_ERROR_SSL)
        note_failure(relay);
    relay->broken = true;
}

static bool secure_read(struct relay *relay)
{
    struct chunk *in = &relay->in;
    int length;

    if (in->ended || relay->deaf || !chunk_is_empty(in))
        return false;
    ERR_clear_error();
    length = SSL_read(relay->ssl, chunk_room(in), CHUNK_BYTES);
    in->sent = 0;
    in->length = length > 0 ? (size_t)length : 0;
    if (length <= 0)
        secure_blocked(relay, length, in);
    return length > 0 || in->ended;
}

static bool secure_write(struct relay *relay)
{
    struct chunk *out = &relay->out;
    int length;

    if (chunk_is_empty(out))
        return false;
    ERR_clear_error();
    length = SSL_write(relay->ssl, out->data + out->sent, (int)(out->length - out->sent));
    if (length > 0)
        out->sent += (size_t)length;
    else
        secure_blocked(relay, length, out);
    return length > 0;
}

static bool errno_is_passing(void)
{
    return errno == EAGAIN || errno == EINTR;
}

static bool plain_write(struct relay *relay)
{
    struct chunk *in = &relay->in;
    ssize_t length;

    if (chunk_is_empty(in)) {
        if (in->ended && !relay->told_end)
            (void)shutdown(relay->plain.fd, SHUT_WR);
        relay->told_end |= in->ended;
        return false;
    }
    length = send(relay->plain.fd, in->data + in->sent, in->length - in->sent,
                  MSG_NOSIGNAL | MSG_DONTWAIT);
    if (length > 0) {
        in->sent += (size_t)length;
    } else if (errno_is_passing()) {
        relay->plain_wants |= IO_WRITE;
    } else {
        in->sent = in->length;
        relay->deaf = true;
    }
    return length > 0;
}

static bool plain_read(struct relay *relay)
{
    struct chunk *out = &relay->out;
    ssize_t length;

    if (out->ended || !chunk_is_empty(out))
        return false;
    length = recv(relay->plain.fd, chunk_room(out), CHUNK_BYTES, MSG_DONTWAIT);
    out->sent = 0;
    out->length = length > 0 ? (size_t)length : 0;
    if (length < 0 && errno_is_passing())
        relay->plain_wants |= IO_READ;
    else
        out->ended = length <= 0;
    return length > 0;
}

static bool relay_step(struct relay *relay)
{
    bool moved;

    relay->secure_wants = relay->plain_wants = 0;
    moved = secure_read(relay);
    moved |= plain_write(relay);
    moved |= plain_read(relay);
    moved |= secure_write(relay);
    return moved && !relay->broken;
}

/* --- the end --------------------------------------------------------------------------------- */

/* Closing at once would reset the connection, and the client would lose unread bytes. */
static void relay_drop(struct relay *relay)
{
    uint8_t scratch[4096];
    ssize_t length;

    do {
        length = recv(relay->secure.fd, scratch, sizeof(scratch), MSG_DONTWAIT);
        relay->dropped += length > 0 ? (size_t)length : 0;
    } while (length > 0 && relay->dropped < LINGER_BYTES);
    if (length >= 0 || errno != EAGAIN)
        relay->broken = true;
}

static void relay_linger(struct relay *relay)
{
    ERR_clear_error();
    (void)SSL_shutdown(relay->ssl);
    ERR_clear_error();
    relay->lingers = true;
    io_watch_stop(&relay->plain);
    fd_close(relay->plain.fd);
    relay->plain.fd = -1;
    relay->broken = relay->in.ended || shutdown(relay->secure.fd, SHUT_WR) < 0;
    timer_arm_in(&relay->timer, LINGER_US);
}

/* A client may end its side alone, as long as it holds the plain end: the input of a program in a
 * container ends before its output. */
static bool relay_is_half_closed(const struct relay *relay)
{
    struct pollfd look = { .fd = relay->plain.fd };

    bool has_more = !relay->in.ended || !chunk_is_empty(&relay->in);

    return !SSL_is_server(relay->ssl) && has_more && !relay->deaf && poll(&look, 1, 0) >= 0 &&
           !(look.revents & (POLLHUP | POLLERR));
}

static void relay_say_end(struct relay *relay)
{
    int result;

    if (relay->said_end)
        return;
    ERR_clear_error();
    result = SSL_shutdown(relay->ssl);
    relay->said_end = result >= 0;
    if (result < 0)
        secure_blocked(relay, result, &relay->out);
}

static void relay_end(struct relay *relay)
{
    if (relay_is_half_closed(relay))
        relay_say_end(relay);
    else
        relay_linger(relay);
}

/* --- events ---------------------------------------------------------------------------------- */

static void on_secure_ready(struct io_watch *watch, unsigned events);
static void on_plain_ready(struct io_watch *watch, unsigned events);

static void watch_for(struct relay *relay, struct io_watch *watch, unsigned wants)
{
    io_ready_fn *on_ready = watch == &relay->secure ? on_secure_ready : on_plain_ready;

    if (!wants)
        io_watch_stop(watch);
    else if (wants != watch->events)
        io_watch_start(watch, relay->relays->loop, watch->fd, wants, on_ready);
}

static void relay_settle(struct relay *relay)
{
    int rounds = 0;

    while (!relay->lingers && !relay->broken && rounds++ < ROUNDS_PER_TURN && relay_step(relay))
        ;
    if (!relay->lingers && !relay->broken && relay->out.ended && chunk_is_empty(&relay->out))
        relay_end(relay);
    if (relay->lingers)
        relay_drop(relay);
    if (relay->broken) {
        relay_close(relay);
        return;
    }
    chunk_trim(&relay->in);
    chunk_trim(&relay->out);
    if (relay->lingers) {
        watch_for(relay, &relay->secure, IO_READ);
        return;
    }
    /* Cut short for the sake of others: the rest comes with the next turn. */
    if (rounds > ROUNDS_PER_TURN)
        relay->plain_wants |= IO_WRITE;
    watch_for(relay, &relay->secure, relay->secure_wants);
    watch_for(relay, &relay->plain, relay->plain_wants);
    if ((!(relay->secure_wants & IO_READ) || relay->said_end) && !timer_is_armed(&relay->timer))
        timer_arm_in(&relay->timer, PEER_CHECK_US);
}

/* A client that is not being read, because its input has ended or the plain side is full, may be
 * gone: the bytes sent to it were answered with a reset then. */
static void on_timer(struct timer *timer)
{
    struct relay *relay = container_of(timer, struct relay, timer);
    struct pollfd look = { .fd = relay->secure.fd };

    relay->broken |= relay->lingers;
    if (poll(&look, 1, 0) == 1 && look.revents & (POLLHUP | POLLERR | POLLNVAL))
        relay->broken = true;
    relay_settle(relay);
}

static void on_secure_ready(struct io_watch *watch, unsigned events UNUSED)
{
    relay_settle(container_of(watch, struct relay, secure));
}

static void on_plain_ready(struct io_watch *watch, unsigned events UNUSED)
{
    relay_settle(container_of(watch, struct relay, plain));
}

void tls_relay_start(struct tls_relays *relays, SSL *ssl, int secure, int plain)
{
    struct relay *relay = xnew(struct relay);

    relay->relays = relays;
    relay->ssl = ssl;
    relay->secure.fd = secure;
    relay->plain.fd = plain;
    timer_init(&relay->timer, relays->loop, on_timer);
    list_append(&relays->list, &relay->node);
    SSL_set_fd(ssl, secure);
    watch_for(relay, &relay->secure, IO_READ | (SSL_is_server(ssl) ? 0U : IO_WRITE));
    watch_for(relay, &relay->plain, IO_READ);
}

void tls_relays_close(struct tls_relays *relays)
{
    struct relay *relay, *following;

    list_for_each_safe (relay, following, &relays->list, node) {
        if (!relay->lingers)
            while (relay_step(relay))
                ;
        if (!relay->lingers && !relay->broken)
            (void)SSL_shutdown(relay->ssl);
        ERR_clear_error();
        relay_close(relay);
    }
}
