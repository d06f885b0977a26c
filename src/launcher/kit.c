#include "launcher/kit.h"

#include "launcher/launcher.h"
#include "launcher/native.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void kit_init(struct kit *kit)
{
    *kit =
        (struct kit){ .slot = SLOTS_NONE, .userns = -1, .netns = -1, .cgroup = CGROUP_ENTRY_NONE };
}

static void kit_drop(struct launcher *launcher, struct kit *kit)
{
    if (kit->userns >= 0)
        close(kit->userns);
    if (kit->netns >= 0)
        close(kit->netns);
    cgroup_entry_close(&kit->cgroup);
    if (*kit->name)
        (void)cgroups_remove(&launcher->cgroups, kit->name);
    if (kit->slot != SLOTS_NONE)
        slots_release(&launcher->slots, (uint32_t)kit->slot);
    kit_init(kit);
}

static int make_namespaces(struct launcher *launcher, struct kit *kit, struct fail *fail)
{
    kit->slot = slots_take(&launcher->slots);
    if (kit->slot == SLOTS_NONE)
        return fail_set(fail, "all uid ranges are in use", EAGAIN);
    kit->userns = userns_make(launcher, (uint32_t)kit->slot, fail);
    if (kit->userns < 0)
        return -1;
    kit->netns = netns_make(launcher, fail);
    return kit->netns < 0 ? -1 : 0;
}

static int make_ahead(struct launcher *launcher, struct kit *kit, struct fail *fail)
{
    kit_init(kit);
    if (make_namespaces(launcher, kit, fail) < 0)
        return -1;
    if (!cgroups_can_rename(&launcher->cgroups))
        return 0;
    snprintf(kit->name, sizeof(kit->name), "kit-%d", kit->slot);
    return cgroups_make(&launcher->cgroups, kit->name, &launcher->kits.limits, &kit->cgroup, fail);
}

void kits_open(struct launcher *launcher, unsigned wanted)
{
    const uint64_t gigabyte = (uint64_t)1 << 30;

    cgroups_sweep(&launcher->cgroups, "kit-");
    launcher->kits.wanted = wanted < KITS_MAX ? wanted : KITS_MAX;
    launcher->kits.limits = (struct launch_limits){
        .memory_bytes = 2 * gigabyte, .disk_bytes = 4 * gigabyte, .cpu_millis = 1000, .pids = 256
    };
}

void kits_close(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;

    while (kits->count > 0)
        kit_drop(launcher, &kits->items[--kits->count]);
}

bool kits_are_short(const struct launcher *launcher)
{
    return launcher->host.native && launcher->sealed && !launcher->kits.failed &&
           launcher->kits.count < launcher->kits.wanted;
}

void kits_refill(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;
    struct kit *kit = &kits->items[kits->count];
    struct fail ignored;

    if (make_ahead(launcher, kit, &ignored) == 0) {
        kits->count++;
        return;
    }
    kit_drop(launcher, kit);
    kits->failed = true;
}

void kits_mark(struct launcher *launcher)
{
    for (unsigned i = 0; i < launcher->kits.count; i++)
        slots_mark(&launcher->slots, (uint32_t)launcher->kits.items[i].slot);
}

static bool same_groups(const struct launch_limits *a, const struct launch_limits *b)
{
    return a->memory_bytes == b->memory_bytes && a->cpu_millis == b->cpu_millis &&
           a->pids == b->pids;
}

/* Gives the groups of the kit their name and limits, or makes them now. */
static int settle_groups(struct launcher *launcher, struct kit *kit, const char *id,
                         const struct launch_limits *limits, bool current, struct fail *fail)
{
    if (!*kit->name)
        return cgroups_make(&launcher->cgroups, id, limits, &kit->cgroup, fail);
    if (cgroups_rename(&launcher->cgroups, kit->name, id, fail) < 0)
        return -1;
    kit->name[0] = '\0';
    return current ? 0 : cgroups_limit(&launcher->cgroups, id, limits, fail);
}

int kit_take(struct launcher *launcher, const char *id, const struct launch_limits *limits,
             struct kit *out_kit, struct fail *fail)
{
    struct kits *kits = &launcher->kits;
    bool current = same_groups(&kits->limits, limits);

    if (kits->count > 0) {
        *out_kit = kits->items[0];
        memmove(&kits->items[0], &kits->items[1], sizeof(kits->items[0]) * --kits->count);
    } else {
        kit_init(out_kit);
        if (make_namespaces(launcher, out_kit, fail) < 0) {
            kit_drop(launcher, out_kit);
            return -1;
        }
    }
    kits->failed = false;
    if (settle_groups(launcher, out_kit, id, limits, current, fail) < 0) {
        kit_drop(launcher, out_kit);
        return -1;
    }
    /* Those that wait were made for the limits that were asked for before. */
    if (!current) {
        kits->limits = *limits;
        for (unsigned i = 0; i < kits->count; i++) {
            struct fail ignored;

            if (*kits->items[i].name)
                (void)cgroups_limit(&launcher->cgroups, kits->items[i].name, limits, &ignored);
        }
    }
    return 0;
}
