/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/templates.h"

#include "backend/backends.h"
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

static void add_source(void *names, const char *name)
{
    add(names, name);
}

/* "host" first, then those of the state directory. */
static void add_templates(const struct core *core, const struct backend *backend,
                          struct names *names)
{
    const char *usual = core->parts.config->sandbox.template_name;

    add(names, "host");
    if (!backend->ops->capabilities.templates)
        return;
    if (*usual == '/')
        add(names, usual);
    if (core->parts.state_path)
        add_imported(names, core->parts.state_path);
}

static void add_of_backend(const struct core *core, const struct backend *backend,
                           struct names *names)
{
    if (backend_has_sources(backend))
        backend_list_sources(backend, add_source, names);
    else
        add_templates(core, backend, names);
}

/* Sorted, but for "host" at the beginning, and each once. */
static void sort(struct names *names)
{
    size_t first = names->count && str_equal(names->items[0], "host");
    size_t kept = first;

    qsort(names->items + first, names->count - first, sizeof(*names->items), by_name);
    for (size_t i = first; i < names->count; i++) {
        if ((kept && str_equal(names->items[i], names->items[kept - 1])) ||
            (first && str_equal(names->items[i], "host")))
            free(names->items[i]);
        else
            names->items[kept++] = names->items[i];
    }
    names->count = kept;
}

char **templates_list(const struct core *core, size_t *out_count)
{
    const struct backends *backends = core->parts.backends;
    struct names names = { 0 };

    for (size_t i = 0; i < backends_count(backends); i++) {
        const struct backend *backend = backends_at(backends, i);

        if (!backend_absence(backend))
            add_of_backend(core, backend, &names);
    }
    if (!names.count)
        add(&names, "host");
    sort(&names);
    *out_count = names.count;
    return names.items;
}

void templates_free(char **names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

static int refuse(const struct core *core, const struct backend *backend, const char *name,
                  struct error *err)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct names names = { 0 };

    add_templates(core, backend, &names);
    sort(&names);
    for (size_t i = 0; i < MIN(names.count, (size_t)NAMES_SHOWN); i++)
        buffer_appendf(&text, "%s%s", i ? ", " : "", names.items[i]);
    if (names.count > NAMES_SHOWN)
        buffer_appendf(&text, " and %zu more", names.count - NAMES_SHOWN);
    templates_free(names.items, names.count);
    error_named(err, ERR_INVALID, "template_unknown",
                "unknown template \"%.64s\"; known templates: %s", name, buffer_text(&text));
    return error_hint_known(err, HINT_TEMPLATE);
}

int templates_check(const struct core *core, const struct backend *backend, const char *name,
                    struct error *err)
{
    scoped(free) char *path = NULL;

    if (backend_has_sources(backend))
        return backend_check_source(
            backend, &(struct sandbox_source){ .kind = SOURCE_TEMPLATE, .name = name }, err);
    if (str_is_empty(name) || *name == '/' || str_equal(name, "host") ||
        str_equal(name, core->parts.config->sandbox.template_name) || !core->parts.state_path)
        return 0;
    path = xasprintf("%s/templates/%s", core->parts.state_path, name);
    if (path_is_plain_name(name) && (access(path, F_OK) == 0 || errno != ENOENT))
        return 0;
    return refuse(core, backend, name, err);
}
