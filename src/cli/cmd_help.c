/* sandglass help: the commands, or all about one of them. */

#include "cli/commands.h"

struct help_args {
    struct common_args common;
};

static int help_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    const struct command *const *table = commands;
    const struct command *command = NULL;
    scoped(buffer_fini) struct buffer path = BUFFER_INIT(256);

    buffer_append_text(&path, "sandglass");
    for (size_t i = 0; i < given->operands.count; i++) {
        command = table ? command_find(table, given->operands.items[i]) : NULL;
        if (!command)
            return cli_misuse(cli, "there is no command \"%s\"", given->operands.items[i]);
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
    .usage = "[COMMAND]...",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct help_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_COMMAND,
    .run = help_run,
};
