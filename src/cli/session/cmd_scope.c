/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandglass scope: a command with an owner of its own, whose sessions end with it.
 *
 * The daemon watches a lease, a request whose answer we read for as long as we live: should we be
 * killed, it ends the sessions itself.
 */

#include "backend/names.h"
#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/run/follower.h"
#include "daemon/daemon.h"
#include "loop/process.h"
#include "net/http_client.h"
#include "wire/json.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LINE_MAXIMUM = 16384,
    DESTROY_MS = 120 * 1000,
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127
};

struct scope_args {
    struct common_args common;
    const char *owner;
    const char *backend;
};

static const struct option scope_options[] = {
    { "owner", 0, OPTION_TEXT, offsetof(struct scope_args, owner), "ID", NULL,
      "use this owner instead of a new one; all of its sessions are destroyed at the end" },
    { "backend", 0, OPTION_TEXT, offsetof(struct scope_args, backend), "NAME", BACKEND_WORDS,
      "backend of the private daemon, if one is started" },
    { 0 },
};

static const int forwarded[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

struct scope {
    struct cli *cli; /* borrowed */
    char *owner;     /* owned; NULL until the daemon has sent it */

    struct http_call *lease; /* NULL while there is none */
    struct buffer line;      /* the beginning of its answer */
    struct timer retry;
    int64_t lost_since_us; /* 0 while it is held */
    bool is_held;
    struct error err; /* why it could not be opened */

    sigset_t mask_before;
    int signal_fd; /* owned */
    struct io_watch signals;

    pid_t pid;
    struct process program;
    bool has_ended;
};

/* --- the lease ------------------------------------------------------------------------------- */

static void lease_open(struct scope *scope, const char *owner);

static void lease_read_line(struct scope *scope)
{
    scoped(json_decref) json_t *document = NULL;
    const uint8_t *end = memchr(scope->line.data, '\n', scope->line.length);

    if (!end)
        return;
    document = reply_parse(scope->line.data, (size_t)(end - scope->line.data), &scope->err);
    if (!scope->owner)
        scope->owner = xstrdup(field_text(document, "owner", ""));
    scope->is_held = true;
    scope->lost_since_us = 0;
    if (!scope->pid)
        loop_stop(scope->cli->loop);
}

static void on_lease_data(struct http_call *call, const uint8_t *data, size_t length)
{
    struct scope *scope = http_call_user(call);

    if (scope->is_held)
        return;
    (void)buffer_append(&scope->line, data, length);
    if (http_call_status(call) < 400)
        lease_read_line(scope);
}

/* A daemon that is replaced knows nothing of the lease until we tell it. */
static void on_lease_end(struct http_call *call, const struct error *err)
{
    struct scope *scope = http_call_user(call);
    int64_t now_us = loop_now_us(scope->cli->loop);

    scope->lease = NULL;
    scope->is_held = false;
    if (!scope->pid) {
        if (err)
            scope->err = *err;
        else
            reply_error(&scope->err, http_call_status(call), scope->line.data, scope->line.length);
        loop_stop(scope->cli->loop);
        return;
    }
    if (!scope->lost_since_us)
        scope->lost_since_us = now_us;
    if (now_us - scope->lost_since_us < LOST_LIMIT_US)
        timer_arm_in(&scope->retry, RETRY_DELAY_US);
    else
        cli_note("lost the daemon at %s; it ends the sessions of this scope when it is back",
                 scope->cli->url);
}

static const struct http_call_handler lease_handler = {
    .on_data = on_lease_data,
    .on_end = on_lease_end,
};

static void lease_open(struct scope *scope, const char *owner)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(LINE_MAXIMUM);
    struct json_writer json = JSON_WRITER(&body);

    json_begin_object(&json, NULL);
    if (owner)
        json_put_text(&json, "owner", owner);
    json_end_object(&json);
    buffer_clear(&scope->line);
    scope->lease = http_client_request(scope->cli->client, HTTP_POST, "/api/v1/scopes",
                                       "application/json", body.data, (int64_t)body.length, NULL,
                                       &lease_handler, scope);
}

static void on_retry(struct timer *timer)
{
    struct scope *scope = container_of(timer, struct scope, retry);

    lease_open(scope, scope->owner);
}

/* --- signals --------------------------------------------------------------------------------- */

