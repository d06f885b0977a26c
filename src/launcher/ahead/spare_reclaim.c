/* Kits that come back from sandboxes, to be used again. */

#include "launcher/launcher.h"
#include "launcher/sys.h"
#include "launcher/walls/disk.h"
#include "launcher/walls/spawn.h"

#include <unistd.h>

static bool may_come_back(const struct launcher *launcher, const struct mark *mark)
{
    const struct kits *kits = &launcher->kits;

    return launcher->root && kits->maker >= 0 && mark->mode == LAUNCH_NATIVE &&
           mark->network == LAUNCH_NETWORK_NONE && mark->slot < SLOTS_MAX &&
           kits->lent[mark->slot].socket && !disk_is_wanted(launcher, &mark->limits) &&
           kits->count + kits->ordered + kits->returned_count + kits->recalled < KITS_MAX;
}

static bool is_what_was_lent(const struct kit *kit, const struct lent *lent)
{
    return sys_inode(kit->userns) == lent->userns && sys_inode(kit->netns) == lent->netns &&
           sys_socket_cookie(kit->folder.socket) == lent->socket;
}

bool kit_recall(struct launcher *launcher, const struct mark *mark, int pidfd, struct kit *out_kit)
{
    struct lent *lent;

    kit_init(out_kit);
    if (!may_come_back(launcher, mark))
        return false;
    lent = &launcher->kits.lent[mark->slot];
    out_kit->userns = sandbox_open_namespace(launcher, mark->pid, pidfd, LAUNCH_NS_USER);
    out_kit->netns = sandbox_open_namespace(launcher, mark->pid, pidfd, LAUNCH_NS_NET);
    out_kit->folder.socket = sys_pidfd_getfd(pidfd, SPAWN_FD_SOCKET);
    out_kit->folder.dir = state_open_sandbox(&launcher->state, mark->id);
    if (out_kit->folder.dir >= 0)
        out_kit->folder.mark =
            openat(out_kit->folder.dir, "mark", O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (out_kit->folder.mark < 0 || !is_what_was_lent(out_kit, lent)) {
        kit_close(out_kit);
        return false;
    }
    out_kit->stamp = lent->stamp;
    *lent = (struct lent){ 0 };
    launcher->kits.recalled++;
    out_kit->slot = (int)mark->slot;
    out_kit->limits = mark->limits;
    out_kit->is_used = true;
    return true;
}

void kit_keep(struct launcher *launcher, const struct mark *mark)
{
    if (mark->slot < SLOTS_MAX)
        launcher->kits.lent[mark->slot] = (struct lent){ 0 };
}

/* On v2 groups keep their name, and go. */
static bool take_groups(struct launcher *launcher, const char *id, struct kit *kit)
{
    struct cgroups *cgroups = &launcher->cgroups;
    struct fail ignored;

    if (!cgroups_can_rename(cgroups))
        return cgroups_remove(cgroups, id) == 0;
    kit_name_group(launcher, kit);
    return cgroups_rename(cgroups, id, kit->group, &ignored) == 0 &&
           cgroups_are_empty(cgroups, kit->group);
}

/* The folder goes last: as long as it is there, the sandbox is found again. */
static bool take_names(struct launcher *launcher, const char *id, struct kit *kit)
{
    if (!take_groups(launcher, id, kit))
        return false;
    return folder_take_back(launcher, &kit->folder, id, (unsigned)kit->slot) == 0;
}

bool kit_return(struct launcher *launcher, const char *id, struct kit *kit)
{
    struct kits *kits = &launcher->kits;

    if (kit->slot == SLOTS_NONE)
        return false;
    if (!take_names(launcher, id, kit)) {
        kit_forget(launcher, id, kit);
        return false;
    }
    kits->recalled--;
    kits_wait_for_lull(kits);
    kits->returned[kits->returned_count++] = *kit;
    kit_init(kit);
    return true;
}

void kit_forget(struct launcher *launcher, const char *id, struct kit *kit)
{
    struct fail ignored;

    if (kit->slot == SLOTS_NONE)
        return;
    launcher->kits.recalled--;
    if (*kit->group)
        (void)cgroups_rename(&launcher->cgroups, kit->group, id, &ignored);
    kit_close(kit);
    kit_init(kit); /* its slot and its names are the sandbox's */
}
