/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass approvals: what waits for a decision, and the decision. */

#include "base/alloc.h"
#include "base/money.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/table.h"
#include "wire/json.h"

#include <stdlib.h>

enum { BODY_MAXIMUM = 64 * 1024 };

/* --- ls -------------------------------------------------------------------------------------- */

struct ls_args {
    struct common_args common;
    const char *state;
    const char *session;
};

static const struct option ls_options[] = {
    { "state", 0, OPTION_TEXT, offsetof(struct ls_args, state), "STATE",
      "pending approved denied expired cancelled all",
      "list approvals in this state instead of pending" },
    { "session", 0, OPTION_SESSION, offsetof(struct ls_args, session), "ID", NULL,
      "list approvals of this session only" },
    { 0 },
};

static const char *const headings[] = { "approval",   "state",    "session",    "owner",
                                        "flavor",     "usd_hour", "usd_window", "expires_at",
                                        "decided_by", "question", NULL };

static void add_money(struct table *table, const json_t *approval, const char *name)
{
    const json_t *value = json_object_get(approval, name);

    char text[MONEY_TEXT_SIZE];

    if (json_is_number(value))
        table_add(table, money_text(money_from_usd(json_number_value(value)), text));
    else
        table_add(table, "unknown");
}

static void add_row(struct table *table, const json_t *approval)
{
    table_add(table, field_text(approval, "id", NULL));
    table_add(table, field_text(approval, "state", NULL));
    table_add_id(table, field_text(approval, "session", NULL));
    table_add(table, field_text(approval, "owner", NULL));
    table_add(table, field_text(approval, "flavor", NULL));
    add_money(table, approval, "price_per_hour");
    add_money(table, approval, "estimated_usd");
    table_add(table, field_text(approval, "expires_at", NULL));
    table_add(table, field_text(approval, "decided_by", NULL));
    table_add(table, field_text(approval, "question", NULL));
}

static int print_table(struct cli *cli, const json_t *approvals)
{
    scoped(table_fini) struct table table;
    size_t index;
    const json_t *approval;

    table_init(&table, headings);
    table_set_optional(&table, "decided_by usd_window expires_at owner usd_hour");
    json_array_foreach(approvals, index, approval) add_row(&table, approval);
    return table_print(&table, cli);
}

static char *list_target(const struct ls_args *args)
{
    scoped(free) char *session = args->session ? url_encode(args->session) : NULL;

    return xasprintf("/api/v1/approvals?state=%s%s%s", args->state ? args->state : "pending",
                     session ? "&session_id=" : "", session ? session : "");
}

static int ls_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    scoped(free) char *target = list_target(given_args);
    scoped(reply_fini) struct reply reply = { 0 };
    struct error err;

    if (given->operands.count)
        return cli_misuse(cli, "ls takes no operand: \"%s\"", given->operands.items[0]);
    if (cli_call(cli, HTTP_GET, target, NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    return print_table(cli, json_object_get(reply.json, "approvals"));
}

static const struct command ls_command = {
    .name = "ls",
    .summary = "List approvals, by default those that are pending",
    .usage = "[--state STATE] [--session ID]",
    .examples = "sandglass approvals ls --state all\n",
    .details = "In a pipe each line has these columns, separated by tabs, '-' for an empty one:\n  "
               "approval state session owner flavor usd_hour usd_window expires_at decided_by "
               "question\nWith authentication an approver sees the approvals of all owners; "
               "without it, every caller\nthat names no owner does.",
    .sets = { { ls_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct ls_args),
    .plain_after = OPERANDS_MIXED,
    .run = ls_run,
};

/* --- approve and deny ------------------------------------------------------------------------ */

struct decide_args {
    struct common_args common;
    const char *reason;
    bool session;
};

static const struct option reason_options[] = {
    { "reason", 'm', OPTION_TEXT, offsetof(struct decide_args, reason), "TEXT", NULL,
      "reason reported to the requester" },
    { 0 },
};

static const struct option scope_options[] = {
    { "session", 0, OPTION_FLAG, offsetof(struct decide_args, session), NULL, NULL,
      "approve for the whole session instead of one sandbox" },
    { 0 },
};

static int decide_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct decide_args *args = given_args;
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&body);
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *id = NULL;
    scoped(free) char *target = NULL;
    struct error err;

    if (given->operands.count != 1)
        return cli_misuse(cli, "%s needs exactly one approval", cli->command->name);
    id = url_encode(given->operands.items[0]);
    target = xasprintf("/api/v1/approvals/%s", id);
    json_begin_object(&json, NULL);
    json_put_text(&json, "decision", cli->command->name);
    if (args->reason)
        json_put_text(&json, "reason", args->reason);
    if (args->session)
        json_put_bool(&json, "session", true);
    json_end_object(&json);
    if (cli_call(cli, HTTP_POST, target, &body, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    cli_note("%s", field_text(reply.json, "result", "decided"));
    return 0;
}

static const struct command approve_command = {
    .name = "approve",
    .summary = "Approve a request: the new sandbox replaces the current one",
    .usage = "[--session] [--reason TEXT] APPROVAL",
    .examples = "sandglass approvals approve --reason 'for the demo' apr_5m8r2c7n4x1z\n",
    .sets = { { scope_options, 0, "Options" }, { reason_options, 0, "Why" }, COMMON_OPTIONS },
    .args_size = sizeof(struct decide_args),
    .plain_after = OPERANDS_MIXED,
    .run = decide_run,
};

static const struct command deny_command = {
    .name = "deny",
    .summary = "Deny a request: the session keeps its sandbox",
    .usage = "[--reason TEXT] APPROVAL",
    .examples = "sandglass approvals deny apr_5m8r2c7n4x1z\n",
    .sets = { { reason_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct decide_args),
    .plain_after = OPERANDS_MIXED,
    .run = decide_run,
};

static const struct command *const approvals_commands[] = { &ls_command, &approve_command,
                                                            &deny_command, NULL };

const struct command cmd_approvals = {
    .name = "approvals",
    .summary = "List and decide requests that need an approval",
    .usage = "COMMAND",
    .examples = "sandglass approvals ls\n",
    .subcommands = approvals_commands,
};
