/* SPDX-License-Identifier: Apache-2.0 */
/* The objects in answers of routes: a row for each. */

#include "api/document/schema.h"

#define FIELDS(...) ((const struct schema_field[]){ __VA_ARGS__, { 0 } })
#define OPTIONAL .optional = true
/* The name of an earlier version. */
#define OLD(name, type, new_name)                                   \
    {                                                               \
        name, type, "the old name of " new_name, .deprecated = true \
    }
#define OLD_OPTIONAL(name, type, new_name)                                            \
    {                                                                                 \
        name, type, "the old name of " new_name, .optional = true, .deprecated = true \
    }

/* --- errors ------------------------------------------------------------------------------------ */

#define ERROR_FIELDS                         \
    FIELDS({ "error", "ErrorDetail", NULL }, \
           { "session", "Session", "of 410: the final record", OPTIONAL })

#define ERROR_DETAIL_FIELDS                                                                  \
    FIELDS({ "code", "code", "stable name of the error; more may be added" },                \
           { "message", "text", "the error, for people" }, { "hint", "text", "the remedy" }, \
           { "retryable", "bool", "the same request may succeed later" },                    \
           { "reason", "text", "of 410: why the session ended", OPTIONAL },                  \
           { "count", "int", "of match_count: how often the text occurs", OPTIONAL },        \
           { "rule", "text", "of command_blocked: the name of the rule", OPTIONAL })

/* --- sessions ---------------------------------------------------------------------------------- */

static const struct schema_field limits[] = {
    { "memory_bytes", "?int", "null: not limited" },
    { "cpus", "?number", NULL },
    { "pids", "?int", NULL },
    { "disk_bytes", "?int", NULL },
    { 0 },
};

static const struct schema_field sandbox[] = {
    { "id", "?text", "null: there is no sandbox at the moment" },
    { "state",
      "=none|creating|ready|unknown|freezing|frozen|thawing|frozen_by_others|crashed|destroying",
      NULL },
    { "generation", "int", "number of this sandbox in its session" },
    { "pid", "?int", "first process of the sandbox, as the host sees it", OPTIONAL },
    { "container", "?text", "container of the sandbox, with the backends docker and gvisor",
      OPTIONAL },
    { "pod", "?text", "pod of the sandbox, with the backend kubernetes", OPTIONAL },
    { "pod_node", "?text", "node of the cluster that has the pod; empty until one has it",
      OPTIONAL },
    { "attempts", "int", "failed attempts to start it" },
    { "error", "?ErrorDetail", "why it could not be started, or not be removed" },
    OLD("last_error", "?text", "error"),
    { "previous_end", "?text", "why the sandbox before this one ended" },
    { "isolation", "?{any}", "the walls in force, as read back from the kernel" },
    { 0 },
};

static const struct schema_field mount[] = {
    { "host_path", "text", "directory of the daemon's host" },
    { "path", "text", "where it is inside" },
    { "read_only", "bool", NULL },
    { 0 },
};

