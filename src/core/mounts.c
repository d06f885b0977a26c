/* SPDX-License-Identifier: Apache-2.0 */
#include "core/mounts.h"

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/str.h"
#include "config/mountable.h"

#include <stdlib.h>
#include <string.h>

enum { PATH_LENGTH = 255, TEXT_MAXIMUM = 16 << 10 };

struct item {
    const char *host_path, *path;
    bool read_only;
};

#define ITEM(name) offsetof(struct item, name)

const struct json_field mounts_fields[] = {
    { "host_path", JSON_KIND_TEXT, ITEM(host_path), .required = true, .max_length = PATH_LENGTH },
    { "path", JSON_KIND_TEXT, ITEM(path), .max_length = PATH_LENGTH },
    { "read_only", JSON_KIND_BOOL, ITEM(read_only) },
    { 0 },
};

enum { FIELDS = ARRAY_LENGTH(mounts_fields) - 1 };

/* --- their form ------------------------------------------------------------------------------ */

/* One is the other, or below it. */
static bool overlaps(const char *a, const char *b)
{
    size_t length = MIN(strlen(a), strlen(b));

    return strncmp(a, b, length) == 0 && (!a[length] || a[length] == '/') &&
           (!b[length] || b[length] == '/');
}

static int refuse(struct error *err, const char *what, const char *path)
{
    return error_named(err, ERR_INVALID, "invalid_field", "mounts: \"%.200s\" %s", path, what);
}

static int add(struct mounts *mounts, const struct item *item, struct error *err)
{
    struct sandbox_mount mount = { .host_path = item->host_path,
                                   .path = item->path ? item->path : item->host_path,
                                   .read_only = item->read_only };

    if (mounts->count == SANDBOX_MOUNTS_MAXIMUM)
        return error_named(err, ERR_INVALID, "invalid_field", "mounts must be at most %d",
                           SANDBOX_MOUNTS_MAXIMUM);
    if (*mount.host_path != '/')
        return refuse(err, "is not an absolute path of the host", mount.host_path);
    if (!path_is_clean(mount.path) || !mount.path[1])
        return refuse(err, "is not a place for a mount: give an absolute path without \"..\"",
                      mount.path);
    for (size_t i = 0; i < mounts->count; i++)
        if (overlaps(mounts->items[i].path, mount.path))
            return refuse(err, "is also the place of another mount, or in it", mount.path);
    mounts->items[mounts->count++] = mount;
    return 0;
}

int mounts_read(struct mounts *mounts, const json_t *list, struct error *err)
{
    json_t *value;
    size_t i;

    *mounts = (struct mounts){ .document = json_incref((json_t *)list) };
    json_array_foreach((json_t *)list, i, value)
    {
        struct item item = { .read_only = true };

        if (json_decode(value, mounts_fields, FIELDS, &item, err) < 0) {
            mounts_fini(mounts);
            return error_wrap(err, "mounts");
        }
        if (add(mounts, &item, err) < 0) {
            mounts_fini(mounts);
            return -1;
        }
    }
    return 0;
}

int mounts_parse(struct mounts *mounts, const char *text, struct error *err)
{
    scoped(free) char *whole = xasprintf("{\"mounts\":%s}", text ? text : "[]");
    scoped(json_decref) json_t *document = json_read(whole, strlen(whole), err);

    *mounts = (struct mounts){ 0 };
    return document ? mounts_read(mounts, json_object_get(document, "mounts"), err) : -1;
}

void mounts_fini(struct mounts *mounts)
{
    json_decref(mounts->document);
    *mounts = (struct mounts){ 0 };
}

char *mounts_text(const struct mounts *mounts)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(TEXT_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    if (!mounts->count)
        return NULL;
    json_begin_array(&json, NULL);
    for (size_t i = 0; i < mounts->count; i++) {
        json_begin_object(&json, NULL);
        json_put_text(&json, "host_path", mounts->items[i].host_path);
        json_put_text(&json, "path", mounts->items[i].path);
        json_put_bool(&json, "read_only", mounts->items[i].read_only);
        json_end_object(&json);
    }
    json_end_array(&json);
    return buffer_steal_text(&text);
}

int mounts_normalize(const json_t *list, char **out_text, struct error *err)
{
    scoped(mounts_fini) struct mounts mounts = { 0 };

    if (list && mounts_read(&mounts, list, err) < 0)
        return -1;
    *out_text = mounts_text(&mounts);
    return 0;
}

/* --- whether they may be --------------------------------------------------------------------- */

static int check_one(const struct sandbox_mount *mount, const struct config *config,
                     const char *owner, struct error *err)
{
    struct config_mount_source source;

    for (size_t i = 0; i < config->sandbox.mounts.count; i++)
        if (overlaps(config->sandbox.mounts.items[i].path, mount->path))
            return refuse(err, "is also the place of a mount of sandbox.mounts, or in it",
                          mount->path);
    return config_mount_find(config, owner, mount->host_path, mount->read_only, &source, err);
}

int mounts_check(const struct mounts *mounts, const struct config *config, const char *owner,
                 struct error *err)
{
    for (size_t i = 0; i < mounts->count; i++)
        if (check_one(&mounts->items[i], config, owner, err) < 0)
            return -1;
    return 0;
}
