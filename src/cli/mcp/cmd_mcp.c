/* sandglass mcp: an MCP server on stdio, which is the daemon's. */

#include "backend/names.h"
#include "base/alloc.h"
#include "cli/commands.h"
#include "cli/mcp/mcp_relay.h"
#include "daemon/daemon.h"

#include <stdlib.h>

struct mcp_args {
    struct common_args common;
    const char *backend;
};

static const struct option mcp_options[] = {
    { "backend", 0, OPTION_TEXT, offsetof(struct mcp_args, backend), "NAME", BACKEND_WORDS,
      "backend of the private daemon, if one is started" },
    { 0 },
};

static int run_privately(struct cli *cli, const struct mcp_args *args)
{
    struct daemon_setting settings[] = { { "sandbox.backend", args->backend }, { 0 } };
    struct private_daemon daemon = { .leash_fd = -1 };
    struct error err;
    int code;

    if (daemon_start_private(&daemon, args->backend ? settings : NULL, &err) < 0)
        return cli_fail(cli, &err);
    free(cli->url);
    cli->url = xstrdup(daemon.url);
    code = mcp_relay_run(cli);
    daemon_stop_private(&daemon);
    return code;
}

static int mcp_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    if (given->operands.count > 0)
        return cli_misuse(cli, "mcp takes no \"%s\"", given->operands.items[0]);
    if (!cli->url_was_given && cli_nobody_listens(cli))
        return run_privately(cli, given_args);
    return mcp_relay_run(cli);
}

static const struct command *const mcp_commands[] = { &cmd_mcp_install, NULL };

const struct command cmd_mcp = {
    .name = "mcp",
    .summary = "Serve the Model Context Protocol on stdio",
    .usage = "[--backend NAME] | install",
    .details = "For clients that start their servers themselves: messages come on stdin and go to "
               "stdout. All\ncalls share one session, which is created when a tool first needs it. "
               "All sessions of the\nclient are removed when it disconnects or dies. Without a "
               "running daemon and without --url a\nprivate daemon is started. The daemon serves "
               "the same protocol over HTTP at /mcp.",
    .sets = { { mcp_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct mcp_args),
    .plain_after = OPERANDS_MIXED,
    .run = mcp_run,
    .subcommands = mcp_commands,
};
