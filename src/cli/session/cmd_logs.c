/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass logs: what an execution wrote, so far or until its end. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/run/streams.h"
#include "cli/session/resolve.h"
#include "cli/session/sessions.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct logs_args {
    struct common_args common;
    bool follow;
    const char *offset;
    bool only_stdout;
    bool only_stderr;
    bool merged;
};

#define PLACE(field) offsetof(struct logs_args, field)

static const struct option logs_options[] = {
    { "follow", 'f', OPTION_FLAG, PLACE(follow), NULL, NULL,
      "follow the output until the program has ended" },
    { "offset", 0, OPTION_COUNT, PLACE(offset), "N", NULL,
      "skip the first N bytes of the chosen stream" },
    { "stdout", 0, OPTION_FLAG, PLACE(only_stdout), NULL, NULL, "only stdout" },
    { "stderr", 0, OPTION_FLAG, PLACE(only_stderr), NULL, NULL, "only stderr, on stdout" },
    { "merged", 0, OPTION_FLAG, PLACE(merged), NULL, NULL,
      "both on stdout, in the order in which they were written" },
    { 0 },
};

/* Then their order matters to the reader. */
static bool outputs_are_one(void)
{
    struct stat out, err;

    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

static int logs_copy(struct cli *cli, const struct logs_args *args, const char *session,
                     const char *execution)
{
    struct streams_options streams = {
        .session = session,
        .execution = execution,
        .which = args->only_stdout                   ? STREAMS_STDOUT
                 : args->only_stderr                 ? STREAMS_STDERR
                 : args->merged || outputs_are_one() ? STREAMS_MERGED
                                                     : STREAMS_BOTH,
        .follow = args->follow,
    };
    struct error err;

    if (args->offset)
        (void)str_to_u64(args->offset, &streams.offset);
    return streams_copy(cli, &streams, &err) < 0 ? cli_fail(cli, &err) : 0;
}

static int logs_document(struct cli *cli, const char *session, const char *execution, bool wait)
{
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target =
        session_target(session, "/executions/%s%s", execution, wait ? "?wait_seconds=3600" : "");
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
    scoped(free) char *encoded = NULL;
    const char *session;
    struct error err;

    if (operands->count < 1 || operands->count > 2)
        return cli_misuse(cli, "logs needs exactly one session");
    if (args->only_stdout + args->only_stderr + args->merged > 1)
        return cli_misuse(cli, "--stdout, --stderr and --merged exclude each other");
    if (args->offset && !args->only_stdout && !args->only_stderr && !args->merged)
        return cli_misuse(cli, "--offset needs --stdout, --stderr or --merged");
    session = operands->items[0];
    if (operands->count == 1) {
        last = execution_last(cli, session, &err);
        if (!last)
            return cli_fail(cli, &err);
    }
    execution = last ? xstrdup(field_text(last, "id", ""))
                     : execution_resolve(cli, session, operands->items[1], &err);
    if (!execution)
        return cli_fail(cli, &err);
    encoded = url_encode(execution);
    return cli->json ? logs_document(cli, session, encoded, args->follow)
                     : logs_copy(cli, args, session, encoded);
}

const struct command cmd_logs = {
    .name = "logs",
    .summary = "Show the output of an execution",
    .usage = "[-f] [--stdout | --stderr | --merged [--offset N]] SESSION [EXECUTION]",
    .examples = "sandglass logs -f notes\n"
                "sandglass logs --merged notes exe_7h2k9c4d\n",
    .details = "Without EXECUTION: the last one of the session. Its stdout goes to stdout and its "
               "stderr\nto stderr. If both are the same file, such as a terminal, the order of "
               "writing is kept.",
    .sets = { { logs_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct logs_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_EXECUTION,
    .run = logs_run,
};
