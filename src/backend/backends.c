/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/backends.h"

#include "backend/names.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/macros.h"
#include "base/str.h"

#include <assert.h>
#include <stdlib.h>

struct entry {
    struct backend *backend; /* owned */
    char *name;              /* owned; of an absent one, else NULL */
    enum backend_access access;
};

struct backends {
    struct loop *loop; /* borrowed */
    struct entry *entries;
    size_t count;
};

struct backends *backends_new(struct loop *loop)
{
    struct backends *backends = xnew(struct backends);

    backends->loop = loop;
    return backends;
}

void backends_free(struct backends *backends)
{
    if (!backends)
        return;
    for (size_t i = 0; i < backends->count; i++) {
        backend_close(backends->entries[i].backend);
        free(backends->entries[i].name);
    }
    free(backends->entries);
    free(backends);
}

static void add(struct backends *backends, struct entry entry)
{
    backends->entries =
        xrealloc(backends->entries, backends->count + 1, sizeof(*backends->entries));
    backends->entries[backends->count++] = entry;
}

void backends_add(struct backends *backends, struct backend *backend, enum backend_access access)
{
    add(backends, (struct entry){ .backend = backend, .access = access });
}

void backends_add_absent(struct backends *backends, const char *name, const struct error *why,
                         enum backend_access access)
{
    struct entry entry = { .name = xstrdup(name), .access = access };

    entry.backend = absent_backend_new(backends->loop, entry.name, why);
    add(backends, entry);
}

size_t backends_count(const struct backends *backends)
{
    return backends->count;
}

struct backend *backends_at(const struct backends *backends, size_t index)
{
    assert(index < backends->count);
    return backends->entries[index].backend;
}

enum backend_access backends_access_at(const struct backends *backends, size_t index)
{
    assert(index < backends->count);
    return backends->entries[index].access;
}

bool backends_share_host(const struct backends *backends)
{
    for (size_t i = 0; i < backends->count; i++) {
        const struct backend *backend = backends->entries[i].backend;

        if (!backend->ops->capabilities.network && !backend_absence(backend))
            return true;
    }
    return false;
}

struct backend *backends_default(const struct backends *backends)
{
    return backends_at(backends, 0);
}

/* The backend of this name with the widest access, if that is at least `least`. */
static const struct entry *find(const struct backends *backends, const char *name,
                                enum backend_access least)
{
    const struct entry *found = NULL;

    if (str_is_empty(name))
        return &backends->entries[0];
    for (size_t i = 0; i < backends->count; i++) {
        const struct entry *entry = &backends->entries[i];

        if (entry->access >= least && str_equal(entry->backend->ops->name, name) &&
            (!found || entry->access > found->access))
            found = entry;
    }
    return found;
}

struct backend *backends_find(const struct backends *backends, const char *name)
{
    const struct entry *entry = find(backends, name, BACKEND_OF_SETTINGS);

    return entry ? entry->backend : NULL;
}

static struct backend *add_disabled(struct backends *backends, const char *name,
                                    enum backend_access access)
{
    struct error why = { 0 };

    error_named(&why, ERR_UNAVAILABLE, "backend_not_enabled",
                "the backend %.40s is not enabled in this daemon", name);
    error_hint(&why, "add %.40s to sandbox.backends and start the daemon again", name);
    backends_add_absent(backends, name, &why, access);
    return backends->entries[backends->count - 1].backend;
}

struct backend *backends_of_record(struct backends *backends, const char *name)
{
    const struct entry *entry = find(backends, name, BACKEND_OF_RECORDS);

    return entry ? entry->backend : add_disabled(backends, name, BACKEND_OF_RECORDS);
}

struct backend *backends_of_session(struct backends *backends, const char *name)
{
    const struct entry *entry = find(backends, name, BACKEND_OF_CALLERS);

    if (entry)
        return entry->backend;
    for (size_t i = 0; i < backends->count; i++)
        if (backends->entries[i].access == BACKEND_OF_NOBODY &&
            str_equal(backends->entries[i].name, name))
            return backends->entries[i].backend;
    return add_disabled(backends, name, BACKEND_OF_NOBODY);
}

struct backend *backends_of_request(const struct backends *backends, const char *name,
                                    struct error *err)
{
    const struct entry *entry = find(backends, name, BACKEND_OF_CALLERS);
    scoped(buffer_fini) struct buffer names = BUFFER_INIT(1024);

    if (entry)
        return entry->backend;
    for (size_t i = 0; i < backends->count; i++)
        if (backends->entries[i].access >= BACKEND_OF_CALLERS)
            buffer_appendf(&names, "%s%s", names.length ? ", " : "",
                           backends->entries[i].backend->ops->name);
    error_named(err, ERR_INVALID, "backend_unknown",
                "backend: \"%.40s\" is not available; sessions of this daemon may use %s", name,
                buffer_text(&names));
    error_hint(err, "leave backend out for the default; sandbox.backends of the daemon's settings "
                    "lists the others");
    return NULL;
}

#define SUMMARY(backend, launcher, text) { #backend, text },

const char *backend_summary(const struct backend *backend)
{
    static const struct {
        const char *name, *text;
    } summaries[] = { BACKEND_ROWS(SUMMARY) };

    for (size_t i = 0; i < ARRAY_LENGTH(summaries); i++)
        if (str_equal(summaries[i].name, backend->ops->name))
            return summaries[i].text;
    return NULL;
}
