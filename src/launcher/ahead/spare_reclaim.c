/* Spares that come back from sandboxes, to be used again. */

#include "launcher/launcher.h"
#include "launcher/sys.h"
#include "launcher/walls/disk.h"
#include "launcher/walls/spawn.h"

#include <unistd.h>

static bool is_reclaimable(const struct launcher *launcher, const struct mark *mark)
{
    const struct spares *spares = &launcher->spares;

    return launcher->root && spares->builder >= 0 && mark->mode == LAUNCH_NATIVE &&
           mark->network == LAUNCH_NETWORK_NONE && mark->slot < UID_RANGES_MAX &&
           spares->issued[mark->slot].socket && !disk_is_wanted(launcher, &mark->limits) &&
           spares->count + spares->ordered + spares->reclaimed_count + spares->reclaiming <
               SPARES_MAX;
}

static bool is_what_was_issued(const struct spare *spare, const struct issued *issued)
{
    return sys_inode(spare->userns) == issued->userns && sys_inode(spare->netns) == issued->netns &&
           sys_socket_cookie(spare->directory.socket) == issued->socket;
}

bool spare_reclaim_begin(struct launcher *launcher, const struct mark *mark, int pidfd,
                         struct spare *out_spare)
{
    struct issued *issued;

    spare_init(out_spare);
    if (!is_reclaimable(launcher, mark))
        return false;
    issued = &launcher->spares.issued[mark->slot];
    out_spare->userns = sandbox_open_namespace(launcher, mark->pid, pidfd, LAUNCH_NS_USER);
    out_spare->netns = sandbox_open_namespace(launcher, mark->pid, pidfd, LAUNCH_NS_NET);
    out_spare->directory.socket = sys_pidfd_getfd(pidfd, SPAWN_FD_SOCKET);
    out_spare->directory.dir = state_open_sandbox(&launcher->state, mark->id);
    if (out_spare->directory.dir >= 0)
        out_spare->directory.mark =
            openat(out_spare->directory.dir, "mark", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (out_spare->directory.mark < 0 || !is_what_was_issued(out_spare, issued)) {
        spare_close(out_spare);
        return false;
    }
    out_spare->stamp = issued->stamp;
    *issued = (struct issued){ 0 };
    launcher->spares.reclaiming++;
    out_spare->slot = (int)mark->slot;
    out_spare->limits = mark->limits;
    out_spare->is_used = true;
    return true;
}

void spare_pin(struct launcher *launcher, const struct mark *mark)
{
    if (mark->slot < UID_RANGES_MAX)
        launcher->spares.issued[mark->slot] = (struct issued){ 0 };
}

/* On v2 cgroups keep their name, and go. */
static bool take_cgroups(struct launcher *launcher, const char *id, struct spare *spare)
{
    struct cgroups *cgroups = &launcher->cgroups;
    struct fail ignored;

    if (!cgroups_can_rename(cgroups))
        return cgroups_remove(cgroups, id) == 0;
    spare_name_cgroup(launcher, spare);
    return cgroups_rename(cgroups, id, spare->cgroup_name, &ignored) == 0 &&
           cgroups_are_empty(cgroups, spare->cgroup_name);
}

/* The directory goes last: as long as it is there, the sandbox is found again. */
static bool take_names(struct launcher *launcher, const char *id, struct spare *spare)
{
    if (!take_cgroups(launcher, id, spare))
        return false;
    return directory_take_back(launcher, &spare->directory, id, (unsigned)spare->slot) == 0;
}

bool spare_reclaim_finish(struct launcher *launcher, const char *id, struct spare *spare)
{
    struct spares *spares = &launcher->spares;

    if (spare->slot == UID_RANGE_NONE)
        return false;
    if (!take_names(launcher, id, spare)) {
        spare_reclaim_cancel(launcher, id, spare);
        return false;
    }
    spares->reclaiming--;
    spares_wait_for_lull(spares);
    spares->reclaimed[spares->reclaimed_count++] = *spare;
    spare_init(spare);
    return true;
}

void spare_reclaim_cancel(struct launcher *launcher, const char *id, struct spare *spare)
{
    struct fail ignored;

    if (spare->slot == UID_RANGE_NONE)
        return;
    launcher->spares.reclaiming--;
    if (*spare->cgroup_name)
        (void)cgroups_rename(&launcher->cgroups, spare->cgroup_name, id, &ignored);
    spare_close(spare);
    spare_init(spare); /* its slot and its names are the sandbox's */
}
