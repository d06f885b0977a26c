/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass storage: files that programs have stored from inside a sandbox. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/files/transfer.h"
#include "cli/table.h"
#include "wire/json.h"

#include <stdlib.h>
#include <unistd.h>

enum { BODY_MAXIMUM = 4096 };

struct plain_args {
    struct common_args common;
};

/* The route of one file; allocated. */
static char *file_target(const struct text_list *operands, const char *behind)
{
    scoped(free) char *name = url_encode(operands->items[1]);

    return session_target(operands->items[0], "/storage/%s%s", name, behind);
}

/* --- ls -------------------------------------------------------------------------------------- */

static const char *const headings[] = { "name", "bytes", "modified", NULL };

static int ls_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(table_fini) struct table table;
    scoped(free) char *target = NULL;
    const json_t *file;
    struct error err;
    size_t i;

    table_init(&table, headings);
    if (given->operands.count != 1)
        return cli_misuse(cli, "ls needs exactly one session");
    target = session_target(given->operands.items[0], "/storage");
    if (cli_call(cli, HTTP_GET, target, NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    json_array_foreach(json_object_get(reply.json, "files"), i, file)
    {
        table_add(&table, field_text(file, "name", NULL));
        table_addf(&table, "%lld", (long long)field_int(file, "size", 0));
        table_add(&table, field_text(file, "modified", NULL));
    }
    return table_print(&table, cli);
}

static const struct command ls_command = {
    .name = "ls",
    .summary = "List the stored files of a session, live or ended",
    .usage = "SESSION",
    .examples = "sandglass storage ls notes\n",
    .details = "In a pipe each line has these columns, separated by tabs: name bytes modified",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct plain_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = ls_run,
};

/* --- get ------------------------------------------------------------------------------------- */

static int get_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    const struct text_list *operands = &given->operands;
    scoped(free) char *target = NULL;
    const char *path;
    struct error err;
    int result;

    if (operands->count < 2 || operands->count > 3)
        return cli_misuse(cli, "get needs a session, a name and at most one file");
    path = operands->items[operands->count - 1];
    target = file_target(operands, "");
    if (cli_connect(cli, &err) < 0)
        return cli_fail(cli, &err);
    result = str_equal(path, "-") ? transfer_receive_into(cli, target, STDOUT_FILENO, &err)
                                  : transfer_receive(cli, target, path, &err);
    return result < 0 ? cli_fail(cli, &err) : 0;
}

static const struct command get_command = {
    .name = "get",
    .summary = "Copy a stored file to FILE, by default to its own name; - is stdout",
    .usage = "SESSION NAME [FILE|-]",
    .examples = "sandglass storage get notes report.pdf > report.pdf\n",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct plain_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = get_run,
};

/* --- rm -------------------------------------------------------------------------------------- */

static int rm_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = NULL;
    struct error err;

    if (given->operands.count != 2)
        return cli_misuse(cli, "rm needs a session and a name");
    target = file_target(&given->operands, "");
    if (cli_call(cli, HTTP_DELETE, target, NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    return cli->json ? cli_print(cli, "{}\n", 3) : 0;
}

static const struct command rm_command = {
    .name = "rm",
    .summary = "Remove a stored file",
    .usage = "SESSION NAME",
    .examples = "sandglass storage rm notes report.pdf\n",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct plain_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = rm_run,
};

/* --- url ------------------------------------------------------------------------------------- */

struct url_args {
    struct common_args common;
    const char *valid_for;
};

static const struct option url_options[] = {
    { "valid-for", 0, OPTION_DURATION, offsetof(struct url_args, valid_for), "T", NULL,
      "validity of the URL; default one day" },
    { 0 },
};

static int url_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct url_args *args = given_args;
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&body);
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(64 * 1024);
    scoped(free) char *target = NULL;
    struct error err;

    if (given->operands.count != 2)
        return cli_misuse(cli, "url needs a session and a name");
    target = file_target(&given->operands, "/url");
    json_begin_object(&json, NULL);
    if (args->valid_for)
        json_put_text(&json, "valid_seconds", args->valid_for);
    json_end_object(&json);
    if (cli_call(cli, HTTP_POST, target, &body, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    buffer_appendf(&line, "%s\n", field_text(reply.json, "url", ""));
    return cli_print(cli, line.data, line.length);
}

static const struct command url_command = {
    .name = "url",
    .summary = "Print a URL that gives read access to a stored file for a limited time",
    .usage = "[--valid-for T] SESSION NAME",
    .examples = "sandglass storage url --valid-for 1h notes report.pdf\n",
    .sets = { { url_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct url_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = url_run,
};

static const struct command *const storage_commands[] = { &ls_command, &get_command, &rm_command,
                                                          &url_command, NULL };

const struct command cmd_storage = {
    .name = "storage",
    .summary = "List, copy, share and remove the files stored by programs",
    .usage = "COMMAND",
    .examples = "sandglass storage ls notes\n",
    .subcommands = storage_commands,
};
