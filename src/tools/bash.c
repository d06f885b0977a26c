/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/run.h"

#include "base/buffer.h"

#include <string.h>

enum { COMMAND_MAXIMUM = 1024 * 1024 };

/* 'it'\''s' */
static void append_quoted(struct buffer *out, const char *text)
{
    buffer_append_byte(out, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            buffer_append_text(out, "'\\''");
        else
            buffer_append_byte(out, (uint8_t)*text);
    }
    buffer_append_byte(out, '\'');
}

/* Both streams go one way, so that the model sees them in the order in which they were written. All
 * on the first line of the command, whose lines keep their numbers. */
static void start_bash(struct tool_call *call)
{
    const char *command = tool_text(call, "command");
    const char *directory = tool_text(call, "work_dir");
    scoped(buffer_fini) struct buffer code = BUFFER_INIT(COMMAND_MAXIMUM + 64 * 1024);

    buffer_append_text(&code, "exec 2>&1; ");
    if (directory) {
        buffer_append_text(&code, "cd -- ");
        append_quoted(&code, directory);
        buffer_append_text(&code, " || return; ");
    }
    buffer_append_text(&code, command);
    tool_run(call, "bash", (const char *)code.data, code.length, tool_integer(call, "timeout"));
}

static const struct tool_argument bash_arguments[] = {
    { "command", TOOL_TEXT, "The command, or several lines of them.", .required = true,
      .max_length = COMMAND_MAXIMUM },
    { "description", TOOL_TEXT, "What it is for, in a few words; shown to the user.",
      .max_length = 4096 },
    { "work_dir", TOOL_TEXT, "Directory to change to before; the shell stays there.",
      .max_length = 4095 },
    { "timeout", TOOL_INTEGER, "Seconds after which it is interrupted; its output is kept.",
      .fallback = "240", .minimum = 1, .maximum = 1200 },
    { 0 },
};

const struct tool tool_bash = {
    .name = "bash",
    .title = "Run a command",
    .description =
        "Run a shell command in the sandbox and get what it writes (stdout and stderr in order) "
        "and its exit code. The sandbox is there already: do not create one first. The shell "
        "stays between calls: directory, variables and functions of one call are there in the "
        "next. There is no terminal and stdin is empty, so use flags such as -y. For what takes "
        "longer than the timeout (240 seconds, 1200 at most) start it in the background, "
        "`nohup COMMAND > job.log 2>&1 &`, and look at job.log later. Output over 25,000 "
        "characters is cut in the middle and kept in a file whose path is told. Use read, write, "
        "edit, glob and grep for files: they say more than cat, sed and find.",
    .arguments = bash_arguments,
    .needs_session = true,
    .is_destructive = true,
    .is_open_world = true,
    .start = start_bash,
    .needs_sandbox = true,
};
