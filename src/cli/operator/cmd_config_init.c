/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass config init: a file with every setting, commented out, to start from. */

#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/commands.h"
#include "config/config.h"
#include "wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAXIMUM = 4 << 20, COMMENT_WIDTH = 100 };

struct init_args {
    struct common_args common;
    bool print;
};

static const struct option init_options[] = {
    { "print", 0, OPTION_FLAG, offsetof(struct init_args, print), NULL, NULL,
      "print the text on stdout instead of writing a file" },
    { 0 },
};

/* Words in lines that begin with "# ". */
static void append_comment(struct buffer *out, const char *text)
{
    size_t column = 0;

    while (*text) {
        size_t length = strcspn(text, " ");

        if (column && column + 1 + length > COMMENT_WIDTH) {
            buffer_append_byte(out, '\n');
            column = 0;
        }
        buffer_append_text(out, column ? " " : "# ");
        buffer_append(out, text, length);
        column += length + (column ? 1 : 2);
        text += length + strspn(text + length, " ");
    }
    buffer_append_byte(out, '\n');
}

/* The line of `key` in what config_show() writes, without the origin behind it; NULL without one. */
static char *line_of(const char *shown, const char *key)
{
    scoped(free) char *start = xasprintf("%s: ", key);
    const char *line = shown;

    while (line && !str_starts_with(line, start)) {
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    if (!line)
        return NULL;
    return xstrndup(line, strcspn(line, "\n"));
}

static void append_default(struct buffer *out, const char *shown, const char *key)
{
    scoped(free) char *line = line_of(shown, key);
    char *origin = line ? strstr(line, "  # ") : NULL;

    if (origin)
        *origin = '\0';
    for (size_t length = line ? strlen(line) : 0; length && line[length - 1] == ' '; length--)
        line[length - 1] = '\0';
    if (line)
        buffer_appendf(out, "#%s\n", line);
    else
        buffer_appendf(out, "#%s:\n", key);
}

/* config_describe() writes paragraphs: the key, then indented lines, then an empty line. */
static int write_settings(struct buffer *out, struct error *err)
{
    scoped(buffer_fini) struct buffer described = BUFFER_INIT(TEXT_MAXIMUM);
    scoped(buffer_fini) struct buffer shown = BUFFER_INIT(TEXT_MAXIMUM);
    scoped(config_fini) struct config defaults = { 0 };
    const char *key = NULL;
    char *rest, *line;

    if (config_load_text(&defaults, "", 0, "defaults", err) < 0)
        return -1;
    config_show(&defaults, &shown, false);
    config_describe(&described);
    rest = (char *)buffer_text(&described);
    buffer_append_text(out,
                       "# Settings of Sandglass. Each one is commented out and has its default "
                       "value.\n# 'sandglass config check' checks this file.\n\n");
    while ((line = strsep(&rest, "\n"))) {
        if (*line == ' ') {
            append_comment(out, line + strspn(line, " "));
        } else if (*line) {
            key = line;
        } else if (key) {
            append_default(out, buffer_text(&shown), key);
            buffer_append_byte(out, '\n');
            key = NULL;
        }
    }
    return 0;
}

static int make_parent(const char *path, struct error *err)
{
    scoped(free) char *directory = xstrdup(path);
    char *slash = strrchr(directory, '/');

    if (!slash || slash == directory)
        return 0;
    *slash = '\0';
    return path_make_dirs(directory, 0755, err);
}

/* A file that exists stays as it is. */
static int write_file(const char *path, const struct buffer *text, struct error *err)
{
    scoped(fd_close) int fd = -1;

    if (make_parent(path, err) < 0)
        return -1;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) {
        error_set(err, ERR_CONFLICT, "%s exists already and was not changed", path);
        return error_hint(err, "'sandglass config init --print' prints the text; "
                               "'sandglass config init FILE' writes another file");
    }
    if (fd < 0)
        return error_sys(err, "create %s", path);
    if (fd_write_all(fd, text->data, text->length) == 0)
        return 0;
    error_sys(err, "write %s", path);
    (void)unlink(path);
    return -1;
}

static int init_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct init_args *args = given_args;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(TEXT_MAXIMUM);
    scoped(json_decref) json_t *document = NULL;
    scoped(free) char *path = NULL;
    scoped(free) char *line = NULL;
    struct error err;

    if (given->operands.count > (args->print ? 0 : 1))
        return cli_misuse(cli,
                          args->print ? "--print takes no file" : "init takes at most one file");
    if (write_settings(&text, &err) < 0)
        return cli_fail(cli, &err);
    if (args->print)
        return cli_print(cli, text.data, text.length);
    path = given->operands.count ? xstrdup(given->operands.items[0]) : config_new_file_path();
    if (write_file(path, &text, &err) < 0)
        return cli_fail(cli, &err);
    document = json_pack("{s:s}", "file", path);
    if (cli->json)
        return cli_print_json(cli, document);
    line = xasprintf("%s\n", path);
    return cli_print(cli, line, strlen(line));
}

const struct command cmd_config_init = {
    .name = "init",
    .summary = "Write a commented file with every setting, and print its path",
    .usage = "[--print | FILE]",
    .examples = "sandglass config init\n"
                "sandglass config init ./sandglass.yaml\n",
    .details =
        "Without FILE: $SANDGLASS_CONFIG, else /etc/sandglass/sandglass.yaml as root and\n"
        "~/.config/sandglass/sandglass.yaml for other users. A file that exists is not changed.",
    .sets = { { init_options, 0, "Options" }, COMMON_OPTIONS },
    .args_size = sizeof(struct init_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_FILE,
    .run = init_run,
};
