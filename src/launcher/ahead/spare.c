#include "launcher/ahead/spare.h"

#include "launcher/ahead/builder.h"
#include "launcher/ahead/builder_cache.h"
#include "launcher/launcher.h"
#include "launcher/sys.h"
#include "launcher/teardown/destroy.h"
#include "launcher/walls/disk.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <time.h>

enum {
    REFILL_MS = 20,
    SWEEP_MS = 1000,
    PAUSE_MS = 1000,
    PAUSES_MAX = 6,
    PAUSE_MAX_MS = 60 * 1000,
    MAKER_LOOK_MS = 2,
    MAKER_LOOKS = 1000,
};

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void kits_wait_for_lull(struct kits *kits)
{
    kits->due_ms = now_ms() + REFILL_MS;
}

/* The maker of a launcher that was killed has a moment left: what it makes is to be seen below. */
static void await_other_maker(const struct launcher *launcher)
{
    int lock;

    for (int i = 0; (lock = folders_lock(launcher, LOCK_EX)) < 0 && i < MAKER_LOOKS; i++)
        (void)poll(NULL, 0, MAKER_LOOK_MS);
    if (lock >= 0)
        close(lock);
}

void kits_open(struct launcher *launcher, unsigned wanted)
{
    const uint64_t gigabyte = (uint64_t)1 << 30;
    struct kits *kits = &launcher->kits;

    await_other_maker(launcher);
    cgroups_sweep(&launcher->cgroups, "kit-");
    folders_sweep(launcher);
    kits->wanted = wanted < KITS_MAX ? wanted : KITS_MAX;
    kits->limits = (struct launch_limits){
        .memory_bytes = 2 * gigabyte, .disk_bytes = 4 * gigabyte, .cpu_millis = 1000, .pids = 256
    };
    kits->maker = kits->maker_pidfd = -1;
    kits->lent = calloc(SLOTS_MAX, sizeof(*kits->lent));
    if (!kits->lent)
        abort();
}

void kits_start(struct launcher *launcher)
{
    const struct host *host = &launcher->host;
    struct kits *kits = &launcher->kits;

    if (launcher->root && host->template_count > 0)
        memcpy(kits->template_name, host->templates[0].name, sizeof(kits->template_name));
}

/* What fails once may well fail again: it is tried after a pause that grows. Of what was ordered
 * before, nothing counts that fails meanwhile. */
static void put_off(struct launcher *launcher, const struct fail *fail)
{
    struct kits *kits = &launcher->kits;
    int64_t now = now_ms();
    int64_t pause_ms = (int64_t)PAUSE_MS << kits->failures;

    if (now < kits->again_ms)
        return;
    kits->again_ms = now + (pause_ms < PAUSE_MAX_MS ? pause_ms : PAUSE_MAX_MS);
    if (kits->failures == 0)
        launcher_tell(launcher, fail);
    if (kits->failures < PAUSES_MAX)
        kits->failures++;
}

static void close_maker(struct kits *kits)
{
    if (kits->maker >= 0)
        close(kits->maker);
    if (kits->maker_pidfd >= 0)
        close(kits->maker_pidfd);
    kits->maker = kits->maker_pidfd = -1;
}

static void start_maker(struct launcher *launcher)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &launcher->kits };
    struct kits *kits = &launcher->kits;
    struct fail fail;

    kits->maker = maker_start(launcher, &kits->maker_pidfd);
    if (kits->maker >= 0 && epoll_ctl(launcher->epoll, EPOLL_CTL_ADD, kits->maker, &event) == 0)
        return;
    fail_sys(&fail, "start the maker");
    close_maker(kits);
    put_off(launcher, &fail);
}

/* It may have made all of them or nothing. */
static void drop_ordered(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;

    while (kits->ordered > 0) {
        struct kit kit;

        kit_init(&kit);
        kit.slot = kits->slots[--kits->ordered];
        kit_name_group(launcher, &kit);
        folder_drop_ahead(launcher, (unsigned)kit.slot);
        kit_drop(launcher, &kit);
    }
}

static void lose_maker(struct launcher *launcher)
{
    (void)epoll_ctl(launcher->epoll, EPOLL_CTL_DEL, launcher->kits.maker, NULL);
    close_maker(&launcher->kits);
    launcher->kits.sweeping = false;
    drop_ordered(launcher);
}

/* False when there is nothing to sweep, or no room for the order. */
static bool order_sweep(struct kits *kits)
{
    struct kit none;

    if (!kits->trash_since_ms)
        return false;
    kit_init(&none);
    kits->sweeping = maker_order(kits->maker, &none, &kits->limits) == 0;
    if (kits->sweeping)
        kits->trash_since_ms = 0;
    return kits->sweeping;
}

/* What was ordered may be many, and nobody waits for it. Dead, the maker makes nothing any more,
 * and the names of what it has begun are known. */
