/* sandglass why: which clock ends a session, when, and what would extend it. */

#include "base/clock.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/sessions.h"

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
    { "idle", "idle_remaining", "nobody has used it meanwhile",
      "any use sets it back: an execution, input, a file. Looking (ls, inspect, logs, why) is no "
      "use." },
    { "lease", "lease_remaining", "its lease ends",
      "'sandglass session extend --timeout 1h %s' makes it longer." },
    { "lifetime", "lifetime_remaining", "it reaches its greatest age",
      "nothing extends that: it was set by --max-lifetime or session.max_lifetime when the session "
      "was made." },
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
            buffer_appendf(text, ", when %s (%s).\nWhat extends it: ", clocks[i].meaning, end.kind);
            buffer_appendf(text, clocks[i].remedy, id);
        }
    buffer_append_text(text, "\nThe other clocks:\n");
    say_others(text, session, end.kind);
}

static bool is_busy(const json_t *session)
{
    return field_int(json_object_get(session, "executions"), "running", 0) > 0;
}

static void explain(struct buffer *text, const json_t *session)
{
    const char *id = field_text(session, "id", "the session");

    if (str_equal(field_text(session, "state", ""), "ended")) {
        buffer_appendf(text, "%s has ended: %s, at %s.\n", id,
                       field_text(session, "end_reason", "unknown reason"),
                       field_text(session, "ended_at", "an unknown time"));
        return;
    }
    say_next(text, session, id);
    if (is_busy(session))
        buffer_append_text(text, "Something runs in it: the idle clock stands still.\n");
}

static int why_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(65536);
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = NULL;
    struct error err;

    if (given->operands.count != 1)
        return cli_misuse(cli, "why needs one session");
    target = session_own_target(given->operands.items[0]);
    if (cli_call(cli, HTTP_GET, target, NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json)
        return cli_print_json(cli, reply.json);
    explain(&text, reply.json);
    return cli_print(cli, text.data, text.length);
}

const struct command cmd_why = {
    .name = "why",
    .summary = "Tell which clock ends a session, when, and what would extend it",
    .usage = "SESSION",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct why_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = why_run,
};
