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
    BUILDER_LOOK_MS = 2,
    BUILDER_LOOKS = 1000,
};

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void spares_wait_for_lull(struct spares *spares)
{
    spares->due_ms = now_ms() + REFILL_MS;
}

/* The builder of a launcher that was killed has a moment left: what it makes is to be seen below. */
static void await_other_builder(const struct launcher *launcher)
{
    int lock;

    for (int i = 0; (lock = directories_lock(launcher, LOCK_EX)) < 0 && i < BUILDER_LOOKS; i++)
        (void)poll(NULL, 0, BUILDER_LOOK_MS);
    if (lock >= 0)
        close(lock);
}

void spares_open(struct launcher *launcher, unsigned wanted)
{
    const uint64_t gigabyte = (uint64_t)1 << 30;
    struct spares *spares = &launcher->spares;

    await_other_builder(launcher);
    cgroups_sweep(&launcher->cgroups, CGROUP_SPARE_PREFIX);
    directories_sweep(launcher);
    spares->wanted = wanted < SPARES_MAX ? wanted : SPARES_MAX;
    spares->limits = (struct launch_limits){
        .memory_bytes = 2 * gigabyte, .disk_bytes = 4 * gigabyte, .cpu_millis = 1000, .pids = 256
    };
    spares->builder = spares->builder_pidfd = -1;
    spares->issued = calloc(UID_RANGES_MAX, sizeof(*spares->issued));
    if (!spares->issued)
        abort();
}

void spares_start(struct launcher *launcher)
{
    const struct host *host = &launcher->host;
    struct spares *spares = &launcher->spares;

    if (launcher->root && host->template_count > 0)
        memcpy(spares->template_name, host->templates[0].name, sizeof(spares->template_name));
}

/* What fails once may well fail again: it is tried after a pause that grows. Of what was ordered
 * before, nothing counts that fails meanwhile. */
static void put_off(struct launcher *launcher, const struct fail *fail)
{
    struct spares *spares = &launcher->spares;
    int64_t now = now_ms();
    int64_t pause_ms = (int64_t)PAUSE_MS << spares->failures;

    if (now < spares->again_ms)
        return;
    spares->again_ms = now + (pause_ms < PAUSE_MAX_MS ? pause_ms : PAUSE_MAX_MS);
    if (spares->failures == 0)
        launcher_tell(launcher, fail);
    if (spares->failures < PAUSES_MAX)
        spares->failures++;
}

static void close_builder(struct spares *spares)
{
    if (spares->builder >= 0)
        close(spares->builder);
    if (spares->builder_pidfd >= 0)
        close(spares->builder_pidfd);
    spares->builder = spares->builder_pidfd = -1;
}

static void start_builder(struct launcher *launcher)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = &launcher->spares };
    struct spares *spares = &launcher->spares;
    struct fail fail;

    spares->builder = builder_start(launcher, &spares->builder_pidfd);
    if (spares->builder >= 0 &&
        epoll_ctl(launcher->epoll, EPOLL_CTL_ADD, spares->builder, &event) == 0)
        return;
    fail_sys(&fail, "start the builder");
    close_builder(spares);
    put_off(launcher, &fail);
}

/* It may have made all of them or nothing. */
static void drop_ordered(struct launcher *launcher)
{
    struct spares *spares = &launcher->spares;

    while (spares->ordered > 0) {
        struct spare spare;

        spare_init(&spare);
        spare.slot = spares->ordered_slots[--spares->ordered];
        spare_name_cgroup(launcher, &spare);
        directory_drop_ahead(launcher, (unsigned)spare.slot);
        spare_drop(launcher, &spare);
    }
}

static void lose_builder(struct launcher *launcher)
{
    (void)epoll_ctl(launcher->epoll, EPOLL_CTL_DEL, launcher->spares.builder, NULL);
    close_builder(&launcher->spares);
    launcher->spares.sweeping = false;
    drop_ordered(launcher);
}

/* False when there is nothing to sweep, or no room for the order. */
static bool order_sweep(struct spares *spares)
{
    struct spare none;

    if (!spares->trash_since_ms)
        return false;
    spare_init(&none);
    spares->sweeping = builder_order(spares->builder, &none, &spares->limits) == 0;
    if (spares->sweeping)
        spares->trash_since_ms = 0;
    return spares->sweeping;
}

/* What was ordered may be many, and nobody waits for it. Dead, the builder makes nothing any more,
 * and the names of what it has begun are known. */
static void end_builder(struct launcher *launcher)
{
    struct pollfd end = { .fd = launcher->spares.builder_pidfd, .events = POLLIN };

    if (launcher->spares.builder < 0)
        return;
    if (end.fd >= 0 && sys_pidfd_kill(end.fd, SIGKILL) == 0)
        (void)poll(&end, 1, BUILDER_LOOK_MS * BUILDER_LOOKS);
    lose_builder(launcher);
}

