/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass serve: the daemon, in the foreground. */

#include "backend/names.h"
#include "base/alloc.h"
#include "cli/commands.h"
#include "daemon/daemon.h"

#include <stdlib.h>
#include <string.h>

struct serve_args {
    struct common_args common;
    const char *config;
    const char *state;
    struct text_list listen;
    const char *backend;
    struct text_list set;
};

#define PLACE(field) offsetof(struct serve_args, field)

static const struct option serve_options[] = {
    { "config", 'c', OPTION_TEXT, PLACE(config), "FILE", NULL,
      "configuration file; default: $SANDGLASS_CONFIG, /etc/sandglass/sandglass.yaml or "
      "~/.config/sandglass/sandglass.yaml, whichever exists" },
    { "state", 0, OPTION_TEXT, PLACE(state), "DIR", NULL,
      "state directory; default: the setting state_dir" },
    { "listen", 0, OPTION_LIST, PLACE(listen), "ADDR", NULL,
      "unix:PATH or HOST:PORT; may be repeated; default: the setting listen" },
    { "backend", 0, OPTION_TEXT, PLACE(backend), "NAME", BACKEND_WORDS,
      "default backend of sandboxes, one of:" BACKEND_TEXT "; default: native" },
    { "set", 0, OPTION_PAIRS, PLACE(set), "KEY=VALUE", NULL,
      "override a setting of the file; may be repeated" },
    { 0 },
};

enum { NAMED_SETTINGS = 3 };

/* "a.b=c" becomes "a.b" in `names` and points to "c". */
static struct daemon_setting setting_from(const char *pair, struct text_list *names)
{
    size_t length = strcspn(pair, "=");

    text_list_add(names, xstrndup(pair, length));
    return (struct daemon_setting){ names->items[names->count - 1], pair + length + 1 };
}

static int serve_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct serve_args *args = given_args;
    scoped(free) struct daemon_setting *settings =
        xcalloc(args->set.count + NAMED_SETTINGS, sizeof(*settings));
    scoped(text_list_fini) struct text_list names = { 0 };
    struct daemon_options options = {
        .config_path = args->config,
        .listen = args->listen.items,
        .settings = settings,
        .ready_fd = -1,
        .leash_fd = -1,
    };
    size_t count = 0;
    int code;

    if (given->operands.count)
        return cli_misuse(cli, "serve takes no operand: \"%s\"", given->operands.items[0]);
    if (args->state)
        settings[count++] = (struct daemon_setting){ "state_dir", args->state };
    if (args->backend)
        settings[count++] = (struct daemon_setting){ "sandbox.backend", args->backend };
    for (size_t i = 0; i < args->set.count; i++)
        settings[count++] = setting_from(args->set.items[i], &names);
    code = daemon_main(&options);
    for (size_t i = 0; i < names.count; i++)
        free((char *)names.items[i]);
    return code;
}

const struct command cmd_serve = {
    .name = "serve",
    .summary = "Run the daemon",
    .usage = "[--config F] [--state DIR] [--listen ADDR]... [--backend NAME] [--set KEY=VALUE]...",
    .examples = "sandglass serve\n"
                "sandglass serve --listen 127.0.0.1:7420 --set session.idle_timeout=1h\n",
    .details = "Stays in the foreground and ends on TERM or INT. 'sandglass config describe' lists "
               "the\nsettings.",
    .sets = { { serve_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct serve_args),
    .plain_after = OPERANDS_MIXED,
    .run = serve_run,
};
