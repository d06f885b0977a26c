#include "backend/launched.h"
#include "backend/registry.h"

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
    return launched_open(LAUNCH_DIRECT, options, err);
}
