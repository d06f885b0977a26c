/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The tools of a model: a closed table, for routes and for the MCP server.
 *
 * A tool is a row: its name, a description written for a model, its arguments (which give both the
 * JSON schema and the checks) and how it starts. A call is embedded by its caller and answers once,
 * from the loop, with a result that is meant to be read by the model: what happened, and what to do
 * next. That something went wrong inside the sandbox is a result too, with is_error.
 *
 * A `struct tools`, one for the daemon, has the memory of the tools for each session: which shell
 * is whose, which files were read in which version, which notices were given.
 */

#include "base/buffer.h"
#include "base/error.h"
#include "base/id.h"
#include "base/list.h"
#include "core/session/session.h"
#include "loop/loop.h"
#include "wire/json.h"

#include <stdbool.h>
#include <stdint.h>

struct core;
struct tool_call;
struct tools;

enum {
    TOOL_OUTPUT_CHARACTERS = 25000, /* of one result; what is longer is cut and kept in a file */
    TOOL_RESULT_MAXIMUM = 48 * 1024 * 1024,
    TOOL_CONTENTS_MAXIMUM = 64,
};

/* The label of a session that is one client's own, with the client as its value: other clients of
 * the same owner are not shown it. */
#define TOOL_CLIENT_LABEL "mcp"

/* --- the table ------------------------------------------------------------------------------ */

enum tool_kind { TOOL_TEXT, TOOL_INTEGER, TOOL_BOOLEAN };

struct tool_argument {
    const char *name;
    enum tool_kind kind;
    const char *description;
    bool required, may_be_empty;
    const char *fallback;       /* a text, or JSON for other kinds; NULL without one */
    const char *const *choices; /* ends with NULL; NULL: any text */
    int64_t minimum, maximum;   /* of integers, when maximum > minimum */
    size_t max_length;          /* of texts in bytes; 0: what a request can hold */
    const char *old_name;       /* accepted instead for one more release; NULL without */
};

struct tool {
    const char *name, *title;
    const char *description;               /* for a model */
    const struct tool_argument *arguments; /* ends with a row without a name */
    bool needs_session;                    /* the call has to name one */
    bool takes_session; /* it works in the one that is named, else in a new one */
    bool is_read_only, is_destructive, is_idempotent, is_open_world;
    void (*start)(struct tool_call *call); /* private: with the sandbox there, if it needs one */
    bool needs_sandbox;                    /* private */
    /* private: refuses values that the table cannot tell to be wrong; NULL without */
    int (*check)(const struct core *core, const json_t *arguments, struct error *err);
};

/* All of them, in the order in which they are to be shown: NULL at the end. */
const struct tool *tool_at(size_t place);
const struct tool *tool_find(const char *name); /* NULL for an unknown one */

/* The JSON schema of its arguments, an object that is closed. `more` are arguments that are not the
 * tool's but of a face that passes its calls on, as a table like the tool's own; NULL without. */
void tool_write_schema(const struct tool *tool, const struct tool_argument *more,
                       struct json_writer *json, const char *key);

/* {name, title, description, annotations, needs_session, input_schema} */
void tool_write_json(const struct tool *tool, struct json_writer *json, const char *key);

/* Whether the arguments (an object, or NULL for none) are what the tool takes: the error names the
 * one that is not. */
int tool_check(const struct tool *tool, const json_t *arguments, struct error *err);

/* The same, and whether this daemon knows what they name: asked before a session is made. */
int tools_check(const struct tools *tools, const struct tool *tool, const json_t *arguments,
                struct error *err);

/* --- a call ---------------------------------------------------------------------------------- */

enum tool_content_kind {
    TOOL_CONTENT_TEXT,
    TOOL_CONTENT_IMAGE, /* data, mime */
    TOOL_CONTENT_LINK,  /* to a file in the sandbox: uri, name, mime */
    TOOL_CONTENT_BLOB,  /* a file itself: uri, name, mime, data */
};

struct tool_content {
    enum tool_content_kind kind;
    char *text; /* owned, as all here; what the kind does not have is NULL */
    char *data; /* base64 */
    char *mime;
    char *uri; /* sandglass://SESSION/PATH, with two slashes when the path is absolute */
    char *name;
    uint64_t size; /* of the file */
};

struct tool_result {
    struct tool_content contents[TOOL_CONTENTS_MAXIMUM];
    size_t count;
    bool is_error;
    char *structured; /* owned; a JSON object, or NULL */
};

/* Everything is borrowed during tool_call_start(). */
struct tool_request {
    const struct tool *tool;
    json_t *arguments;        /* object, or NULL */
    const char *owner;        /* "" without one */
    const char *on_behalf_of; /* "" without one */
    bool any_owner;           /* an administrator */
    const char *session;      /* id; NULL only for tools that do not need one */
    const char *client;       /* whose shell it is: other clients have others; NULL is one too */
    const char *labels_json;  /* of sessions that the tool makes: object of texts, or NULL */
};

typedef void tool_progress_fn(struct tool_call *call, const char *text, size_t length);
typedef void tool_done_fn(struct tool_call *call);

struct tool_work;

/* Embedded by the caller. */
struct tool_call {
    /* set before tool_call_start() */
    tool_progress_fn *on_progress; /* new output of a command; NULL: not wanted */
    tool_done_fn *on_done;         /* once, from the loop, never inside a call of ours */
    void *user;

    struct tool_result result; /* valid from on_done until tool_call_fini() */

    /* private */
    struct tools *tools;
    const struct tool *tool;
    json_t *arguments;
    char session_id[ID_SIZE]; /* "" without one */
    char *owner, *on_behalf_of, *client;
    char *labels_json; /* may be NULL */
    bool any_owner;
    struct list node; /* tools->calls */
    struct session_hold hold;
    bool in_use, is_cancelled, is_finished;
    struct tool_work *work;
    struct deferred begin, finish;
    struct buffer text;
};

/* A wrong request is a result with is_error as well: a caller that wants to tell it apart asks
 * tool_check() first. */
void tool_call_start(struct tools *tools, struct tool_call *call,
                     const struct tool_request *request);

/* The program of the call is interrupted, and killed when it ignores that; the sandbox stays.
 * on_done comes with the output until then. */
void tool_call_cancel(struct tool_call *call);

/* The caller goes, at any time: on_done does not come any more, what runs is interrupted, and the
 * memory of the call is its own again. */
void tool_call_fini(struct tool_call *call);

/* {content: […], is_error, structured}; see docs/reference/tools.md. */
void tool_result_write_json(const struct tool_result *result, struct json_writer *json,
                            const char *key);

/* --- what is remembered ---------------------------------------------------------------------- */

struct tools *tools_new(struct core *core);
void tools_free(struct tools *tools); /* NULL is fine; before the core, and without calls */

/* Interrupts all calls of a session: how many there were. */
unsigned tools_interrupt(struct tools *tools, const char *session_id);
