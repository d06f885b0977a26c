/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass ps: the executions of a session. */

#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/table.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *const terminal_headings[] = { "EXECUTION", "STATE",   "EXIT", "AGE",
                                                 "TOOK",      "COMMAND", NULL };
static const char *const pipe_headings[] = { "id",         "state",    "exit",    "created_at",
                                             "started_at", "ended_at", "command", NULL };

struct ps_args {
    struct common_args common;
    bool running;
};

static const struct option ps_options[] = {
    { "running", 'r', OPTION_FLAG, offsetof(struct ps_args, running), NULL, NULL,
      "leave out executions that have ended" },
    { 0 },
};

static void add_exit(struct table *table, const json_t *execution)
{
    int64_t code = field_int(execution, "exit_code", -1);
    int64_t signal_number = field_int(execution, "signal", 0);

    if (signal_number > 0)
        table_addf(table, "signal %" PRId64, signal_number);
    else if (code >= 0)
        table_addf(table, "%" PRId64, code);
    else
        table_add(table, NULL);
}

/* The command of the execution, on one line. */
static void add_command(struct table *table, const json_t *execution)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(1 << 20);
    const json_t *request = json_object_get(execution, "request");
    const json_t *argv = json_object_get(request, "argv");
    const json_t *word;
    size_t index;

    json_array_foreach(argv, index, word)
        buffer_appendf(&line, "%s%s", index ? " " : "", json_string_value(word));
    if (!argv)
        buffer_append_text(&line, field_text(request, "command", field_text(request, "code", "")));
    table_add(table, buffer_text(&line));
}

/* From one time to another, or until now; nothing when there is no first. */
static void add_span(struct table *table, const json_t *execution, const char *from, const char *to)
{
    char text[STR_UNIT_SIZE];
    int64_t from_us, to_us;

    if (clock_parse(field_text(execution, from, ""), &from_us) < 0) {
        table_add(table, NULL);
        return;
    }
    if (!to || clock_parse(field_text(execution, to, ""), &to_us) < 0)
        to_us = clock_wall_us(&clock_system);
    str_format_duration(MAX(to_us - from_us, (int64_t)0) / 1000, text);
    table_add(table, text);
}

static void add_row(struct table *table, const json_t *execution)
{
    table_add_id(table, field_text(execution, "id", NULL));
    table_add(table, field_text(execution, "state", NULL));
    add_exit(table, execution);
    if (table->aligned) {
        add_span(table, execution, "created_at", NULL);
        add_span(table, execution, "started_at", "ended_at");
    } else {
        table_add(table, field_text(execution, "created_at", NULL));
        table_add(table, field_text(execution, "started_at", NULL));
        table_add(table, field_text(execution, "ended_at", NULL));
    }
    add_command(table, execution);
}

static bool has_ended(const json_t *execution)
{
    const char *state = field_text(execution, "state", "");

    return !str_equal(state, "queued") && !str_equal(state, "running");
}

static int ps_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct ps_args *args = given_args;
    scoped(table_fini) struct table table;
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = NULL;
    const json_t *execution;
    struct error err;
    size_t index;

    table_init(&table, pipe_headings);
    if (table.aligned)
        table_init(&table, terminal_headings);
    table_set_optional(&table, "AGE");
    if (given->operands.count != 1)
        return cli_misuse(cli, "ps needs exactly one session");
    target = session_target(given->operands.items[0], "/executions");
    if (cli_call(cli, HTTP_GET, target, NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    json_array_foreach(json_object_get(reply.json, "executions"), index,
                       execution) if (!args->running || !has_ended(execution))
        add_row(&table, execution);
    return table_print(&table, cli);
}

const struct command cmd_ps = {
    .name = "ps",
    .summary = "List the executions of a session",
    .usage = "[-r] SESSION",
    .examples = "sandglass ps -r notes\n",
    .details =
        "In a pipe each line has these columns, separated by tabs, '-' for an empty one:\n  id "
        "state exit created_at started_at ended_at command\nexit is a number, or 'signal N'.",
    .sets = { { ps_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct ps_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = ps_run,
};
