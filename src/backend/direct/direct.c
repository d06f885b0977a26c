#include "backend/launched.h"
#include "backend/registry.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* Its programs may write to this one directory, which they can neither remove nor make: the host
 * can. */
static bool direct_is_whole(struct backend *backend, const char *id)
{
    char path[ID_SIZE + 32];
    struct stat status;

    snprintf(path, sizeof(path), "sandboxes/%s/workspace", id);
    return fstatat(launched_from(backend)->state_dir, path, &status, AT_SYMLINK_NOFOLLOW) == 0 ||
           errno != ENOENT;
}

static const struct backend_ops direct_backend_ops = {
    .name = "direct",
    .capabilities = { .freeze = true, .usage = true, .limits = true, .outlives_daemon = true },
    .free = launched_free,
    .create = launched_create,
    .limits_in_force = launched_limits_in_force,
    .adopt = launched_adopt,
    .connect = launched_connect,
    .update = launched_update,
    .freeze = launched_freeze,
    .inspect = launched_inspect,
    .destroy = launched_destroy,
    .list = launched_list,
    .check = launched_check,
    .is_whole = direct_is_whole,
    .report = launched_report,
};

struct backend *direct_backend_open(const struct backend_options *options, struct error *err)
{
    const struct launch_host *host;

    if (!options->launcher) {
        error_set(err, ERR_UNAVAILABLE, "the direct backend needs the launcher");
        return NULL;
    }
    host = launcher_host(options->launcher);
    if (!(host->features & LAUNCH_HAS_ROOT) && (host->features & LAUNCH_HAS_NATIVE)) {
        error_set(err, ERR_UNAVAILABLE,
                  "this launcher has entered its own namespaces for native sandboxes");
        error_hint(err, "set sandbox.backend to direct");
        return NULL;
    }
    return launched_open(&direct_backend_ops, LAUNCH_DIRECT, options, err);
}
