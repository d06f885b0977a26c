/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass run: a new session, a program in it, and the session is gone. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/ports/publish.h"
#include "cli/run/program.h"
#include "cli/run/share.h"
#include "cli/session/create_options.h"
#include "cli/session/mount_option.h"
#include "daemon/daemon.h"
#include "loop/loop.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BODY_MAXIMUM = 16 << 20 };

struct run_args {
    struct common_args common;
    struct program_args program;
    struct create_args create;
    struct text_list copies, ports;
    bool keep, remove, private;
    const char *lease;
};

static const struct option file_options[] = {
    { "copy", 0, OPTION_LIST, offsetof(struct run_args, copies), "PATH[:DEST]", NULL,
      "copy a file, or the contents of a directory, into the workspace before the program starts; "
      "may be repeated" },
    { 0 },
};

static const struct option port_options[] = {
    { "publish", 'p', OPTION_LIST, offsetof(struct run_args, ports), "[LOCAL:]REMOTE", NULL,
      "reach port REMOTE of the sandbox at 127.0.0.1:LOCAL while the program runs; LOCAL 0 is any "
      "free port; may be repeated" },
    { 0 },
};

static const struct option run_options[] = {
    { "keep", 0, OPTION_FLAG, offsetof(struct run_args, keep), NULL, NULL,
      "keep the session; its id is printed on stderr" },
    { "private", 0, OPTION_FLAG, offsetof(struct run_args, private), NULL, NULL,
      "start a private daemon for the program, even if a daemon is running" },
    { "rm", 0, OPTION_FLAG, offsetof(struct run_args, remove), NULL, NULL, NULL },
    { "lease", 0, OPTION_DURATION, offsetof(struct run_args, lease), "T", NULL,
      "end the session this long after its start, unless extended; default: session.timeout" },
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

    /* A clock of the session has ended it already. */
    if (err->code == ERR_GONE || err->code == ERR_NOT_FOUND)
        return 0;
    return error_wrap(err, "remove session %s", session);
}

/* A program that does not find a file of the user has failed for a reason that is not in its
 * message: the sandbox has a workspace of its own. */
static void suggest_copy(const struct run_args *args, const char *const *argv)
{
    struct stat status;

    if (args->copies.count || args->create.mounts.count || args->create.key || args->program.cwd)
        return;
    for (size_t i = 0; argv[i]; i++) {
        bool is_path = *argv[i] != '/' && *argv[i] != '-' && (i > 0 || strchr(argv[i], '/'));

        if (is_path && stat(argv[i], &status) == 0 && S_ISREG(status.st_mode)) {
            cli_note("hint: \"%s\" is a file of this machine; --copy . copies the current "
                     "directory into the sandbox",
                     argv[i]);
            return;
        }
    }
}

/* Sandboxes of an ordinary user have ids that own none of the user's files. */
static void suggest_rights(const struct run_args *args)
{
    for (size_t i = 0; geteuid() != 0 && i < args->create.mounts.count; i++) {
        if (str_ends_with(args->create.mounts.items[i], ":ro"))
            continue;
        cli_note(
            "hint: the sandbox may write to %s only where everyone may; copy files with --copy "
            "and 'sandglass cp', or mount from a daemon that root has started",
            args->create.mounts.items[i]);
        return;
    }
}

static int create_session(struct cli *cli, const struct run_args *args,
                          const struct create_args *create, struct reply *out, struct error *err)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);

    if (create_write_body(create, args->lease, &body, err) < 0)
        return -1;
    return cli_call(cli, HTTP_POST, "/api/v1/sessions", &body, out, err);
}

static int run_in_session(struct cli *cli, const struct run_args *args, const json_t *created,
                          const char *const *argv)
{
    scoped(publish_fini) struct publish publish = { 0 };
    const char *session = field_text(created, "id", "");
    bool keep = args->keep || args->program.detach;
    struct error err;
    int code;

    if (keep && !cli->json)
        cli_note("session %s", session);
    if (publish_read(&publish, &args->ports, &err) < 0 ||
        publish_open(&publish, cli, session, &err) < 0 ||
        share_copy(cli, &args->copies, session, &err) < 0)
        code = cli_fail(cli, &err);
    else if (early_signal)
        code = EXIT_SIGNAL_BASE + early_signal;
    else
        code = program_run(cli, session, &args->program,
                           &(struct variable_args){ .env = args->create.variables.env }, argv);
    note_signals();
    publish_fini(&publish);
    if (code && !cli->json) {
        suggest_copy(args, argv);
        suggest_rights(args);
    }
    if (!keep && remove_session(cli, session, &err) < 0)
        cli_note("%s", err.message);
    return code;
}

