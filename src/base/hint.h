/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Remedies that read differently for different readers: a route for authors of requests, a command for
 * users of the command line, a method for users of an SDK, an argument for a model. An error carries
 * which remedy it is (error_hint_known); the text is chosen where the error is rendered.
 */

enum surface { SURFACE_HTTP, SURFACE_CLI, SURFACE_MCP, SURFACE_SDK, SURFACES };

enum hint {
    HINT_NONE, /* the text of the error is for all readers */
    HINT_SESSIONS,
    HINT_NEW_SESSION,
    HINT_SESSIONS_DISABLED,
    HINT_SESSION_NEEDED,
    HINT_TEMPLATE,
    HINT_TOOLS,
    HINT_APPROVALS,
    HINT_APPROVER,
    HINT_NODES,
    HINT_NODE_LABELS,
    HINT_PORT_URL,
    HINT_STORED_FILES,
    HINT_STORED_URL,
    HINT_KEPT_FILES,
    HINT_API_KEY,
    HINT_LOCAL_TOKEN,
    HINT_TOKEN,
    HINT_LOGIN,
    HINTS
};

/* The text for a surface; that for HTTP where it has none of its own, NULL for HINT_NONE. */
const char *hint_text(enum hint hint, enum surface surface);

/* "cli", "mcp", "sdk"; anything else, and NULL, is HTTP. */
enum surface surface_from_name(const char *name);
