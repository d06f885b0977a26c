#include "backend/launched.h"
#include "backend/native/remedy.h"
#include "backend/registry.h"

#include <errno.h>
#include <string.h>

static const struct backend_ops native_backend_ops = {
    .name = "native",
    .capabilities = { .freeze = true,
                      .usage = true,
                      .limits = true,
                      .outlives_daemon = true,
                      .network = true,
                      .disk = true,
                      .templates = true },
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
    .report = launched_report,
};

struct backend *native_backend_open(const struct backend_options *options, struct error *err)
{
    const struct launch_host *host;

    if (!options->launcher) {
        error_set(err, ERR_UNAVAILABLE, "the native backend needs the launcher");
        return NULL;
    }
    host = launcher_host(options->launcher);
    if (!(host->features & LAUNCH_HAS_NATIVE)) {
        error_named(err, ERR_UNAVAILABLE, "native_unavailable",
                    "this host does not allow native sandboxes: %s: %s", host->missing,
                    strerror(host->missing_errno));
        error_hint(err,
                   "%s; or, where the surrounding host or container isolates enough, use --backend "
                   "direct (sandbox.backend: direct)",
                   native_remedy(host->missing));
        return NULL;
    }
    return launched_open(&native_backend_ops, LAUNCH_NATIVE, options, err);
}
