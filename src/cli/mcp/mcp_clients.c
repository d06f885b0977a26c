/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mcp/mcp_clients.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAXIMUM = 16 << 20 };

#define DUMP_FLAGS (JSON_INDENT(2) | JSON_REAL_PRECISION(17))

const struct mcp_client_kind mcp_client_kinds[] = {
    { "claude-desktop", "Claude Desktop", true, "Claude/claude_desktop_config.json", "mcpServers",
      false },
    { "claude-code", "Claude Code", false, ".claude.json", "mcpServers", true },
    { "cursor", "Cursor", false, ".cursor/mcp.json", "mcpServers", false },
    { "vscode", "VS Code", true, "Code/User/mcp.json", "servers", true },
    { "windsurf", "Windsurf", false, ".codeium/windsurf/mcp_config.json", "mcpServers", false },
    { "gemini", "Gemini CLI", false, ".gemini/settings.json", "mcpServers", false },
    { "codex", "Codex", false, ".codex/config.toml", NULL, false },
    { "zed", "Zed", true, "zed/settings.json", "context_servers", false },
    { 0 },
};

const struct mcp_client_kind *mcp_client_kind_find(const char *name)
{
    for (const struct mcp_client_kind *kind = mcp_client_kinds; kind->name; kind++)
        if (str_equal(kind->name, name))
            return kind;
    return NULL;
}

char *mcp_client_path(const struct mcp_client_kind *kind, struct error *err)
{
    const char *home = getenv("HOME");
    const char *config = getenv("XDG_CONFIG_HOME");

    if (kind->in_config_dir && !str_is_empty(config))
        return path_join(config, kind->file);
    if (str_is_empty(home)) {
        error_set(err, ERR_INVALID, "HOME is not set, so the path of %s is unknown", kind->file);
        return NULL;
    }
    return xasprintf("%s/%s%s", home, kind->in_config_dir ? ".config/" : "", kind->file);
}

/* --- the entry ------------------------------------------------------------------------------- */

static json_t *entry_arguments(const struct mcp_entry *entry)
{
    json_t *arguments = json_pack("[s]", "mcp");

    if (entry->url) {
        json_array_append_new(arguments, json_string("--url"));
        json_array_append_new(arguments, json_string(entry->url));
    }
    for (size_t i = 0; i < entry->options->count; i++)
        json_array_append_new(arguments, json_string(entry->options->items[i]));
    return arguments;
}

static json_t *entry_json(const struct mcp_client_kind *kind, const struct mcp_entry *entry)
{
    json_t *object = json_object();

    if (kind->has_type)
        json_object_set_new(object, "type", json_string("stdio"));
    json_object_set_new(object, "command", json_string(entry->program));
    json_object_set_new(object, "args", entry_arguments(entry));
    return object;
}

/* JSON texts and arrays of them are TOML too. */
static void put_toml(const struct mcp_entry *entry, struct buffer *out)
{
    json_t *program = json_string(entry->program);
    json_t *arguments = entry_arguments(entry);
    scoped(free) char *program_text = json_dumps(program, JSON_ENCODE_ANY);
    scoped(free) char *argument_text = json_dumps(arguments, 0);

    buffer_appendf(out, "[mcp_servers.%s]\ncommand = %s\nargs = %s\n", entry->name, program_text,
                   argument_text);
    json_decref(program);
    json_decref(arguments);
}

void mcp_client_describe(const struct mcp_client_kind *kind, const struct mcp_entry *entry,
                         struct buffer *out)
{
    json_t *document;
    scoped(free) char *text = NULL;

    if (!kind->member) {
        put_toml(entry, out);
        return;
    }
    document = json_pack("{s: {s: o}}", kind->member, entry->name, entry_json(kind, entry));
    text = json_dumps(document, DUMP_FLAGS);
    buffer_appendf(out, "%s\n", text);
    json_decref(document);
}

/* --- files ----------------------------------------------------------------------------------- */

