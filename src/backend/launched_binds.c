/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/launched_binds.h"

#include "base/str.h"
#include "config/mountable.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)SANDBOX_MOUNTS_MAXIMUM == (int)LAUNCH_MAX_BINDS, "all of them fit");
_Static_assert((int)MOUNTABLE_MAXIMUM == (int)LAUNCH_MAX_ALLOWED, "all of them fit");

static int fill_text(char out[LAUNCH_PATH_SIZE], const char *text, struct error *err)
{
    if (strlen(text) >= LAUNCH_PATH_SIZE)
        return error_named(err, ERR_INVALID, "invalid_field",
                           "mounts: the path %.64s… is longer than %d bytes", text,
                           LAUNCH_PATH_SIZE - 1);
    snprintf(out, LAUNCH_PATH_SIZE, "%s", text);
    return 0;
}

int launched_binds_fill(const struct config *config, const struct sandbox_spec *spec,
                        struct launch_create_bound *message, struct error *err)
{
    struct config_mount_source source;

    for (size_t i = 0; i < spec->mount_count; i++) {
        const struct sandbox_mount *mount = &spec->mounts[i];
        struct launch_bind *bind = &message->binds[i];

        if (config_mount_find(config, spec->owner, mount->host_path, mount->read_only, &source,
                              err) < 0 ||
            fill_text(bind->source, source.relative, err) < 0 ||
            fill_text(bind->path, mount->path, err) < 0)
            return -1;
        bind->allowed = (uint32_t)source.index;
        bind->read_only = mount->read_only;
    }
    message->bind_count = (uint32_t)spec->mount_count;
    return 0;
}

int launched_binds_refused(const struct launch_reply *reply, struct error *err)
{
    bool leads_out = reply->error == EXDEV || reply->error == ELOOP || reply->error == EPERM ||
                     reply->error == EROFS;

    if (leads_out)
        error_named(err, ERR_FORBIDDEN, "mount_not_allowed",
                    "mounts: a directory leads out of those that max.mounts allows");
    else
        error_named(err, ERR_INVALID, "invalid_field",
                    "mounts: a directory of the host cannot be opened: %s", strerror(reply->error));
    return error_hint(err, "see sandbox.max.mounts in the settings of the daemon");
}