/* The signal that came before the program was started; 0 without. */
static volatile sig_atomic_t early_signal;

static void on_early_signal(int number)
{
    early_signal = number;
}

/* While a private daemon starts, signals are noted, so that the daemon does not stay behind.
 * Ignored signals stay ignored. */
static void note_signals(void)
{
    struct sigaction action = { .sa_handler = on_early_signal };
    struct sigaction before;

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_LENGTH(forwarded); i++) {
        if (sigaction(forwarded[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(forwarded[i], &action, NULL);
    }
}

/* The terminal sends a signal to the whole foreground process group, the program included. Only
 * signals that another process sent to us alone are passed on. */
static void on_signal(struct io_watch *watch, unsigned events UNUSED)
{
    struct scope *scope = container_of(watch, struct scope, signals);
    struct signalfd_siginfo info;

    if (read(watch->fd, &info, sizeof(info)) != sizeof(info))
        return;
    if (!scope->pid) {
        early_signal = (int)info.ssi_signo;
        loop_stop(scope->cli->loop);
    } else if (info.ssi_code <= 0) {
        (void)process_signal(&scope->program, (int)info.ssi_signo, NULL);
    }
}

static int watch_signals(struct scope *scope, struct error *err)
{
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LENGTH(forwarded); i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, &scope->mask_before);
    scope->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (scope->signal_fd < 0)
        return error_sys(err, "watch signals");
    io_watch_start(&scope->signals, scope->cli->loop, scope->signal_fd, IO_READ, on_signal);
    return 0;
}

/* --- the program ----------------------------------------------------------------------------- */

static _Noreturn void exec_program(const struct scope *scope, pid_t parent, const char *const *argv)
{
    int why;

    setenv("SANDGLASS_ON_BEHALF_OF", scope->owner, 1);
    setenv("SANDGLASS_URL", scope->cli->url, 1);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &scope->mask_before, NULL);

    /* Without us it has no sandboxes any more. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        raise(SIGTERM);
    execvp(argv[0], (char *const *)argv);
    why = errno;
    cli_note("%s: %s", argv[0], strerror(why));
    _exit(why == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE);
}

static void on_program_exit(struct process *process)
{
    struct scope *scope = container_of(process, struct scope, program);

    scope->has_ended = true;
    loop_stop(scope->cli->loop);
}

static int start_program(struct scope *scope, const char *const *argv, struct error *err)
{
    pid_t parent = getpid();
    int pidfd;

    scope->pid = fork();
    if (scope->pid == 0)
        exec_program(scope, parent, argv);
    if (scope->pid < 0) {
        scope->pid = 0;
        return error_sys(err, "start %s", argv[0]);
    }
    pidfd = (int)syscall(SYS_pidfd_open, scope->pid, 0);
    if (pidfd < 0) {
        error_sys(err, "watch %s", argv[0]);
        kill(scope->pid, SIGKILL);
        waitpid(scope->pid, NULL, 0);
        return -1;
    }
    process_watch(&scope->program, scope->cli->loop, pidfd, on_program_exit);
    return 0;
}

static int exit_code_of(const struct scope *scope)
{
    if (early_signal)
        return EXIT_SIGNAL_BASE + early_signal;
    if (scope->program.exit.signal)
        return EXIT_SIGNAL_BASE + scope->program.exit.signal;
    return scope->program.exit.code;
}

/* --- the end --------------------------------------------------------------------------------- */

/* As the owner, not as our caller. */
static int ask_to_destroy(struct scope *scope, struct buffer *body, struct error *err)
{
    scoped(http_client_free) struct http_client *client =
        http_client_new(scope->cli->loop, scope->cli->url, err);
    const char *key = getenv("SANDGLASS_API_KEY");
    scoped(free) char *bearer = str_is_empty(key) ? NULL : xasprintf("Bearer %s", key);

    if (!client)
        return -1;
    http_client_set_timeout(client, DESTROY_MS);
    http_client_set_header(client, "X-Sandglass-On-Behalf-Of", scope->owner);
    if (bearer)
        http_client_set_header(client, "Authorization", bearer);
    return http_client_fetch(client, HTTP_DELETE, "/api/v1/sessions", NULL, NULL, 0, body, err);
}

static int destroy_sessions(struct scope *scope, struct error *err)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(REPLY_MAXIMUM);
    scoped(json_decref) json_t *document = NULL;
    size_t failed;
    int status = ask_to_destroy(scope, &body, err);

    if (status < 0)
        return error_wrap(err, "destroy the sessions of %s", scope->owner);
    if (status >= 400)
        return reply_error(err, status, body.data, body.length);
    document = reply_parse(body.data, body.length, err);
    if (!document)
        return -1;
    failed = json_array_size(json_object_get(document, "failed"));
    fprintf(stderr, "[scope] destroyed %zu session(s)\n",
            json_array_size(json_object_get(document, "destroyed")));
    if (failed)
        return error_set(err, ERR_BACKEND, "%zu session(s) of %s could not be destroyed yet",
                         failed, scope->owner);
    return 0;
}

