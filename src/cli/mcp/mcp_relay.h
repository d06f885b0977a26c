#pragma once

/*
 * The standard streams of an MCP client, connected to the daemon: a message in each line, both
 * ways, over one connection.
 *
 * Whatever the client made ends with that connection, so there is nothing to clean up here, however
 * we end. A daemon that is replaced is connected to again as the same client; requests that were
 * under way are answered with an error, as the client would wait for ever otherwise.
 */

#include "cli/cli.h"

/* Until the client closes our input or goes; the exit code. */
int mcp_relay_run(struct cli *cli);
