/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass completion: scripts for the shells, made from the tables of commands and options. */

#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/completion_values.h"

#include <string.h>

enum { SCRIPT_MAXIMUM = 1 << 20 };

struct completion_args {
    struct common_args common;
};

static const struct {
    const char *shell;
    void (*write)(struct buffer *script);
} writers[] = {
    { "bash", completion_bash },
    { "zsh", completion_zsh },
    { "fish", completion_fish },
};

static int completion_run(struct cli *cli, const void *args UNUSED,
                          const struct option_result *given)
{
    scoped(buffer_fini) struct buffer script = BUFFER_INIT(SCRIPT_MAXIMUM);

    if (given->operands.count > 1 && strcmp(given->operands.items[0], "values") == 0) {
        completion_values(cli, given->operands.items[1], given->operands.items[2], &script);
        return cli_print(cli, script.data, script.length);
    }
    if (given->operands.count != 1)
        return cli_misuse(cli, "completion needs a shell: bash, zsh or fish");
    for (size_t i = 0; i < ARRAY_LENGTH(writers); i++)
        if (strcmp(writers[i].shell, given->operands.items[0]) == 0)
            writers[i].write(&script);
    if (script.length == 0)
        return cli_misuse(cli, "unknown shell \"%s\" (expected bash, zsh or fish)",
                          given->operands.items[0]);
    return cli_print(cli, script.data, script.length);
}

const struct command cmd_completion = {
    .name = "completion",
    .summary = "Print the completion script for a shell",
    .usage = "bash|zsh|fish",
    .examples = "source <(sandglass completion bash)\n",
    .details =
        "For bash: source <(sandglass completion bash). For zsh, save the script as _sandglass in "
        "a\ndirectory of $fpath; for fish, as sandglass.fish in ~/.config/fish/completions.",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct completion_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_WORDS,
    .words = "bash zsh fish",
    .run = completion_run,
};
