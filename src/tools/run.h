#pragma once

/*
 * Code in an interpreter that keeps its state, as a tool runs it: `bash` and `python`. What it
 * writes is told as it comes, cut to what a model can read, and kept as a whole in the sandbox when
 * it is longer.
 */

#include "core/run/context/context.h"
#include "tools/work.h"

/* Runs it in the interpreter of this language that belongs to the call's client; the call ends with
 * it. The code is copied. */
void tool_run(struct tool_call *call, const char *language, const char *code, size_t length,
              int64_t timeout_s);
