/* SPDX-License-Identifier: Apache-2.0 */
#include "api/document/operations.h"

#include "base/alloc.h"
#include "base/str.h"
#include "face/route.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define API "/api/v1"
#define SESSION API "/sessions/{session}"
#define EXECUTION SESSION "/executions/{execution}"
#define CONTEXT SESSION "/contexts/{context}"
#define FILES SESSION "/files"
#define EVENTS "text/event-stream"
#define BYTES "application/octet-stream"
#define TAR "application/x-tar"

struct row {
    enum http_method method;
    const char *path;
    struct operation operation;
};

static const struct row rows[] = {
    { HTTP_POST,
      API "/sessions",
      { "createSession", "Session",
        .example =
            "{\"key\":\"chat-7\",\"memory_bytes\":\"512m\",\"idle_timeout_seconds\":1800}" } },
    { HTTP_GET, API "/sessions", { "listSessions", "SessionList" } },
    { HTTP_DELETE, API "/sessions", { "deleteSessions", "Removal" } },
    { HTTP_GET, SESSION, { "getSession", "Session" } },
    { HTTP_PATCH,
      SESSION,
      { "updateSession", "Session",
        .example = "{\"labels\":{\"run\":\"7\"},\"lease_seconds\":600}" } },
    { HTTP_DELETE, SESSION, { "deleteSession", "Session" } },
    { HTTP_POST,
      SESSION "/keepalive",
      { "keepSessionAlive", "Session", .example = "{\"lease_seconds\":600}" } },
    { HTTP_POST, SESSION "/pause", { "pauseSession", "Session" } },
    { HTTP_POST, SESSION "/resume", { "resumeSession", "Session" } },
    { HTTP_POST,
      SESSION "/sandbox",
      { "changeSandbox", "SessionChange|ApprovalRequest",
        .example = "{\"flavor\":\"cpu-basic\"}" } },
    { HTTP_POST, SESSION "/sandbox/teardown", { "teardownSandbox", "Session" } },
    { HTTP_POST, SESSION "/teardown-token", { "createTeardownUrl", "TeardownToken" } },
    { HTTP_POST, API "/teardown/{token}", { "teardownByUrl", "TeardownStatus" } },
    { HTTP_GET, SESSION "/usage", { "getUsage", "UsageHistory" } },
    { HTTP_GET, SESSION "/history", { "getHistory", "History", "application/x-ndjson" } },
    { HTTP_GET, SESSION "/events", { "streamSessionEvents", NULL, EVENTS, "Event" } },
    { HTTP_GET, API "/events", { "streamEvents", NULL, EVENTS, "Event" } },
    { HTTP_POST,
      API "/scopes",
      { "openScope", NULL, "application/x-ndjson", "ScopeLine", "{\"owner\":\"scp_test\"}" } },

    { HTTP_POST,
      SESSION "/executions",
      { "startExecution", "Execution", EVENTS, "OutputEvent", "{\"argv\":[\"uname\",\"-a\"]}" } },
    { HTTP_GET, SESSION "/executions", { "listExecutions", "ExecutionList" } },
    { HTTP_GET, EXECUTION, { "getExecution", "Execution" } },
    { HTTP_DELETE, EXECUTION, { "cancelExecution", "Execution" } },
    { HTTP_GET, EXECUTION "/output", { "readOutput", NULL, BYTES } },
    { HTTP_GET, EXECUTION "/displays/{display}", { "readDisplay", NULL, BYTES } },
    { HTTP_GET, EXECUTION "/stream", { "followExecution", NULL, EVENTS, "OutputEvent" } },
    { HTTP_GET, EXECUTION "/wait", { "waitForExecution", "WaitResult" } },
    { HTTP_POST, EXECUTION "/stdin", { "writeStdin", "StdinWritten" } },
    { HTTP_PUT, EXECUTION "/stdin", { "putStdin", "StdinWritten" } },
    { HTTP_POST,
      EXECUTION "/signal",
      { "signalExecution", "Empty", .example = "{\"signal\":\"TERM\"}" } },
    { HTTP_POST,
      EXECUTION "/resize",
      { "resizeTerminal", "Empty", .example = "{\"cols\":120,\"rows\":40}" } },
    { HTTP_POST,
      API "/execute",
      { "execute", "ExecuteResult", .example = "{\"code\":\"print(6 * 7)\"}" } },

    { HTTP_POST,
      SESSION "/contexts",
      { "createContext", "Context", .example = "{\"language\":\"python\"}" } },
    { HTTP_GET, SESSION "/contexts", { "listContexts", "ContextList" } },
    { HTTP_GET, CONTEXT, { "getContext", "Context" } },
    { HTTP_DELETE, CONTEXT, { "deleteContext", "Context" } },
    { HTTP_POST, CONTEXT "/interrupt", { "interruptContext", "Context" } },
    { HTTP_POST, CONTEXT "/restart", { "restartContext", "Context" } },
    { HTTP_POST,
      CONTEXT "/run",
      { "runCode", "Run", EVENTS, "RunEvent", "{\"code\":\"x = 6\\nx * 7\"}" } },

    { HTTP_GET, API "/tools", { "listTools", "ToolList" } },
    { HTTP_POST, API "/tools/{tool}", { "callTool", "ToolResult", EVENTS } },
    { HTTP_POST, SESSION "/tools/{tool}", { "callSessionTool", "ToolResult", EVENTS } },
    { HTTP_POST, SESSION "/interrupt", { "interruptTools", "Interrupted" } },

    { HTTP_GET, FILES, { "readFile", NULL, BYTES } },
    { HTTP_PUT, FILES, { "writeFile", "File" } },
    { HTTP_DELETE, FILES, { "removeFile", "Empty" } },
    { HTTP_GET, FILES "/stat", { "statFile", "File" } },
    { HTTP_GET, FILES "/list", { "listDirectory", "FileList" } },
    { HTTP_POST, FILES "/mkdir", { "makeDirectory", "Empty", .example = "{\"path\":\"a/b\"}" } },
    { HTTP_POST,
      FILES "/move",
      { "moveFile", "Empty", .example = "{\"from\":\"a.txt\",\"to\":\"b.txt\"}" } },
    { HTTP_GET, FILES "/glob", { "globFiles", "Matches" } },
    { HTTP_GET, FILES "/grep", { "grepFiles", "GrepResult" } },
    { HTTP_POST,
      FILES "/edit",
      { "editFile", "Edited",
        .example = "{\"path\":\"a.py\",\"old\":\"x = 1\",\"new\":\"x = 2\"}" } },
    { HTTP_GET, FILES "/watch", { "watchFiles", NULL, EVENTS, "FileChange" } },
    { HTTP_GET, SESSION "/archive", { "readArchive", NULL, TAR } },
    { HTTP_PUT, SESSION "/archive", { "unpackArchive", "Unpacked" } },
    { HTTP_GET, SESSION "/kept", { "listKeptFiles", "KeptList" } },
    { HTTP_GET, SESSION "/kept/archive", { "readKeptArchive", NULL, TAR } },
    { HTTP_GET, SESSION "/kept/file", { "readKeptFile", NULL, BYTES } },
    { HTTP_GET, SESSION "/storage", { "listStoredFiles", "StoredList" } },
    { HTTP_GET, SESSION "/storage/{name}", { "readStoredFile", NULL, BYTES } },
    { HTTP_DELETE, SESSION "/storage/{name}", { "removeStoredFile", "Empty" } },
    { HTTP_POST,
      SESSION "/storage/{name}/url",
      { "createStoredFileUrl", "StoredUrl", .example = "{\"valid_seconds\":3600}" } },
    { HTTP_GET, API "/shared/{id}/{name}", { "readSharedFile", NULL, BYTES } },
    { HTTP_PUT, "/storage/{name}", { "storeFile", "StoredUrl" } },
    { HTTP_GET, "/storage/{name}", { "readOwnStoredFile", NULL, BYTES } },
    { HTTP_GET, "/storage", { "listOwnStoredFiles", "StoredList" } },

    { HTTP_GET, SESSION "/ports", { "listPorts", "PortList" } },
    { HTTP_GET, SESSION "/ports/{port}", { "connectPort", NULL, "*/*" } },
    { HTTP_GET, SESSION "/ports/{port}/{path}", { "requestPort", NULL, "*/*" } },
    { HTTP_GET, API "/ports/{token}/{path}", { "requestSharedPort", NULL, "*/*" } },
    { HTTP_POST,
      SESSION "/ports/{port}/url",
      { "createPortUrl", "PortUrl", .example = "{\"valid_seconds\":3600}" } },

    { HTTP_GET, API "/approvals", { "listApprovals", "ApprovalList" } },
    { HTTP_GET, API "/approvals/{approval}", { "getApproval", "Approval" } },
    { HTTP_POST,
      API "/approvals/{approval}",
      { "decideApproval", "Approval", .example = "{\"decision\":\"approve\",\"once\":true}" } },
    { HTTP_GET, SESSION "/budget", { "getSessionBudget", "Budget" } },
    { HTTP_PATCH,
      SESSION "/budget",
      { "updateSessionBudget", "Budget", .example = "{\"cap_usd\":2.5}" } },
    { HTTP_GET, API "/budget", { "getOwnerBudget", "OwnerBudget" } },
    { HTTP_PATCH,
      API "/budget",
      { "updateOwnerBudget", "OwnerBudget", .example = "{\"cap_usd\":50}" } },
    { HTTP_GET, API "/flavors", { "listFlavors", "FlavorList" } },

    { HTTP_GET, API "/nodes", { "listNodes", "NodeList" } },
    { HTTP_POST, API "/nodes/{node}/drain", { "drainNode", "NodeDrain" } },
    { HTTP_DELETE, API "/nodes/{node}/drain", { "undrainNode", "NodeDrain" } },
    { HTTP_GET, API "/templates", { "listTemplates", "TemplateList" } },
    { HTTP_GET, API "/backends", { "listBackends", "BackendList" } },
    { HTTP_GET, API "/capacity", { "getCapacity", "Capacity" } },
    { HTTP_GET, API "/whoami", { "whoami", "Whoami" } },
    { HTTP_GET, API "/keys", { "listKeys", "KeyList" } },
    { HTTP_GET, "/", { "getPage", NULL, "text/html" } },
    { HTTP_GET, "/ui/{file}", { "getPageFile", NULL, "*/*" } },
    { HTTP_POST, "/ui/login", { "login", "Login" } },
    { HTTP_POST, "/ui/tokens", { "createLoginToken", "LoginToken" } },
    { HTTP_POST, "/ui/exchange", { "exchangeLoginToken", "Login" } },
    { HTTP_POST, "/ui/logout", { "logout", "Empty" } },
    { HTTP_GET, SESSION "/audit", { "getAudit", "AuditEntries" } },
    { HTTP_GET, "/healthz", { "getHealth", "Health" } },
    { HTTP_GET, "/readyz", { "getReadiness", "Ready" } },
    { HTTP_GET, "/metrics", { "getMetrics", NULL, "text/plain" } },
    { HTTP_GET, "/openapi.json", { "getOpenapi", "{any}" } },
    { HTTP_POST, "/mcp", { "sendMcpMessage", "{any}", EVENTS } },
    { HTTP_GET, "/mcp", { "streamMcpMessages", NULL, EVENTS } },
    { HTTP_DELETE, "/mcp", { "endMcpSession", NULL } },
};