static const struct schema_field session[] = {
    { "id", "text", "ses_…" },
    { "owner", "text", "whose session it is; empty without one" },
    { "key", "?text", "the caller's own name for it" },
    { "on_behalf_of", "?text", NULL },
    { "labels", "{text}", NULL },
    { "state", "=open|paused|ending|ended", NULL },
    { "end_reason", "?text",
      "idle, lease, lifetime, deleted, evicted, crashed, shutdown, budget, replaced, failed, "
      "teardown or node lost, with a detail behind a colon" },
    { "generation", "int", "number of its current or last sandbox" },
    { "template", "?text", NULL },
    { "flavor", "?text", NULL },
    { "choice", "text", "how the flavor was chosen" },
    { "backend", "?text", NULL },
    { "network", "?text", "none, open, or host where the backend has no wall to the network" },
    { "limits", "Limits", "in force" },
    { "mounts", "[Mount]", "directories of the host in its sandboxes" },
    { "secrets", "[text]", "names of its secrets" },
    { "keep_files", "bool", NULL },
    { "kept", "?KeptWorkspace", "the workspace that was saved last" },
    { "auto_restart", "bool", NULL },
    { "auto_resume", "bool", NULL },
    { "on_timeout", "?text", "kill or pause" },
    { "lease_seconds", "?number", "how long its lease is; null: none" },
    OLD("timeout", "?number", "lease_seconds"),
    { "idle_timeout_seconds", "?number", "without use until it ends; null: none" },
    OLD("idle_timeout", "?number", "idle_timeout_seconds"),
    { "max_lifetime_seconds", "?number", "from its creation until it ends; null: none" },
    OLD("max_lifetime", "?number", "max_lifetime_seconds"),
    { "created_at", "time", NULL },
    { "started_at", "?time", NULL },
    { "last_activity_at", "?time", NULL },
    { "ended_at", "?time", NULL },
    { "expires_at", "?time", "end of its lease" },
    { "expires_at_clock", "?text", NULL },
    { "time_remaining_seconds", "?number", "until the next clock ends it" },
    OLD("time_remaining", "?number", "time_remaining_seconds"),
    { "time_remaining_clock", "?text", NULL },
    { "lease_remaining_seconds", "?number", NULL },
    OLD("lease_remaining", "?number", "lease_remaining_seconds"),
    { "idle_remaining_seconds", "?number", NULL },
    OLD("idle_remaining", "?number", "idle_remaining_seconds"),
    { "lifetime_remaining_seconds", "?number", NULL },
    OLD("lifetime_remaining", "?number", "lifetime_remaining_seconds"),
    { "next_end", "?NextEnd", NULL },
    { "sandbox", "Sandbox", NULL },
    { "usage", "?Usage", "the last measurement" },
    { "executions", "ExecutionCount", NULL },
    { "kept_alive_by", "?Activity", "why the idle clock does not run" },
    { "spent_usd", "number", NULL },
    { "approval", "?text", "the approval that its sandbox waits for" },
    { "node", "?text", "where it is, in a cluster" },
    { 0 },
};

static const struct schema_field usage[] = {
    { "cpu_seconds", "number", NULL },
    { "memory_bytes", "int", NULL },
    { "memory_peak_bytes", "int", NULL },
    { "disk_bytes", "int", NULL },
    { "pids", "int", NULL },
    { "oom_kills", "int", NULL },
    { "measured_at", "time", NULL },
    { 0 },
};

static const struct schema_field activity[] = {
    { "kind", "=execution|background", NULL },
    { "execution_id", "text", NULL, OPTIONAL },
    { "process", "?text", NULL, OPTIONAL },
    { "cpu_seconds", "?number", NULL, OPTIONAL },
    { "since", "?time", NULL },
    { "until", "?time", NULL, OPTIONAL },
    { 0 },
};

static const struct schema_field event[] = {
    { "sequence", "int", "its number; also the id of the Server-Sent Event" },
    { "type", "text", "session.created, sandbox.ready, execution.ended, …" },
    { "session_id", "?text", NULL },
    { "session_sequence", "int", "its number in the session" },
    { "time", "time", NULL },
    { "data", "{any}", NULL },
    { 0 },
};

/* --- programs ---------------------------------------------------------------------------------- */

#define EXECUTION_STATES "=queued|running|exited|timeout|output_limit|cancelled|crashed"

static const struct schema_field execution[] = {
    { "id", "text", "exe_…" },
    { "session_id", "text", NULL },
    { "sandbox_id", "?text", NULL },
    { "key", "?text", "the caller's own id" },
    { "state", EXECUTION_STATES, NULL },
    { "exit_code", "?int", NULL },
    { "signal", "?int", "number of the signal that ended it" },
    { "reason", "?text", NULL },
    { "error", "?ErrorDetail", "why it was not started, or why its output is not complete" },
    { "warning", "?text", "of a rule for commands, or that the sandbox has no network" },
    { "background", "bool", NULL },
    { "generation", "int", NULL },
    { "files_were_reset", "bool", "it ran in a new sandbox, without the files of the one before" },
    { "reset_reason", "?text", NULL },
    { "timeout_seconds", "?number", "null: none" },
    OLD("timeout", "?number", "timeout_seconds"),
    { "created_at", "time", NULL },
    { "started_at", "?time", NULL },
    { "ended_at", "?time", NULL },
    { "duration_seconds", "?number", NULL },
    { "cpu_seconds", "number", NULL },
    { "max_memory_bytes", "int", NULL },
    { "stdout_bytes", "int", "all that it wrote, kept or not" },
    { "stderr_bytes", "int", NULL },
    { "stdin_bytes", "int", NULL, OPTIONAL },
    { "stdin_pending", "int", NULL, OPTIONAL },
    { "request", "{any}", "the request that started the execution" },
    { "stdout", "text", "head and tail", OPTIONAL },
    { "stderr", "text", NULL, OPTIONAL },
    { "truncated", "bool", NULL, OPTIONAL },
    { "output_error", "text", NULL, OPTIONAL },
    { 0 },
};

