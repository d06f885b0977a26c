/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass help: the commands, or all about one of them. */

#include "cli/commands.h"
#include "cli/manual.h"

enum { PAGE_MAXIMUM = 1 << 20 };

struct help_args {
    struct common_args common;
    bool man;
};

static const struct option help_options[] = {
    { "man", 0, OPTION_FLAG, offsetof(struct help_args, man), NULL, NULL,
      "print all commands as a section of the manual page" },
    { 0 },
};

static int print_manual(struct cli *cli)
{
    scoped(buffer_fini) struct buffer page = BUFFER_INIT(PAGE_MAXIMUM);

    manual_commands(&page);
    return cli_print(cli, page.data, page.length);
}

static int help_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct help_args *args = given_args;
    const struct command *const *table = commands;
    const struct command *command = NULL;
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(256);

    if (args->man)
        return print_manual(cli);
    buffer_append_text(&path, "sandglass");
    for (size_t i = 0; i < given->operands.count; i++) {
        command = table ? command_find(table, given->operands.items[i]) : NULL;
        if (!command)
            return cli_misuse(cli, "unknown command \"%s\"", given->operands.items[i]);
        buffer_appendf(&path, " %s", command->name);
        table = command->subcommands;
    }
    if (command)
        command_print_help(command, buffer_text(&path));
    else
        commands_print_help();
    return 0;
}

const struct command cmd_help = {
    .name = "help",
    .summary = "Explain a command",
    .usage = "[--man] [COMMAND]...",
    .examples = "sandglass help run\n",
    .sets = { { help_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct help_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_COMMAND,
    .run = help_run,
};
