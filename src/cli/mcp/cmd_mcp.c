/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass mcp: an MCP server on stdio, which is the daemon's. */

#include "base/alloc.h"
#include "cli/commands.h"
#include "cli/mcp/mcp_relay.h"
#include "cli/mcp/mcp_session.h"
#include "cli/session/mount_option.h"
#include "daemon/daemon.h"

#include <stdlib.h>

enum { BODY_MAXIMUM = 1 << 20 };

struct mcp_args {
    struct common_args common;
    struct mcp_session_args session;
};

/* The options in the form that the daemon reads; all its sandboxes have the mounts already. */
static int run_privately(struct cli *cli, const struct mcp_session_args *args)
{
    struct daemon_setting settings[] = { { "sandbox.backend", args->create.backend }, { 0 } };
    struct private_daemon daemon = { .leash_fd = -1 };
    scoped(mount_option_fini) struct config_mounts mounts = { 0 };
    struct mcp_session_args unmounted = *args;
    scoped(free) char *session = NULL;
    struct error err;
    int code;

    if (args->create.key || args->create.keep_files)
        return cli_misuse(
            cli,
            "--key and --keep-files need a daemon that stays ('sandglass serve'), and "
            "%s needs a private one, which ends with the client",
            args->create.mounts.count ? "this --mount" : "a client without a daemon");
    unmounted.create.mounts = (struct text_list){ 0 };
    if (mcp_session_header(&unmounted, &session, &err) < 0 ||
        mount_option_read(&args->create.mounts, &mounts, &err) < 0 ||
        daemon_start_sharing(&daemon, args->create.backend ? settings : NULL, &mounts, &err) < 0)
        return cli_fail(cli, &err);
    free(cli->url);
    cli->url = xstrdup(daemon.url);
    code = mcp_relay_run(cli, session);
    daemon_stop_private(&daemon);
    return code;
}

/* The session of a client is made when a tool needs it, which is too late to learn that its mounts
 * are not allowed: a session without a sandbox tells, and is removed again. */
static int try_mounts(struct cli *cli, const struct mcp_session_args *args, struct error *err)
{
    struct create_args create = { .backend = args->create.backend,
                                  .template_name = args->create.template_name,
                                  .flavor = args->create.flavor,
                                  .mounts = args->create.mounts,
                                  .no_preload = true };
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    scoped(reply_fini) struct reply made = { 0 };
    scoped(reply_fini) struct reply removed = { 0 };
    scoped(free) char *target = NULL;

    if (create_write_body(&create, "1m", &body, err) < 0 ||
        cli_call(cli, HTTP_POST, "/api/v1/sessions", &body, &made, err) < 0)
        return -1;
    target = session_own_target(field_text(made.json, "id", ""));
    return cli_call(cli, HTTP_DELETE, target, NULL, &removed, err);
}

static int run_shared(struct cli *cli, const struct mcp_session_args *args)
{
    bool may_be_private = !cli->url_was_given && !args->create.key && !args->create.keep_files;
    scoped(free) char *session = NULL;
    struct error err;

    if (args->create.mounts.count && try_mounts(cli, args, &err) < 0) {
        if (!may_be_private || !mount_option_is_refused(&err))
            return cli_fail(cli, &err);
        cli_disconnect(cli);
        return run_privately(cli, args);
    }
    if (mcp_session_header(args, &session, &err) < 0)
        return cli_fail(cli, &err);
    return mcp_relay_run(cli, session);
}

static int mcp_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct mcp_args *args = given_args;

    if (given->operands.count > 0)
        return cli_misuse(cli, "mcp takes no \"%s\"", given->operands.items[0]);
    if (args->session.create.mounts.count && !mount_option_is_local(cli))
        return cli_misuse(cli, "--mount shows a directory of this machine, and %s is another one",
                          cli->url);
    if (!cli->url_was_given && cli_nobody_listens(cli))
        return run_privately(cli, &args->session);
    return run_shared(cli, &args->session);
}

static const struct command *const mcp_commands[] = { &cmd_mcp_install, NULL };

const struct command cmd_mcp = {
    .name = "mcp",
    .summary = "Serve the Model Context Protocol on stdio",
    .usage = "[SESSION OPTIONS] | install",
    .examples = "sandglass mcp\n"
                "sandglass mcp --template python-3.12 --memory 4g --key notes\n",
    .details =
        "For clients that start their servers themselves: messages come on stdin and go to "
        "stdout. All\ncalls share one session, which is created when a tool first needs it, "
        "with the options given\nhere. All sessions of the client are removed when it "
        "disconnects or dies, except the one of\n--key, which ends by its own clocks. Without "
        "a running daemon and without --url a private\ndaemon is started. The daemon serves "
        "the same protocol over HTTP at /mcp.",
    .sets = { { mcp_session_options, offsetof(struct mcp_args, session), "Session options" },
              COMMON_OPTIONS },
    .args_size = sizeof(struct mcp_args),
    .plain_after = OPERANDS_MIXED,
    .run = mcp_run,
    .subcommands = mcp_commands,
};
