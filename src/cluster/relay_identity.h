/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The identity of a caller on its way from one node to another: the value of the header
 * X-Sandglass-Relay. Pure functions.
 *
 *     1;FROM;EPOCH;TO;EPOCH;COUNTER;OWNER;PRINCIPAL;ON_BEHALF_OF;PEER;ROLES;FLAGS;MAC
 *
 * Texts have percent escapes, numbers are decimal, MAC is the HMAC-SHA-256 with the secret of the
 * cluster over all that stands before it, the method and the target of the request; in hexadecimal.
 * A header without a valid MAC is not parsed. A header is good for one request to one incarnation of
 * one node: the receiver compares TO and its epoch with its own, and remembers the counters that
 * each sender has used (struct relay_window). Clocks play no part.
 *
 * The body is not signed: where a stranger can change what nodes send to each other, their addresses
 * have to be https://.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "wire/http/http.h"

#include <stdbool.h>
#include <stdint.h>

#define RELAY_HEADER "X-Sandglass-Relay"
#define RELAY_HEADER_LOWER "x-sandglass-relay"

enum {
    RELAY_SECRET_MINIMUM = 32,
    RELAY_SECRET_MAXIMUM = 4096,
    RELAY_TEXT_MAXIMUM = 8192, /* of the header */
};

enum relay_flag {
    RELAY_OPERATOR = 1 << 0,     /* request->is_operator */
    RELAY_ANY_OWNER = 1 << 1,    /* request->any_owner */
    RELAY_UNIDENTIFIED = 1 << 2, /* the home identifies the caller: the credentials travel along */
};

struct relay_secret {
    uint8_t bytes[RELAY_SECRET_MAXIMUM];
    size_t length;
};

/* The content of a file that only its owner may read, without white space at its end. */
int relay_secret_read(struct relay_secret *secret, const char *path, struct error *err);

struct relay_identity {
    const char *from; /* node that the request came to */
    uint64_t from_epoch;
    const char *to;
    uint64_t to_epoch;
    uint64_t counter; /* of the requests of `from` to all nodes */
    const char *owner, *principal, *on_behalf_of;
    const char *peer; /* address of the caller, for the audit log */
    unsigned roles, flags;
    char *storage; /* owned: the texts of one that was read; NULL for one that is to be written */
};

void relay_identity_fini(struct relay_identity *identity); /* safe on a zeroed one */

static inline void scoped_relay_identity_fini(struct relay_identity *identity)
{
    relay_identity_fini(identity);
}

/* Appends the value of the header; -1 when it is longer than RELAY_TEXT_MAXIMUM. */
int relay_identity_write(const struct relay_identity *identity, const struct relay_secret *secret,
                         enum http_method method, const char *target, struct buffer *out);

/* ERR_FORBIDDEN "relay_refused" when the header is not one that a node has written for this method
 * and target. */
int relay_identity_read(struct relay_identity *identity, const struct relay_secret *secret,
                        enum http_method method, const char *target, const char *text,
                        struct error *err);

/* Parses the text before ";MAC"; for relay_identity_read() and tests. 0 or -1. */
int relay_identity_parse(struct relay_identity *identity, const char *text, size_t length);

/* --- counters that were used ------------------------------------------------------------------ */

enum { RELAY_WINDOW = 8192 }; /* counters behind the highest one that may still come */

struct relay_window {
    uint64_t epoch;   /* of the sender */
    uint64_t highest; /* counter; 0 before the first */
    uint64_t used[RELAY_WINDOW / 64];
};

enum relay_verdict {
    RELAY_NEW,   /* and used from now on */
    RELAY_USED,  /* the request has come before */
    RELAY_OLD,   /* too far behind the highest: it cannot be told whether it has come before */
    RELAY_STALE, /* of an earlier incarnation of the sender */
};

/* A sender with a higher epoch begins anew. */
enum relay_verdict relay_window_take(struct relay_window *window, uint64_t epoch, uint64_t counter);
