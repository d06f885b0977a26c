/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where a Redis server is:
 *
 *     redis://[[user]:password@]host[:port][/db]       rediss:// with TLS
 *     unix:///path/of/socket[?db=N]                    unix://:password@/path with a password
 *     redis+sentinel://[[user]:password@]host[:port],host[:port]/master[/db]
 *
 * Reserved characters of a password are %-encoded. The password is never part of a message.
 */

#include "base/error.h"
#include "base/scoped.h"

#include <stdbool.h>

enum { REDIS_HOSTS_MAXIMUM = 8 };

enum redis_scheme { REDIS_TCP, REDIS_TLS, REDIS_UNIX, REDIS_SENTINEL };

struct redis_url {
    enum redis_scheme scheme;
    char *hosts[REDIS_HOSTS_MAXIMUM]; /* owned: "host:port"; of sentinels, all of them */
    unsigned host_count;              /* 0 with REDIS_UNIX */
    char *path;                       /* owned: of the socket; NULL without one */
    char *user, *password;            /* owned; NULL without */
    char *master;                     /* owned: the name that the sentinels know; else NULL */
    unsigned db;
};

/* The message says what is wrong, and names neither the setting nor the password. */
int redis_url_parse(struct redis_url *url, const char *text, struct error *err);
void redis_url_fini(struct redis_url *url); /* a zeroed one is fine */

/* The text without its password, for people; allocated. */
char *redis_url_shown(const char *text);

static inline void scoped_redis_url_fini(struct redis_url *url)
{
    redis_url_fini(url);
}