static void scope_fini(struct scope *scope)
{
    if (scope->lease)
        http_call_cancel(scope->lease);
    timer_stop(&scope->retry);
    io_watch_stop(&scope->signals);
    fd_close(scope->signal_fd);
    buffer_fini(&scope->line);
    free(scope->owner);
}

static int run_program(struct scope *scope, const char *const *argv)
{
    struct error err;
    int code;

    if (!early_signal && start_program(scope, argv, &err) < 0) {
        code = cli_fail(scope->cli, &err);
    } else {
        while (scope->pid && !scope->has_ended)
            loop_run(scope->cli->loop);
        code = exit_code_of(scope);
    }
    if (destroy_sessions(scope, &err) < 0) {
        cli_note("%s", err.message);
        code = code ? code : EXIT_SANDGLASS;
    }
    return code;
}

static int run_with_lease(struct cli *cli, const char *owner, const char *const *argv)
{
    struct scope scope = { .cli = cli, .signal_fd = -1, .line = BUFFER_INIT(LINE_MAXIMUM) };
    struct error err;
    int code;

    if (cli_connect(cli, &err) < 0)
        return cli_fail(cli, &err);
    timer_init(&scope.retry, cli->loop, on_retry);
    if (watch_signals(&scope, &err) < 0)
        return cli_fail(cli, &err);
    lease_open(&scope, owner);
    loop_run(cli->loop);
    if (scope.is_held) {
        code = run_program(&scope, argv);
    } else if (early_signal) {
        code = EXIT_SIGNAL_BASE + early_signal;
    } else {
        cli_explain_connection(cli, &scope.err);
        code = cli_fail(cli, &scope.err);
    }
    scope_fini(&scope);
    return code;
}

static int run_privately(struct cli *cli, const struct scope_args *args, const char *const *argv)
{
    struct daemon_setting settings[] = { { "sandbox.backend", args->backend }, { 0 } };
    struct private_daemon daemon = { .leash_fd = -1 };
    struct error err;
    int code;

    note_signals();
    if (daemon_start_private(&daemon, args->backend ? settings : NULL, &err) < 0)
        return cli_fail(cli, &err);
    free(cli->url);
    cli->url = xstrdup(daemon.url);
    code = run_with_lease(cli, args->owner, argv);
    daemon_stop_private(&daemon);
    return code;
}

static int scope_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct scope_args *args = given_args;

    if (given->operands.count == 0)
        return cli_misuse(cli, "scope needs a command after --");
    if (!cli->url_was_given && cli_nobody_listens(cli))
        return run_privately(cli, args, given->operands.items);
    return run_with_lease(cli, args->owner, given->operands.items);
}

const struct command cmd_scope = {
    .name = "scope",
    .summary = "Run a command with an owner of its own and destroy its sessions at the end",
    .usage = "[--owner ID] -- CMD...",
    .examples = "sandglass scope -- pytest -n 4\n",
    .details = "CMD runs on this host, not in a sandbox, with SANDGLASS_ON_BEHALF_OF and "
               "SANDGLASS_URL set,\nso that all sessions it creates belong to this owner. However "
               "CMD ends, and even if 'scope'\nitself is killed, exactly the sessions of this "
               "owner are destroyed. Without a running daemon\nand without --url a private daemon "
               "is started. The exit code is that of CMD.",
    .sets = { { scope_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct scope_args),
    .plain_after = 0,
    .operand = OPERAND_COMMAND,
    .runs_program = true,
    .run = scope_run,
};
