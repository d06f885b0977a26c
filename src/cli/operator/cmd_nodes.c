/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass nodes, sandglass node drain: the daemons that share the work. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- nodes ---------------------------------------------------------------------------------- */

struct nodes_args {
    struct common_args common;
};

static const char *const headings[] = { "node",  "state",    "sessions", "sandboxes", "max", "load",
                                        "lease", "backends", "labels",   "address",   NULL };

static char *join_names(const json_t *names)
{
    struct buffer text = BUFFER_INIT(64 * 1024);
    const json_t *name;
    size_t i;

    json_array_foreach(names, i, name)
        buffer_appendf(&text, "%s%s", i ? "," : "", json_string_value(name));
    return buffer_steal_text(&text);
}

static char *join_labels(const json_t *labels)
{
    struct buffer text = BUFFER_INIT(64 * 1024);
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)labels, name, value)
        buffer_appendf(&text, "%s%s=%s", text.length ? "," : "", name, json_string_value(value));
    return buffer_steal_text(&text);
}

static void add_row(struct table *table, const json_t *node)
{
    scoped(free) char *backends = join_names(json_object_get(node, "backends"));
    scoped(free) char *labels = join_labels(json_object_get(node, "labels"));

    table_addf(table, "%s%s", field_text(node, "id", ""), field_bool(node, "self") ? "*" : "");
    table_add(table, field_text(node, "state", NULL));
    table_addf(table, "%lld", (long long)field_int(node, "sessions", 0));
    table_addf(table, "%lld", (long long)field_int(node, "sandboxes", 0));
    table_addf(table, "%lld", (long long)field_int(node, "max_sandboxes", 0));
    table_addf(table, "%.2f", field_number(node, "load", 0));
    table_addf(table, "%.0fs", field_number(node, "lease_remaining", 0));
    table_add(table, *backends ? backends : NULL);
    table_add(table, *labels ? labels : NULL);
    table_add(table, field_text(node, "address", NULL));
}

static int nodes_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(table_fini) struct table table;
    const json_t *node;
    struct error err;
    size_t i;

    table_init(&table, headings);
    table_set_optional(&table, "labels address backends max");
    if (given->operands.count)
        return cli_misuse(cli, "nodes takes no operand: \"%s\"", given->operands.items[0]);
    if (cli_call(cli, HTTP_GET, "/api/v1/nodes", NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    json_array_foreach(json_object_get(reply.json, "nodes"), i, node) add_row(&table, node);
    return table_print(&table, cli);
}

const struct command cmd_nodes = {
    .name = "nodes",
    .summary = "List the nodes of the cluster",
    .usage = "",
    .examples = "sandglass nodes\n",
    .details = "The node that answers is marked with '*'. In a pipe each line has these columns, "
               "separated by tabs, '-' for an empty one:\n  node state sessions sandboxes max load "
               "lease backends labels address\n'load' is the load of the machine for each "
               "processor.",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct nodes_args),
    .plain_after = OPERANDS_MIXED,
    .run = nodes_run,
};

/* --- node drain ----------------------------------------------------------------------------- */

struct drain_args {
    struct common_args common;
    bool undo;
    bool no_wait;
};

static const struct option drain_options[] = {
    { "undo", 0, OPTION_FLAG, offsetof(struct drain_args, undo), NULL, NULL,
      "let the node take new sessions again" },
    { "no-wait", 0, OPTION_FLAG, offsetof(struct drain_args, no_wait), NULL, NULL,
      "do not wait until its sessions have moved or ended" },
    { 0 },
};

enum { LOOK_AGAIN_US = 500 * 1000 };

/* -1 with an error, else the number of sessions whose home the node is. */
static int64_t sessions_of(struct cli *cli, const char *id, struct error *err)
{
    scoped(reply_fini) struct reply reply = { 0 };
    const json_t *node;
    size_t i;

    if (cli_call(cli, HTTP_GET, "/api/v1/nodes", NULL, &reply, err) < 0)
        return -1;
    json_array_foreach(json_object_get(reply.json, "nodes"), i, node)
    {
        if (str_equal(field_text(node, "id", ""), id))
            return field_int(node, "sessions", 0);
    }
    return 0;
}

static int wait_until_empty(struct cli *cli, const char *id)
{
    int64_t left, told = -1;
    struct error err;

    while ((left = sessions_of(cli, id, &err)) > 0) {
        if (left != told)
            fprintf(stderr, "[node] %s: %lld sessions left\n", id, (long long)left);
        told = left;
        usleep(LOOK_AGAIN_US);
    }
    if (left < 0)
        return cli_fail(cli, &err);
    fprintf(stderr, "[node] %s: no sessions left\n", id);
    return 0;
}

static int drain_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct drain_args *args = given_args;
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = NULL;
    struct error err;

    if (given->operands.count != 1)
        return cli_misuse(cli, "node drain takes the id of one node");
    target = xasprintf("/api/v1/nodes/%s/drain", given->operands.items[0]);
    if (cli_call(cli, args->undo ? HTTP_DELETE : HTTP_POST, target, NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    if (args->undo || args->no_wait)
        return 0;
    return wait_until_empty(cli, given->operands.items[0]);
}

static const struct command cmd_node_drain = {
    .name = "drain",
    .summary = "Take no new sessions on a node, and wait until it has none",
    .usage = "[--undo] [--no-wait] NODE",
    .examples = "sandglass node drain worker-2\n",
    .details = "Sessions of which nothing is on that machine move to other nodes at once. The rest "
               "stays until it ends: by its clocks, or because it is removed.",
    .sets = { { drain_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct drain_args),
    .plain_after = OPERANDS_MIXED,
    .run = drain_run,
};

static const struct command *const node_commands[] = { &cmd_node_drain, NULL };

const struct command cmd_node = {
    .name = "node",
    .summary = "Take a node out of the cluster",
    .usage = "COMMAND",
    .examples = "sandglass node drain worker-2\n",
    .subcommands = node_commands,
};
