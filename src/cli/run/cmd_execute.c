/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass execute: code in, output out; the session is made on demand and stays without --rm. */

#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/run/attach.h"
#include "cli/run/streams.h"
#include "cli/session/create_options.h"
#include "wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CODE_MAXIMUM = 64 << 20 };

struct execute_args {
    struct common_args common;
    const char *language;
    const char *session;
    const char *key;
    const char *timeout;
    const char *code;
    const char *file;
    bool is_ephemeral;
    struct variable_args variables;
};

#define PLACE(field) offsetof(struct execute_args, field)
#define LANGUAGES "python bash javascript"

static const struct option execute_options[] = {
    { "language", 0, OPTION_TEXT, PLACE(language), "NAME", LANGUAGES,
      "python, bash or javascript; default: by the name of the file, else python" },
    { "lang", 0, OPTION_TEXT, PLACE(language), "NAME", LANGUAGES, NULL },
    { "session", 's', OPTION_SESSION, PLACE(session), "ID", NULL,
      "run the code in this session; default: in a new one" },
    { "key", 0, OPTION_TEXT, PLACE(key), "KEY", NULL, "run the code in the session with this key" },
    { "timeout", 0, OPTION_DURATION, PLACE(timeout), "T", NULL,
      "kill the code after this long: exit code 124" },
    { "code", 'c', OPTION_TEXT, PLACE(code), "TEXT", NULL, "the code as text" },
    { "file", 'f', OPTION_TEXT, PLACE(file), "FILE", NULL, "a file with the code; - is stdin" },
    { "rm", 0, OPTION_FLAG, PLACE(is_ephemeral), NULL, NULL,
      "remove the new session and its files after the run" },
    VARIABLE_OPTIONS(PLACE(variables)),
    { 0 },
};

/* --- the code -------------------------------------------------------------------------------- */

static int read_all(int fd, struct buffer *code, struct error *err)
{
    if (fd_read_all(fd, code) == 0)
        return 0;
    if (errno == EFBIG)
        return error_set(err, ERR_TOO_LARGE, "the code is larger than %d MiB", CODE_MAXIMUM >> 20);
    return error_sys(err, "reading code");
}

static int read_file(const char *path, struct buffer *code, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return error_sys(err, "reading file: %s", path);
    return read_all(fd, code, err);
}

static int collect_code(const struct execute_args *args, const char *file, struct buffer *code,
                        struct error *err)
{
    bool from_stdin = file ? str_equal(file, "-") : !args->code;
    int result;

    if (args->code && file)
        return error_set(err, ERR_INVALID, "--code and a file exclude each other");
    if (args->code)
        result = buffer_append_text(code, args->code);
    else if (!from_stdin)
        result = read_file(file, code, err);
    else if (!file && isatty(STDIN_FILENO))
        return error_set(err, ERR_INVALID, "provide code as a file, via --code, or on stdin");
    else
        result = read_all(STDIN_FILENO, code, err);
    if (result == 0 && code->length == 0)
        return error_set(err, ERR_INVALID, "no code provided");
    return result;
}

static const char *language_of(const struct execute_args *args, const char *file)
{
    static const struct {
        const char *ending, *language;
    } endings[] = {
        { ".sh", "bash" },        { ".bash", "bash" },      { ".js", "javascript" },
        { ".mjs", "javascript" }, { ".cjs", "javascript" },
    };

    if (args->language)
        return args->language;
    for (size_t i = 0; file && i < ARRAY_LENGTH(endings); i++)
        if (str_ends_with(file, endings[i].ending))
            return endings[i].language;
    return "python";
}

static int write_request(const struct execute_args *args, const char *file,
                         const struct buffer *code, struct buffer *body, struct error *err)
{
    struct json_writer json = JSON_WRITER(body);

    if (!str_is_utf8((const char *)code->data, code->length))
        return error_set(err, ERR_INVALID, "the code is not UTF-8 text");
    json_begin_object(&json, NULL);
    json_put_bytes(&json, "code", code->data, code->length);
    json_put_text(&json, "language", language_of(args, file));
    if (args->session)
        json_put_text(&json, "session_id", args->session);
    if (args->key)
        json_put_text(&json, "key", args->key);
    if (args->timeout)
        json_put_text(&json, "timeout_seconds", args->timeout);
    if (args->is_ephemeral)
        json_put_bool(&json, "ephemeral", true);
    if (variables_write(&args->variables, &json, err) < 0)
        return -1;
    json_end_object(&json);
    return 0;
}

/* --- the answer ------------------------------------------------------------------------------ */