static const struct schema_field execute_result[] = {
    { "stdout", "text", NULL },
    { "stderr", "text", NULL },
    { "truncated", "bool", NULL },
    { "state", EXECUTION_STATES, NULL },
    { "exit_code", "?int", NULL },
    { "signal", "?int", NULL },
    { "reason", "?text", NULL },
    { "error", "?ErrorDetail", "why it was not started, or why its output is not complete" },
    { "execution_id", "text", NULL },
    { "duration_seconds", "number", NULL },
    { "files_were_reset", "bool", NULL },
    { "warning", "?text", NULL },
    { "reset_reason", "?text", NULL },
    { "session_id", "text", NULL },
    { "session_ended", "bool", NULL },
    { "session_time_remaining_seconds", "?number", "until the next clock ends the session" },
    OLD("session_ttl_remaining", "?number", "session_time_remaining_seconds"),
    { "session_files", "[StoredFile]", "files of the workspace" },
    { "output_files", "[text]", "those that are new or changed" },
    { 0 },
};

static const struct schema_field context[] = {
    { "id", "text", "ctx_…" },
    { "session_id", "text", NULL },
    { "language", "text", NULL },
    { "state", "=starting|idle|busy|stopped", NULL },
    { "cwd", "?text", NULL },
    { "execution_id", "?text", "the interpreter" },
    { "replacements", "int", "how often the interpreter was replaced" },
    { "cause", "?text", "why it was replaced last" },
    { "created_at", "time", NULL },
    { 0 },
};

static const struct schema_field run[] = {
    { "context_id", "text", NULL },
    { "number", "int", NULL },
    { "state", "=waiting|running|ok|error|interrupted|timeout|crashed|cancelled|failed", NULL },
    { "exit_code", "?int", NULL },
    { "warning", "?text", NULL },
    { "cause", "?text", "why the interpreter was lost" },
    { "replaced", "?text", "why it runs in a new interpreter" },
    { "context_lost", "bool", "variables are gone" },
    { "dropped_messages", "int", NULL },
    { "stdout_bytes", "int", NULL },
    { "stderr_bytes", "int", NULL },
    { "duration_seconds", "number", NULL },
    { "stdout", "text", NULL },
    { "stderr", "text", NULL },
    { "results", "[RunResult]", "values and displays, in their order" },
    { "error", "?RunError", NULL },
    { "truncated", "bool", NULL },
    { 0 },
};

static const struct schema_field tool[] = {
    { "name", "text", NULL },
    { "title", "text", NULL },
    { "description", "text", NULL },
    { "annotations", "{bool}", NULL },
    { "needs_session", "bool", NULL },
    { "input_schema", "{any}", "JSON schema of its arguments" },
    { 0 },
};

static const struct schema_field tool_content[] = {
    { "type", "text", "text, image, resource, …" },
    { "text", "text", NULL, OPTIONAL },
    { "name", "text", NULL, OPTIONAL },
    { "uri", "text", NULL, OPTIONAL },
    { "size_bytes", "int", NULL, OPTIONAL },
    OLD_OPTIONAL("size", "int", "size_bytes"),
    { "mime_type", "?text", NULL, OPTIONAL },
    { "data", "text", "base64", OPTIONAL },
    { 0 },
};

/* --- files ------------------------------------------------------------------------------------- */

static const struct schema_field file[] = {
    { "path", "text", NULL },
    { "type", "text", "file, directory, link, …" },
    { "size_bytes", "int", NULL },
    OLD("size", "int", "size_bytes"),
    { "mode", "text", "octal" },
    { "uid", "int", NULL },
    { "gid", "int", NULL },
    { "modified", "?time", NULL },
    { "etag", "text", NULL },
    { "target", "text", "of a symbolic link", OPTIONAL },
    { "error", "ErrorDetail", "why it could not be read", OPTIONAL },
    { 0 },
};