static void end_maker(struct launcher *launcher)
{
    struct pollfd end = { .fd = launcher->kits.maker_pidfd, .events = POLLIN };

    if (launcher->kits.maker < 0)
        return;
    if (end.fd >= 0 && sys_pidfd_kill(end.fd, SIGKILL) == 0)
        (void)poll(&end, 1, MAKER_LOOK_MS * MAKER_LOOKS);
    lose_maker(launcher);
}

void kits_close(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;

    bool has_trash = kits->sweeping || kits->trash_since_ms;

    end_maker(launcher);
    if (has_trash)
        (void)remove_content(launcher->state.trash);
    while (kits->count > 0)
        kit_drop(launcher, &kits->items[--kits->count]);
    while (kits->returned_count > 0)
        kit_drop(launcher, &kits->returned[--kits->returned_count]);
    free(kits->lent);
    kits->lent = NULL;
}

/* --- what is missing ------------------------------------------------------------------------ */

/* The beginning of a kit: the one that came back first, or no more than a slot. */
static bool begin_kit(struct launcher *launcher, struct kit *kit)
{
    struct kits *kits = &launcher->kits;

    if (kits->returned_count > 0) {
        *kit = kits->returned[0];
        memmove(&kits->returned[0], &kits->returned[1],
                sizeof(kits->returned[0]) * --kits->returned_count);
        return true;
    }
    kit_init(kit);
    kit->slot = slots_take(&launcher->slots);
    return kit->slot != SLOTS_NONE;
}

static void order(struct launcher *launcher, unsigned wanted)
{
    struct kits *kits = &launcher->kits;
    struct kit kit;

    while (kits->count + kits->ordered < wanted && begin_kit(launcher, &kit)) {
        kit_name_group(launcher, &kit);
        memcpy(kit.template_name, kits->template_name, sizeof(kit.template_name));
        if (maker_order(kits->maker, &kit, &kits->limits) < 0) {
            kit_drop(launcher, &kit);
            return;
        }
        kits->slots[kits->ordered++] = kit.slot;
        kit_close(&kit);
    }
}

/* More than are wanted came back from a time when many were used. */
static int drop_surplus(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;

    if (kits->returned_count == 0)
        return -1;
    kit_drop(launcher, &kits->returned[--kits->returned_count]);
    return kits->returned_count > 0 ? REFILL_MS : -1;
}

static int kits_due(struct launcher *launcher, int64_t now)
{
    struct kits *kits = &launcher->kits;
    unsigned there = kits->count + kits->ordered;
    int left_ms = kits->due_ms > now ? (int)(kits->due_ms - now) : 0;

    if (there >= kits->wanted && kits->returned_count == 0)
        return -1;
    if (kits->again_ms > now)
        return (int)(kits->again_ms - now);
    if (left_ms > 0) {
        order(launcher, (kits->wanted + 1) / 2);
        return left_ms;
    }
    if (there >= kits->wanted)
        return drop_surplus(launcher);
    order(launcher, kits->wanted);
    return kits->returned_count > 0 ? REFILL_MS : -1;
}

static int sweep_due(struct kits *kits, int64_t now)
{
    int64_t late_ms = kits->trash_since_ms + SWEEP_MS;
    int64_t due_ms = kits->due_ms < late_ms ? kits->due_ms : late_ms;

    if (!kits->trash_since_ms || kits->sweeping)
        return -1;
    if (due_ms > now)
        return (int)(due_ms - now);
    return order_sweep(kits) ? -1 : REFILL_MS;
}

int kits_turn(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;
    int64_t now = now_ms();
    int kits_ms;
    int sweep_ms;

    if (!launcher->host.native || !launcher->sealed)
        return -1;
    if (kits->maker < 0 && kits->again_ms <= now)
        start_maker(launcher);
    if (kits->maker < 0)
        return (int)(kits->again_ms - now);
    kits_ms = kits_due(launcher, now);
    sweep_ms = sweep_due(kits, now);
    if (kits_ms < 0 || sweep_ms < 0)
        return kits_ms < 0 ? sweep_ms : kits_ms;
    return kits_ms < sweep_ms ? kits_ms : sweep_ms;
}

bool kits_sweep(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;

    if (kits->maker < 0)
        return false;
    kits_wait_for_lull(kits);
    if (!kits->trash_since_ms)
        kits->trash_since_ms = now_ms();
    return true;
}

/* Without it the next creation makes its own. */
static void store(struct launcher *launcher, struct kit *kit, bool made, struct fail *fail)
{
    struct kits *kits = &launcher->kits;

    /* The limits may have changed since it was ordered. */
    if (made && *kit->group && !cgroups_limits_equal(&kit->limits, &kits->limits))
        made = cgroups_limit(&launcher->cgroups, kit->group, &kits->limits, fail) == 0;
    if (made) {
        kits->items[kits->count++] = *kit;
        kits->failures = 0;
        return;
    }
    put_off(launcher, fail);
    kit_drop(launcher, kit);
}

