/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass why: which clock ends a session, when, and what would extend it. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/session/sessions.h"

#include <stdlib.h>
#include <string.h>

struct why_args {
    struct common_args common;
};

static const struct {
    const char *kind;
    const char *field;
    const char *meaning;
    const char *remedy; /* %s is the session */
} clocks[] = {
    { "idle", "idle_remaining", "its idle timeout runs out",
      "Extended by: any use, such as an execution, input or a file transfer. Reading (ls, inspect, "
      "logs, why) does not count as use." },
    { "lease", "lease_remaining", "its lease ends",
      "Extended by: 'sandglass session extend --timeout 1h %s'." },
    { "lifetime", "lifetime_remaining", "it reaches its maximum lifetime",
      "Extended by: nothing; --max-lifetime or session.max_lifetime set it when the session was "
      "created." },
};

static void say_when(struct buffer *text, double remaining_s)
{
    char duration[STR_UNIT_SIZE];
    char at[CLOCK_TEXT_SIZE];

    str_format_duration((int64_t)remaining_s * 1000, duration);
    clock_format(clock_wall_us(&clock_system) + (int64_t)(remaining_s * 1e6), at);
    buffer_appendf(text, "in %s (%s)", duration, at);
}

static void say_others(struct buffer *text, const json_t *session, const char *first)
{
    for (size_t i = 0; i < ARRAY_LENGTH(clocks); i++) {
        double remaining_s = field_number(session, clocks[i].field, -1);

        if (strcmp(clocks[i].kind, first) == 0)
            continue;
        buffer_appendf(text, "  %-9s ", clocks[i].kind);
        if (remaining_s < 0)
            buffer_append_text(text, "off");
        else
            say_when(text, remaining_s);
        buffer_append_byte(text, '\n');
    }
}

static void say_next(struct buffer *text, const json_t *session, const char *id)
{
    struct session_end end = session_next_end_of(session);
    bool pauses = str_equal(field_text(session, "on_timeout", "kill"), "pause");

    if (end.remaining_s < 0) {
        buffer_appendf(text, "%s does not end by itself: no clock is running.\n", id);
        return;
    }
    buffer_appendf(text, "%s %s ", id, pauses ? "is paused" : "ends");
    say_when(text, end.remaining_s);
    for (size_t i = 0; i < ARRAY_LENGTH(clocks); i++)
        if (strcmp(clocks[i].kind, end.kind) == 0) {
            buffer_appendf(text, ", when %s (%s).\n", clocks[i].meaning, end.kind);
            buffer_appendf(text, clocks[i].remedy, id);
        }
    buffer_append_text(text, "\nThe other clocks:\n");
    say_others(text, session, end.kind);
}

/* --- one that has ended ---------------------------------------------------------------------- */

/* By the first word of the reason. */
static const struct {
    const char *reason;
    const char *prevention;
} preventions[] = {
    { "idle", "a use before that time, or a longer --idle-timeout (0 disables it)." },
    { "lease", "'sandglass session extend --timeout T' in time, or a longer --timeout." },
    { "lifetime", "a longer --max-lifetime at its creation." },
    { "deleted",
      "nothing: a caller removed it, with rm or DELETE. The audit log names the caller." },
    { "budget", "a higher cap: see 'sandglass session budget' and docs on budgets." },
    { "crashed", "depends on the cause in the reason; more --memory if it is oom." },
    { "shutdown", "shutdown.policy: keep, which lets sandboxes outlive the daemon." },
};

static void say_prevention(struct buffer *text, const char *reason)
{
    for (size_t i = 0; i < ARRAY_LENGTH(preventions); i++)
        if (str_starts_with(reason, preventions[i].reason)) {
            buffer_appendf(text, "What would have prevented it: %s\n", preventions[i].prevention);
            return;
        }
}

/* The command line of an execution: its argv, its command or its code. */
static void say_command(struct buffer *text, const json_t *execution)
{
    const json_t *request = json_object_get(execution, "request");
    const json_t *argv = json_object_get(request, "argv");
    const char *whole = field_text(request, "command", field_text(request, "code", ""));
    const json_t *word;
    size_t index;

    if (!json_array_size(argv))
        buffer_appendf(text, " %.80s", whole);
    json_array_foreach(argv, index, word)
        buffer_appendf(text, " %.80s", json_string_value(word) ? json_string_value(word) : "");
}