/* An absent file is an empty one. */
static int read_file(const char *path, struct buffer *out, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return errno == ENOENT ? 0 : error_sys(err, "read %s", path);
    if (fd_read_all(fd, out) == 0)
        return 0;
    if (errno == EFBIG)
        return error_set(err, ERR_TOO_LARGE, "%s is too large for a configuration file", path);
    return error_sys(err, "read %s", path);
}

/* As the old one was: whose it is, and who may read it. */
static void copy_rights(int fd, const char *path)
{
    struct stat old;

    if (stat(path, &old) < 0)
        return;
    (void)fchmod(fd, old.st_mode & 07777);
    if (fchown(fd, old.st_uid, old.st_gid) < 0)
        errno = 0; /* it is ours then, which is as good as it gets */
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

/* The new file takes the old one's place at once, or not at all. A link stays one. */
static int replace_file(const char *path, const struct buffer *text, struct error *err)
{
    scoped(free) char *real = realpath(path, NULL);
    const char *target = real ? real : path;
    scoped(free) char *temporary = xasprintf("%s.XXXXXX", target);
    scoped(fd_close) int fd = -1;

    if (make_parent(target, err) < 0)
        return -1;
    fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return error_sys(err, "write a temporary file beside %s", target);
    copy_rights(fd, target);
    if (fd_write_all(fd, text->data, text->length) == 0 && fsync(fd) == 0 &&
        rename(temporary, target) == 0)
        return 0;
    error_sys(err, "write %s", target);
    (void)unlink(temporary);
    return -1;
}

/* --- JSON ------------------------------------------------------------------------------------ */

static int refuse_file(const char *path, const char *why, struct error *err)
{
    error_named(err, ERR_INVALID, "malformed_file", "%s was not changed: %s", path, why);
    return error_hint(
        err, "correct the file, or add the entry by hand: 'sandglass mcp install' prints it");
}

static json_t *read_document(const char *path, const struct buffer *text, struct error *err)
{
    json_error_t problem;
    json_t *document;

    if (text->length == 0)
        return json_object();
    document = json_loadb((const char *)text->data, text->length,
                          JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (!document) {
        scoped(free) char *why =
            xasprintf("it is not valid JSON, line %d: %s", problem.line, problem.text);

        refuse_file(path, why, err);
    } else if (!json_is_object(document)) {
        json_decref(document);
        document = NULL;
        refuse_file(path, "it is not a JSON object", err);
    }
    return document;
}

static int set_entry(json_t *document, const struct mcp_client_kind *kind,
                     const struct mcp_entry *entry, const char *path, enum mcp_change *out_change,
                     struct error *err)
{
    json_t *entries = json_object_get(document, kind->member);
    json_t *wanted = entry_json(kind, entry);
    const json_t *old;

    if (!entries) {
        entries = json_object();
        json_object_set_new(document, kind->member, entries);
    }
    if (!json_is_object(entries)) {
        scoped(free) char *why = xasprintf("its %s is not an object", kind->member);

        json_decref(wanted);
        return refuse_file(path, why, err);
    }
    old = json_object_get(entries, entry->name);
    *out_change = !old ? MCP_ADDED : json_equal(old, wanted) ? MCP_UNCHANGED : MCP_REPLACED;
    json_object_set_new(entries, entry->name, wanted);
    return 0;
}

static int write_json(const struct mcp_client_kind *kind, const struct mcp_entry *entry,
                      const char *path, const struct buffer *old, enum mcp_change *out_change,
                      struct error *err)
{
    json_t *document = read_document(path, old, err);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(2 * FILE_MAXIMUM);
    scoped(free) char *dumped = NULL;
    int result;

    if (!document)
        return -1;
    result = set_entry(document, kind, entry, path, out_change, err);
    if (result == 0 && *out_change != MCP_UNCHANGED) {
        dumped = json_dumps(document, DUMP_FLAGS);
        buffer_appendf(&text, "%s\n", dumped);
        result = replace_file(path, &text, err);
    }
    json_decref(document);
    return result;
}

/* --- TOML ------------------------------------------------------------------------------------ */

/* Without a reader for TOML nothing that stands there is touched: the entry goes to the end, which
 * is right for a table wherever it stands. */
static int write_toml(const struct mcp_entry *entry, const char *path, struct buffer *old,
                      enum mcp_change *out_change, struct error *err)
{
    scoped(free) char *heading = xasprintf("[mcp_servers.%s]", entry->name);
    scoped(buffer_fini) struct buffer added = BUFFER_INIT(FILE_MAXIMUM);
    const char *text;

    if (old->length > 0 && !str_is_utf8((const char *)old->data, old->length))
        return refuse_file(path, "it is not UTF-8 text", err);
    put_toml(entry, &added);
    text = old->length ? buffer_text(old) : "";
    *out_change = strstr(text, buffer_text(&added)) ? MCP_UNCHANGED : MCP_ADDED;
    if (*out_change == MCP_UNCHANGED)
        return 0;
    if (strstr(text, heading))
        return refuse_file(path, "it has another entry with this name", err);
    if (old->length > 0)
        buffer_append_text(old, old->data[old->length - 1] == '\n' ? "\n" : "\n\n");
    if (buffer_append(old, added.data, added.length) < 0)
        return error_set(err, ERR_TOO_LARGE, "%s is too large for a configuration file", path);
    return replace_file(path, old, err);
}

int mcp_client_write(const struct mcp_client_kind *kind, const struct mcp_entry *entry,
                     const char *path, enum mcp_change *out_change, struct error *err)
{
    scoped(buffer_fini) struct buffer old = BUFFER_INIT(FILE_MAXIMUM);

    if (read_file(path, &old, err) < 0)
        return -1;
    return kind->member ? write_json(kind, entry, path, &old, out_change, err)
                        : write_toml(entry, path, &old, out_change, err);
}

/* --- removing -------------------------------------------------------------------------------- */

static int remove_json(const struct mcp_client_kind *kind, const char *name, const char *path,
                       const struct buffer *old, enum mcp_change *out_change, struct error *err)
{
    json_t *document = read_document(path, old, err);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(2 * FILE_MAXIMUM);
    scoped(free) char *dumped = NULL;
    int result = 0;

    if (!document)
        return -1;
    *out_change = json_object_del(json_object_get(document, kind->member), name) == 0 ? MCP_REMOVED
                                                                                      : MCP_ABSENT;
    if (*out_change == MCP_REMOVED) {
        dumped = json_dumps(document, DUMP_FLAGS);
        buffer_appendf(&text, "%s\n", dumped);
        result = replace_file(path, &text, err);
    }
    json_decref(document);
    return result;
}

/* The line that is exactly `heading`; NULL without one. */
static const char *find_line(const char *text, const char *heading)
{
    size_t length = strlen(heading);

    for (const char *at = strstr(text, heading); at; at = strstr(at + 1, heading))
        if ((at == text || at[-1] == '\n') && (at[length] == '\n' || !at[length]))
            return at;
    return NULL;
}

/* The table reaches to the next heading. Tables below it are not ours. */
static int remove_toml(const char *name, const char *path, struct buffer *old,
                       enum mcp_change *out_change, struct error *err)
{
    scoped(free) char *heading = xasprintf("[mcp_servers.%s]", name);
    scoped(free) char *below = xasprintf("[mcp_servers.%s.", name);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(FILE_MAXIMUM);
    const char *all = old->length ? buffer_text(old) : "";
    const char *start = find_line(all, heading);
    const char *end = start ? strstr(start, "\n[") : NULL;

    *out_change = start ? MCP_REMOVED : MCP_ABSENT;
    if (!start)
        return 0;
    if (strstr(all, below))
        return refuse_file(path, "the entry has tables of its own; remove it by hand", err);
    buffer_append(&text, all, (size_t)(start - all));
    if (end)
        buffer_append_text(&text, end + 1);
    return replace_file(path, &text, err);
}

int mcp_client_remove(const struct mcp_client_kind *kind, const char *name, const char *path,
                      enum mcp_change *out_change, struct error *err)
{
    scoped(buffer_fini) struct buffer old = BUFFER_INIT(FILE_MAXIMUM);

    if (read_file(path, &old, err) < 0)
        return -1;
    return kind->member ? remove_json(kind, name, path, &old, out_change, err)
                        : remove_toml(name, path, &old, out_change, err);
}
