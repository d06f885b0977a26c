/* sandglass run: a new session, a program in it, and the session is gone. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/run/program.h"
#include "cli/session/create_options.h"
#include "daemon/daemon.h"
#include "loop/loop.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { BODY_MAXIMUM = 16 << 20 };

struct run_args {
    struct common_args common;
    struct program_args program;
    struct create_args create;
    bool keep;
    const char *lease;
};

static const struct option run_options[] = {
    { "keep", 0, OPTION_FLAG, offsetof(struct run_args, keep), NULL, NULL,
      "keep the session; its id is printed on stderr" },
    { "lease", 0, OPTION_DURATION, offsetof(struct run_args, lease), "T", NULL,
      "end the session this long after its start, unless extended" },
    { 0 },
};

/*
 * Signals that come before the program runs or while the session is removed. The first is
 * remembered, so that the session does not stay behind; the second ends us at once.
 */
static volatile sig_atomic_t early_signal;

static void on_early_signal(int number)
{
    if (early_signal)
        _exit(EXIT_SIGNAL_BASE + number);
    early_signal = number;
}

static void note_signals(void)
{
    struct sigaction action = { .sa_handler = on_early_signal };
    static const int numbers[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LENGTH(numbers); i++)
        sigaction(numbers[i], &action, NULL);
}

static int remove_session(struct cli *cli, const char *session, struct error *err)
{
    scoped(reply_fini) struct reply reply = { 0 };
    scoped(free) char *target = session_own_target(session);

    if (cli_call(cli, HTTP_DELETE, target, NULL, &reply, err) == 0)
        return 0;

    /* One of its clocks was faster. */
    if (err->code == ERR_GONE || err->code == ERR_NOT_FOUND)
        return 0;
    return error_wrap(err, "remove session %s", session);
}

static int run_in_new_session(struct cli *cli, const struct run_args *args, const char *const *argv)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    scoped(reply_fini) struct reply created = { 0 };
    bool keep = args->keep || args->program.detach;
    const char *session;
    struct error err;
    int code;

    if (create_write_body(&args->create, args->lease, &body, &err) < 0 ||
        cli_call(cli, HTTP_POST, "/api/v1/sessions", &body, &created, &err) < 0)
        return cli_fail(cli, &err);
    session = field_text(created.json, "id", "");
    if (keep && !cli->json)
        cli_note("session %s", session);
    if (early_signal)
        code = EXIT_SIGNAL_BASE + early_signal;
    else
        code = program_run(cli, session, &args->program,
                           &(struct variable_args){ .env = args->create.variables.env }, argv);
    note_signals();
    if (!keep && remove_session(cli, session, &err) < 0)
        cli_note("%s", err.message);
    return code;
}

static int run_privately(struct cli *cli, const struct run_args *args, const char *const *argv)
{
    struct daemon_setting settings[] = { { "sandbox.backend", args->create.backend }, { 0 } };
    struct private_daemon daemon = { .leash_fd = -1 };
    struct error err;
    int code;

    if (args->keep || args->program.detach)
        return cli_misuse(cli,
                          "no daemon at %s, and a private daemon cannot keep a session: --keep and "
                          "--detach need 'sandglass serve'",
                          cli->url);
    if (daemon_start_private(&daemon, args->create.backend ? settings : NULL, &err) < 0)
        return cli_fail(cli, &err);
    free(cli->url);
    cli->url = xstrdup(daemon.url);
    code = run_in_new_session(cli, args, argv);
    daemon_stop_private(&daemon);
    return code;
}

static int run_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct run_args *args = given_args;

    if (given->operands.count == 0)
        return cli_misuse(cli, "run needs a command after --");
    note_signals();
    if (!cli->url_was_given && cli_nobody_listens(cli))
        return run_privately(cli, args, given->operands.items);
    return run_in_new_session(cli, args, given->operands.items);
}

const struct command cmd_run = {
    .name = "run",
    .summary = "Run a program in a new session and remove it afterwards",
    .usage = "[OPTIONS] -- CMD...",
    .details = "Without a running daemon and without --url a private daemon is started for this "
               "program; it\nleaves nothing behind. Exit codes and signals are those of 'sandglass "
               "exec'.\n--timeout limits the program; --lease is the lease of the session.",
    .sets = { { program_options, offsetof(struct run_args, program), "Options" },
              { create_options, offsetof(struct run_args, create), "Session options" },
              { run_options, 0, "End of the session" },
              COMMON_OPTIONS },
    .args_size = sizeof(struct run_args),
    .plain_after = 0,
    .operand = OPERAND_COMMAND,
    .runs_program = true,
    .run = run_run,
};
