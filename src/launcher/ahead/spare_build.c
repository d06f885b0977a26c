#include "launcher/ahead/spare.h"

#include "launcher/ahead/builder_cache.h"
#include "launcher/launcher.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void kit_init(struct kit *kit)
{
    *kit = (struct kit){ .slot = SLOTS_NONE,
                         .userns = -1,
                         .netns = -1,
                         .cgroup = CGROUP_ENTRY_NONE,
                         .folder = FOLDER_NONE,
                         .root = -1 };
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void kit_close(struct kit *kit)
{
    close_fd(&kit->userns);
    close_fd(&kit->netns);
    close_fd(&kit->root);
    cgroup_entry_close(&kit->cgroup);
    folder_close(&kit->folder);
}

void kit_drop(struct launcher *launcher, struct kit *kit)
{
    kit_close(kit);
    folder_drop(launcher, &kit->folder);
    if (*kit->group)
        (void)cgroups_remove(&launcher->cgroups, kit->group);
    if (kit->slot != SLOTS_NONE)
        slots_release(&launcher->slots, (uint32_t)kit->slot);
    kit_init(kit);
}

void kit_name_group(const struct launcher *launcher, struct kit *kit)
{
    if (cgroups_can_rename(&launcher->cgroups))
        snprintf(kit->group, sizeof(kit->group), "kit-%d-%d", launcher->pid, kit->slot);
}

static int complete_network(struct launcher *launcher, struct kit *kit, struct netns_traces *traces,
                            struct fail *fail)
{
    if (kit->netns >= 0 && !netns_is_unused(launcher, kit->netns, traces)) {
        netns_traces_close(traces);
        close_fd(&kit->netns);
    }
    if (kit->netns < 0)
        kit->netns = netns_make(launcher, fail);
    return kit->netns < 0 ? -1 : 0;
}

static int complete_folder(struct launcher *launcher, struct kit *kit, struct fail *fail)
{
    if (kit->folder.dir >= 0)
        return folder_renew(&kit->folder, fail);
    return folder_make(launcher, &kit->folder, (unsigned)kit->slot, fail);
}

static int complete_groups(struct launcher *launcher, struct kit *kit,
                           const struct launch_limits *limits, struct cgroup_watch *watch,
                           struct fail *fail)
{
    struct cgroups *cgroups = &launcher->cgroups;

    if (!*kit->group)
        return 0;
    if (kit->is_used &&
        cgroups_renew(cgroups, kit->group, &kit->limits, limits, watch, &kit->cgroup) == 0)
        return 0;
    cgroup_watch_close(watch);
    if (kit->is_used && cgroups_remove(cgroups, kit->group) < 0)
        return fail_sys(fail, "remove cgroup");
    return cgroups_make(cgroups, kit->group, limits, &kit->cgroup, fail);
}

int kit_complete(struct launcher *launcher, struct kit *kit, const struct launch_limits *limits,
                 struct kept *kept, struct fail *fail)
{
    if (kit->userns < 0)
        kit->userns = userns_make(launcher, (uint32_t)kit->slot, fail);
    if (kit->userns < 0 || complete_network(launcher, kit, &kept->traces, fail) < 0 ||
        complete_folder(launcher, kit, fail) < 0 ||
        complete_groups(launcher, kit, limits, &kept->groups, fail) < 0)
        return -1;
    kit->limits = *limits;
    kit->is_used = false;
    kit->stamp = 0;
    return 0;
}
