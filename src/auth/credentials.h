/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The credentials of a request, and the address or user of its peer. */

#include "base/error.h"

struct http_head;
struct http_peer;

struct credentials {
    char *token;        /* owned; NULL when there is none */
    char *on_behalf_of; /* owned; "" when there is none */
};

/* A header that is there twice, and two that contradict each other, are refused. */
int credentials_read(struct credentials *credentials, const struct http_head *head,
                     struct error *err);
void credentials_fini(struct credentials *credentials);

static inline void scoped_credentials_fini(struct credentials *credentials)
{
    credentials_fini(credentials);
}

enum { PEER_NAME_SIZE = 64 };

/* The name of the peer, without its port: "uid 1000", "127.0.0.1" or the first half of an IPv6
 * address, since one host has many of those. */
void peer_name(const struct http_peer *peer, char name[PEER_NAME_SIZE]);
