#include "backend/launched.h"
#include "backend/registry.h"

#include <sys/stat.h>

static const struct backend_ops direct_backend_ops = {
    .name = "direct",
    .capabilities = { .freeze = true, .usage = true, .limits = true, .outlives_daemon = true },
    .free = launched_free,
    .create = launched_create,
    .adopt = launched_adopt,
    .connect = launched_connect,
    .update = launched_update,
    .freeze = launched_freeze,
    .inspect = launched_inspect,
    .destroy = launched_destroy,
    .list = launched_list,
    .check = launched_check,
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
        error_set(err, ERR_UNAVAILABLE, "this launcher has left the host for native sandboxes");
        error_hint(err, "set sandbox.backend to direct");
        return NULL;
    }
    return launched_open(&direct_backend_ops, LAUNCH_DIRECT, options);
}
