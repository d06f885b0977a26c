/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ahead/spare.h"

#include "launcher/sys.h"
#include "launcher/walls/userns.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void spare_init(struct spare *spare)
{
    *spare = (struct spare){ .slot = UID_RANGE_NONE,
                             .userns = -1,
                             .netns = -1,
                             .cgroup = CGROUP_ENTRY_NONE,
                             .directory = DIRECTORY_NONE,
                             .root = -1 };
}

void spare_close(struct spare *spare)
{
    sys_drop(&spare->userns);
    sys_drop(&spare->netns);
    sys_drop(&spare->root);
    cgroup_entry_close(&spare->cgroup);
    directory_close(&spare->directory);
}

void spare_drop(const struct spare_parts *parts, struct spare *spare)
{
    spare_close(spare);
    directory_drop(parts->context, &spare->directory);
    if (*spare->cgroup_name)
        (void)cgroups_remove(parts->cgroups, spare->cgroup_name);
    if (spare->slot != UID_RANGE_NONE)
        uid_ranges_release(parts->uid_ranges, (uint32_t)spare->slot);
    spare_init(spare);
}

void spare_name_cgroup(const struct spare_parts *parts, struct spare *spare)
{
    if (cgroups_can_rename(parts->cgroups))
        snprintf(spare->cgroup_name, sizeof(spare->cgroup_name), CGROUP_SPARE_PREFIX "%d-%d",
                 parts->context->pid, spare->slot);
}

static int complete_network(const struct spare_parts *parts, struct spare *spare,
                            struct netns_traces *traces, struct fail *fail)
{
    if (spare->netns >= 0 && !netns_is_unused(&parts->home, spare->netns, traces)) {
        netns_traces_close(traces);
        sys_drop(&spare->netns);
    }
    if (spare->netns < 0)
        spare->netns = netns_make(&parts->home, fail);
    return spare->netns < 0 ? -1 : 0;
}

static int complete_directory(const struct spare_parts *parts, struct spare *spare,
                              struct fail *fail)
{
    if (spare->directory.dir >= 0)
        return directory_renew(&spare->directory, fail);
    return directory_make(parts->context, &spare->directory, (unsigned)spare->slot, fail);
}

static int complete_cgroups(const struct spare_parts *parts, struct spare *spare,
                            const struct launch_limits *limits, struct cgroup_watch *watch,
                            struct fail *fail)
{
    struct cgroups *cgroups = parts->cgroups;

    if (!*spare->cgroup_name)
        return 0;
    if (spare->is_used && cgroups_renew(cgroups, spare->cgroup_name, &spare->limits, limits, watch,
                                        &spare->cgroup) == 0)
        return 0;
    cgroup_watch_close(watch);
    if (spare->is_used && cgroups_remove(cgroups, spare->cgroup_name) < 0)
        return fail_sys(fail, "remove cgroup");
    return cgroups_make(cgroups, spare->cgroup_name, limits, &spare->cgroup, fail);
}

int spare_complete(const struct spare_parts *parts, struct spare *spare,
                   const struct launch_limits *limits, struct netns_traces *traces,
                   struct cgroup_watch *watch, struct fail *fail)
{
    if (spare->userns < 0)
        spare->userns = userns_make(parts->context, (uint32_t)spare->slot, fail);
    if (spare->userns < 0 || complete_network(parts, spare, traces, fail) < 0 ||
        complete_directory(parts, spare, fail) < 0 ||
        complete_cgroups(parts, spare, limits, watch, fail) < 0)
        return -1;
    spare->limits = *limits;
    spare->is_used = false;
    spare->stamp = 0;
    return 0;
}