/* --- money ------------------------------------------------------------------------------------- */

static const struct schema_field approval[] = {
    { "id", "text", "apr_…" },
    { "kind", "=approval", NULL },
    { "state", "=pending|approved|denied|expired|cancelled", NULL },
    { "session_id", "text", NULL },
    OLD("session", "text", "session_id"),
    { "owner", "text", NULL },
    { "requested_by", "?text", NULL },
    { "on_behalf_of", "?text", NULL },
    { "flavor", "text", NULL },
    { "price_per_hour", "?number", NULL },
    { "estimated_usd", "?number", NULL },
    { "question", "?text", NULL },
    { "created_at", "time", NULL },
    { "expires_at", "?time", NULL },
    { "scope", "?=once|session", NULL },
    { "decided_by", "?text", NULL },
    { "decided_at", "?time", NULL },
    { "decision_reason", "?text", NULL },
    { "result", "?text", NULL },
    { 0 },
};

static const struct schema_field owner_budget[] = {
    { "owner", "text", NULL },
    { "cap_usd", "?number", "null: no cap" },
    { "spent_usd", "number", NULL },
    { "reserved_usd", "number", NULL },
    { "remaining_usd", "?number", NULL },
    { 0 },
};

static const struct schema_field budget[] = {
    { "session_id", "text", NULL },      OLD("session", "text", "session_id"),
    { "auto_approve", "bool", NULL },    { "cap_usd", "number", NULL },
    { "spent_usd", "number", NULL },     { "reserved_usd", "number", NULL },
    { "remaining_usd", "number", NULL }, { "next_threshold_usd", "number", NULL },
    { "approved_flavors", "any", NULL }, { "meter", "?Meter", "the metered sandbox" },
    { "owner", "OwnerBudget", NULL },    { 0 },
};

static const struct schema_field flavor[] = {
    { "name", "text", NULL },
    { "backend", "text", NULL },
    { "gpus", "int", NULL },
    { "price_per_hour", "?number", NULL },
    { "needs_approval", "bool", NULL },
    { "default", "bool", NULL },
    { "available", "bool", NULL },
    { "reason", "?text", "why it is not available" },
    { 0 },
};

/* --- the daemon -------------------------------------------------------------------------------- */

static const struct schema_field backend[] = {
    { "name", "text", NULL },
    { "summary", "text", NULL },
    { "default", "bool", NULL },
    { "selectable", "bool", "a session may name it" },
    { "active", "bool", NULL },
    { "healthy", "bool", NULL },
    { "reason", "?text", "why it is not active or not healthy" },
    { "freeze", "bool", NULL, OPTIONAL },
    { "usage", "bool", NULL, OPTIONAL },
    { "limits", "bool", NULL, OPTIONAL },
    { "outlives_daemon", "bool", NULL, OPTIONAL },
    { "gpus", "bool", NULL, OPTIONAL },
    { "network", "bool", NULL, OPTIONAL },
    { "disk", "bool", NULL, OPTIONAL },
    { "templates", "bool", NULL, OPTIONAL },
    { "mounts", "bool", "sessions may mount directories of the host", OPTIONAL },
    { 0 },
};

static const struct schema_field capacity[] = {
    { "max_sandboxes", "int", NULL },
    { "max_per_owner", "int", NULL },
    { "overflow", "text", "evict, wait or reject" },
    { "burst", "int", NULL },
    { "sandboxes", "int", NULL },
    { "waiting", "int", NULL },
    { "idle", "int", "could be evicted" },
    { "pool", "int", "ready for the next session" },
    { "own", "int", "of the caller's owner" },
    { "host", "HostLoad", NULL, OPTIONAL },
    { "nodes", "[NodeCapacity]", "in a cluster: the same of each node", OPTIONAL },
    { 0 },
};

