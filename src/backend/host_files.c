/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host_files.h"

#include "base/alloc.h"
#include "base/scoped.h"
#include "base/str.h"
#include "config/config.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_directory(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

int host_files_check_template(const struct config *config, struct error *err)
{
    const char *name = config->sandbox.template_name;
    scoped(free) char *templates = path_join(config->state_dir, "templates");
    scoped(free) char *imported = path_join(templates, name);

    if (str_equal(name, "host") || is_directory(*name == '/' ? name : imported))
        return 0;
    error_named(err, ERR_INVALID, "template_unknown", "sandbox.template: unknown template \"%s\"",
                name);
    return error_hint(
        err, *name == '/'
                 ? "give an existing directory, or \"host\""
                 : "'sandglass template ls' lists the imported templates; \"host\" always exists");
}

/* Where a path inside sandboxes is on the host: its directory, and the path below that. */
static char *find_inside(const struct config *config, const char *path, const char **out_below)
{
    const char *name = config->sandbox.template_name;

    for (size_t i = 0; i < config->sandbox.mounts.count; i++) {
        const struct config_mount *mount = &config->sandbox.mounts.items[i];
        size_t length = strlen(mount->path);

        if (strncmp(path, mount->path, length) == 0 && path[length] == '/') {
            *out_below = path + length;
            return xstrdup(mount->host_path);
        }
    }
    *out_below = path;
    if (str_equal(name, "host"))
        return xstrdup("/");
    return *name == '/' ? xstrdup(name) : xasprintf("%s/templates/%s", config->state_dir, name);
}

/* Resolves links as in a sandbox: below `root`. */
static int open_inside(const char *root, const char *path)
{
    const struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT };
    scoped(fd_close) int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

    return dir < 0 ? -1 : (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

static bool is_shown(const char *const *shown, const char *root, int file)
{
    char link[40], target[4096] = "";

    if (!str_equal(root, "/"))
        return true;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
    if (readlink(link, target, sizeof(target) - 1) <= 0)
        return false;
    for (; *shown; shown++)
        if (str_starts_with(target, *shown))
            return true;
    return false;
}

int host_files_check_python(const struct config *config, const char *const *shown,
                            struct error *err)
{
    const char *path = config->python.path;
    const char *below = NULL;
    scoped(free) char *root = *path ? find_inside(config, path, &below) : NULL;
    scoped(fd_close) int file = -1;
    struct stat status;

    if (!*path)
        return 0;
    file = open_inside(root, below);
    if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_mode & S_IXOTH && is_shown(shown, root, file))
        return 0;
    error_named(err, ERR_INVALID, "interpreter_missing",
                "python.path: sandboxes of the template \"%s\" have no program %s",
                config->sandbox.template_name, path);
    return error_hint(err, "give a program that every user may execute inside, or leave it out");
}
