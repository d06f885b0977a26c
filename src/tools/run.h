/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Code in an interpreter that keeps its state, as a tool runs it: `bash` and `python`. Its output
 * is told as it comes, and cut to a length that a model can read. Longer output is kept as a whole
 * in the sandbox.
 */

#include "core/run/context/context.h"
#include "tools/work.h"

/* Runs it in the interpreter of this language that belongs to the call's client; the call ends with
 * it. The code is copied. */
void tool_run(struct tool_call *call, const char *language, const char *code, size_t length,
              int64_t timeout_s);
