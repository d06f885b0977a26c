/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"
#include "wire/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const struct option common_options[] = {
    { "url", 0, OPTION_TEXT, offsetof(struct common_args, url), "URL", NULL,
      "address of the daemon: unix:PATH or http://HOST:PORT; default: $SANDGLASS_URL, else the "
      "default socket" },
    { "json", 0, OPTION_FLAG, offsetof(struct common_args, json), NULL, NULL,
      "print one JSON document on stdout, errors included" },
    { "help", 'h', OPTION_FLAG, offsetof(struct common_args, help), NULL, NULL, "show this help" },
    { 0 },
};

int cli_print(struct cli *cli, const void *text, size_t length)
{
    if (fd_write_all(STDOUT_FILENO, text, length) == 0)
        return 0;
    if (errno != EPIPE)
        cli_note("write to stdout: %s", strerror(errno));
    return cli->command && cli->command->runs_program ? EXIT_SANDGLASS : EXIT_REFUSED;
}

int cli_print_json(struct cli *cli, const json_t *document)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(2 * (size_t)REPLY_MAXIMUM);
    scoped(free) char *dump = json_dumps(document, JSON_INDENT(2) | JSON_REAL_PRECISION(15));

    buffer_appendf(&text, "%s\n", dump ? dump : "null");
    return cli_print(cli, text.data, text.length);
}

void cli_note(const char *format, ...)
{
    scoped(buffer_fini) struct buffer line = BUFFER_INIT(4096);
    va_list args;

    buffer_append_text(&line, "sandglass: ");
    va_start(args, format);
    buffer_vappendf(&line, format, args);
    va_end(args);
    buffer_append_byte(&line, '\n');
    (void)fd_write_all(STDERR_FILENO, line.data, line.length);
}

static void print_error_document(const struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(16384);
    struct json_writer writer = JSON_WRITER(&text);

    json_put_error(&writer, err);
    buffer_append_byte(&text, '\n');
    (void)fd_write_all(STDOUT_FILENO, text.data, text.length);
}

static void print_error(const struct cli *cli, const struct error *err)
{
    if (cli->json) {
        print_error_document(err);
        return;
    }
    cli_note("%s", err->message);
    if (*err->hint)
        cli_note("hint: %s", err->hint);
}

int cli_fail(struct cli *cli, const struct error *err)
{
    print_error(cli, err);
    return cli->command && cli->command->runs_program ? EXIT_SANDGLASS : EXIT_REFUSED;
}

int cli_misuse(struct cli *cli, const char *format, ...)
{
    char message[512];
    struct error err;
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    error_named(&err, ERR_INVALID, "usage", "%s", message);
    if (cli->command)
        error_hint(&err, "usage: %s %s", cli->path, cli->command->usage);
    else
        error_hint(&err, "'sandglass help' lists the commands");
    print_error(cli, &err);
    return cli->command && cli->command->runs_program ? EXIT_SANDGLASS : EXIT_USAGE;
}

/* --- fields of a document -------------------------------------------------------------------- */

const char *field_text(const json_t *object, const char *name, const char *fallback)
{
    const json_t *value = json_object_get(object, name);

    return json_is_string(value) ? json_string_value(value) : fallback;
}

double field_number(const json_t *object, const char *name, double fallback)
{
    const json_t *value = json_object_get(object, name);

    return json_is_number(value) ? json_number_value(value) : fallback;
}

int64_t field_int(const json_t *object, const char *name, int64_t fallback)
{
    const json_t *value = json_object_get(object, name);

    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

bool field_bool(const json_t *object, const char *name)
{
    return json_is_true(json_object_get(object, name));
}