static const struct schema_field node[] = {
    { "id", "text", NULL },
    { "address", "?text", NULL },
    { "state", "text", "up, draining, …" },
    { "self", "bool", NULL },
    { "epoch", "int", NULL, OPTIONAL },
    { "lease_remaining_seconds", "number", NULL, OPTIONAL },
    OLD_OPTIONAL("lease_remaining", "number", "lease_remaining_seconds"),
    { "sessions", "int", NULL },
    { "sandboxes", "int", NULL },
    { "max_sandboxes", "int", NULL },
    { "load", "number", NULL, OPTIONAL },
    { "backends", "[text]", NULL, OPTIONAL },
    { "labels", "{text}", NULL, OPTIONAL },
    { "version", "?text", NULL },
    { 0 },
};

static const struct schema_field key[] = {
    { "id", "text", NULL },
    { "principal", "text", NULL },
    { "roles", "[text]", NULL },
    { "created_at", "?time", NULL },
    { "expires_at", "?time", NULL },
    { "revoked_at", "?time", NULL },
    { "last_used_at", "?time", NULL },
    { 0 },
};

static const struct schema_field whoami[] = {
    { "owner", "text", NULL },
    { "principal", "?text", NULL },
    { "on_behalf_of", "?text", NULL },
    { "roles", "[text]", NULL },
    { "auth_mode", "text", NULL },
    { "peer", "?text", NULL },
    { "uid", "int", "over a unix socket", OPTIONAL },
    { "operator", "bool", "the caller may ask for sessions of other owners" },
    { 0 },
};

#define NEXT_CURSOR                                   \
    {                                                 \
        "next_cursor", "?text", "null: the last page" \
    }
#define PAGE(object_name, help_text, field, type)                                      \
    {                                                                                  \
        object_name, help_text, NULL, FIELDS({ field, type, NULL }, NEXT_CURSOR), NULL \
    }
#define LIST(object_name, help_text, field, type)                         \
    {                                                                     \
        object_name, help_text, NULL, FIELDS({ field, type, NULL }), NULL \
    }

