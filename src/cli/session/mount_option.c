/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/session/mount_option.h"

#include "base/alloc.h"
#include "base/str.h"
#include "wire/json.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_directory(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* The parts of DIR[:PATH][:ro], which end the text in the place of its colons. */
static int split(char *text, char **out_path, bool *out_read_only, struct error *err)
{
    char *colon = strchr(text, ':');
    char *second = colon ? strchr(colon + 1, ':') : NULL;
    char *mode = second ? second + 1 : NULL;

    *out_path = NULL;
    if (second)
        *second = '\0';
    if (colon) {
        *colon = '\0';
        *out_path = colon + 1;
    }
    if (!mode && *out_path && (str_equal(*out_path, "ro") || str_equal(*out_path, "rw"))) {
        mode = *out_path;
        *out_path = NULL;
    }
    if (mode && !str_equal(mode, "ro") && !str_equal(mode, "rw"))
        return error_set(err, ERR_INVALID, "--mount: \"%s\" is not ro or rw", mode);
    *out_read_only = str_equal(mode, "ro");
    return 0;
}

static int read_mount(const char *text, struct config_mount *out, struct error *err)
{
    scoped(free) char *copy = xstrdup(text);
    scoped(free) char *real = NULL;
    bool read_only = false;
    char *path;

    if (split(copy, &path, &read_only, err) < 0)
        return -1;
    real = realpath(copy, NULL);
    if (!real)
        return error_sys(err, "--mount %s", copy);
    if (!is_directory(real))
        return error_set(err, ERR_INVALID, "--mount %s: not a directory; use --copy for a file",
                         copy);
    if (path && *path != '/')
        return error_set(err, ERR_INVALID, "--mount: the path inside must be absolute, not \"%s\"",
                         path);
    *out = (struct config_mount){ xstrdup(real), xstrdup(path ? path : real), read_only };
    return 0;
}

int mount_option_read(const struct text_list *mounts, struct config_mounts *out, struct error *err)
{
    out->items = xcalloc(mounts->count + 1, sizeof(*out->items));
    for (; out->count < mounts->count; out->count++)
        if (read_mount(mounts->items[out->count], &out->items[out->count], err) < 0)
            return -1;
    return 0;
}

void mount_option_fini(struct config_mounts *mounts)
{
    for (size_t i = 0; i < mounts->count; i++) {
        free(mounts->items[i].host_path);
        free(mounts->items[i].path);
    }
    free(mounts->items);
    *mounts = (struct config_mounts){ 0 };
}

int mount_option_write(const struct text_list *mounts, struct json_writer *json, struct error *err)
{
    scoped(mount_option_fini) struct config_mounts read = { 0 };

    if (!mounts->count)
        return 0;
    if (mount_option_read(mounts, &read, err) < 0)
        return -1;
    json_begin_array(json, "mounts");
    for (size_t i = 0; i < read.count; i++) {
        json_begin_object(json, NULL);
        json_put_text(json, "host_path", read.items[i].host_path);
        json_put_text(json, "path", read.items[i].path);
        json_put_bool(json, "read_only", read.items[i].read_only);
        json_end_object(json);
    }
    json_end_array(json);
    return 0;
}

bool mount_option_is_local(const struct cli *cli)
{
    static const char *const hosts[] = { "localhost", "127.0.0.1", "[::1]" };
    const char *scheme = strstr(cli->url, "://");
    const char *host = scheme ? scheme + 3 : cli->url;

    if (str_starts_with(cli->url, "unix:"))
        return true;
    for (size_t i = 0; i < ARRAY_LENGTH(hosts); i++) {
        size_t length = strlen(hosts[i]);

        if (strncmp(host, hosts[i], length) == 0 && strchr(":/", host[length]))
            return true;
    }
    return false;
}

bool mount_option_is_refused(const struct error *err)
{
    return str_equal(err->name, "mount_not_allowed") || str_equal(err->name, "backend_unable") ||
           str_equal(err->name, "unknown_field"); /* of a daemon that does not know mounts */
}
