/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The MCP server: the tools of src/tools, for every client that speaks the Model Context Protocol.
 *
 *     face.c       its face: the routes of /mcp
 *     http.c       streamable HTTP at /mcp: which message is whose, in both eras of the protocol
 *     stream.c     the answer to one HTTP request: JSON, or events that can be taken up again
 *     pipe.c       one connection with a message in each line, for `sandglass mcp` on stdio
 *     client.c     a client: from `initialize`, or its connection, to its end
 *     request.c    one JSON-RPC request: its method, its answer, its cancellation
 *     lifecycle.c  initialize, ping, server/discover
 *     calls.c      tools/list and tools/call
 *     place.c      in which session a tool works
 *     wishes.c     what that session is to be like, where a client says so
 *     resources.c  files of a session as resources
 *
 * Two eras are served side by side. Up to 2025-11-25 a client says `initialize` first and has a
 * state here, which ends with it. From 2026-07-28 on each request says all by itself, and names the
 * session it works in.
 *
 * The session of a client is made when a tool first needs one, and ends with the client. All
 * sessions that a client on a pipe has made end with the pipe, also when the daemon was replaced
 * meanwhile and the client did not come back.
 */

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config;
struct core;
struct face;
struct http_exchange;
struct loop;
struct mcp;
struct tools;

struct mcp_parts {
    struct loop *loop; /* all borrowed; all outlive the server */
    const struct config *config;
    struct core *core;
    struct tools *tools;
    const char *node; /* this one among several; NULL: this daemon is alone */
};

/* Its context is the server. */
extern const struct face mcp_face;

struct mcp *mcp_new(const struct mcp_parts *parts);

/* Forgets the clients; their sessions are left as they are. NULL is fine. No exchange is open. */
void mcp_free(struct mcp *mcp);
