/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For the tools themselves: their arguments, and their answers. Private to src/tools. */

#include "base/macros.h"
#include "service/identity.h"
#include "tools/tool.h"

/* The work of a call: the first field of a struct of the tool's own. */
struct tool_work {
    void (*release)(struct tool_work *work); /* stops everything and frees it */
    void (*cancel)(struct tool_work *work);  /* ends soon with tool_finish(); NULL: at once */
    void (*on_lost)(struct tool_work *work); /* the sandbox went; NULL: the call ends with that */
};

struct tool_memory;

struct tools {
    struct core *core;   /* borrowed */
    struct list calls;   /* struct tool_call */
    struct map memories; /* by session id; struct tool_memory, see memory.h */
};

/* --- arguments ------------------------------------------------------------------------------- */

/* As given, or the fallback of the table; NULL without either. */
const char *tool_text(const struct tool_call *call, const char *name);
int64_t tool_integer(const struct tool_call *call, const char *name);
bool tool_boolean(const struct tool_call *call, const char *name);

/* For whom the call acts. */
struct caller_identity tool_identity(const struct tool_call *call);

/* The session while it lives, NULL afterwards. */
struct session *tool_session(const struct tool_call *call);

/* --- the answer ------------------------------------------------------------------------------ */

/* More of the text, which becomes the first content. */
void tool_say(struct tool_call *call, const char *format, ...) PRINTF_LIKE(2, 3);

/* Tells the model that the files of the session are gone, and why. */
void tool_say_reset(struct tool_call *call, const struct end_reason *why);

/* The strings are copied, the data is taken over. */
void tool_add_image(struct tool_call *call, const char *mime, char *data);

/* A file of the session; with `data` the file itself, without only where it is. */
void tool_add_file(struct tool_call *call, const char *path, const char *mime, uint64_t size,
                   char *data);

/* The work is over: on_done comes at the end of the turn. */
void tool_finish(struct tool_call *call);

/* The same with is_error and "ERROR: " before the text. */
void tool_fail(struct tool_call *call, const char *format, ...) PRINTF_LIKE(2, 3);
void tool_fail_error(struct tool_call *call, const struct error *err);

/* --- the table ------------------------------------------------------------------------------- */

extern const struct tool tool_bash;
extern const struct tool tool_python;
extern const struct tool tool_read;
extern const struct tool tool_write;
extern const struct tool tool_edit;
extern const struct tool tool_ls;
extern const struct tool tool_glob;
extern const struct tool tool_grep;
extern const struct tool tool_upload;
extern const struct tool tool_download;
extern const struct tool tool_sandbox_create;
extern const struct tool tool_sandbox_status;
extern const struct tool tool_execute_python;
extern const struct tool tool_manage_session;