static int run_privately(struct cli *cli, const struct run_args *args, const char *const *argv)
{
    struct daemon_setting settings[] = { { "sandbox.backend", args->create.backend }, { 0 } };
    struct private_daemon daemon = { .leash_fd = -1 };
    scoped(mount_option_fini) struct config_mounts mounts = { 0 };
    scoped(reply_fini) struct reply created = { 0 };
    struct create_args create = args->create;
    struct error err;
    int code;

    if (args->private && (args->keep || args->program.detach))
        return cli_misuse(cli, "--private starts a private daemon, which cannot keep a session: it "
                               "excludes --keep and --detach");
    if (args->keep || args->program.detach)
        return cli_misuse(cli,
                          "no daemon at %s, and a private daemon cannot keep a session: --keep and "
                          "--detach need 'sandglass serve'",
                          cli->url);
    if (mount_option_read(&create.mounts, &mounts, &err) < 0)
        return cli_fail(cli, &err);
    create.mounts = (struct text_list){ 0 }; /* all sandboxes of that daemon have them */
    if (daemon_start_sharing(&daemon, args->create.backend ? settings : NULL, &mounts, &err) < 0)
        return cli_fail(cli, &err);
    free(cli->url);
    cli->url = xstrdup(daemon.url);
    if (create_session(cli, args, &create, &created, &err) < 0)
        code = cli_fail(cli, &err);
    else
        code = run_in_session(cli, args, created.json, argv);
    daemon_stop_private(&daemon);
    return code;
}

/* By the daemon that serves cli->url. One that does not allow the mounts is left alone where a private
 * daemon, with the rights of the caller, can have them. */
static int run_shared(struct cli *cli, const struct run_args *args, const char *const *argv)
{
    scoped(reply_fini) struct reply created = { 0 };
    bool may_be_private = args->create.mounts.count && !cli->url_was_given && !args->keep &&
                          !args->program.detach;
    struct error err;

    if (create_session(cli, args, &args->create, &created, &err) == 0)
        return run_in_session(cli, args, created.json, argv);
    if (!may_be_private || !mount_option_is_refused(&err))
        return cli_fail(cli, &err);
    cli_disconnect(cli);
    return run_privately(cli, args, argv);
}

static int run_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct run_args *args = given_args;

    if (given->operands.count == 0)
        return cli_misuse(cli, "run needs a command after --");
    if (args->remove && args->keep)
        return cli_misuse(cli, "--rm and --keep exclude each other");
    if (args->ports.count && args->program.detach)
        return cli_misuse(cli, "--publish lasts as long as run does: it excludes --detach; use "
                               "'sandglass port SESSION [LOCAL:]REMOTE'");
    if (args->create.mounts.count && !args->private && !mount_option_is_local(cli))
        return cli_misuse(cli,
                          "--mount shows a directory of this machine, and %s is another one; use "
                          "--copy, or --private for a daemon here",
                          cli->url);
    note_signals();
    if (args->private || (!cli->url_was_given && cli_nobody_listens(cli)))
        return run_privately(cli, args, given->operands.items);
    return run_shared(cli, args, given->operands.items);
}

const struct command cmd_run = {
    .name = "run",
    .summary = "Run a program in a new session and remove it afterwards",
    .usage = "[OPTIONS] -- CMD...",
    .examples = "sandglass run -- python3 -c 'print(1 + 1)'\n"
                "sandglass run -it -- bash\n"
                "sandglass run --copy . --memory 512m --timeout 1m -- python3 script.py\n"
                "sandglass run --mount .:/work:ro -w /work -- ls -l\n"
                "sandglass run -p 8080:80 -- python3 -m http.server 80\n",
    .details = "Without a running daemon and without --url a private daemon is started for this "
               "program; it\nleaves nothing behind. Exit codes and signals are those of 'sandglass "
               "exec'.\n--timeout limits the program; --lease is the lease of the session.",
    .sets = { { program_options, offsetof(struct run_args, program), "Options" },
              { create_options, offsetof(struct run_args, create), "Session options" },
              { file_options, 0, "Files" },
              { port_options, 0, "Ports" },
              { run_options, 0, "End of the session" },
              COMMON_OPTIONS },
    .args_size = sizeof(struct run_args),
    .plain_after = 0,
    .operand = OPERAND_COMMAND,
    .runs_program = true,
    .run = run_run,
};
