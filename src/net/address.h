/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where to listen or to connect: a unix socket or a TCP address. */

#include "base/error.h"

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { ADDRESS_TEXT_SIZE = 64 };

struct address {
    struct sockaddr_storage storage;
    socklen_t length;
    bool is_unix;
};

/* "unix:PATH", "unix://PATH", "http[s]://HOST[:PORT]", "HOST:PORT" or "[::1]:PORT". A host name is
 * looked up, which blocks. */
int address_parse(struct address *address, const char *text, struct error *err);

/* "unix" or "127.0.0.1:4242". */
void address_format(const struct address *address, char text[ADDRESS_TEXT_SIZE]);

static inline const char *address_path(const struct address *address)
{
    return ((const struct sockaddr_un *)&address->storage)->sun_path;
}
