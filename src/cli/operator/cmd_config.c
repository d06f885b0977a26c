/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass config: the settings. Needs no daemon. */

#include "base/str.h"
#include "cli/commands.h"
#include "cli/manual.h"
#include "config/config.h"
#include "daemon/preflight.h"
#include "wire/json.h"

#include <string.h>

enum { TEXT_MAXIMUM = 16 << 20 };

struct config_args {
    struct common_args common;
    const char *config;
    bool man;
};

static const struct option file_options[] = {
    { "config", 'c', OPTION_TEXT, offsetof(struct config_args, config), "FILE", NULL,
      "configuration file; default: $SANDGLASS_CONFIG, /etc/sandglass/sandglass.yaml or "
      "~/.config/sandglass/sandglass.yaml, whichever exists" },
    { 0 },
};

static int load(struct cli *cli, const struct config_args *args, const struct option_result *given,
                struct config *config)
{
    struct error err;

    if (given->operands.count > 1 || (given->operands.count && args->config))
        return cli_misuse(cli, "%s takes at most one file", cli->command->name);
    if (config_load(config, given->operands.count ? given->operands.items[0] : args->config, &err) <
        0)
        return cli_fail(cli, &err);
    return 0;
}

static int show_run(struct cli *cli, const void *args, const struct option_result *given)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(TEXT_MAXIMUM);
    scoped(config_fini) struct config config = { 0 };
    int failed = load(cli, args, given, &config);

    if (failed)
        return failed;
    config_show(&config, &text, cli->json);
    if (text.length && text.data[text.length - 1] != '\n')
        buffer_append_byte(&text, '\n');
    return cli_print(cli, text.data, text.length);
}

static const struct command config_show_command = {
    .name = "show",
    .summary = "Show the effective settings and the origin of each",
    .usage = "[--config F | FILE]",
    .examples = "sandglass config show\n",
    .sets = { { file_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct config_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_FILE,
    .run = show_run,
};

static int check_run(struct cli *cli, const void *args, const struct option_result *given)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(TEXT_MAXIMUM);
    scoped(config_fini) struct config config = { 0 };
    struct identity identity;
    struct error err;
    int failed = load(cli, args, given, &config);

    if (failed)
        return failed;
    if (identity_find(config.user, &identity, &err) < 0 || config_check(&config, &err) < 0 ||
        preflight_check(&config, &identity, &err) < 0 ||
        preflight_check_places(&config, &identity, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print(cli, "{\"ok\":true}\n", 12);
    buffer_appendf(&text, "%s: ok\n", config.path ? config.path : "no file, defaults");
    return cli_print(cli, text.data, text.length);
}

static const struct command config_check_command = {
    .name = "check",
    .summary = "Check whether the daemon would start with these settings",
    .usage = "[--config F | FILE]",
    .examples = "sandglass config check sandglass.yaml\n",
    .details = "Runs the checks of 'serve': values, backend, template, key and certificate "
               "files,\ndirectories. Creates nothing.",
    .sets = { { file_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct config_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_FILE,
    .run = check_run,
};

/* --- describe -------------------------------------------------------------------------------- */

/* config_describe() writes paragraphs: the key, then indented lines, then an empty line. */
static json_t *settings_document(struct buffer *text)
{
    json_t *settings = json_array();
    char *rest = (char *)buffer_text(text);
    json_t *about = NULL;
    char *line;

    while ((line = strsep(&rest, "\n"))) {
        if (*line == ' ') {
            json_array_append_new(about, json_string(line + strspn(line, " ")));
        } else if (*line) {
            about = json_array();
            json_array_append_new(settings, json_pack("{s:s, s:o}", "key", line, "about", about));
        }
    }
    return json_pack("{s:o}", "settings", settings);
}

static int describe_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct config_args *args = given_args;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(TEXT_MAXIMUM);
    scoped(json_decref) json_t *document = NULL;

    if (given->operands.count)
        return cli_misuse(cli, "describe takes no operand: \"%s\"", given->operands.items[0]);
    if (args->man)
        manual_settings(&text);
    else
        config_describe(&text);
    if (!cli->json)
        return cli_print(cli, text.data, text.length);
    document = settings_document(&text);
    return cli_print_json(cli, document);
}

static const struct option describe_options[] = {
    { "man", 0, OPTION_FLAG, offsetof(struct config_args, man), NULL, NULL,
      "print a section of the manual page" },
    { 0 },
};

static const struct command config_describe_command = {
    .name = "describe",
    .summary = "List every setting with its type, default, range and meaning",
    .usage = "[--man]",
    .examples = "sandglass config describe\n",
    .sets = { { describe_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct config_args),
    .plain_after = OPERANDS_MIXED,
    .run = describe_run,
};

static const struct command *const config_commands[] = {
    &cmd_config_init, &config_show_command, &config_check_command, &config_describe_command, NULL,
};

const struct command cmd_config = {
    .name = "config",
    .summary = "Write, show, check and explain the settings",
    .usage = "COMMAND",
    .examples = "sandglass config init\n"
                "sandglass config check\n",
    .subcommands = config_commands,
};
