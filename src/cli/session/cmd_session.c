/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass session: create, extend, pause, resume, teardown; the rest are the short forms. */

#include "base/str.h"
#include "cli/commands.h"
#include "cli/session/create_options.h"
#include "wire/json.h"

#include <stdlib.h>

enum { BODY_MAXIMUM = 16 << 20 };

/* --- create ---------------------------------------------------------------------------------- */

struct create_command_args {
    struct common_args common;
    struct create_args create;
    const char *timeout;
};

static const struct option lease_options[] = {
    { "timeout", 0, OPTION_DURATION, offsetof(struct create_command_args, timeout), "T", NULL,
      "lease: end the session this long after its start, unless extended; default: "
      "session.timeout" },
    { 0 },
};

static int print_field(struct cli *cli, const json_t *document, const char *field)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(4096);

    if (cli->json)
        return cli_print_json(cli, document);
    buffer_appendf(&line, "%s\n", field_text(document, field, ""));
    return cli_print(cli, line.data, line.length);
}

static int create_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct create_command_args *args = given_args;
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    scoped(reply_fini) struct reply reply = { 0 };
    struct error err;

    if (given->operands.count)
        return cli_misuse(cli, "create takes no operand: \"%s\"", given->operands.items[0]);
    if (create_write_body(&args->create, args->timeout, &body, &err) < 0 ||
        cli_call(cli, HTTP_POST, "/api/v1/sessions", &body, &reply, &err) < 0)
        return cli_fail(cli, &err);
    return print_field(cli, reply.json, "id");
}

static const struct command session_create = {
    .name = "create",
    .summary = "Create a session and print its id",
    .usage = "[OPTIONS]",
    .examples = "sandglass session create --key notes --idle-timeout 8h --keep-files\n"
                "sandglass session create --template python-3.12 --memory 4g --network open\n",
    .sets = { { create_options, offsetof(struct create_command_args, create), "Options" },
              { lease_options, 0, "Lease" },
              COMMON_OPTIONS },
    .args_size = sizeof(struct create_command_args),
    .plain_after = OPERANDS_MIXED,
    .run = create_run,
};

/* --- extend ---------------------------------------------------------------------------------- */

struct extend_args {
    struct common_args common;
    const char *timeout;
    bool exact;
};

static const struct option extend_options[] = {
    { "timeout", 0, OPTION_DURATION, offsetof(struct extend_args, timeout), "T", NULL,
      "new lease, counted from now" },
    { "exact", 0, OPTION_FLAG, offsetof(struct extend_args, exact), NULL, NULL,
      "set the lease even if that shortens it" },
    { 0 },
};

static int extend_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct extend_args *args = given_args;
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&body);
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = NULL;
    struct error err;

    if (given->operands.count != 1 || !args->timeout)
        return cli_misuse(cli, "extend needs exactly one session and --timeout");
    target = session_target(given->operands.items[0], "/keepalive");
    json_begin_object(&json, NULL);
    json_put_text(&json, "lease_seconds", args->timeout);
    if (args->exact)
        json_put_bool(&json, "exact", true);
    json_end_object(&json);
    if (cli_call(cli, HTTP_POST, target, &body, &reply, &err) < 0)
        return cli_fail(cli, &err);
    return print_field(cli, reply.json, "expires_at");
}

static const struct command session_extend = {
    .name = "extend",
    .summary = "Extend the lease of a session and print when it ends",
    .usage = "--timeout T [--exact] SESSION",
    .examples = "sandglass session extend --timeout 1h notes\n",
    .sets = { { extend_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct extend_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = extend_run,
};

/* --- pause, resume and teardown
 * -------------------------------------------------------------------- */

struct plain_args {
    struct common_args common;
};

static int post_run(struct cli *cli, const struct option_result *given, const char *route)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(16);
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = NULL;
    struct error err;

    if (given->operands.count != 1)
        return cli_misuse(cli, "%s needs exactly one session", cli->command->name);
    target = session_target(given->operands.items[0], "/%s", route);
    buffer_append_text(&body, "{}");
    if (cli_call(cli, HTTP_POST, target, &body, &reply, &err) < 0)
        return cli_fail(cli, &err);
    return print_field(cli, reply.json, "id");
}

static int verb_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    return post_run(cli, given, cli->command->name);
}

static int teardown_run(struct cli *cli, const void *args UNUSED, const struct option_result *given)
{
    return post_run(cli, given, "sandbox/teardown");
}

static const struct command session_teardown = {
    .name = "teardown",
    .summary = "Remove the sandbox of a session; the next use of the session starts a new one",
    .usage = "SESSION",
    .examples = "sandglass session teardown notes\n",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct plain_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = teardown_run,
};

static const struct command session_pause = {
    .name = "pause",
    .summary = "Freeze a session: it keeps its memory and uses no CPU",
    .usage = "SESSION",
    .examples = "sandglass session pause notes\n",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct plain_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = verb_run,
};

static const struct command session_resume = {
    .name = "resume",
    .summary = "Resume a paused session",
    .usage = "SESSION",
    .examples = "sandglass session resume notes\n",
    .sets = { COMMON_OPTIONS },
    .args_size = sizeof(struct plain_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = verb_run,
};

/* --- the group ------------------------------------------------------------------------------- */

static const struct command *const session_commands[] = {
    &session_create, &cmd_ls,         &cmd_inspect,      &session_extend, &cmd_sandbox,
    &session_pause,  &session_resume, &session_teardown, &cmd_rm,         NULL,
};

const struct command cmd_session = {
    .name = "session",
    .summary = "Create, list, extend, pause and end sessions",
    .usage = "COMMAND",
    .examples = "sandglass session create --key notes\n"
                "sandglass session ls --state ended\n",
    .subcommands = session_commands,
};
