#include "core/sandbox/templates.h"

#include "backend/backend.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/str.h"
#include "config/config.h"
#include "core/core.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMES_SHOWN = 10 };

struct names {
    char **items; /* owned */
    size_t count;
};

static void add(struct names *names, const char *name)
{
    names->items = xrealloc(names->items, names->count + 1, sizeof(*names->items));
    names->items[names->count++] = xstrdup(name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A directory that cannot be read has no templates. */
static void add_imported(struct names *names, const char *state_path)
{
    scoped(free) char *path = path_join(state_path, "templates");
    DIR *stream = opendir(path);
    struct dirent *entry;

    while (stream && (entry = readdir(stream)))
        if (entry->d_name[0] != '.')
            add(names, entry->d_name);
    if (stream)
        closedir(stream);
}

char **templates_list(const struct core *core, size_t *out_count)
{
    const char *usual = core->parts.config->sandbox.template_name;
    struct names names = { 0 };

    add(&names, "host");
    if (core->parts.backend->ops->capabilities.templates) {
        if (*usual == '/')
            add(&names, usual);
        if (core->parts.state_path)
            add_imported(&names, core->parts.state_path);
        qsort(names.items + 1, names.count - 1, sizeof(*names.items), by_name);
    }
    *out_count = names.count;
    return names.items;
}

void templates_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static int refuse(const struct core *core, const char *name, struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    size_t count;
    char **names = templates_list(core, &count);

    for (size_t i = 0; i < MIN(count, (size_t)NAMES_SHOWN); i++)
        buffer_appendf(&text, "%s%s", i ? ", " : "", names[i]);
    if (count > NAMES_SHOWN)
        buffer_appendf(&text, " and %zu more", count - NAMES_SHOWN);
    templates_free(names, count);
    error_named(err, ERR_INVALID, "template_unknown",
                "unknown template \"%.64s\"; known templates: %s", name, buffer_text(&text));
    return error_hint(err, "leave template out for the default, or import it with 'sandglass "
                           "template import'");
}

int templates_check(const struct core *core, const char *name, struct error *err)
{
    scoped(free) char *path = NULL;

    if (str_is_empty(name) || *name == '/' || str_equal(name, "host") ||
        str_equal(name, core->parts.config->sandbox.template_name) || !core->parts.state_path)
        return 0;
    path = xasprintf("%s/templates/%s", core->parts.state_path, name);
    if (path_is_plain_name(name) && (access(path, F_OK) == 0 || errno != ENOENT))
        return 0;
    return refuse(core, name, err);
}