const struct schema_object schema_objects[] = {
    { "Error", "A failed request.", NULL, ERROR_FIELDS,
      "{\"error\":{\"code\":\"session_not_found\",\"message\":\"there is no session "
      "ses_x\",\"hint\":"
      "\"list sessions with GET /api/v1/sessions\",\"retryable\":false}}" },
    { "ErrorDetail", "An error: stable code, sentences for people.", NULL, ERROR_DETAIL_FIELDS,
      NULL },
    { "Empty", "An empty object: the request was done.", NULL, FIELDS({ 0 }), "{}" },
    { "Limits", "Limits of a sandbox.", NULL, limits, NULL },
    { "Mount", "A directory of the host in a sandbox.", NULL, mount, NULL },
    { "Sandbox", "The sandbox of a session.", NULL, sandbox, NULL },
    { "KeptWorkspace", "A saved workspace.", NULL,
      FIELDS({ "size_bytes", "int", NULL }, OLD("bytes", "int", "size_bytes"),
             { "kept_at", "time", NULL }, { "generation", "int", NULL }),
      NULL },
    { "NextEnd", "The clock that ends the session next, if it is not used.", NULL,
      FIELDS({ "reason", "text", NULL }, { "in_seconds", "?number", NULL }), NULL },
    { "Usage", "The resource usage of a sandbox.", NULL, usage, NULL },
    { "UsageSample", "The resource usage of a sandbox at one time.", NULL,
      FIELDS({ "time", "time", NULL }, { "cpu_seconds", "number", NULL },
             { "cpu_percent", "number", "100 for one core" }, { "memory_bytes", "int", NULL },
             { "disk_bytes", "int", NULL }, { "pids", "int", NULL }),
      NULL },
    { "UsageHistory", "The resource usage of a sandbox over time.", NULL,
      FIELDS({ "session_id", "text", NULL }, { "generation", "?int", NULL },
             { "interval_seconds", "number", "between samples" },
             OLD("interval", "number", "interval_seconds"), { "samples", "[UsageSample]", NULL }),
      NULL },
    { "ExecutionCount", "Executions of a session.", NULL,
      FIELDS({ "running", "int", NULL }, { "total", "int", NULL }), NULL },
    { "Activity", "An execution or process that keeps a session alive.", NULL, activity, NULL },
    { "Session", "A session, live or ended.", NULL, session, NULL },
    { "SessionChange", "A session, with a message about the change.", "Session",
      FIELDS({ "message", "text", NULL }), NULL },
    { "SessionList", "A page of sessions.", NULL,
      FIELDS({ "sessions", "[Session]", NULL }, { "next_cursor", "?text", "null: the last page" },
             { "total", "int", NULL }, { "max_sessions", "?int", NULL },
             { "missing_nodes", "[text]", "nodes of the cluster that did not answer", OPTIONAL }),
      NULL },
    { "Removal", "Sessions that were ended.", NULL,
      FIELDS({ "destroyed", "[text]", "their sandboxes are gone" },
             { "failed", "[RemovalFailure]", NULL }, { "skipped", "[RemovalSkip]", NULL },
             { "dry_run", "bool", NULL }),
      NULL },
    { "RemovalFailure", "A session that could not be ended.", NULL,
      FIELDS({ "id", "text", NULL }, { "error", "ErrorDetail", NULL }), NULL },
    { "RemovalSkip", "A session that was left alone.", NULL,
      FIELDS({ "id", "text", NULL }, { "reason", "text", NULL }), NULL },
    { "TeardownToken", "A URL that tears a sandbox down.", NULL,
      FIELDS({ "session_id", "text", NULL }, { "url", "text", NULL },
             { "expires_at", "time", NULL }, { "grace_seconds", "number", NULL },
             OLD("grace", "number", "grace_seconds")),
      NULL },
    LIST("TeardownStatus", "A teardown by URL.", "status", "text"),
    LIST("ScopeLine", "The first line of a scope's answer.", "owner", "text"),
    { "Event", "Something that happened.", NULL, event, NULL },
    { "HistoryEntry", "An event, with the execution if one has ended.", "Event",
      FIELDS({ "execution", "Execution", NULL, OPTIONAL }), NULL },
    { "History", "A page of a session's history.", NULL,
      FIELDS({ "session", "Session", NULL }, { "entries", "[HistoryEntry]", NULL },
             { "next_cursor", "?text", NULL }),
      NULL },
    { "Execution", "A program that runs or has run.", NULL, execution, NULL },
    { "ExecutionList", "A page of executions, the newest first.", NULL,
      FIELDS({ "executions", "[Execution]", NULL }, { "next_cursor", "?text", NULL }), NULL },
    { "OutputEvent", "Of the events stdout, stderr and exit of a stream.", NULL,
      FIELDS({ "offset", "int", "of its first byte", OPTIONAL }, { "text", "text", NULL, OPTIONAL },
             { "base64", "text", "bytes that are not UTF-8", OPTIONAL },
             { "state", "text", "of exit, with the other fields of the execution", OPTIONAL }),
      NULL },
    { "ExecuteResult", "Code that has run, and its session.", NULL, execute_result, NULL },
    { "StdinWritten", "The bytes of input that were written, and whether the input is closed.",
      NULL, FIELDS({ "written", "int", NULL }, { "closed", "bool", NULL }),
      "{\"written\":6,\"closed\":false}" },
    { "WaitResult", "Whether a condition was met.", NULL,
      FIELDS({ "met", "bool", NULL }, { "reason", "?text", NULL }, { "stream", "?text", NULL },
             { "offset", "?int", NULL }, { "waited_seconds", "number", NULL },
             { "execution", "Execution", NULL }),
      NULL },
    { "Context", "An interpreter that keeps its state.", NULL, context, NULL },
    PAGE("ContextList", "Contexts of a session.", "contexts", "[Context]"),
    { "Run", "Code that has run in a context.", NULL, run, NULL },
    { "RunResult", "A value or a display: by media type.", NULL,
      FIELDS({ "type", "=result|display", NULL }, { "data", "{any}", "text/plain, image/png, …" }),
      NULL },
    { "RunError", "An exception.", NULL,
      FIELDS({ "name", "text", "ZeroDivisionError" }, { "value", "?text", NULL },
             { "frames", "[RunFrame]", "the innermost last" },
             { "traceback", "text", "as the interpreter prints it", OPTIONAL }),
      NULL },
    { "RunFrame", "A call that had not returned.", NULL,
      FIELDS({ "file", "?text", NULL }, { "line", "?int", NULL }, { "function", "?text", NULL },
             { "text", "?text", "the line of source" }),
      NULL },
    { "RunEvent", "Of the events stdout, stderr, display, result, error and done of a run.", NULL,
      FIELDS({ "text", "text", NULL, OPTIONAL }, { "data", "{any}", NULL, OPTIONAL },
             { "state", "text", "of done, with the other fields of the run", OPTIONAL }),
      NULL },
    { "Tool", "A tool for models.", NULL, tool, NULL },
    PAGE("ToolList", "Tools for models.", "tools", "[Tool]"),
    { "ToolContent", "A part of a tool's answer.", NULL, tool_content, NULL },
    { "ToolResult", "The result of a tool.", NULL,
      FIELDS({ "content", "[ToolContent]", NULL }, { "is_error", "bool", NULL },
             { "structured", "?{any}", NULL }),
      NULL },
    LIST("Interrupted", "Interrupted calls.", "interrupted", "int"),
    { "File", "A file, directory or link.", NULL, file, NULL },
    { "FileList", "A page of a directory.", NULL,
      FIELDS({ "entries", "[File]", NULL }, { "total", "int", NULL },
             { "next_cursor", "?text", NULL }, { "truncated", "bool", NULL }),
      NULL },
    { "Matches", "Files that match a pattern.", NULL,
      FIELDS({ "entries", "[File]", NULL }, { "truncated", "bool", NULL }), NULL },
    { "GrepLine", "A line of a file.", NULL,
      FIELDS({ "path", "text", NULL }, { "line", "int", NULL }, { "text", "text", NULL },
             { "match", "bool", "false: a line of the context" },
             { "cut", "bool", "the line is longer", OPTIONAL }),
      NULL },
    { "GrepResult", "Lines that match.", NULL,
      FIELDS({ "lines", "[GrepLine]", NULL }, { "matches", "int", NULL },
             { "files_skipped", "int", NULL }, { "truncated", "bool", NULL }),
      NULL },
    { "FileChange", "Of the events created, modified, written, deleted, … of a watch.", NULL,
      FIELDS({ "path", "text", NULL, OPTIONAL }, { "is_directory", "bool", NULL, OPTIONAL },
             { "directories", "int", "of watching", OPTIONAL },
             { "truncated", "bool", "of watching", OPTIONAL },
             { "reason", "?text", "of end", OPTIONAL }),
      NULL },
    { "Edited", "A file after an edit.", "File", FIELDS({ "replacements", "int", NULL }), NULL },
    { "Refused", "A member of an archive that was not unpacked.", NULL,
      FIELDS({ "path", "text", NULL }, { "reason", "text", NULL }), NULL },
    { "Unpacked", "The entries of an archive that were unpacked.", NULL,
      FIELDS({ "unpacked", "int", "files and directories" }, { "unpacked_bytes", "int", NULL },
             OLD("bytes", "int", "unpacked_bytes"), { "refused", "[Refused]", NULL },
             { "refused_truncated", "bool", NULL }),
      NULL },
    { "StoredFile", "A file by its name.", NULL,
      FIELDS({ "name", "text", NULL }, { "size_bytes", "int", NULL },
             OLD("size", "int", "size_bytes"), { "modified", "?time", NULL }),
      NULL },
    PAGE("StoredList", "Stored files.", "files", "[StoredFile]"),
    { "StoredUrl", "A URL that gives read access.", NULL,
      FIELDS({ "name", "text", NULL }, { "size_bytes", "int", NULL, OPTIONAL },
             OLD_OPTIONAL("size", "int", "size_bytes"), { "url", "text", NULL },
             { "expires_at", "time", NULL }),
      NULL },
    { "KeptFile", "A file of a saved workspace.", NULL,
      FIELDS({ "path", "text", NULL }, { "type", "text", NULL }, { "size_bytes", "int", NULL },
             OLD("size", "int", "size_bytes"), { "modified", "?time", NULL }),
      NULL },
    { "KeptList", "A saved workspace.", NULL,
      FIELDS({ "files", "[KeptFile]", NULL }, { "size_bytes", "int", "of the archive" },
             OLD("bytes", "int", "size_bytes"), { "kept_at", "?time", NULL }),
      NULL },
    { "Approval", "A question to the person who pays.", NULL, approval, NULL },
    { "ApprovalRequest", "An approval, and what happens next.", "Approval",
      FIELDS({ "message", "text", NULL }), NULL },
    PAGE("ApprovalList", "Approvals.", "approvals", "[Approval]"),
    { "OwnerBudget", "The budget of an owner.", NULL, owner_budget, NULL },
    { "Meter", "The meter of a sandbox with a price.", NULL,
      FIELDS({ "flavor", "text", NULL }, { "sandbox_id", "?text", NULL },
             OLD("sandbox", "?text", "sandbox_id"), { "price_per_hour", "number", NULL },
             { "started_at", "?time", NULL }, { "reserved_until", "?time", NULL }),
      NULL },
    { "Budget", "The budget of a session.", NULL, budget, NULL },
    { "Flavor", "A size of sandboxes, and its price.", "Limits", flavor, NULL },
    PAGE("FlavorList", "Flavors.", "flavors", "[Flavor]"),
    { "Template", "A root file system.", NULL,
      FIELDS({ "name", "text", NULL }, { "default", "bool", NULL }), NULL },
    PAGE("TemplateList", "Templates.", "templates", "[Template]"),
    { "Backend", "A backend, which makes sandboxes, and its features.", NULL, backend, NULL },
    PAGE("BackendList", "Backends.", "backends", "[Backend]"),
    { "Capacity", "Slots for sandboxes.", NULL, capacity, NULL },
    { "HostLoad", "The resources of the host, and its load.", NULL,
      FIELDS({ "cpus", "int", NULL }, { "load", "number", "of the last minute" },
             { "memory_bytes", "int", NULL }, { "memory_available_bytes", "int", NULL, OPTIONAL }),
      NULL },
    { "NodeCapacity", "Slots for sandboxes of a node.", NULL,
      FIELDS({ "node", "text", NULL }, { "capacity", "?Capacity", "null: it did not answer" }),
      NULL },
    { "Node", "A daemon of the cluster.", NULL, node, NULL },
    { "NodeList", "Daemons of the cluster.", NULL,
      FIELDS({ "nodes", "[Node]", NULL }, NEXT_CURSOR, { "clustered", "bool", NULL }), NULL },
    { "NodeDrain", "A node that takes sessions, or does not.", NULL,
      FIELDS({ "id", "text", NULL }, { "state", "text", NULL }, { "sessions", "int", NULL }),
      NULL },
    { "Key", "An API key, without its secret.", NULL, key, NULL },
    PAGE("KeyList", "API keys.", "keys", "[Key]"),
    { "Whoami", "The caller, as the daemon has identified them.", NULL, whoami, NULL },
    LIST("Login", "A login of the dashboard.", "expires_at", "time"),
    { "LoginToken", "A one-time token for the dashboard.", NULL,
      FIELDS({ "token", "text", NULL }, { "url", "text", NULL }, { "expires_at", "time", NULL }),
      NULL },
    LIST("AuditEntries", "Lines of the audit log, the oldest first.", "entries", "[{any}]"),
    { "Health", "The daemon lives.", NULL,
      FIELDS({ "status", "text", NULL }, { "version", "text", NULL }, { "instance", "text", NULL },
             { "uptime_seconds", "number", NULL },
             { "confinement", "Confinement", NULL, OPTIONAL }),
      NULL },
    { "Confinement", "The daemon's own walls.", NULL,
      FIELDS({ "mode", "?text", NULL }, { "seccomp", "bool", NULL }, { "landlock", "int", NULL },
             { "missing", "?text", NULL }),
      NULL },
    LIST("Ready", "The daemon serves.", "status", "text"),
    { "Port", "A TCP port inside a sandbox.", NULL,
      FIELDS({ "port", "int", NULL }, { "path", "text", "where requests to it are sent" },
             { "url", "?text", NULL, OPTIONAL }),
      NULL },
    { "PortList", "TCP ports that programs in the sandbox listen on.", NULL,
      FIELDS({ "ports", "[Port]", NULL }, NEXT_CURSOR, { "truncated", "bool", NULL }), NULL },
    { "PortUrl", "A signed URL for a port.", NULL,
      FIELDS({ "session_id", "text", NULL }, { "port", "int", NULL }, { "url", "?text", NULL },
             { "path", "text", NULL }, { "expires_at", "time", NULL }),
      NULL },
    { 0 },
};