const struct operation *operation_find(const struct route *route)
{
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        if (rows[i].method == route->method && str_equal(rows[i].path, route->path))
            return &rows[i].operation;
    }
    return NULL;
}

/* GET /api/v1/things/{thing}/parts → getThingsByThingParts */
void operation_derive_id(const struct route *route, char *id, unsigned long size)
{
    const char *path = route->path + (str_starts_with(route->path, API "/") ? strlen(API) : 0);
    struct buffer text = BUFFER_INIT(size);
    bool upper = true;

    for (const char *letter = http_method_name(route->method); *letter; letter++)
        buffer_append_byte(&text, (uint8_t)tolower((unsigned char)*letter));
    for (; *path; path++) {
        if (*path == '{')
            buffer_append(&text, "By", 2);
        if (isalnum((unsigned char)*path))
            buffer_append_byte(&text, (uint8_t)(upper ? toupper((unsigned char)*path) : *path));
        upper = !isalnum((unsigned char)*path);
    }
    snprintf(id, size, "%s", buffer_text(&text));
    buffer_fini(&text);
}

const struct operation_tag operation_tags[] = {
    { "executions", "executions", "Programs in a session, their input and output." },
    { "execute", "executions", NULL },
    { "contexts", "contexts", "Interpreters that keep their state." },
    { "tools", "tools", "Tools for models." },
    { "interrupt", "tools", NULL },
    { "files", "files", "Files inside of a sandbox." },
    { "archive", "files", NULL },
    { "kept", "kept files", "Workspaces that were saved when a sandbox ended." },
    { "storage", "storage", "Files that programs have stored for longer than their sandbox." },
    { "shared", "storage", NULL },
    { "ports", "ports", "TCP ports of programs in a sandbox." },
    { "budget", "money", "Budgets, approvals and flavors." },
    { "approvals", "money", NULL },
    { "flavors", "money", NULL },
    { "nodes", "nodes", "Daemons of a cluster." },
    { "sessions", "sessions", "Sessions: sandboxes with a life of their own." },
    { "scopes", "sessions", NULL },
    { "events", "sessions", NULL },
    { "teardown", "sessions", NULL },
    { "mcp", "mcp", "The Model Context Protocol." },
    { "ui", "dashboard", "The page of the daemon, and logins for it." },
    { "", "system", "The daemon." },
    { 0 },
};

static bool has_segment(const char *path, const char *segment)
{
    size_t length = strlen(segment);

    while ((path = strchr(path, '/'))) {
        path++;
        if (strncmp(path, segment, length) == 0 && (path[length] == '\0' || path[length] == '/'))
            return true;
    }
    return length == 0;
}

const struct operation_tag *operation_tag(const struct route *route)
{
    const struct operation_tag *tag = operation_tags;

    while (*tag->segment && !has_segment(route->path, tag->segment))
        tag++;
    return tag;
}
