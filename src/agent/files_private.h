/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Declarations shared by files.c, file_ask.c, file_source.c and file_writer.c. */

#include "agent/files.h"

/* Whether init hands over descriptors of regular files. Otherwise content goes through streams. */
bool files_pass(const struct agent *agent);

/* The error of a request about `path`, with a message that names the path. */
void file_request_error(const struct agent_request *request, const char *path,
                        struct error *out_err, int *out_errno);

/* As agent_file(). `done` gets ask->request. */
void file_ask_start(struct file_ask *ask, struct agent *agent, const struct agent_file *file,
                    agent_done_fn *done);

/* `done` does not come any more, and a temporary file that the answer still names is removed. Also
 * of zeros. */
void file_ask_cancel(struct file_ask *ask);
