/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/completion_values.h"

#include "base/alloc.h"
#include "base/str.h"
#include "cli/session/resolve.h"
#include "cli/session/sessions.h"
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

enum { SETTINGS_MAXIMUM = 1 << 20 };

static void put_line(struct buffer *out, const char *before, const char *text, const char *behind)
{
    if (!str_is_empty(text) && !strpbrk(text, "\n\r"))
        buffer_appendf(out, "%s%s%s\n", before, text, behind);
}

static void put_sessions(struct cli *cli, const char *about UNUSED, struct buffer *out)
{
    const struct text_list no_labels = { 0 };
    const struct sessions_filter filter = { .labels = &no_labels };
    struct error ignored;
    scoped(json_decref) json_t *answer = sessions_list(cli, &filter, false, &ignored);
    const json_t *session;
    size_t i;

    json_array_foreach(json_object_get(answer, "sessions"), i, session)
    {
        put_line(out, "", field_text(session, "key", NULL), "");
        put_line(out, "", field_text(session, "id", NULL), "");
    }
}

/* The members `field` of the documents in `list`, which the daemon answers with. */
static void put_members(struct cli *cli, const char *target, const char *list, const char *field,
                        struct buffer *out)
{
    scoped(reply_fini) struct reply reply = { 0 };
    struct error ignored;
    const json_t *item;
    size_t i;

    if (cli_call(cli, HTTP_GET, target, NULL, &reply, &ignored) < 0)
        return;
    json_array_foreach(json_object_get(reply.json, list), i, item)
        put_line(out, "", field_text(item, field, NULL), "");
}

static void put_executions(struct cli *cli, const char *about, struct buffer *out)
{
    struct error ignored;
    scoped(free) char *session = session_resolve(cli, about, &ignored);
    scoped(free) char *target = session ? session_target(session, "/executions") : NULL;

    if (target)
        put_members(cli, target, "executions", "id", out);
}

static void put_templates(struct cli *cli, const char *about UNUSED, struct buffer *out)
{
    put_members(cli, "/api/v1/templates", "templates", "name", out);
}

/* config_describe() writes paragraphs: the key, then indented lines, then an empty line. */
static void put_settings(struct cli *cli UNUSED, const char *about UNUSED, struct buffer *out)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(SETTINGS_MAXIMUM);
    char *rest, *line;

    config_describe(&text);
    rest = (char *)buffer_text(&text);
    while ((line = strsep(&rest, "\n")))
        if (*line && *line != ' ')
            put_line(out, "", line, "=");
}

/* --- files inside ---------------------------------------------------------------------------- */

/* Looking for a name must not start a sandbox. */
static bool has_sandbox(struct cli *cli, const char *session)
{
    scoped(free) char *target = session_own_target(session);
    scoped(reply_fini) struct reply reply = { 0 };
    struct error ignored;

    return cli_call(cli, HTTP_GET, target, NULL, &reply, &ignored) == 0 &&
           str_equal(session_sandbox_state(reply.json), "ready");
}

/* Names that begin with a dot are offered when the `beginning` does, too: as shells do. */
static bool is_offered(const char *name, const char *beginning)
{
    return *name != '.' || *beginning == '.';
}

static void put_directory(struct cli *cli, const char *session, const char *directory,
                          const char *before, const char *beginning, struct buffer *out)
{
    scoped(free) char *encoded = url_encode(*directory ? directory : ".");
    scoped(free) char *target = session_target(session, "/files/list?path=%s", encoded);
    scoped(reply_fini) struct reply reply = { 0 };
    struct error ignored;
    const json_t *entry;
    size_t i;

    if (cli_call(cli, HTTP_GET, target, NULL, &reply, &ignored) < 0)
        return;
    json_array_foreach(json_object_get(reply.json, "entries"), i, entry)
    {
        const char *path = field_text(entry, "path", "");
        const char *slash = strrchr(path, '/');
        const char *name = slash ? slash + 1 : path;

        if (is_offered(name, beginning))
            put_line(out, before, name,
                     str_equal(field_text(entry, "type", ""), "directory") ? "/" : "");
    }
}

/* SESSION:PATH, of which the last name may be a beginning. */
static void put_files(struct cli *cli, const char *about, struct buffer *out)
{
    const char *from = str_starts_with(about, "key:") ? about + strlen("key:") : about;
    const char *colon = strchr(from, ':');
    const char *slash = colon ? strrchr(colon, '/') : NULL;
    const char *end = slash ? slash + 1 : colon ? colon + 1 : NULL;
    scoped(free) char *name = colon ? xstrndup(about, (size_t)(colon - about)) : NULL;
    scoped(free) char *directory = colon ? xstrndup(colon + 1, (size_t)(end - colon - 1)) : NULL;
    scoped(free) char *before = colon ? xstrndup(about, (size_t)(end - about)) : NULL;
    struct error ignored;
    scoped(free) char *session = name ? session_resolve(cli, name, &ignored) : NULL;

    if (session && has_sandbox(cli, session))
        put_directory(cli, session, directory, before, end, out);
}

void completion_values(struct cli *cli, const char *kind, const char *about, struct buffer *out)
{
    static const struct {
        const char *kind;
        void (*put)(struct cli *cli, const char *about, struct buffer *out);
    } kinds[] = {
        { "sessions", put_sessions },   { "executions", put_executions },
        { "templates", put_templates }, { "settings", put_settings },
        { "files", put_files },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(kinds); i++)
        if (str_equal(kinds[i].kind, kind))
            kinds[i].put(cli, about ? about : "", out);
}
