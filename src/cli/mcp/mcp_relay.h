/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The standard streams of an MCP client, connected to the daemon: a message in each line, both
 * ways, over one connection.
 *
 * Sessions that the client made end with that connection, so there is nothing to clean up here,
 * however we end. A daemon that is replaced is connected to again as the same client; requests that
 * were under way are answered with an error, as the client would wait for ever otherwise.
 */

#include "cli/cli.h"

/* Until the client closes our input or goes; the exit code. `session` says what the session of the
 * client is like, as the daemon takes it in a header; NULL: like any other. */
int mcp_relay_run(struct cli *cli, const char *session);
