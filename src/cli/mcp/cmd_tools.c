/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass tools: what a model can call, and a call by hand. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/table.h"

#include <stdio.h>
#include <stdlib.h>

enum { ARGUMENTS_MAXIMUM = 16 << 20 };

/* --- ls -------------------------------------------------------------------------------------- */

struct ls_args {
    struct common_args common;
};

static const char *const headings[] = { "tool", "session", "title", NULL };

static int ls_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(table_fini) struct table table;
    const json_t *tool;
    struct error err;
    size_t i;

    table_init(&table, headings);
    if (given->operands.count)
        return cli_misuse(cli, "ls takes no operand: \"%s\"", given->operands.items[0]);
    if (cli_call(cli, HTTP_GET, "/api/v1/tools", NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    json_array_foreach(json_object_get(reply.json, "tools"), i, tool)
    {
        table_add(&table, field_text(tool, "name", NULL));
        table_add(&table, field_bool(tool, "needs_session") ? "needed" : "-");
        table_add(&table, field_text(tool, "title", NULL));
    }
    return table_print(&table, cli);
}

static const struct command ls_command = {
    .name = "ls",
    .summary = "List the tools; with --json also their descriptions and schemas",
    .usage = "",
    .examples = "sandglass tools ls\n",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct ls_args),
    .plain_after = OPERANDS_MIXED,
    .run = ls_run,
};

/* --- call ------------------------------------------------------------------------------------ */

struct call_args {
    struct common_args common;
    const char *session;
};

static const struct option call_options[] = {
    { "session", 's', OPTION_SESSION, offsetof(struct call_args, session), "ID", NULL,
      "session of the call; tools that find their session themselves need none" },
    { 0 },
};

/* An object, as text or from stdin with "-"; {} without any. */
static void take_arguments(const struct text_list *operands, struct buffer *body)
{
    char piece[4096];
    size_t count;

    if (operands->count < 2)
        buffer_append_text(body, "{}");
    else if (!str_equal(operands->items[1], "-"))
        buffer_append_text(body, operands->items[1]);
    else
        while ((count = fread(piece, 1, sizeof(piece), stdin)) > 0)
            buffer_append(body, piece, count);
}

/* Text for stdout; what a terminal cannot show is named. */
static int print_result(struct cli *cli, const json_t *result)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REPLY_MAXIMUM);
    const json_t *part;
    size_t i;

    if (cli->json)
        return cli_print_json(cli, result);
    json_array_foreach(json_object_get(result, "content"), i, part)
    {
        const char *type = field_text(part, "type", "");

        if (str_equal(type, "text"))
            buffer_append_text(&text, field_text(part, "text", ""));
        else
            cli_note("%s: %s", type, field_text(part, "name", field_text(part, "mime_type", "?")));
    }
    if (text.length && text.data[text.length - 1] != '\n')
        buffer_append_byte(&text, '\n');
    return cli_print(cli, text.data, text.length);
}

static int call_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct call_args *args = given_args;
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(ARGUMENTS_MAXIMUM);
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *name = NULL;
    scoped(free) char *target = NULL;
    struct error err;
    int code;

    if (given->operands.count < 1 || given->operands.count > 2)
        return cli_misuse(cli, "call needs a tool and at most one JSON object");
    name = url_encode(given->operands.items[0]);
    target = args->session ? session_target(args->session, "/tools/%s", name)
                           : xasprintf("/api/v1/tools/%s", name);
    take_arguments(&given->operands, &body);
    if (cli_call(cli, HTTP_POST, target, &body, &reply, &err) < 0)
        return cli_fail(cli, &err);
    code = print_result(cli, reply.json);
    return code ? code : field_bool(reply.json, "is_error") ? EXIT_REFUSED : 0;
}

static const struct command call_command = {
    .name = "call",
    .summary = "Call a tool as a model would and print its result",
    .usage = "[--session ID] TOOL [JSON|-]",
    .examples = "sandglass tools call --session notes bash '{\"command\": \"ls\"}'\n",
    .details = "The arguments are a JSON object; - reads it from stdin. Exit code 1 if the tool "
               "reports a\nfailure.",
    .sets = { { call_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct call_args),
    .plain_after = OPERANDS_MIXED,
    .run = call_run,
};

static const struct command *const tools_commands[] = { &ls_command, &call_command, NULL };

const struct command cmd_tools = {
    .name = "tools",
    .summary = "List the tools for models, or call one",
    .usage = "COMMAND",
    .examples = "sandglass tools ls\n",
    .subcommands = tools_commands,
};
