/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The parts of the code interpreter: contexts, runs of code, and variables for one run. */

#include "e2b/private.h"

struct context;

/* "js" and the other short names, as a context knows the language. */
const char *e2b_language(const char *name);

/* The context of a language that is there without being made. NULL with the error. */
struct context *e2b_default_context(struct session *session, const char *language,
                                    struct error *err);

/* As text/plain, which is what the interpreter of E2B answers failures with. */
void e2b_code_fail(struct request *request, const struct error *err);
void e2b_code_fail_status(struct request *request, int status, const char *message);

/* How many runs of a context were ours, and do not count for its callers; borrowed until the next
 * call. */
size_t *e2b_hidden_runs(struct e2b *e2b, const char *context_id);
void e2b_forget_hidden_runs(struct e2b *e2b);

/* --- code_run.c ------------------------------------------------------------------------------- */

void e2b_post_execute(struct request *request);

/* --- code_env.c: variables that are set for one run ------------------------------------------- */

/* Code that sets them, and code that brings back what was there; allocated. -1 for a name that the
 * language cannot express. */
int e2b_env_code(const char *language, const json_t *variables, char **out_set, char **out_restore,
                 struct error *err);
