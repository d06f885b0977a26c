/* SPDX-License-Identifier: Apache-2.0 */
#include "config/mountable.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NONE "none"

enum { NAME_SIZE = 160 };

int config_mountable_parse(const char *entry, struct config_mountable *out, struct error *err)
{
    size_t length = strlen(entry);
    bool writable = str_ends_with(entry, ":rw");

    if (writable || str_ends_with(entry, ":ro"))
        length -= 3;
    if (length >= sizeof(out->path))
        return error_set(err, ERR_INVALID, "max.mounts: a path is longer than %zu bytes",
                         sizeof(out->path) - 1);
    memcpy(out->path, entry, length);
    out->path[length] = '\0';
    out->writable = writable;
    if (path_is_clean(out->path))
        return 0;
    error_set(err, ERR_INVALID, "max.mounts: \"%s\" is not the path of a directory", entry);
    return error_hint(err, "write an absolute path without \"..\", and :rw behind it if sandboxes "
                           "may write there");
}

/* --- the lists ------------------------------------------------------------------------------- */

/* The entry number *index of a list, which is counted down by the entries before it. */
static const char *take(const struct config_list *list, size_t *index)
{
    for (size_t i = 0; i < list->count; i++) {
        if (str_equal(list->items[i], NONE))
            continue;
        if (*index == 0)
            return list->items[i];
        --*index;
    }
    return NULL;
}

const char *config_mountable_entry(const struct config *config, size_t index)
{
    const char *entry = take(&config->sandbox.max_mounts, &index);

    for (size_t i = 0; !entry && i < config->owners.count; i++)
        entry = take(&config->owners.items[i].max_mounts, &index);
    return entry;
}

int config_mountable_check(const struct config *config, struct error *err)
{
    struct config_mountable mountable;
    const char *entry;
    struct stat status;

    for (size_t i = 0; (entry = config_mountable_entry(config, i)); i++) {
        if (i == MOUNTABLE_MAXIMUM)
            return error_set(err, ERR_INVALID, "max.mounts: more than %d directories",
                             MOUNTABLE_MAXIMUM);
        if (config_mountable_parse(entry, &mountable, err) < 0)
            return -1;
        if (stat(mountable.path, &status) < 0 || !S_ISDIR(status.st_mode)) {
            error_set(err, ERR_INVALID, "max.mounts: \"%s\" is not a directory of the host",
                      mountable.path);
            return error_hint(err, "create it, or remove it from sandbox.max.mounts and from "
                                   "max.mounts of the owners");
        }
    }
    return 0;
}

/* The list that holds for an owner, and its name for people. */
static const struct config_list *list_of(const struct config *config, const char *owner,
                                         char name[NAME_SIZE])
{
    const struct config_owner *row = config_owner_find(config, owner ? owner : "");

    if (row && row->max_mounts.count) {
        snprintf(name, NAME_SIZE, "max.mounts of the owner \"%.60s\" in the settings", row->name);
        return &row->max_mounts;
    }
    snprintf(name, NAME_SIZE, "sandbox.max.mounts");
    return &config->sandbox.max_mounts;
}

static size_t index_of(const struct config *config, const char *entry)
{
    size_t index = 0;

    while (config_mountable_entry(config, index) != entry)
        index++;
    return index;
}

/* --- one directory --------------------------------------------------------------------------- */

/* The way from `base` to a path that is it, or below it; NULL: it is neither. */
static const char *way_below(const char *path, const char *base)
{
    size_t length = str_equal(base, "/") ? 0 : strlen(base);

    if (strncmp(path, base, length) != 0)
        return NULL;
    if (!path[length])
        return path + length;
    return path[length] == '/' ? path + length + 1 : NULL;
}

/* As it is written in the settings, or by its name without links. */
static const char *way_from(const struct config_mountable *mountable, const char *path)
{
    scoped(free) char *real = NULL;
    const char *way = way_below(path, mountable->path);

    if (way)
        return way;
    real = realpath(mountable->path, NULL);
    return real ? way_below(path, real) : NULL;
}

static int refuse_outside(const char *path, const char *setting, struct error *err)
{
    error_named(err, ERR_FORBIDDEN, "mount_not_allowed",
                "mounts: %.200s is not in a directory that %s allows", path, setting);
    return error_hint(err, "copy the files instead, or have the operator add the directory to "
                           "sandbox.max.mounts");
}

static int refuse_writing(const char *path, const char *setting, struct error *err)
{
    error_named(err, ERR_FORBIDDEN, "mount_not_allowed",
                "mounts: %.200s may be mounted read-only, and not for writing (%s)", path, setting);
    return error_hint(err, "mount it read-only, or have the operator write :rw behind its entry");
}

/* Whether a link on the way leads out of the directory. Its target is not looked at, so that callers
 * who may make links there learn nothing about the rest of the host. */
static bool leads_out(const char *base, const char *way)
{
    const struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_BENEATH };
    scoped(fd_close) int dir = open(base, O_PATH | O_DIRECTORY | O_CLOEXEC);
    scoped(fd_close) int end = (int)syscall(SYS_openat2, dir, *way ? way : ".", &how, sizeof(how));

    return end < 0 && errno == EXDEV;
}

/* Writes the way without links to `relative`, which has it with them. The launcher judges a directory
 * that this process may not search, by the text of its path: the daemon has given up its rights. */
static int follow_links(const char *path, const struct config_mountable *mountable,
                        const char *setting, char relative[PATH_MAX], struct error *err)
{
    scoped(free) char *base = realpath(mountable->path, NULL);
    scoped(free) char *real = base ? realpath(path, NULL) : NULL;
    bool may_not_search = !real && errno == EACCES;
    const char *way = real ? way_below(real, base) : NULL;
    struct stat status;

    if (base && !way && leads_out(base, relative))
        return refuse_outside(path, setting, err);
    if (may_not_search)
        return 0;
    if (!way || stat(real, &status) < 0 || !S_ISDIR(status.st_mode)) {
        error_named(err, ERR_INVALID, "invalid_field",
                    "mounts: %.200s is not a directory of the daemon's host", path);
        return error_hint(err, "give an existing directory; a file can be copied into the sandbox");
    }
    snprintf(relative, PATH_MAX, "%s", way);
    return 0;
}

int config_mount_find(const struct config *config, const char *owner, const char *host_path,
                      bool read_only, struct config_mount_source *out, struct error *err)
{
    char setting[NAME_SIZE];
    const struct config_list *list = list_of(config, owner, setting);
    struct config_mountable mountable;
    bool found = false;

    for (size_t i = 0; path_is_clean(host_path) && i < list->count; i++) {
        const char *way;

        if (str_equal(list->items[i], NONE) ||
            config_mountable_parse(list->items[i], &mountable, err) < 0)
            continue;
        way = way_from(&mountable, host_path);
        found = found || way;
        if (!way || (!read_only && !mountable.writable))
            continue;
        out->index = index_of(config, list->items[i]);
        snprintf(out->relative, sizeof(out->relative), "%s", way);
        return follow_links(host_path, &mountable, setting, out->relative, err);
    }
    return found ? refuse_writing(host_path, setting, err)
                 : refuse_outside(host_path, setting, err);
}
