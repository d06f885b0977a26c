/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the tools for files: messages of failures, and types of files. */

#include "agent/files.h"
#include "tools/memory.h"
#include "tools/work.h"

enum { TOOL_PATH_MAXIMUM = PROTOCOL_MAX_PATH - 1 };

#define TOOL_PATH_HELP \
    "Absolute, or relative to the workspace (the home directory, wherever the shell is)."

/* Init's errno, in words that say what to do next. */
void tool_fail_file(struct tool_call *call, int number, const char *path);

/* Ends the call with the failure of a reader or writer. */
void tool_fail_transfer(struct tool_call *call, int number, const struct error *err,
                        const char *path);

/* By its first bytes, or by its name; never NULL. */
const char *tool_mime(const void *bytes, size_t length, const char *path);

/* The MIME type when a model can look at it as an image; NULL otherwise. */
const char *tool_image_mime(const void *bytes, size_t length);

/* Bytes that cannot be read as text. */
bool tool_is_binary(const void *bytes, size_t length);

struct tool_memory *tool_call_memory(const struct tool_call *call);
