#include "service/backends.h"

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

int backends_check_ready(struct core *core, struct error *err)
{
    if (backend_check(core->parts.backend, err) < 0 || check_store(core, err) < 0)
        return -1;
    return check_disk(core, err);
}

void backends_write_json(const struct core *core, struct json_writer *json)
{
    const struct backend_ops *ops = core->parts.backend->ops;

    json_begin_object(json, NULL);
    json_begin_array(json, "backends");
    json_begin_object(json, NULL);
    json_put_text(json, "name", ops->name);
    json_put_bool(json, "active", true);
    json_put_bool(json, "freeze", ops->capabilities.freeze);
    json_put_bool(json, "usage", ops->capabilities.usage);
    json_put_bool(json, "limits", ops->capabilities.limits);
    json_put_bool(json, "outlives_daemon", ops->capabilities.outlives_daemon);
    json_put_bool(json, "gpus", ops->capabilities.gpus);
    json_put_bool(json, "network", ops->capabilities.network);
    json_put_bool(json, "disk", ops->capabilities.disk);
    json_put_bool(json, "templates", ops->capabilities.templates);
    json_end_object(json);
    json_end_array(json);
    json_end_object(json);
}

bool backends_run_as(const struct core *core, uid_t user)
{
    return backend_is_sandbox_user(core->parts.config, user);
}

struct sandbox_limits backends_limits(const struct session *session)
{
    return backend_limits_in_force(session_core(session)->parts.backend, session_limits(session));
}
