/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass flavors: which sandboxes there are to ask for, and what they cost. */

#include "base/money.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/table.h"

struct flavors_args {
    struct common_args common;
};

static const char *const headings[] = { "flavor", "memory",   "cpus",     "disk",      "pids",
                                        "gpus",   "usd_hour", "approval", "available", NULL };

static void add_size(struct table *table, const json_t *flavor, const char *name)
{
    char text[STR_UNIT_SIZE];
    int64_t bytes = field_int(flavor, name, -1);

    if (bytes >= 0)
        str_format_size((uint64_t)bytes, text);
    table_add(table, bytes < 0 ? NULL : text);
}

static void add_row(struct table *table, const json_t *flavor)
{
    const json_t *price = json_object_get(flavor, "price_per_hour");
    char amount[MONEY_TEXT_SIZE];

    table_add(table, field_text(flavor, "name", NULL));
    add_size(table, flavor, "memory_bytes");
    if (json_is_number(json_object_get(flavor, "cpus")))
        table_addf(table, "%g", field_number(flavor, "cpus", 0));
    else
        table_add(table, NULL);
    add_size(table, flavor, "disk_bytes");
    table_addf(table, "%lld", (long long)field_int(flavor, "pids", 0));
    table_addf(table, "%lld", (long long)field_int(flavor, "gpus", 0));
    table_add(table, json_is_number(price)
                         ? money_text(money_from_usd(json_number_value(price)), amount)
                         : "unknown");
    table_add(table, field_bool(flavor, "needs_approval") ? "needed" : "-");
    table_add(table, field_bool(flavor, "available") ? "yes" : field_text(flavor, "reason", "no"));
}

static int flavors_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(table_fini) struct table table;
    const json_t *flavor;
    struct error err;
    size_t i;

    table_init(&table, headings);
    if (given->operands.count)
        return cli_misuse(cli, "flavors takes no operand: \"%s\"", given->operands.items[0]);
    if (cli_call(cli, HTTP_GET, "/api/v1/flavors", NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    json_array_foreach(json_object_get(reply.json, "flavors"), i, flavor) add_row(&table, flavor);
    return table_print(&table, cli);
}

const struct command cmd_flavors = {
    .name = "flavors",
    .summary = "List the available flavors of sandboxes and their prices",
    .usage = "",
    .examples = "sandglass flavors\n",
    .details = "In a pipe each line has these columns, separated by tabs, '-' for an empty one:\n  "
               "flavor memory cpus disk pids gpus usd_hour approval available\n'sandglass session "
               "sandbox --flavor NAME SESSION' requests one.",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct flavors_args),
    .plain_after = OPERANDS_MIXED,
    .run = flavors_run,
};
