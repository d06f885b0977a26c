/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass history: all that is kept of a session, also when it has ended. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "wire/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAXIMUM = 64 << 20 };

struct history_args {
    struct common_args common;
    bool lines;
    bool no_output;
};

#define PLACE(field) offsetof(struct history_args, field)

static const struct option history_options[] = {
    { "jsonl", 0, OPTION_FLAG, PLACE(lines), NULL, NULL,
      "print a line of JSON for the session, then one for each entry" },
    { "no-output", 0, OPTION_FLAG, PLACE(no_output), NULL, NULL,
      "leave out the output of programs" },
    { 0 },
};

/* --- as text ---------------------------------------------------------------------------------- */

static void append_indented(struct buffer *text, const char *mark, const char *content)
{
    while (*content) {
        size_t length = strcspn(content, "\n");

        buffer_appendf(text, "    %s %.*s\n", mark, (int)length, content);
        content += length + (content[length] == '\n');
    }
}

static void append_argv(struct buffer *text, const json_t *argv)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(TEXT_MAXIMUM);
    const json_t *word;
    size_t index;

    json_array_foreach(argv, index, word)
        buffer_appendf(&line, "%s%s", index ? " " : "", json_string_value(word));
    append_indented(text, ">", buffer_text(&line));
}

static void append_execution(struct buffer *text, const json_t *execution)
{
    const json_t *request = json_object_get(execution, "request");

    append_argv(text, json_object_get(request, "argv"));
    append_indented(text, ">", field_text(request, "command", field_text(request, "code", "")));
    append_indented(text, " ", field_text(execution, "stdout", ""));
    append_indented(text, "!", field_text(execution, "stderr", ""));
}

static void append_run(struct buffer *text, const json_t *data)
{
    append_indented(text, ">", field_text(data, "code", ""));
    append_indented(text, " ", field_text(data, "stdout", ""));
    append_indented(text, "!", field_text(data, "stderr", ""));
}

static void append_files(struct buffer *text, const json_t *files)
{
    const json_t *file;
    size_t index;

    json_array_foreach(files, index, file)
        buffer_appendf(text, "    %s (%lld bytes)\n", field_text(file, "name", ""),
                       (long long)field_int(file, "size", 0));
}

/* The short members of the data of an event, as k=v. */
static void append_data(struct buffer *text, const json_t *data)
{
    static const char *const told[] = { "execution_id", "context_id", "state",
                                        "reason",       "exit_code",  "signal",
                                        "flavor",       "generation", "files" };

    for (size_t i = 0; i < ARRAY_LENGTH(told); i++) {
        const json_t *value = json_object_get(data, told[i]);

        if (json_is_string(value))
            buffer_appendf(text, " %s=%s", told[i], json_string_value(value));
        else if (json_is_integer(value))
            buffer_appendf(text, " %s=%lld", told[i], (long long)json_integer_value(value));
    }
    buffer_append_byte(text, '\n');
}

static void append_entry(struct buffer *text, const json_t *entry)
{
    const json_t *data = json_object_get(entry, "data");

    buffer_appendf(text, "%s %s", field_text(entry, "time", "-"), field_text(entry, "type", "?"));
    append_data(text, data);
    append_execution(text, json_object_get(entry, "execution"));
    if (str_equal(field_text(entry, "type", ""), "context.ran"))
        append_run(text, data);
    append_files(text, json_object_get(data, "files"));
}

/* --- pages ------------------------------------------------------------------------------------ */

static int print_line(struct cli *cli, const json_t *document)
{
    char *text = json_dumps(document, JSON_COMPACT);
    size_t length = strlen(text);
    int code;

    text[length] = '\n'; /* in the place of the NUL */
    code = cli_print(cli, text, length + 1);
    free(text);
    return code;
}

static int print_text(struct cli *cli, const json_t *entry)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(TEXT_MAXIMUM);

    append_entry(&text, entry);
    return cli_print(cli, text.data, text.length);
}

static int print_page(struct cli *cli, const struct history_args *args, const json_t *page,
                      bool is_first)
{
    const json_t *entry;
    size_t index;
    int code = 0;

    if (args->lines && is_first) {
        scoped(json_decref)
            json_t *head = json_pack("{s:O}", "session", json_object_get(page, "session"));

        code = print_line(cli, head);
    }
    json_array_foreach(json_object_get(page, "entries"), index, entry)
    {
        if (code)
            break;
        code = args->lines ? print_line(cli, entry) : print_text(cli, entry);
    }
    return code;
}

static int read_page(struct cli *cli, const struct history_args *args, const char *session,
                     const char *cursor, struct reply *reply, struct error *err)
{
    scoped(free) char *target = session_target(session, "/history?output=%d%s%s", !args->no_output,
                                               *cursor ? "&cursor=" : "", cursor);

    return cli_call(cli, HTTP_GET, target, NULL, reply, err);
}

static int history_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct history_args *args = given_args;
    scoped(json_decref) json_t *all = NULL;
    char cursor[32] = "";
    struct error err;
    int code = 0;

    if (given->operands.count != 1)
        return cli_misuse(cli, "history needs exactly one session");
    if (args->lines && cli->json)
        return cli_misuse(cli, "--json and --jsonl exclude each other");
    do {
        scoped(reply_fini) struct reply reply = { 0 };
        bool is_first = !*cursor;

        if (read_page(cli, args, given->operands.items[0], cursor, &reply, &err) < 0)
            return cli_fail(cli, &err);
        snprintf(cursor, sizeof(cursor), "%s", field_text(reply.json, "next_cursor", ""));
        if (!cli->json)
            code = print_page(cli, args, reply.json, is_first);
        else if (is_first)
            all = json_incref(reply.json);
        else
            json_array_extend(json_object_get(all, "entries"),
                              json_object_get(reply.json, "entries"));
    } while (*cursor && code == 0);
    if (!cli->json)
        return code;
    json_object_del(all, "next_cursor");
    return cli_print_json(cli, all);
}

const struct command cmd_history = {
    .name = "history",
    .summary = "Show the recorded history of a session",
    .usage = "[--jsonl] [--no-output] SESSION",
    .examples = "sandglass history notes\n"
                "sandglass history --jsonl ses_4k7q9x2m > history.jsonl\n",
    .details = "Lists its events, executions and their results in order. An ended session stays "
               "readable\nuntil session.retention is over. The values of secrets are masked.",
    .sets = { { history_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct history_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = history_run,
};
