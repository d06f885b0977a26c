/* SPDX-License-Identifier: Apache-2.0 */
/* sandglass mcp install: adds our server to the configuration of MCP clients. */

#include "base/alloc.h"
#include "base/str.h"
#include "cli/commands.h"
#include "cli/mcp/mcp_clients.h"
#include "cli/mcp/mcp_session.h"
#include "cli/session/mount_option.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAXIMUM = 1 << 20, NAME_MAXIMUM = 64 };

#define CLIENTS "claude-desktop claude-code cursor vscode windsurf gemini codex zed"

struct install_args {
    struct common_args common;
    const char *write;
    const char *remove;
    const char *name;
    struct mcp_session_args session;
};

static const struct option install_options[] = {
    { "write", 0, OPTION_TEXT, offsetof(struct install_args, write), "CLIENT", CLIENTS,
      "write the entry into the configuration of this client; the rest of the file is kept" },
    { "remove", 0, OPTION_TEXT, offsetof(struct install_args, remove), "CLIENT", CLIENTS,
      "remove the entry from the configuration of this client; the rest of the file is kept" },
    { "name", 0, OPTION_TEXT, offsetof(struct install_args, name), "NAME", NULL,
      "name of the server in the client; default sandglass" },
    { 0 },
};

static char *own_program(void)
{
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

    return length > 0 ? xstrndup(path, (size_t)length) : xstrdup("sandglass");
}

static bool is_plain(const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '-' && name[i] != '_')
            return false;
    return length > 0 && length <= NAME_MAXIMUM;
}

static int change_file(const struct mcp_client_kind *kind, const struct mcp_entry *entry,
                       const char *path, bool removes, enum mcp_change *out_change,
                       struct error *err)
{
    return removes ? mcp_client_remove(kind, entry->name, path, out_change, err)
                   : mcp_client_write(kind, entry, path, out_change, err);
}

static int change_entry(struct cli *cli, const char *client, const struct mcp_entry *entry,
                        bool removes)
{
    static const char *const words[] = { [MCP_ADDED] = "added to",
                                         [MCP_REPLACED] = "replaced in",
                                         [MCP_UNCHANGED] = "already in",
                                         [MCP_REMOVED] = "removed from",
                                         [MCP_ABSENT] = "is not in" };
    const struct mcp_client_kind *kind = mcp_client_kind_find(client);
    scoped(free) char *path = NULL;
    scoped(free) char *line = NULL;
    enum mcp_change change;
    struct error err;

    path = mcp_client_path(kind, &err);
    if (!path || change_file(kind, entry, path, removes, &change, &err) < 0)
        return cli_fail(cli, &err);
    if (cli->json) {
        json_t *document = json_pack("{s: s, s: s, s: b}", "client", kind->name, "file", path,
                                     "changed", change != MCP_UNCHANGED && change != MCP_ABSENT);
        int code = cli_print_json(cli, document);

        json_decref(document);
        return code;
    }
    line = xasprintf("%s: %s %s; restart %s\n", entry->name, words[change], path, kind->title);
    if (change == MCP_ABSENT)
        *strchr(line, ';') = '\n';
    return cli_print(cli, line, strlen(line));
}

/* A row for each client, or for the one that is named. */
static json_t *describe_json(const char *client, const struct mcp_entry *entry)
{
    json_t *rows = json_array();

    for (const struct mcp_client_kind *kind = mcp_client_kinds; kind->name; kind++) {
        scoped(buffer_fini) struct buffer text = BUFFER_INIT(TEXT_MAXIMUM);
        scoped(free) char *path = mcp_client_path(kind, NULL);

        if (client && strcmp(client, kind->name) != 0)
            continue;
        mcp_client_describe(kind, entry, &text);
        json_array_append_new(rows,
                              json_pack("{s: s, s: s, s: s?, s: s}", "client", kind->name, "title",
                                        kind->title, "file", path, "content", buffer_text(&text)));
    }
    return rows;
}

