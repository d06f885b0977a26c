/* SPDX-License-Identifier: Apache-2.0 */
#include "service/backend_view.h"

#include "backend/backends.h"
#include "config/config.h"
#include "core/core.h"
#include "core/session/session.h"
#include "store/store.h"
#include "wire/json.h"

#include <sys/statvfs.h>

enum { DISK_LEAST_BYTES = 4 * 1024 * 1024 };

/* A full disk loses records and output before the store has failed. */
static int check_disk(const struct core *core, struct error *err)
{
    struct statvfs disk;

    if (fstatvfs(core->parts.state_dir, &disk) < 0)
        return 0; /* nothing is known: the store says whether it works */
    if ((uint64_t)disk.f_bavail * disk.f_frsize >= DISK_LEAST_BYTES &&
        (disk.f_files == 0 || disk.f_favail > 0))
        return 0;
    return error_named(err, ERR_UNAVAILABLE, "disk_full", "the disk of state_dir %s is full",
                       core->parts.config->state_dir);
}

static int check_store(struct core *core, struct error *err)
{
    struct store *store = core->parts.store;

    if (!store->counts.failing)
        return 0;
    store_forget_document(store, "health", "probe");
    return error_named(err, ERR_UNAVAILABLE, "store_failing", "records cannot be written: %s",
                       store->counts.last_failure.message);
}

int backend_view_check_ready(struct core *core, struct error *err)
{
    if (backend_check(backends_default(core->parts.backends), err) < 0 ||
        check_store(core, err) < 0)
        return -1;
    return check_disk(core, err);
}

static void put_capabilities(const struct backend_capabilities *can, struct json_writer *json)
{
    json_put_bool(json, "freeze", can->freeze);
    json_put_bool(json, "usage", can->usage);
    json_put_bool(json, "limits", can->limits);
    json_put_bool(json, "outlives_daemon", can->outlives_daemon);
    json_put_bool(json, "gpus", can->gpus);
    json_put_bool(json, "network", can->network);
    json_put_bool(json, "disk", can->disk);
    json_put_bool(json, "templates", can->templates);
    json_put_bool(json, "mounts", can->mounts);
}

static void put_backend(const struct core *core, size_t index, struct json_writer *json)
{
    struct backend *backend = backends_at(core->parts.backends, index);
    const struct error *absence = backend_absence(backend);
    struct error why = { 0 };
    bool healthy = !absence && backend_check(backend, &why) == 0;

    json_begin_object(json, NULL);
    json_put_text(json, "name", backend->ops->name);
    json_put_text(json, "summary", backend_summary(backend));
    json_put_bool(json, "default", backend == backends_default(core->parts.backends));
    json_put_bool(json, "selectable",
                  backends_access_at(core->parts.backends, index) >= BACKEND_OF_CALLERS);
    json_put_bool(json, "active", !absence);
    json_put_bool(json, "healthy", healthy);
    json_put_text(json, "reason", absence ? absence->message : healthy ? NULL : why.message);
    if (!absence)
        put_capabilities(&backend->ops->capabilities, json);
    json_end_object(json);
}

void backend_view_write_json(const struct core *core, struct json_writer *json)
{
    json_begin_object(json, NULL);
    json_begin_array(json, "backends");
    for (size_t i = 0; i < backends_count(core->parts.backends); i++)
        if (backends_access_at(core->parts.backends, i) >= BACKEND_OF_SETTINGS)
            put_backend(core, i, json);
    json_end_array(json);
    json_end_object(json);
}

bool backend_view_run_as(const struct core *core, uid_t user)
{
    return backend_is_sandbox_user(core->parts.config, user);
}

bool backend_view_shares_host(const struct core *core)
{
    return backends_share_host(core->parts.backends);
}

struct sandbox_limits backend_view_limits(const struct session *session)
{
    return backend_limits_in_force(session_backend(session), session_limits(session));
}

const char *backend_view_default_network(const struct core *core)
{
    if (!backends_default(core->parts.backends)->ops->capabilities.network)
        return "host";
    return core->parts.config->sandbox.network == CONFIG_NETWORK_OPEN ? "open" : "none";
}
