/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/program.h"

#include "cli/run/attach.h"
#include "cli/run/terminal.h"
#include "cli/session/create_options.h"
#include "wire/json.h"

#include <stdlib.h>
#include <unistd.h>

enum { BODY_MAXIMUM = 16 << 20 };

#define PLACE(field) offsetof(struct program_args, field)

const struct option program_options[] = {
    { "interactive", 'i', OPTION_FLAG, PLACE(input), NULL, NULL, "forward stdin to the program" },
    { "tty", 't', OPTION_FLAG, PLACE(terminal), NULL, NULL,
      "give the program a terminal; forwards stdin too if it is a terminal" },
    { "detach", 'd', OPTION_FLAG, PLACE(detach), NULL, NULL,
      "do not wait: print the id of the execution" },
    { "workdir", 'w', OPTION_TEXT, PLACE(cwd), "DIR", NULL,
      "working directory; default: the workspace, /home/user" },
    { "user", 'u', OPTION_TEXT, PLACE(user), "USER", NULL,
      "name or id of the user; default: the unprivileged user of the sandbox" },
    { "timeout", 0, OPTION_DURATION, PLACE(timeout), "T", NULL,
      "kill the program and its children after this long: exit code 124; default: exec.timeout" },
    { 0 },
};

static void write_terminal(struct json_writer *json)
{
    unsigned columns = 80, rows = 24;

    if (terminal_size(STDIN_FILENO, &columns, &rows) < 0)
        (void)terminal_size(STDOUT_FILENO, &columns, &rows);
    json_begin_object(json, "tty");
    json_put_int(json, "cols", columns);
    json_put_int(json, "rows", rows);
    json_end_object(json);
}

static bool passes_input(const struct program_args *args)
{
    return !args->detach && (args->input || (args->terminal && isatty(STDIN_FILENO)));
}

/* A program on our terminal has to know what kind it is. */
static int write_variables(const struct program_args *args, const struct variable_args *variables,
                           struct json_writer *json, struct error *err)
{
    struct variable_args all = *variables;
    int result;

    all.env = (struct text_list){ 0 };
    if (args->terminal && getenv("TERM"))
        text_list_add(&all.env, "TERM");
    for (size_t i = 0; i < variables->env.count; i++)
        text_list_add(&all.env, variables->env.items[i]);
    result = variables_write(&all, json, err);
    text_list_fini(&all.env);
    return result;
}

static int write_request(const struct program_args *args, const struct variable_args *variables,
                         const char *const *argv, struct buffer *body, struct error *err)
{
    struct json_writer json = JSON_WRITER(body);

    json_begin_object(&json, NULL);
    json_begin_array(&json, "argv");
    for (; *argv; argv++)
        json_put_text(&json, NULL, *argv);
    json_end_array(&json);
    if (write_variables(args, variables, &json, err) < 0)
        return -1;
    if (args->cwd)
        json_put_text(&json, "cwd", args->cwd);
    if (args->user)
        json_put_text(&json, "user", args->user);
    if (args->timeout)
        json_put_text(&json, "timeout_seconds", args->timeout);
    if (passes_input(args))
        json_put_bool(&json, "stdin", true);
    if (args->terminal)
        write_terminal(&json);
    json_put_bool(&json, "background", true);
    json_put_bool(&json, "cancel_on_disconnect", !args->detach);
    json_end_object(&json);
    return 0;
}

static int print_started(struct cli *cli, const struct reply *reply)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(4096);

    if (cli->json)
        return cli_print_json(cli, reply->json);
    buffer_appendf(&line, "%s\n", field_text(reply->json, "id", ""));
    return cli_print(cli, line.data, line.length);
}

static int finish(struct cli *cli, const struct attach_options *attached, const json_t *final,
                  int signal_number)
{
    int printed = 0;

    if (!final)
        cli_note(
            "detached: the execution is cancelled soon unless 'sandglass logs -f %s %s' follows it",
            attached->session, attached->execution);
    else if (cli->json)
        printed = cli_print_json(cli, final);
    else if (!signal_number)
        execution_explain(final);
    if (printed)
        return printed;
    return signal_number ? EXIT_SIGNAL_BASE + signal_number : execution_exit_code(final);
}

int program_run(struct cli *cli, const char *session, const struct program_args *args,
                const struct variable_args *variables, const char *const *argv)
{
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(BODY_MAXIMUM);
    scoped(reply_fini) struct reply started = { 0 };
    scoped(free) char *target = session_target(session, "/executions");
    scoped(json_decref) json_t *final = NULL;
    struct attach_options attach;
    struct error err;
    int signal_number = 0;

    if (write_request(args, variables, argv, &body, &err) < 0 ||
        cli_call(cli, HTTP_POST, target, &body, &started, &err) < 0)
        return cli_fail(cli, &err);
    if (args->detach)
        return print_started(cli, &started);
    attach = (struct attach_options){
        .session = session,
        .execution = field_text(started.json, "id", ""),
        .input = passes_input(args),
        .terminal = args->terminal,
        .silent = cli->json,
    };
    if (attach_run(cli, &attach, &final, &signal_number, &err) < 0)
        return cli_fail(cli, &err);
    return finish(cli, &attach, final, signal_number);
}
