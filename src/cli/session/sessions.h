/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Asking about sessions and executions: what several commands need. */

#include "cli/cli.h"
#include "wire/json.h"

struct sessions_filter {
    const struct text_list *labels; /* may be empty */
    const char *state;              /* NULL: all live ones */
    const char *owner;              /* NULL: the caller's own; "*": all owners */
};

/* The document of GET /sessions with the pages of all answers in it; NULL on failure. With `usage`
 * what their sandboxes use is measured. */
json_t *sessions_list(struct cli *cli, const struct sessions_filter *filter, bool usage,
                      struct error *err);

/* "?label=k%3Dv&state=…" of the filters given, "" without any; allocated. */
char *sessions_query(const struct sessions_filter *filter);

/* Which clock ends it next. */
struct session_end {
    const char *kind;   /* "idle", "lease", "lifetime"; borrowed from the document */
    double remaining_s; /* -1 when none is running */
};

struct session_end session_next_end_of(const json_t *session);

/* "ready", "creating", … or "none". */
const char *session_sandbox_state(const json_t *session);

/* The execution that was created last; NULL with an error when there is none. */
json_t *execution_last(struct cli *cli, const char *session, struct error *err);