static void append_names(const json_t *files, struct buffer *line)
{
    size_t index;
    const json_t *file;

    json_array_foreach(files, index, file)
    {
        const char *name = json_is_string(file) ? json_string_value(file)
                                                : field_text(file, "name", "?");

        buffer_appendf(line, "%s%s", index ? ", " : "", name);
    }
}

static void print_about(const json_t *answer)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(1 << 20);
    const json_t *files = json_object_get(answer, "output_files");
    double remaining = field_number(answer, "session_ttl_remaining", -1);
    char duration[STR_UNIT_SIZE] = "unknown";

    if (json_array_size(files) > 0) {
        buffer_append_text(&text, "[files] ");
        append_names(files, &text);
        buffer_append_byte(&text, '\n');
    }
    if (remaining >= 0)
        str_format_duration((int64_t)(remaining * 1000), duration);
    else if (field_bool(answer, "session_ended"))
        snprintf(duration, sizeof(duration), "ended");
    buffer_appendf(&text, "[session] %s (ttl: %s)\n", field_text(answer, "session_id", "unknown"),
                   duration);
    (void)!write(STDERR_FILENO, text.data, text.length);
}

/* JSON cannot hold every byte, and only the head and tail of a long output are in it. */
static bool is_exact(const json_t *answer)
{
    static const char replacement[] = "\xef\xbf\xbd";
    const json_t *out = json_object_get(answer, "stdout");
    const json_t *errors = json_object_get(answer, "stderr");

    return !field_bool(answer, "truncated") &&
           !memmem(json_string_value(out), json_string_length(out), replacement, 3) &&
           !memmem(json_string_value(errors), json_string_length(errors), replacement, 3);
}

static int print_inline(struct cli *cli, const json_t *answer)
{
    const json_t *out = json_object_get(answer, "stdout");
    const json_t *errors = json_object_get(answer, "stderr");
    int code = cli_print(cli, json_string_value(out), json_string_length(out));

    (void)!write(STDERR_FILENO, json_string_value(errors), json_string_length(errors));
    return code;
}

static int print_answer(struct cli *cli, const struct reply *reply)
{
    struct streams_options streams = {
        .session = field_text(reply->json, "session_id", ""),
        .execution = field_text(reply->json, "execution_id", ""),
    };
    struct error err;
    int code = 0;

    if (is_exact(reply->json))
        code = print_inline(cli, reply->json);
    else if (streams_copy(cli, &streams, &err) < 0)
        code = cli_fail(cli, &err);
    execution_explain(reply->json);
    print_about(reply->json);
    return code ? code : execution_exit_code(reply->json);
}

static int execute_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct execute_args *args = given_args;
    const char *file = args->file;
    scoped(buffer_fini) struct buffer code = BUFFER_INIT(CODE_MAXIMUM);
    scoped(buffer_fini) struct buffer body = BUFFER_INIT(4 * (size_t)CODE_MAXIMUM);
    scoped(reply_fini) struct reply reply = { 0 };
    struct error err;
    int failed;

    if (given->operands.count > (args->file ? 0 : 1))
        return cli_misuse(cli, "execute takes one file");
    if (given->operands.count)
        file = given->operands.items[0];
    if (given->operands.count && !str_equal(file, "-") && access(file, F_OK) < 0)
        return cli_misuse(cli, "\"%.60s\" is not a file; give code with --code", file);
    if (collect_code(args, file, &code, &err) < 0 ||
        write_request(args, file, &code, &body, &err) < 0 ||
        cli_call(cli, HTTP_POST, "/api/v1/execute", &body, &reply, &err) < 0)
        return cli_fail(cli, &err);
    if (!cli->json)
        return print_answer(cli, &reply);
    failed = cli_print_json(cli, reply.json);
    return failed ? failed : execution_exit_code(reply.json);
}

const struct command cmd_execute = {
    .name = "execute",
    .summary = "Run Python, bash or JavaScript code, in a session created on demand",
    .usage = "[--language NAME] [--session SESSION] [--timeout T] [--rm] (FILE | --code TEXT | "
             "stdin)",
    .examples = "sandglass execute --code 'print(1 + 1)'\n"
                "sandglass execute script.js\n"
                "echo 'ls -l' | sandglass execute --language bash --session notes\n",
    .details = "The output of the code goes to stdout and stderr. Two lines on stderr follow: the "
               "new files\nof the workspace, '[files] a.png, b.csv', and '[session] ID (ttl: "
               "29m58s)'. Exit codes are\nthose of 'sandglass exec'.",
    .sets = { { execute_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct execute_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_FILE,
    .runs_program = true,
    .run = execute_run,
};
