/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A port of this host that leads to a port inside of a sandbox. Every connection to it gets one of
 * its own through the daemon. While the daemon is away, or the sandbox does not answer, new
 * connections wait; those that were open are cut, as nothing can say what has arrived of them.
 */

#include "cli/cli.h"

struct tunnel_wish {
    const char *session;
    unsigned local; /* 0: any that is free */
    unsigned remote;
};

struct tunnel;

/* Listens on 127.0.0.1, and carries connections while cli->loop runs. `wish` is borrowed. NULL with an
 * error when it cannot listen. */
struct tunnel *tunnel_open(struct cli *cli, const struct tunnel_wish *wish, struct error *err);
void tunnel_close(struct tunnel *tunnel); /* NULL is fine; open connections are cut */
unsigned tunnel_port(const struct tunnel *tunnel);

/* [LOCAL:]REMOTE, numbers from 1 to 65535; LOCAL may be 0. */
bool tunnel_read_ports(const char *text, struct tunnel_wish *wish);

/* Listens on 127.0.0.1 until a signal comes or the session is gone; the exit code. */
int tunnel_run(struct cli *cli, const struct tunnel_wish *wish);
