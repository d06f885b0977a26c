/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/run.h"

#include <string.h>

static void start_python(struct tool_call *call)
{
    const char *code = tool_text(call, "code");

    tool_run(call, "python", code, strlen(code), tool_integer(call, "timeout"));
}

static const struct tool_argument python_arguments[] = {
    { "code", TOOL_TEXT, "The code; it may `await` at the top level.", .required = true,
      .max_length = CONTEXT_CODE_MAXIMUM },
    { "description", TOOL_TEXT, "What it is for, in a few words; shown to the user.",
      .max_length = 4096 },
    { "timeout", TOOL_INTEGER, "Seconds after which it is interrupted; its output is kept.",
      .fallback = "240", .minimum = 1, .maximum = 1200 },
    { 0 },
};

const struct tool tool_python = {
    .name = "python",
    .title = "Run Python code",
    .description =
        "Run Python code in an interpreter that stays between calls, as in a notebook: variables, "
        "imports and functions of one call are there in the next. `!COMMAND`, `%pip install NAME` "
        "and IPython.display work, too. You get what it prints, the "
        "value of the last expression, the traceback of an error, and figures of matplotlib and "
        "other images as images. Files are shared with bash and the other tools. For a program "
        "in a file use bash.",
    .arguments = python_arguments,
    .needs_session = true,
    .is_destructive = true,
    .is_open_world = true,
    .start = start_python,
    .needs_sandbox = true,
};