void kits_receive(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;
    struct fail fail;
    struct kit kit;
    bool made;

    if (maker_receive(kits->maker, &kit, &made, &fail) < 0) {
        fail_set(&fail, "the maker has died", ECHILD);
        lose_maker(launcher);
        put_off(launcher, &fail);
        return;
    }
    if (kit.slot == SLOTS_NONE) {
        kits->sweeping = false;
        return;
    }
    kits->ordered--;
    memmove(&kits->slots[0], &kits->slots[1], sizeof(kits->slots[0]) * kits->ordered);
    store(launcher, &kit, made, &fail);
}

void kits_close_fds(struct launcher *launcher)
{
    struct kits *kits = &launcher->kits;

    while (kits->count > 0)
        kit_close(&kits->items[--kits->count]);
    while (kits->returned_count > 0)
        kit_close(&kits->returned[--kits->returned_count]);
}

void kits_mark(struct launcher *launcher)
{
    const struct kits *kits = &launcher->kits;

    for (unsigned i = 0; i < kits->count; i++)
        slots_mark(&launcher->slots, (uint32_t)kits->items[i].slot);
    for (unsigned i = 0; i < kits->returned_count; i++)
        slots_mark(&launcher->slots, (uint32_t)kits->returned[i].slot);
    for (unsigned i = 0; i < kits->ordered; i++)
        slots_mark(&launcher->slots, (uint32_t)kits->slots[i]);
}

/* --- taking one ----------------------------------------------------------------------------- */

bool kit_root_fits(const struct launcher *launcher, const struct kit *kit,
                   const struct template *template, const struct launch_create *create)
{
    return kit->root >= 0 && !template->imported && create->network == LAUNCH_NETWORK_NONE &&
           strcmp(kit->template_name, template->name) == 0 &&
           !disk_is_wanted(launcher, &create->limits) &&
           kit->limits.disk_bytes == create->limits.disk_bytes &&
           kit->limits.memory_bytes == create->limits.memory_bytes;
}

/* Gives the groups of the kit their name and limits, or makes them now. */
static int settle_groups(struct launcher *launcher, struct kit *kit, const char *id,
                         const struct launch_limits *limits, bool current, struct fail *fail)
{
    if (!*kit->group)
        return cgroups_make(&launcher->cgroups, id, limits, &kit->cgroup, fail);
    if (cgroups_rename(&launcher->cgroups, kit->group, id, fail) < 0)
        return -1;
    kit->group[0] = '\0';
    return current ? 0 : cgroups_limit(&launcher->cgroups, id, limits, fail);
}

static int make_now(struct launcher *launcher, const struct launch_limits *limits,
                    struct kit *out_kit, struct fail *fail)
{
    struct kept nothing;
    int result;

    if (!begin_kit(launcher, out_kit))
        return slots_fail(fail);
    kept_init(&nothing);
    result = kit_complete(launcher, out_kit, limits, &nothing, fail);
    kept_close(&nothing);
    return result;
}

/* To know it again when the sandbox is destroyed. */
static void lend(struct launcher *launcher, const struct kit *kit)
{
    launcher->kits.lent[kit->slot] = (struct lent){
        .userns = sys_inode(kit->userns),
        .netns = sys_inode(kit->netns),
        .socket = sys_socket_cookie(kit->folder.socket),
        .stamp = kit->stamp,
    };
}

/* Those that wait were made for the limits that were asked for before. */
static void follow_limits(struct launcher *launcher, const struct launch_limits *limits)
{
    struct kits *kits = &launcher->kits;
    bool current = cgroups_limits_equal(&kits->limits, limits);
    struct fail ignored;

    kits->limits = *limits;
    for (unsigned i = 0; !current && i < kits->count; i++) {
        if (*kits->items[i].group)
            (void)cgroups_limit(&launcher->cgroups, kits->items[i].group, limits, &ignored);
    }
}

int kit_take(struct launcher *launcher, const char *id, const struct launch_limits *limits,
             struct kit *out_kit, struct fail *fail)
{
    struct kits *kits = &launcher->kits;
    bool current = true;

    kits_wait_for_lull(kits);
    if (kits->count > 0) {
        *out_kit = kits->items[0];
        memmove(&kits->items[0], &kits->items[1], sizeof(kits->items[0]) * --kits->count);
        current = cgroups_limits_equal(&kits->limits, limits);
    } else if (make_now(launcher, limits, out_kit, fail) < 0) {
        kit_drop(launcher, out_kit);
        return -1;
    }
    if (folder_rename(launcher, &out_kit->folder, id, fail) < 0 ||
        settle_groups(launcher, out_kit, id, limits, current, fail) < 0) {
        kit_drop(launcher, out_kit);
        return -1;
    }
    lend(launcher, out_kit);
    follow_limits(launcher, limits);
    return 0;
}