static void say_last_execution(struct cli *cli, struct buffer *text, const char *id)
{
    struct error ignored;
    scoped(json_decref) json_t *last = execution_last(cli, id, &ignored);

    if (!last) {
        buffer_append_text(text, "It had no executions.\n");
        return;
    }
    buffer_appendf(text, "Its last execution, %s (%s):", field_text(last, "id", "?"),
                   field_text(last, "state", "?"));
    say_command(text, last);
    buffer_append_byte(text, '\n');
}

static void explain_end(struct cli *cli, struct buffer *text, const json_t *session)
{
    const char *id = field_text(session, "id", "the session");
    const char *reason = field_text(session, "end_reason", "unknown reason");

    buffer_appendf(text, "%s has ended: %s, at %s (last used at %s).\n", id, reason,
                   field_text(session, "ended_at", "an unknown time"),
                   field_text(session, "last_activity_at", "an unknown time"));
    say_last_execution(cli, text, id);
    say_prevention(text, reason);
}

/* --- all ---------------------------------------------------------------------------------------
 */

static json_t *read_execution(struct cli *cli, const char *session, const char *id)
{
    scoped(free) char *target = xasprintf("/api/v1/sessions/%s/executions/%s", session, id);
    struct reply reply = { 0 };
    struct error ignored;
    json_t *execution = NULL;

    if (cli_call(cli, HTTP_GET, target, NULL, &reply, &ignored) == 0)
        execution = json_incref(reply.json);
    reply_fini(&reply);
    return execution;
}

static void say_execution(struct cli *cli, struct buffer *text, const char *session, const char *id)
{
    scoped(json_decref) json_t *execution = read_execution(cli, session, id);

    buffer_appendf(text, "Execution %s is running, so the idle clock is stopped:", id);
    if (execution)
        say_command(text, execution);
    buffer_append_byte(text, '\n');
}

/* A program gives itself any name, and this one is for a terminal. */
static void append_name(struct buffer *text, const char *name)
{
    for (; *name; name++)
        buffer_append_byte(text, (unsigned char)*name < ' ' || *name == 0x7f ? '?' : *name);
}

static void say_background(struct buffer *text, const json_t *keeper)
{
    const char *process = field_text(keeper, "process", NULL);

    if (process) {
        buffer_append_text(text, "The process \"");
        append_name(text, process);
        buffer_appendf(text,
                       "\" works in the background (%.2f s of CPU time between two checks) and",
                       field_number(keeper, "cpu_seconds", 0));
    } else {
        buffer_append_text(text, "A process works in the background and");
    }
    buffer_appendf(text,
                   " has kept the session from being idle since %s.\nBackground work counts until "
                   "%s at most (session.background_limit).\n",
                   field_text(keeper, "since", "?"), field_text(keeper, "until", "?"));
}

static void say_keeper(struct cli *cli, struct buffer *text, const json_t *session, const char *id)
{
    const json_t *keeper = json_object_get(session, "kept_alive_by");
    const char *kind = field_text(keeper, "kind", "");

    if (str_equal(kind, "execution"))
        say_execution(cli, text, id, field_text(keeper, "execution_id", "?"));
    else if (str_equal(kind, "background"))
        say_background(text, keeper);
}

static void explain(struct cli *cli, struct buffer *text, const json_t *session)
{
    const char *id = field_text(session, "id", "the session");

    if (str_equal(field_text(session, "state", ""), "ended")) {
        explain_end(cli, text, session);
        return;
    }
    say_next(text, session, id);
    say_keeper(cli, text, session, id);
}

static int why_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(65536);
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = NULL;
    struct error err;

    if (given->operands.count != 1)
        return cli_misuse(cli, "why needs exactly one session");
    target = session_own_target(given->operands.items[0]);
    if (cli_call(cli, HTTP_GET, target, NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    explain(cli, &text, reply.json);
    return cli_print(cli, text.data, text.length);
}

const struct command cmd_why = {
    .name = "why",
    .summary = "Show which clock ends a session, when, and what would extend it",
    .usage = "SESSION",
    .examples = "sandglass why notes\n",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct why_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = why_run,
};
