/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass dashboard: the page for people, with a token that logs a browser in once. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct dashboard_args {
    struct common_args common;
    bool no_open;
};

static const struct option dashboard_options[] = {
    { "no-open", 0, OPTION_FLAG, offsetof(struct dashboard_args, no_open), NULL, NULL,
      "print the URL only; do not start a browser" },
    { 0 },
};

/* Whether there is a desktop, and the user is not root: browsers refuse to run as root. */
static bool has_desktop(void)
{
    return geteuid() != 0 && isatty(STDOUT_FILENO) &&
           (!str_is_empty(getenv("DISPLAY")) || !str_is_empty(getenv("WAYLAND_DISPLAY")));
}

/* The program detaches itself; what it says is of no interest. */
static void open_browser(const char *url)
{
    pid_t child = fork();

    if (child == 0) {
        if (!freopen("/dev/null", "r+", stdin) || !freopen("/dev/null", "w", stdout) ||
            !freopen("/dev/null", "w", stderr))
            _exit(EXIT_FAILURE);
        execlp("xdg-open", "xdg-open", url, (char *)NULL);
        _exit(EXIT_FAILURE);
    }
    if (child > 0)
        (void)waitpid(child, NULL, 0);
}

static int dashboard_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct dashboard_args *args = given_args;
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *line = NULL;
    const char *url;
    struct error err;

    if (given->operands.count)
        return cli_misuse(cli, "dashboard takes no operand: \"%s\"", given->operands.items[0]);
    if (cli_call(cli, HTTP_POST, "/ui/tokens", NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    url = field_text(reply.json, "url", "");
    if (!args->no_open && has_desktop())
        open_browser(url);
    line = xasprintf("%s\n", url);
    fputs("[dashboard] this address works once, within two minutes\n", stderr);
    return cli_print(cli, line, strlen(line));
}

const struct command cmd_dashboard = {
    .name = "dashboard",
    .summary = "Open the page of the daemon in a browser",
    .usage = "[--no-open]",
    .examples = "sandglass dashboard --no-open\n",
    .details =
        "Prints a URL that logs a browser in once, as the caller of this command, and opens it "
        "where there is a desktop. A daemon that listens on unix sockets only begins to listen "
        "on a port of loopback for it.",
    .sets = { { dashboard_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct dashboard_args),
    .plain_after = OPERANDS_MIXED,
    .run = dashboard_run,
};
