/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass inspect, sandglass session inspect: all that is known about a session or execution. */

#include "cli/commands.h"
#include "cli/session/resolve.h"

#include <stdlib.h>

struct inspect_args {
    struct common_args common;
};

static int inspect_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    const struct text_list *operands = &given->operands;
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = NULL;
    struct error err;

    if (operands->count < 1 || operands->count > 2)
        return cli_misuse(cli, "inspect needs exactly one session");
    if (operands->count == 1) {
        target = session_own_target(operands->items[0]);
    } else {
        scoped(free) char *id =
            execution_resolve(cli, operands->items[0], operands->items[1], &err);
        scoped(free) char *execution = id ? url_encode(id) : NULL;

        if (!id)
            return cli_fail(cli, &err);
        target = session_target(operands->items[0], "/executions/%s", execution);
    }
    if (cli_call(cli, HTTP_GET, target, NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    return cli_print_json(cli, reply.json);
}

const struct command cmd_inspect = {
    .name = "inspect",
    .summary = "Show a session, or one of its executions, as JSON",
    .usage = "SESSION [EXECUTION]",
    .examples = "sandglass inspect notes\n"
                "sandglass inspect notes exe_7h2k9c4d\n",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct inspect_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_EXECUTION,
    .run = inspect_run,
};
