/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass exec: runs a program in a session that exists. */

#include "cli/commands.h"
#include "cli/run/program.h"

struct exec_args {
    struct common_args common;
    struct program_args program;
    struct variable_args variables;
};

static const struct option env_options[] = {
    VARIABLE_OPTIONS(offsetof(struct exec_args, variables)),
    { 0 },
};

static int exec_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct exec_args *args = given_args;
    const struct text_list *operands = &given->operands;

    if (operands->count == 0)
        return cli_misuse(cli, "exec needs a session");
    if (operands->count == 1)
        return cli_misuse(cli, "exec needs a command after --");
    return program_run(cli, operands->items[0], &args->program, &args->variables,
                       operands->items + 1);
}

const struct command cmd_exec = {
    .name = "exec",
    .summary = "Run a program in a session",
    .usage = "[-i] [-t] [-d] [-e K=V] [-w DIR] [-u USER] [--timeout T] SESSION -- CMD...",
    .examples = "sandglass exec -it ses_4k7q9x2m -- bash\n"
                "sandglass exec -e DEBUG=1 -w /tmp notes -- make test\n"
                "sandglass exec -d notes -- python3 -m http.server 8000\n",
    .details = "SESSION is an id, the beginning of one, or a key. The program's output goes to "
               "stdout and stderr "
               "unchanged.\nExit code: the program's; 128+n for a signal; 124 after a timeout; 125 "
               "if Sandglass failed;\n126 not executable; 127 not found.\nSignals are forwarded to "
               "the program; a second one cancels it with all its children, a third\none makes the "
               "command exit at once.",
    .sets = { { program_options, offsetof(struct exec_args, program), "Options" },
              { env_options, 0, "Environment" },
              COMMON_OPTIONS },
    .args_size = sizeof(struct exec_args),
    .plain_after = 1,
    .operand = OPERAND_SESSION,
    .runs_program = true,
    .run = exec_run,
};
