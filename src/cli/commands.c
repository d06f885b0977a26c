/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/commands.h"
#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/session/resolve.h"
#include "net/http_client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct command *const commands[] = {
    &cmd_run,     &cmd_exec,     &cmd_execute, &cmd_session,     &cmd_ls,      &cmd_ps,
    &cmd_inspect, &cmd_logs,     &cmd_history, &cmd_cp,          &cmd_port,    &cmd_rm,
    &cmd_why,     &cmd_top,      &cmd_storage, &cmd_tools,       &cmd_flavors, &cmd_approvals,
    &cmd_budget,  &cmd_scope,    &cmd_mcp,     &cmd_sweep,       &cmd_serve,   &cmd_doctor,
    &cmd_bench,   &cmd_key,      &cmd_audit,   &cmd_nodes,       &cmd_node,    &cmd_dashboard,
    &cmd_store,   &cmd_template, &cmd_config,  &cmd_unpack_init, &cmd_version, &cmd_completion,
    &cmd_help,    NULL,
};

const struct command *command_find(const struct command *const *table, const char *name)
{
    for (; *table; table++)
        if (strcmp((*table)->name, name) == 0)
            return *table;
    return NULL;
}

/* --- help ------------------------------------------------------------------------------------ */

static void describe_commands(const struct command *const *table, struct buffer *text)
{
    for (; *table; table++)
        buffer_appendf(text, "  %-12s%s\n", (*table)->name, (*table)->summary);
}

static void describe_examples(const char *examples, struct buffer *text)
{
    buffer_append_text(text, "\nExamples:\n");
    while (*examples) {
        size_t length = strcspn(examples, "\n");

        buffer_appendf(text, "  %.*s\n", (int)length, examples);
        examples += length + 1;
    }
}

void command_print_help(const struct command *command, const char *path)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(65536);

    buffer_appendf(&text, "usage: %s %s\n\n%s\n", path, command->usage, command->summary);
    if (command->details)
        buffer_appendf(&text, "\n%s\n", command->details);
    if (command->subcommands) {
        buffer_append_text(&text, "\nCommands:\n");
        describe_commands(command->subcommands, &text);
    }
    options_describe(command->sets, &text);
    if (command->examples)
        describe_examples(command->examples, &text);
    fwrite(text.data, 1, text.length, stdout);
}

void commands_print_help(void)
{
    static const struct option_set common[] = { COMMON_OPTIONS, { 0 } };
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(65536);

    buffer_append_text(&text, "usage: sandglass COMMAND [OPTIONS]\n\n"
                              "Sandboxes for untrusted programs.\n\nCommands:\n");
    describe_commands(commands, &text);
    options_describe(common, &text);
    buffer_append_text(&text, "\n'sandglass help COMMAND' describes a command.\n");
    fwrite(text.data, 1, text.length, stdout);
}

/* --- dispatch -------------------------------------------------------------------------------- */

static int unknown_command(struct cli *cli, const struct command *const *table, const char *name)
{
    scoped(text_list_fini) struct text_list names = { 0 };
    const char *nearest;

    for (; *table; table++)
        text_list_add(&names, (*table)->name);
    nearest = options_nearest(name, names.items);
    if (nearest)
        return cli_misuse(cli, "unknown command \"%s\"; did you mean \"%s\"?", name, nearest);
    return cli_misuse(cli, "unknown command \"%s\"", name);
}

/* Arguments that cannot be read still say whether the complaint has to be JSON. */
static bool asks_for_json(char *const *argv)
{
    for (; *argv && strcmp(*argv, "--") != 0; argv++)
        if (strcmp(*argv, "--json") == 0)
            return true;
    return false;
}

static void set_url(struct cli *cli, const char *given)
{
    const char *environment = getenv("SANDGLASS_URL");

    if (str_is_empty(given))
        given = environment;
    cli->url_was_given = !str_is_empty(given);
    cli->url = cli->url_was_given ? xstrdup(given) : cli_default_url();
}

static void enter_command(struct cli *cli, const struct command *command)
{
    size_t length = strlen(cli->path);

    cli->command = command;
    snprintf(cli->path + length, sizeof(cli->path) - length, " %s", command->name);
}

