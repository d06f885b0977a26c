#pragma once

/*
 * The MCP server: the tools of src/tools, for every client that speaks the Model Context Protocol.
 *
 *     http.c       streamable HTTP at /mcp: which message is whose, in both eras of the protocol
 *     stream.c     the answer to one HTTP request: JSON, or events that can be taken up again
 *     pipe.c       one connection with a message in each line, for `sandglass mcp` on stdio
 *     client.c     a client: from `initialize`, or its connection, to its end
 *     request.c    one JSON-RPC request: its method, its answer, its cancellation
 *     lifecycle.c  initialize, ping, server/discover
 *     calls.c      tools/list and tools/call
 *     place.c      in which session a tool works
 *     resources.c  files of a session as resources
 *
 * Two eras are served side by side. Up to 2025-11-25 a client says `initialize` first and has a
 * state here, which ends with it. From 2026-07-28 on each request says all by itself, and names the
 * session it works in.
 *
 * The session of a client is made when a tool first needs one, and ends with the client. What a
 * client on a pipe has made ends with the pipe, all of it, also when the daemon was replaced
 * meanwhile and the client did not come back.
 */

#include "base/error.h"
#include "service/identity.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config;
struct core;
struct http_exchange;
struct loop;
struct mcp;
struct tools;

struct mcp_parts {
    struct loop *loop; /* all borrowed; all outlive the server */
    const struct config *config;
    struct core *core;
    struct tools *tools;
};

struct mcp *mcp_new(const struct mcp_parts *parts);

/* Forgets the clients; their sessions are left as they are. NULL is fine. No exchange is open. */
void mcp_free(struct mcp *mcp);

/* An HTTP exchange that is the server's to answer: from one of the functions below, which may
 * return NULL when there is nothing more to be told, to mcp_exchange_gone(). */
struct mcp_exchange;

struct mcp_exchange *mcp_post(struct mcp *mcp, const struct identity *caller,
                              struct http_exchange *http, const void *body, size_t length);
struct mcp_exchange *mcp_get(struct mcp *mcp, const struct identity *caller,
                             struct http_exchange *http);
struct mcp_exchange *mcp_delete(struct mcp *mcp, const struct identity *caller,
                                struct http_exchange *http);

/* The name of the protocol that a GET can upgrade to: a message in each line, both ways. */
#define MCP_UPGRADE "mcp-lines"

/* Whether this GET asks for that. Then, with what mcp_pipe() returns, the caller answers 101 and
 * hands over what comes. NULL with an error when there are too many. */
bool mcp_wants_pipe(const struct http_exchange *http);
struct mcp_exchange *mcp_pipe(struct mcp *mcp, const struct identity *caller,
                              struct http_exchange *http, struct error *err);

/* Of a pipe: bytes came (length 0 is the end of them); what was written has been taken. */
void mcp_exchange_data(struct mcp_exchange *exchange, const uint8_t *data, size_t length);
void mcp_exchange_drained(struct mcp_exchange *exchange);

/* The exchange is over. NULL is fine. */
void mcp_exchange_gone(struct mcp_exchange *exchange);
