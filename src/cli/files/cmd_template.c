/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass template: root file systems that were imported. Works on the state directory; needs no daemon. */

#include "backend/template.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/files/template.h"
#include "cli/table.h"
#include "config/config.h"
#include "wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct option template_place_options[] = {
    { "state", 0, OPTION_TEXT, offsetof(struct template_args, state), "DIR", NULL,
      "state directory; default: that of the settings" },
    { "config", 'c', OPTION_TEXT, offsetof(struct template_args, config), "FILE", NULL,
      "configuration file; default: $SANDGLASS_CONFIG, else the usual paths" },
    { 0 },
};

const char *template_find_state(const struct template_args *args, struct config *config,
                                struct error *err)
{
    if (!str_is_empty(args->common.url)) {
        error_named(err, ERR_INVALID, "usage",
                    "templates are files of this machine: --url %s cannot "
                    "be used here",
                    args->common.url);
        error_hint(err,
                   "run the command on the machine of that daemon, with --state or --config if its "
                   "settings are elsewhere");
        return NULL;
    }
    if (args->state)
        return args->state;
    return config_load(config, args->config, err) < 0 ? NULL : config->state_dir;
}

json_t *template_to_json(const struct template_info *info)
{
    char time[CLOCK_TEXT_SIZE];

    clock_format(info->imported_us, time);
    return json_pack("{s:s, s:I, s:I, s:s}", "name", info->name, "bytes", (json_int_t)info->bytes,
                     "entries", (json_int_t)info->entries, "imported_at", time);
}

/* --- import ---------------------------------------------------------------------------------- */

struct import_args {
    struct template_args place;
    bool replace;
};

static const struct option import_options[] = {
    { "replace", 0, OPTION_FLAG, offsetof(struct import_args, replace), NULL, NULL,
      "replace a template of that name, unless a sandbox uses it" },
    { 0 },
};

static int import_archive(struct cli *cli, const char *state, const char *name, int archive,
                          bool replace)
{
    struct template_display display;
    struct template_options options = { .replace = replace };
    scoped(json_decref) json_t *document = NULL;
    struct template_info info;
    struct error err = { 0 };
    char size[STR_UNIT_SIZE];
    int result;

    template_display_begin(&display, cli, &options);
    result = template_import(state, name, archive, &options, &info, &err);
    template_display_end(&display);
    if (result < 0)
        return cli_fail(cli, &err);
    if (cli->json) {
        document = template_to_json(&info);
        return cli_print_json(cli, document);
    }
    str_format_size(info.bytes, size);
    cli_note("imported %s: %llu file%s, %s", name, (unsigned long long)info.entries,
             info.entries == 1 ? "" : "s", size);
    return 0;
}

static int import_run(struct cli *cli, const void *args, const struct option_result *given)
{
    const struct import_args *import = args;
    scoped(config_fini) struct config config = { 0 };
    scoped(fd_close) int opened = -1;
    struct error err = { 0 };
    const char *state;
    const char *file;

    if (given->operands.count != 2)
        return cli_misuse(cli, "template import needs a name and an archive (- for stdin)");
    file = given->operands.items[1];
    state = template_find_state(&import->place, &config, &err);
    if (!state)
        return cli_fail(cli, &err);
    if (!str_equal(file, "-")) {
        opened = open(file, O_RDONLY | O_CLOEXEC);
        if (opened < 0) {
            error_sys(&err, "open %s", file);
            return cli_fail(cli, &err);
        }
    }
    return import_archive(cli, state, given->operands.items[0], opened < 0 ? STDIN_FILENO : opened,
                          import->replace);
}

static const struct command template_import_command = {
    .name = "import",
    .summary = "Create a template from a tar archive or an image of 'docker save'",
    .usage = "[--replace] [--state DIR] NAME FILE",
    .examples = "docker save python:3.12 | sandglass template import py -\n"
                "sandglass template import --replace base rootfs.tar.gz\n",
    .details = "FILE may be gzipped; - reads from stdin. " TEMPLATE_USER,
    .sets = { { import_options, 0, "Options" },
              { template_place_options, 0, "State directory" },
              COMMON_OPTIONS },
    .args_size = sizeof(struct import_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_FILE,
    .run = import_run,
};

/* --- ls -------------------------------------------------------------------------------------- */

static int print_list(struct cli *cli, const struct template_info *infos, size_t count)
{
    static const char *const headings[] = { "NAME", "SIZE", "FILES", "IMPORTED", NULL };
    scoped(table_fini) struct table table;

    table_init(&table, headings);
    for (size_t i = 0; i < count; i++) {
        char size[STR_UNIT_SIZE];
        char time[CLOCK_TEXT_SIZE];

        str_format_size(infos[i].bytes, size);
        clock_format(infos[i].imported_us, time);
        table_add(&table, infos[i].name);
        table_add(&table, size);
        table_addf(&table, "%llu", (unsigned long long)infos[i].entries);
        table_add(&table, time);
    }
    return table_print(&table, cli);
}

static int ls_run(struct cli *cli, const void *args, const struct option_result *given)
{
    scoped(config_fini) struct config config = { 0 };
    scoped(free) struct template_info *infos = NULL;
    scoped(json_decref) json_t *document = NULL;
    struct error err = { 0 };
    const char *state;
    size_t count = 0;

    if (given->operands.count)
        return cli_misuse(cli, "ls takes no operand: \"%s\"", given->operands.items[0]);
    state = template_find_state(args, &config, &err);
    if (!state || template_list(state, &infos, &count, &err) < 0)
        return cli_fail(cli, &err);
    if (!cli->json)
        return print_list(cli, infos, count);
    document = json_pack("{s:[]}", "templates");
    for (size_t i = 0; i < count; i++)
        json_array_append_new(json_object_get(document, "templates"), template_to_json(&infos[i]));
    return cli_print_json(cli, document);
}

static const struct command template_ls_command = {
    .name = "ls",
    .summary = "List imported templates",
    .usage = "[--state DIR]",
    .examples = "sandglass template ls\n",
    .sets = { { template_place_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct template_args),
    .plain_after = OPERANDS_MIXED,
    .run = ls_run,
};

/* --- rm -------------------------------------------------------------------------------------- */

static int rm_run(struct cli *cli, const void *args, const struct option_result *given)
{
    scoped(config_fini) struct config config = { 0 };
    struct error err = { 0 };
    const char *state;

    if (given->operands.count == 0)
        return cli_misuse(cli, "template rm needs the names of templates");
    state = template_find_state(args, &config, &err);
    if (!state)
        return cli_fail(cli, &err);
    for (size_t i = 0; i < given->operands.count; i++) {
        if (template_remove(state, given->operands.items[i], &err) < 0)
            return cli_fail(cli, &err);
    }
    return cli->json ? cli_print(cli, "{\"ok\":true}\n", 12) : 0;
}

static const struct command template_rm_command = {
    .name = "rm",
    .summary = "Remove templates that no sandbox uses",
    .usage = "[--state DIR] NAME...",
    .examples = "sandglass template rm py\n",
    .sets = { { template_place_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct template_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_TEMPLATE,
    .run = rm_run,
};

static const struct command *const template_commands[] = {
    &template_import_command, &cmd_template_pull, &template_ls_command, &template_rm_command, NULL,
};

const struct command cmd_template = {
    .name = "template",
    .summary = "Import, pull, list and remove root file systems for sandboxes",
    .usage = "COMMAND",
    .examples = "sandglass template pull python:3.12\n"
                "sandglass template ls\n",
    .subcommands = template_commands,
};