static int run_command(struct cli *cli, const struct common_args *before, char *const *argv)
{
    const struct command *command = cli->command;
    scoped(free) struct common_args *args = xcalloc(1, command->args_size);
    struct option_result given = { 0 };
    struct error err;
    int code;

    *args = *before;
    cli->json = before->json || asks_for_json(argv);
    if (options_parse(command->sets, command->plain_after, argv, args, &given, &err) < 0) {
        code = cli_misuse(cli, "%s", err.message);
    } else if (args->help) {
        command_print_help(command, cli->path);
        code = 0;
    } else {
        cli->json = args->json;
        set_url(cli, args->url);
        code = sessions_resolve_given(cli, args, &given, &err) < 0
                   ? cli_fail(cli, &err)
                   : command->run(cli, args, &given);
    }
    options_release(command->sets, args);
    text_list_fini(&given.operands);
    return code;
}

/* A group alone does nothing, and says what it could do. */
static int list_group(struct cli *cli)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(65536);
    int code = cli_misuse(cli, "%s needs a command", cli->command->name);

    if (cli->json)
        return code;
    buffer_append_text(&text, "\nCommands:\n");
    describe_commands(cli->command->subcommands, &text);
    (void)fd_write_all(STDERR_FILENO, text.data, text.length);
    return code;
}

/* Below `session` and `config`. */
static int run_group(struct cli *cli, const struct common_args *before, char *const *argv)
{
    const struct command *group = cli->command;
    const struct command *command;

    cli->json = before->json || asks_for_json(argv);
    if (before->help || (*argv && (strcmp(*argv, "--help") == 0 || strcmp(*argv, "-h") == 0))) {
        command_print_help(group, cli->path);
        return 0;
    }
    if (!*argv)
        return list_group(cli);
    command = command_find(group->subcommands, *argv);
    if (!command)
        return unknown_command(cli, group->subcommands, *argv);
    enter_command(cli, command);
    return run_command(cli, before, argv + 1);
}

static void cli_fini(struct cli *cli)
{
    cli_disconnect(cli);
    free(cli->url);
    for (size_t i = 0; i < cli->resolved.count; i++)
        free((char *)cli->resolved.items[i]);
    text_list_fini(&cli->resolved);
}

struct top_args {
    struct common_args common;
    bool version;
};

static const struct option top_options[] = {
    { "version", 0, OPTION_FLAG, offsetof(struct top_args, version), NULL, NULL, "" },
    { 0 },
};

/* Options that stand before the command; the first operand is the command. */
static int read_top(struct cli *cli, char *const *argv, struct top_args *top,
                    struct option_result *given)
{
    static const struct option_set sets[] = { COMMON_OPTIONS, { top_options, 0, "" }, { 0 } };
    struct error err;

    cli->json = asks_for_json(argv);
    if (options_parse(sets, 0, argv, top, given, &err) < 0)
        return cli_misuse(cli, "%s", err.message);
    return 0;
}

/* A command that does something by itself may have others below it. */
static bool is_group(const struct command *command, const char *word)
{
    if (!command->subcommands || !command->run)
        return command->subcommands;
    return word && command_find(command->subcommands, word);
}

static int dispatch(struct cli *cli, const struct top_args *top, const struct text_list *words)
{
    const struct command *command;
    char *const *rest;

    if (words->count == 0 && top->version) {
        enter_command(cli, &cmd_version);
        return run_command(cli, &top->common, (char *const[]){ NULL });
    }
    if (words->count == 0 && top->common.help) {
        commands_print_help();
        return 0;
    }
    if (words->count == 0)
        return cli_misuse(cli, "missing command");
    command = command_find(commands, words->items[0]);
    if (!command)
        return unknown_command(cli, commands, words->items[0]);
    enter_command(cli, command);
    rest = (char *const *)words->items + 1;
    return is_group(command, *rest) ? run_group(cli, &top->common, rest)
                                    : run_command(cli, &top->common, rest);
}

int cli_main(char *const *argv)
{
    struct cli cli = { .path = "sandglass" };
    struct top_args top = { 0 };
    struct option_result given = { 0 };
    int code;

    /* A reader of ours that goes away is an error of write(), not our death. */
    signal(SIGPIPE, SIG_IGN);
    code = read_top(&cli, argv, &top, &given);
    if (code == 0)
        code = dispatch(&cli, &top, &given.operands);
    text_list_fini(&given.operands);
    cli_fini(&cli);
    return code;
}
