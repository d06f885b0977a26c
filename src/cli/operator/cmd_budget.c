/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass budget: what a session or an owner may spend and has spent. */

#include "base/alloc.h"
#include "base/money.h"
#include "base/str.h"
#include "cli/commands.h"
#include "wire/json.h"

#include <stdlib.h>

enum { BODY_MAXIMUM = 4096 };

struct budget_args {
    struct common_args common;
    const char *cap;
    const char *auto_approve;
    const char *owner;
};

static const struct option budget_options[] = {
    { "cap", 0, OPTION_NUMBER, offsetof(struct budget_args, cap), "USD", NULL,
      "amount that may be spent without an approval" },
    { "auto-approve", 0, OPTION_TEXT, offsetof(struct budget_args, auto_approve), "on|off",
      "on off", "approve requests automatically if they fit under the cap of the session" },
    { "owner", 0, OPTION_TEXT, offsetof(struct budget_args, owner), "NAME", NULL,
      "budget of this owner instead of a session; approvers only" },
    { 0 },
};

static void write_patch(const struct budget_args *args, struct buffer *body)
{
    struct json_writer json = JSON_WRITER(body);

    json_begin_object(&json, NULL);
    if (args->cap)
        json_put_money(&json, "cap_usd", money_from_usd(strtod(args->cap, NULL)));
    if (args->auto_approve)
        json_put_bool(&json, "auto_approve", str_equal(args->auto_approve, "on"));
    json_end_object(&json);
}

static int print(struct cli *cli, const json_t *budget)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    static const struct {
        const char *label, *name;
    } rows[] = { { "spent", "spent_usd" },
                 { "reserved", "reserved_usd" },
                 { "cap", "cap_usd" },
                 { "remaining", "remaining_usd" } };
    char amount[MONEY_TEXT_SIZE];

    if (cli->json)
        return cli_print_json(cli, budget);
    for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        const json_t *value = json_object_get(budget, rows[i].name);

        if (json_is_number(value))
            buffer_appendf(&text, "%-14s%s USD\n", rows[i].label,
                           money_text(money_from_usd(json_number_value(value)), amount));
        else
            buffer_appendf(&text, "%-14snone\n", rows[i].label);
    }
    if (json_object_get(budget, "auto_approve"))
        buffer_appendf(&text, "%-14s%s\n", "auto-approve",
                       field_bool(budget, "auto_approve") ? "on" : "off");
    return cli_print(cli, text.data, text.length);
}

/* Of the session, else of the owner. Allocated. */
static char *budget_target(const struct budget_args *args, const struct text_list *operands)
{
    scoped(free) char *owner = args->owner ? url_encode(args->owner) : NULL;

    if (operands->count)
        return session_target(operands->items[0], "/budget");
    return xasprintf("/api/v1/budget%s%s", owner ? "?owner=" : "", owner ? owner : "");
}

static int budget_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct budget_args *args = given_args;
    bool changes = args->cap || args->auto_approve;
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = NULL;
    struct error err;

    if (given->operands.count > 1 || (given->operands.count && args->owner))
        return cli_misuse(cli, "budget needs either a session or --owner");
    if (args->auto_approve && !given->operands.count)
        return cli_misuse(cli, "--auto-approve needs a session");
    target = budget_target(args, &given->operands);
    write_patch(args, &body);
    if (cli_call(cli, changes ? HTTP_PATCH : HTTP_GET, target, changes ? &body : NULL, &reply,
                 &err) < 0)
        return cli_fail(cli, &err);
    return print(cli, reply.json);
}

const struct command cmd_budget = {
    .name = "budget",
    .summary = "Show or change the budget of a session or an owner",
    .usage = "[--cap USD] [--auto-approve on|off] [SESSION | --owner NAME]",
    .examples = "sandglass budget --cap 5 notes\n"
                "sandglass budget --owner team\n",
    .details = "Without a session: the budget of the caller, over all of their sessions.",
    .sets = { { budget_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct budget_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = budget_run,
};
