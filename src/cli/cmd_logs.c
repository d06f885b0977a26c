/* sandglass logs: what an execution wrote, so far or until its end. */

#include "base/str.h"
#include "cli/commands.h"
#include "cli/follower.h"
#include "cli/sessions.h"

#include <stdlib.h>
#include <unistd.h>

struct logs_args {
    struct common_args common;
    bool follow;
    const char *offset;
    bool only_stdout;
    bool only_stderr;
};

#define PLACE(field) offsetof(struct logs_args, field)

static const struct option logs_options[] = {
    { "follow", 'f', OPTION_FLAG, PLACE(follow), NULL, NULL, "go on until the program has ended" },
    { "offset", 0, OPTION_COUNT, PLACE(offset), "N", NULL,
      "begin behind the first N bytes; a stream must be chosen" },
    { "stdout", 0, OPTION_FLAG, PLACE(only_stdout), NULL, NULL, "only stdout" },
    { "stderr", 0, OPTION_FLAG, PLACE(only_stderr), NULL, NULL, "only stderr, on stdout" },
    { 0 },
};

struct logs {
    struct cli *cli; /* borrowed */
    struct follower streams[2];
    unsigned running;
    struct error err;
};

static void logs_finished(struct logs *logs, const struct follower *follower)
{
    if (follower->err.code != ERR_NONE)
        logs->err = follower->err;
    if (--logs->running == 0)
        loop_stop(logs->cli->loop);
}

static void on_first_finished(struct follower *follower)
{
    logs_finished(container_of(follower, struct logs, streams[0]), follower);
}

static void on_second_finished(struct follower *follower)
{
    logs_finished(container_of(follower, struct logs, streams[1]), follower);
}

/* Nobody reads any more. */
static void on_closed(struct follower *follower)
{
    loop_stop(follower->cli->loop);
}

static int logs_copy(struct cli *cli, const struct logs_args *args, const char *session,
                     const char *execution)
{
    struct logs logs = { .cli = cli };
    struct follower_options stream = {
        .session = session, .execution = execution, .follow = args->follow, .fd = STDOUT_FILENO
    };

    if (args->offset)
        (void)str_to_u64(args->offset, &stream.offset);
    if (!args->only_stderr) {
        stream.stream = "stdout";
        follower_start(&logs.streams[logs.running++], cli, &stream, on_first_finished, on_closed);
    }
    if (!args->only_stdout) {
        stream.stream = "stderr";
        stream.fd = logs.running ? STDERR_FILENO : STDOUT_FILENO;
        follower_start(&logs.streams[logs.running], cli, &stream,
                       logs.running ? on_second_finished : on_first_finished, on_closed);
        logs.running++;
    }
    loop_run(cli->loop);
    follower_fini(&logs.streams[0]);
    follower_fini(&logs.streams[1]);
    return logs.err.code == ERR_NONE ? 0 : cli_fail(cli, &logs.err);
}

static int logs_document(struct cli *cli, const char *session, const char *execution, bool wait)
{
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target =
        session_target(session, "/executions/%s%s", execution, wait ? "?wait=3600" : "");
    struct error err;

    if (cli_call(cli, HTTP_GET, target, NULL, &reply, &err) < 0)
        return cli_fail(cli, &err);
    return cli_print_json(cli, reply.json);
}

static int logs_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct logs_args *args = given_args;
    const struct text_list *operands = &given->operands;
    scoped(json_decref) json_t *last = NULL;
    scoped(free) char *execution = NULL;
    const char *session;
    struct error err;

    if (operands->count < 1 || operands->count > 2)
        return cli_misuse(cli, "logs needs one session");
    if (args->only_stdout && args->only_stderr)
        return cli_misuse(cli, "--stdout and --stderr exclude each other");
    if (args->offset && !args->only_stdout && !args->only_stderr)
        return cli_misuse(cli, "--offset needs --stdout or --stderr");
    session = operands->items[0];
    if (operands->count == 1) {
        last = execution_last(cli, session, &err);
        if (!last)
            return cli_fail(cli, &err);
    }
    execution = url_encode(last ? field_text(last, "id", "") : operands->items[1]);
    if (cli_connect(cli, &err) < 0)
        return cli_fail(cli, &err);
    return cli->json ? logs_document(cli, session, execution, args->follow)
                     : logs_copy(cli, args, session, execution);
}

const struct command cmd_logs = {
    .name = "logs",
    .summary = "Show what an execution wrote",
    .usage = "[-f] [--stdout | --stderr [--offset N]] SESSION [EXECUTION]",
    .details = "Without EXECUTION it is the last one of the session. Its stdout goes to stdout and "
               "its\nstderr to stderr.",
    .sets = { { logs_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct logs_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_SESSION,
    .run = logs_run,
};
