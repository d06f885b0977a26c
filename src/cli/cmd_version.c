/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass version. */

#include "cli/commands.h"
#include "cli/commit.h"

struct version_args {
    struct common_args common;
};

static int version_run(struct cli *cli, const void *args UNUSED,
                       const struct option_result *given UNUSED)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256);

    if (cli->json)
        buffer_append_text(&text, "{\"version\":\"" SANDGLASS_VERSION
                                  "\",\"commit\":\"" SANDGLASS_COMMIT "\"}\n");
    else
        buffer_append_text(&text, "sandglass " SANDGLASS_VERSION " (" SANDGLASS_COMMIT ")\n");
    return cli_print(cli, text.data, text.length);
}

const struct command cmd_version = {
    .name = "version",
    .summary = "Print the version and the commit it was built from",
    .usage = "",
    .examples = "sandglass version --json\n",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct version_args),
    .plain_after = OPERANDS_MIXED,
    .run = version_run,
};
