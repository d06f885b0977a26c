/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host_files.h"
#include "backend/launched.h"
#include "backend/native/remedy.h"
#include "backend/registry.h"
#include "base/str.h"
#include "config/config.h"

#include <string.h>

int native_backend_check(const struct backend_settings *settings, struct error *err)
{
    static const char *const shown[] = { "/usr/", NULL };
    const struct config *config = settings->config;

    if (!str_equal(config->sandbox.backend, "native"))
        return 0;
    if (host_files_check_template(config, err) < 0)
        return -1;
    return host_files_check_python(config, shown, err);
}

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
    return launched_open(LAUNCH_NATIVE, options, err);
}