void spares_close(struct launcher *launcher)
{
    struct spares *spares = &launcher->spares;

    bool has_trash = spares->sweeping || spares->trash_since_ms;

    end_builder(launcher);
    if (has_trash)
        (void)remove_content(launcher->state.trash);
    while (spares->count > 0)
        spare_drop(launcher, &spares->items[--spares->count]);
    while (spares->reclaimed_count > 0)
        spare_drop(launcher, &spares->reclaimed[--spares->reclaimed_count]);
    free(spares->issued);
    spares->issued = NULL;
}

/* --- what is missing ------------------------------------------------------------------------ */

/* The beginning of a spare: the one that came back first, or no more than a slot. */
static bool begin_spare(struct launcher *launcher, struct spare *spare)
{
    struct spares *spares = &launcher->spares;

    if (spares->reclaimed_count > 0) {
        *spare = spares->reclaimed[0];
        memmove(&spares->reclaimed[0], &spares->reclaimed[1],
                sizeof(spares->reclaimed[0]) * --spares->reclaimed_count);
        return true;
    }
    spare_init(spare);
    spare->slot = uid_ranges_take(&launcher->uid_ranges);
    return spare->slot != UID_RANGE_NONE;
}

static void order(struct launcher *launcher, unsigned wanted)
{
    struct spares *spares = &launcher->spares;
    struct spare spare;

    while (spares->count + spares->ordered < wanted && begin_spare(launcher, &spare)) {
        spare_name_cgroup(launcher, &spare);
        memcpy(spare.template_name, spares->template_name, sizeof(spare.template_name));
        if (builder_order(spares->builder, &spare, &spares->limits) < 0) {
            spare_drop(launcher, &spare);
            return;
        }
        spares->ordered_slots[spares->ordered++] = spare.slot;
        spare_close(&spare);
    }
}

/* More than are wanted came back from a time when many were used. */
static int drop_surplus(struct launcher *launcher)
{
    struct spares *spares = &launcher->spares;

    if (spares->reclaimed_count == 0)
        return -1;
    spare_drop(launcher, &spares->reclaimed[--spares->reclaimed_count]);
    return spares->reclaimed_count > 0 ? REFILL_MS : -1;
}

static int spares_due(struct launcher *launcher, int64_t now)
{
    struct spares *spares = &launcher->spares;
    unsigned there = spares->count + spares->ordered;
    int left_ms = spares->due_ms > now ? (int)(spares->due_ms - now) : 0;

    if (there >= spares->wanted && spares->reclaimed_count == 0)
        return -1;
    if (spares->again_ms > now)
        return (int)(spares->again_ms - now);
    if (left_ms > 0) {
        order(launcher, (spares->wanted + 1) / 2);
        return left_ms;
    }
    if (there >= spares->wanted)
        return drop_surplus(launcher);
    order(launcher, spares->wanted);
    return spares->reclaimed_count > 0 ? REFILL_MS : -1;
}

static int sweep_due(struct spares *spares, int64_t now)
{
    int64_t late_ms = spares->trash_since_ms + SWEEP_MS;
    int64_t due_ms = spares->due_ms < late_ms ? spares->due_ms : late_ms;

    if (!spares->trash_since_ms || spares->sweeping)
        return -1;
    if (due_ms > now)
        return (int)(due_ms - now);
    return order_sweep(spares) ? -1 : REFILL_MS;
}

int spares_turn(struct launcher *launcher)
{
    struct spares *spares = &launcher->spares;
    int64_t now = now_ms();
    int spares_ms;
    int sweep_ms;

    if (!launcher->host.native || !launcher->sealed)
        return -1;
    if (spares->builder < 0 && spares->again_ms <= now)
        start_builder(launcher);
    if (spares->builder < 0)
        return (int)(spares->again_ms - now);
    spares_ms = spares_due(launcher, now);
    sweep_ms = sweep_due(spares, now);
    if (spares_ms < 0 || sweep_ms < 0)
        return spares_ms < 0 ? sweep_ms : spares_ms;
    return spares_ms < sweep_ms ? spares_ms : sweep_ms;
}

bool spares_sweep(struct launcher *launcher)
{
    struct spares *spares = &launcher->spares;

    if (spares->builder < 0)
        return false;
    spares_wait_for_lull(spares);
    if (!spares->trash_since_ms)
        spares->trash_since_ms = now_ms();
    return true;
}

/* Without it the next creation makes its own. */
static void store(struct launcher *launcher, struct spare *spare, bool made, struct fail *fail)
{
    struct spares *spares = &launcher->spares;

    /* The limits may have changed since it was ordered. */
    if (made && *spare->cgroup_name && !cgroups_limits_equal(&spare->limits, &spares->limits))
        made = cgroups_limit(&launcher->cgroups, spare->cgroup_name, &spares->limits, fail) == 0;
    if (made) {
        spares->items[spares->count++] = *spare;
        spares->failures = 0;
        return;
    }
    put_off(launcher, fail);
    spare_drop(launcher, spare);
}