static int print_entries(struct cli *cli, const char *client, const struct mcp_entry *entry)
{
    json_t *rows = describe_json(client, entry);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(TEXT_MAXIMUM);
    int code;

    if (cli->json) {
        json_t *document = json_pack("{s: O}", "clients", rows);

        code = cli_print_json(cli, document);
        json_decref(document);
    } else {
        const json_t *row;
        size_t i;

        json_array_foreach(rows, i, row)
        {
            buffer_appendf(&text, "%s# %s: %s\n%s", i ? "\n" : "", field_text(row, "title", ""),
                           field_text(row, "file", "?"), field_text(row, "content", ""));
        }
        code = cli_print(cli, text.data, text.length);
    }
    json_decref(rows);
    return code;
}

static int install_entry(struct cli *cli, const struct install_args *args, const char *client,
                         const struct mcp_entry *entry)
{
    if (args->write || args->remove)
        return change_entry(cli, args->write ? args->write : args->remove, entry, args->remove);
    return print_entries(cli, client, entry);
}

/* A client starts the server in a directory of its own: paths of mounts become absolute. */
static int write_mounts(const struct text_list *mounts, struct text_list *words,
                        struct text_list *owned, struct error *err)
{
    scoped(mount_option_fini) struct config_mounts shared = { 0 };

    if (mount_option_read(mounts, &shared, err) < 0)
        return -1;
    for (size_t i = 0; i < shared.count; i++) {
        const struct config_mount *mount = &shared.items[i];

        text_list_add(owned, xasprintf("%s:%s%s", mount->host_path, mount->path,
                                       mount->read_only ? ":ro" : ""));
        text_list_add(words, "--mount");
        text_list_add(words, owned->items[owned->count - 1]);
    }
    return 0;
}

static int install_run(struct cli *cli, const void *given_args, const struct option_result *given)
{
    const struct install_args *args = given_args;
    static const struct option_set set = { mcp_session_options, 0, "" };
    struct mcp_session_args session = args->session;
    const char *client = given->operands.count ? given->operands.items[0] : NULL;
    scoped(text_list_fini) struct text_list words = { 0 };
    scoped(text_list_fini) struct text_list owned = { 0 };
    scoped(free) char *program = own_program();
    const struct mcp_entry entry = {
        .name = args->name ? args->name : "sandglass",
        .program = program,
        .url = str_is_empty(args->common.url) ? NULL : args->common.url,
        .options = &words,
    };
    struct error err;
    int code;

    if (!is_plain(entry.name))
        return cli_misuse(cli, "--name must consist of letters, digits, - and _");
    if (given->operands.count > 1 || (client && !mcp_client_kind_find(client)))
        return cli_misuse(cli, "install takes one client: " CLIENTS);
    if (args->write && args->remove)
        return cli_misuse(cli, "--write and --remove exclude each other");
    session.create.mounts = (struct text_list){ 0 };
    options_write(&set, &session, &words, &owned);
    code = write_mounts(&args->session.create.mounts, &words, &owned, &err) < 0
               ? cli_fail(cli, &err)
               : install_entry(cli, args, client, &entry);
    for (size_t i = 0; i < owned.count; i++)
        free((char *)owned.items[i]);
    return code;
}

const struct command cmd_mcp_install = {
    .name = "install",
    .summary = "Print or write the configuration of MCP clients",
    .usage = "[SESSION OPTIONS] [CLIENT | --write CLIENT | --remove CLIENT]",
    .examples = "sandglass mcp install\n"
                "sandglass mcp install --write cursor --memory 4g\n"
                "sandglass mcp install --remove cursor\n",
    .details = "Without --write the command only prints the entry and the file that it belongs in, "
               "for all\nknown clients or for one. With --url the server uses that daemon; "
               "session options are passed\non to 'sandglass mcp'. A file that cannot be parsed is "
               "left unchanged.",
    .sets = { { install_options, 0, "Options" },
              { mcp_session_options, offsetof(struct install_args, session), "Session options" },
              COMMON_OPTIONS },
    .args_size = sizeof(struct install_args),
    .plain_after = OPERANDS_MIXED,
    .operand = OPERAND_WORDS,
    .words = CLIENTS,
    .run = install_run,
};
