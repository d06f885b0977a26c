/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host_files.h"
#include "backend/launched.h"
#include "backend/registry.h"
#include "base/str.h"
#include "config/config.h"

static int check_ids(const struct backend_settings *settings, struct error *err)
{
    const struct config *config = settings->config;
    const struct {
        const char *key;
        uint64_t id, own;
    } ids[] = {
        { "sandbox.direct.uid", (uint64_t)config->sandbox.direct_uid, settings->uid },
        { "sandbox.direct.gid", (uint64_t)config->sandbox.direct_gid, settings->gid },
    };

    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        if (config_is_default(config, ids[i].key) ||
            (ids[i].id != 0 && (settings->is_own_user || ids[i].id != ids[i].own)))
            continue;
        error_named(err, ERR_INVALID, "id_not_safe", "%s: programs must not run as %s", ids[i].key,
                    ids[i].id ? "the daemon's own user" : "root");
        return error_hint(err, "leave it out: each sandbox then has its own id");
    }
    return 0;
}

/* A direct sandbox has the files of the host: it cannot be given others. Where direct is not the
 * default, a session that names it has to name the template "host" too. */
static int check_files(const struct config *config, struct error *err)
{
    static const char *const shown[] = { "/usr/", "/opt/", "/nix/store/", "/bin/", NULL };
    bool is_default = str_equal(config->sandbox.backend, "direct");

    if (is_default && !str_equal(config->sandbox.template_name, "host"))
        return error_set(err, ERR_INVALID,
                         "sandbox.template: the backend direct uses the files of the host and does "
                         "not support templates; use \"host\", or the backend native");
    if (config->sandbox.mounts.count)
        return error_set(err, ERR_INVALID,
                         "sandbox.mounts: the backend direct does not support mounts; remove them, "
                         "or use the backend native");
    return is_default ? host_files_check_python(config, shown, err) : 0;
}

int direct_backend_check(const struct backend_settings *settings, struct error *err)
{
    const struct config *config = settings->config;
    bool is_named = config_names_backend(config, "direct");

    if (is_named && check_files(config, err) < 0)
        return -1;
    return is_named || config->sandbox.allow_direct_fallback ? check_ids(settings, err) : 0;
}

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
        error_hint(err, "start the daemon as root to have both, or set sandbox.backend to direct");
        return NULL;
    }
    return launched_open(LAUNCH_DIRECT, options, err);
}
