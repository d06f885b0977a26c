/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass ls, sandglass session ls: the caller's sessions. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/session/sessions.h"
#include "cli/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct ls_args {
    struct common_args common;
    struct text_list labels;
    const char *state;
    const char *owner;
    bool quiet;
};

static const struct option ls_options[] = {
    { "label", 'l', OPTION_PAIRS, offsetof(struct ls_args, labels), "K=V", NULL,
      "list sessions with this label only; may be repeated" },
    { "state", 0, OPTION_TEXT, offsetof(struct ls_args, state), "STATE", "open paused ended",
      "list sessions in this state only: open, paused or ended" },
    { "owner", 0, OPTION_TEXT, offsetof(struct ls_args, owner), "NAME", NULL,
      "sessions of this owner, '*' for all owners; operators only" },
    { "quiet", 'q', OPTION_FLAG, offsetof(struct ls_args, quiet), NULL, NULL, "print ids only" },
    { 0 },
};

static const char *const terminal_headings[] = { "SESSION", "KEY",  "STATE",  "SANDBOX",
                                                 "AGE",     "ENDS", "LABELS", NULL };
static const char *const pipe_headings[] = { "id",         "key",        "state",   "sandbox",
                                             "generation", "created_at", "ends_by", "ends_in",
                                             "labels",     NULL };

static void add_labels(struct table *table, const json_t *session)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1 << 20);
    json_t *labels = json_object_get(session, "labels");
    const char *name;
    json_t *value;

    json_object_foreach(labels, name, value)
        buffer_appendf(&text, "%s%s=%s", text.length ? "," : "", name, json_string_value(value));
    table_add(table, buffer_text(&text));
}

static void add_age(struct table *table, const json_t *session)
{
    char text[STR_UNIT_SIZE];
    int64_t created_us;

    if (clock_parse(field_text(session, "created_at", ""), &created_us) < 0) {
        table_add(table, NULL);
        return;
    }
    str_format_duration(MAX(clock_wall_us(&clock_system) - created_us, (int64_t)0) / 1000000 * 1000,
                        text);
    table_add(table, text);
}

static void add_terminal_row(struct table *table, const json_t *session)
{
    struct session_end end = session_next_end_of(session);
    char duration[STR_UNIT_SIZE];

    table_add_id(table, field_text(session, "id", NULL));
    table_add(table, field_text(session, "key", NULL));
    table_add(table, field_text(session, "state", NULL));
    table_add(table, session_sandbox_state(session));
    add_age(table, session);
    if (end.remaining_s >= 0) {
        str_format_duration((int64_t)end.remaining_s * 1000, duration);
        table_addf(table, "%s (%s)", duration, end.kind);
    } else {
        table_add(table, field_text(session, "end_reason", NULL));
    }
    add_labels(table, session);
}

static void add_pipe_row(struct table *table, const json_t *session)
{
    struct session_end end = session_next_end_of(session);

    table_add_id(table, field_text(session, "id", NULL));
    table_add(table, field_text(session, "key", NULL));
    table_add(table, field_text(session, "state", NULL));
    table_add(table, session_sandbox_state(session));
    table_addf(table, "%" PRId64, field_int(session, "generation", 0));
    table_add(table, field_text(session, "created_at", NULL));
    if (end.remaining_s >= 0) {
        table_add(table, end.kind);
        table_addf(table, "%.0f", end.remaining_s);
    } else {
        table_add(table, field_text(session, "end_reason", NULL));
        table_add(table, NULL);
    }
    add_labels(table, session);
}

static int print_ids(struct cli *cli, const json_t *sessions)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REPLY_MAXIMUM);
    size_t index;
    const json_t *session;

    json_array_foreach(sessions, index, session)
        buffer_appendf(&text, "%s\n", field_text(session, "id", ""));
    return cli_print(cli, text.data, text.length);
}

static int print_table(struct cli *cli, const json_t *sessions, bool with_owner)
{
    scoped(table_fini) struct table table;
    size_t index;
    const json_t *session;

    table_init(&table, pipe_headings);
    if (table.aligned)
        table_init(&table, terminal_headings);
    table_set_optional(&table, "LABELS SANDBOX AGE STATE");
    if (with_owner)
        table_add_column(&table, "OWNER");
    json_array_foreach(sessions, index, session)
    {
        if (table.aligned)
            add_terminal_row(&table, session);
        else
            add_pipe_row(&table, session);
        if (with_owner)
            table_add(&table, field_text(session, "owner", NULL));
    }
    return table_print(&table, cli);
}

static int ls_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct ls_args *args = given_args;
    scoped(json_decref) json_t *answer = NULL;
    const json_t *sessions;
    struct error err;

    if (given->operands.count)
        return cli_misuse(cli, "ls takes no operand: \"%s\"", given->operands.items[0]);
    answer = sessions_list(
        cli, &(struct sessions_filter){ &args->labels, args->state, args->owner }, false, &err);
    if (!answer)
        return cli_fail(cli, &err);
    sessions = json_object_get(answer, "sessions");
    if (cli->json)
        return cli_print_json(cli, answer);
    return args->quiet ? print_ids(cli, sessions) : print_table(cli, sessions, args->owner);
}

const struct command cmd_ls = {
    .name = "ls",
    .summary = "List your sessions",
    .usage = "[--label K=V]... [--state STATE] [--owner NAME] [-q]",
    .examples = "sandglass ls\n"
                "sandglass ls --label project=eval --state ended\n"
                "sandglass ls --owner '*'\n",
    .details = "In a pipe each line has these columns, separated by tabs, '-' for an empty one:\n  "
               "id key state sandbox generation created_at ends_by ends_in labels\nends_by is the "
               "clock that ends the session next (lease, idle or lifetime) and ends_in "
               "the\nseconds left; for an ended session ends_by is the reason. Labels are K=V, "
               "separated by\ncommas. With --owner the owner is one more column.",
    .sets = { { ls_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct ls_args),
    .plain_after = OPERANDS_MIXED,
    .run = ls_run,
};
