/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The options of an MCP client's session, which `mcp` and `mcp install` share. */

#include "cli/session/create_options.h"

struct mcp_session_args {
    struct create_args create;
};

extern const struct option mcp_session_options[];

/* The header that tells the daemon, allocated; NULL with nothing in it when no option was given. */
int mcp_session_header(const struct mcp_session_args *args, char **out, struct error *err);
