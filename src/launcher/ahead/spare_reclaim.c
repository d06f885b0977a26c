/* SPDX-License-Identifier: Apache-2.0 */
/* Spares that come back from sandboxes, to be used again. */

#include "launcher/ahead/spares.h"
#include "launcher/namespaces.h"
#include "launcher/sys.h"
#include "launcher/walls/walls.h"

#include <unistd.h>

static bool is_reclaimable(const struct spares *spares, const struct mark *mark)
{
    const struct builder_parts *parts = &spares->parts.builder;

    return parts->spare.context->root && spares->builder >= 0 && mark->mode == LAUNCH_NATIVE &&
           mark->network == LAUNCH_NETWORK_NONE && mark->slot < UID_RANGES_MAX &&
           spares->issued[mark->slot].socket &&
           !disk_is_wanted(&parts->walls->disks, &mark->limits) &&
           spares->count + spares->ordered + spares->reclaimed_count + spares->reclaiming <
               SPARES_MAX;
}

static bool is_what_was_issued(const struct spare *spare, const struct issued *issued)
{
    return sys_inode(spare->userns) == issued->userns && sys_inode(spare->netns) == issued->netns &&
           sys_socket_cookie(spare->directory.socket) == issued->socket;
}

bool spare_reclaim_begin(struct spares *spares, const struct mark *mark, int pidfd,
                         struct spare *out_spare)
{
    const struct state *state = &spares_parts_of(spares)->context->state;
    struct issued *issued;

    spare_init(out_spare);
    if (!is_reclaimable(spares, mark))
        return false;
    issued = &spares->issued[mark->slot];
    out_spare->userns = namespace_of_process(state->proc, mark->pid, pidfd, LAUNCH_NS_USER);
    out_spare->netns = namespace_of_process(state->proc, mark->pid, pidfd, LAUNCH_NS_NET);
    out_spare->directory.socket = sys_pidfd_getfd(pidfd, SPAWN_FD_SOCKET);
    out_spare->directory.dir = state_open_sandbox(state, mark->id);
    if (out_spare->directory.dir >= 0)
        out_spare->directory.mark =
            openat(out_spare->directory.dir, "mark", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (out_spare->directory.mark < 0 || !is_what_was_issued(out_spare, issued)) {
        spare_close(out_spare);
        return false;
    }
    out_spare->stamp = issued->stamp;
    *issued = (struct issued){ 0 };
    spares->reclaiming++;
    out_spare->slot = (int)mark->slot;
    out_spare->limits = mark->limits;
    out_spare->is_used = true;
    return true;
}

void spare_pin(struct spares *spares, const struct mark *mark)
{
    if (mark->slot < UID_RANGES_MAX)
        spares->issued[mark->slot] = (struct issued){ 0 };
}

/* On v2 cgroups keep their name, and go. */
static bool take_cgroups(struct spares *spares, const char *id, struct spare *spare)
{
    struct cgroups *cgroups = spares_parts_of(spares)->cgroups;
    struct fail ignored;

    if (!cgroups_can_rename(cgroups))
        return cgroups_remove(cgroups, id) == 0;
    spare_name_cgroup(spares_parts_of(spares), spare);
    return cgroups_rename(cgroups, id, spare->cgroup_name, &ignored) == 0 &&
           cgroups_are_empty(cgroups, spare->cgroup_name);
}

/* The directory goes last: as long as it is there, the sandbox is found again. */
static bool take_names(struct spares *spares, const char *id, struct spare *spare)
{
    if (!take_cgroups(spares, id, spare))
        return false;
    return directory_take_back(spares_parts_of(spares)->context, &spare->directory, id,
                               (unsigned)spare->slot) == 0;
}

bool spare_reclaim_finish(struct spares *spares, const char *id, struct spare *spare)
{
    if (spare->slot == UID_RANGE_NONE)
        return false;
    if (!take_names(spares, id, spare)) {
        spare_reclaim_cancel(spares, id, spare);
        return false;
    }
    spares->reclaiming--;
    spares_wait_for_lull(spares);
    spares->reclaimed[spares->reclaimed_count++] = *spare;
    spare_init(spare);
    return true;
}

void spare_reclaim_cancel(struct spares *spares, const char *id, struct spare *spare)
{
    struct fail ignored;

    if (spare->slot == UID_RANGE_NONE)
        return;
    spares->reclaiming--;
    if (*spare->cgroup_name)
        (void)cgroups_rename(spares_parts_of(spares)->cgroups, spare->cgroup_name, id, &ignored);
    spare_close(spare);
    spare_init(spare); /* its slot and its names are the sandbox's */
}