void spares_receive(struct launcher *launcher)
{
    struct spares *spares = &launcher->spares;
    struct fail fail;
    struct spare spare;
    bool made;

    if (builder_receive(spares->builder, &spare, &made, &fail) < 0) {
        fail_set(&fail, "the builder has died", ECHILD);
        lose_builder(launcher);
        put_off(launcher, &fail);
        return;
    }
    if (spare.slot == UID_RANGE_NONE) {
        spares->sweeping = false;
        return;
    }
    spares->ordered--;
    memmove(&spares->ordered_slots[0], &spares->ordered_slots[1],
            sizeof(spares->ordered_slots[0]) * spares->ordered);
    store(launcher, &spare, made, &fail);
}

void spares_close_fds(struct launcher *launcher)
{
    struct spares *spares = &launcher->spares;

    while (spares->count > 0)
        spare_close(&spares->items[--spares->count]);
    while (spares->reclaimed_count > 0)
        spare_close(&spares->reclaimed[--spares->reclaimed_count]);
}

void spares_mark(struct launcher *launcher)
{
    const struct spares *spares = &launcher->spares;

    for (unsigned i = 0; i < spares->count; i++)
        uid_ranges_mark(&launcher->uid_ranges, (uint32_t)spares->items[i].slot);
    for (unsigned i = 0; i < spares->reclaimed_count; i++)
        uid_ranges_mark(&launcher->uid_ranges, (uint32_t)spares->reclaimed[i].slot);
    for (unsigned i = 0; i < spares->ordered; i++)
        uid_ranges_mark(&launcher->uid_ranges, (uint32_t)spares->ordered_slots[i]);
}

/* --- taking one ----------------------------------------------------------------------------- */

bool spare_root_fits(const struct launcher *launcher, const struct spare *spare,
                     const struct template *template, const struct launch_create *create)
{
    return spare->root >= 0 && !template->imported && create->network == LAUNCH_NETWORK_NONE &&
           strcmp(spare->template_name, template->name) == 0 &&
           !disk_is_wanted(launcher, &create->limits) &&
           spare->limits.disk_bytes == create->limits.disk_bytes &&
           spare->limits.memory_bytes == create->limits.memory_bytes;
}

/* Gives the cgroups of the spare their name and limits, or makes them now. */
static int settle_cgroups(struct launcher *launcher, struct spare *spare, const char *id,
                          const struct launch_limits *limits, bool current, struct fail *fail)
{
    if (!*spare->cgroup_name)
        return cgroups_make(&launcher->cgroups, id, limits, &spare->cgroup, fail);
    if (cgroups_rename(&launcher->cgroups, spare->cgroup_name, id, fail) < 0)
        return -1;
    spare->cgroup_name[0] = '\0';
    return current ? 0 : cgroups_limit(&launcher->cgroups, id, limits, fail);
}

static int make_now(struct launcher *launcher, const struct launch_limits *limits,
                    struct spare *out_spare, struct fail *fail)
{
    struct cache_entry nothing;
    int result;

    if (!begin_spare(launcher, out_spare))
        return uid_ranges_fail(fail);
    cache_entry_init(&nothing);
    result = spare_complete(launcher, out_spare, limits, &nothing, fail);
    cache_entry_close(&nothing);
    return result;
}

/* To know it again when the sandbox is destroyed. */
static void note_issued(struct launcher *launcher, const struct spare *spare)
{
    launcher->spares.issued[spare->slot] = (struct issued){
        .userns = sys_inode(spare->userns),
        .netns = sys_inode(spare->netns),
        .socket = sys_socket_cookie(spare->directory.socket),
        .stamp = spare->stamp,
    };
}

/* Those that wait were made for the limits that were asked for before. */
static void follow_limits(struct launcher *launcher, const struct launch_limits *limits)
{
    struct spares *spares = &launcher->spares;
    bool current = cgroups_limits_equal(&spares->limits, limits);
    struct fail ignored;

    spares->limits = *limits;
    for (unsigned i = 0; !current && i < spares->count; i++) {
        if (*spares->items[i].cgroup_name)
            (void)cgroups_limit(&launcher->cgroups, spares->items[i].cgroup_name, limits, &ignored);
    }
}

int spare_take(struct launcher *launcher, const char *id, const struct launch_limits *limits,
               struct spare *out_spare, struct fail *fail)
{
    struct spares *spares = &launcher->spares;
    bool current = true;

    spares_wait_for_lull(spares);
    if (spares->count > 0) {
        *out_spare = spares->items[0];
        memmove(&spares->items[0], &spares->items[1], sizeof(spares->items[0]) * --spares->count);
        current = cgroups_limits_equal(&spares->limits, limits);
    } else if (make_now(launcher, limits, out_spare, fail) < 0) {
        spare_drop(launcher, out_spare);
        return -1;
    }
    if (directory_rename(launcher, &out_spare->directory, id, fail) < 0 ||
        settle_cgroups(launcher, out_spare, id, limits, current, fail) < 0) {
        spare_drop(launcher, out_spare);
        return -1;
    }
    note_issued(launcher, out_spare);
    follow_limits(launcher, limits);
    return 0;
}
