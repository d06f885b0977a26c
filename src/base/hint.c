/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hint.h"

#include "base/macros.h"

#include <stddef.h>
#include <string.h>

#define SET_KEY                                                                                   \
    "set SANDGLASS_API_KEY to a key or a token. A local daemon without authentication keeps its " \
    "token in the file token-PORT of the state directory; its unix socket needs no token"

static const char *const texts[HINTS][SURFACES] = {
    [HINT_SESSIONS] = {
        [SURFACE_HTTP] = "GET /api/v1/sessions lists your sessions",
        [SURFACE_CLI] = "'sandglass ls' lists your sessions; name one by its id, the beginning of it, or its key",
        [SURFACE_MCP] = "it may have ended; leave session_id out to work in a session of your own",
        [SURFACE_SDK] = "client.sessions() lists your sessions; attach(\"key:KEY\") finds one by its key",
    },
    [HINT_NEW_SESSION] = {
        [SURFACE_HTTP] = "open a new session; its executions and their output stay readable until "
                         "retention",
        [SURFACE_CLI] = "'sandglass session create' opens a new one; 'sandglass why' and 'sandglass "
                        "logs' still show this one until retention",
        [SURFACE_MCP] = "leave session_id out, or open a new session; files of the ended one are gone",
        [SURFACE_SDK] = "open a new session with client.session(); executions of this one and their "
                        "output stay readable until retention",
    },
    [HINT_SESSIONS_DISABLED] = {
        [SURFACE_HTTP] = "run code with POST /execute and without a session: each run has a sandbox "
                         "of its own",
        [SURFACE_CLI] = "run code with 'sandglass execute' and without a session: each run has a "
                        "sandbox of its own",
        [SURFACE_SDK] = "run code with client.execute() and without a session: each run has a sandbox "
                        "of its own",
    },
    [HINT_SESSION_NEEDED] = {
        [SURFACE_HTTP] = "call it at /api/v1/sessions/ID/tools/NAME",
        [SURFACE_CLI] = "name a session with --session",
        [SURFACE_SDK] = "call it with session.call_tool()",
    },
    [HINT_TEMPLATE] = {
        [SURFACE_HTTP] = "leave template out for the default; GET /api/v1/templates lists all. An "
                         "operator makes one with 'sandglass template import' or 'sandglass template "
                         "pull'",
        [SURFACE_CLI] = "leave --template out for the default, or make it with 'sandglass template "
                        "import' or 'sandglass template pull'",
        [SURFACE_MCP] = "leave template out for the default",
        [SURFACE_SDK] = "leave template out for the default; client.templates() lists all. An operator "
                        "makes one with 'sandglass template import' or 'sandglass template pull'",
    },
    [HINT_TOOLS] = {
        [SURFACE_HTTP] = "GET /api/v1/tools lists the tools",
        [SURFACE_CLI] = "'sandglass tools ls' lists the tools",
        [SURFACE_MCP] = "tools/list has all of them",
        [SURFACE_SDK] = "client.tools() lists the tools",
    },
    [HINT_APPROVALS] = {
        [SURFACE_HTTP] = "GET /api/v1/approvals lists the approvals that you may see",
        [SURFACE_CLI] = "'sandglass approvals ls' lists the approvals that you may see",
        [SURFACE_SDK] = "client.approvals() lists the approvals that you may see",
    },
    [HINT_APPROVER] = {
        [SURFACE_HTTP] = "ask an approver; GET /api/v1/approvals lists pending approvals",
        [SURFACE_CLI] = "ask an approver; 'sandglass approvals ls' lists pending approvals",
        [SURFACE_MCP] = "tell the user that an approver has to decide",
        [SURFACE_SDK] = "ask an approver; client.approvals() lists pending approvals",
    },
    [HINT_NODES] = {
        [SURFACE_HTTP] = "GET /api/v1/nodes lists the nodes of this cluster",
        [SURFACE_CLI] = "'sandglass nodes' lists the nodes of this cluster",
        [SURFACE_SDK] = "client.nodes() lists the nodes of this cluster",
    },
    [HINT_NODE_LABELS] = {
        [SURFACE_HTTP] = "GET /api/v1/nodes shows the labels of each node",
        [SURFACE_CLI] = "'sandglass nodes --json' shows the labels of each node",
        [SURFACE_SDK] = "client.nodes() shows the labels of each node",
    },
    [HINT_PORT_URL] = {
        [SURFACE_HTTP] = "the owner of the session gets a new one by POST "
                         "/api/v1/sessions/ID/ports/PORT/url",
        [SURFACE_CLI] = "'sandglass port SESSION PORT' reaches it from this machine",
        [SURFACE_SDK] = "the owner of the session gets a new one with session.port_url()",
    },
    [HINT_STORED_FILES] = {
        [SURFACE_HTTP] = "GET /api/v1/sessions/ID/storage lists the stored files",
        [SURFACE_CLI] = "'sandglass storage ls SESSION' lists the stored files",
        [SURFACE_SDK] = "session.storage.list() lists the stored files",
    },
    [HINT_STORED_URL] = {
        [SURFACE_HTTP] = "POST /api/v1/sessions/ID/storage/NAME/url gives a new one",
        [SURFACE_CLI] = "'sandglass storage url SESSION NAME' gives a new one",
        [SURFACE_SDK] = "session.storage.url() gives a new one",
    },
    [HINT_KEPT_FILES] = {
        [SURFACE_HTTP] = "GET /api/v1/sessions/ID/kept lists the kept files",
        [SURFACE_CLI] = "'sandglass cp SESSION:. DIRECTORY' copies all kept files",
        [SURFACE_SDK] = "session.kept.list() lists the kept files",
    },
    [HINT_API_KEY] = {
        [SURFACE_HTTP] = "send an API key as Authorization: Bearer or as X-API-Key",
        [SURFACE_CLI] = SET_KEY,
        [SURFACE_SDK] = "give the client an api_key, or set SANDGLASS_API_KEY",
    },
    [HINT_LOCAL_TOKEN] = {
        [SURFACE_HTTP] = "use the unix socket, or send the token in the file token-PORT of the "
                         "daemon's state directory as Authorization: Bearer",
        [SURFACE_CLI] = SET_KEY,
        [SURFACE_SDK] = "use the unix socket, or give the client the token in the file token-PORT of "
                        "the daemon's state directory as api_key",
    },
    [HINT_TOKEN] = {
        [SURFACE_HTTP] = "send a token of the issuer as Authorization: Bearer",
        [SURFACE_CLI] = SET_KEY,
        [SURFACE_SDK] = "give the client a token of the issuer as api_key",
    },
    [HINT_LOGIN] = {
        [SURFACE_HTTP] = "send an API key or a token as Authorization: Bearer",
        [SURFACE_CLI] = SET_KEY,
        [SURFACE_SDK] = "give the client an api_key",
    },
};

const char *hint_text(enum hint hint, enum surface surface)
{
    return texts[hint][surface] ? texts[hint][surface] : texts[hint][SURFACE_HTTP];
}

enum surface surface_from_name(const char *name)
{
    static const char *const names[SURFACES] = { "http", "cli", "mcp", "sdk" };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        if (name && strcmp(names[i], name) == 0)
            return (enum surface)i;
    }
    return SURFACE_HTTP;
}
