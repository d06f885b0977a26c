/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ahead/spares.h"

#include "base/backoff.h"
#include "launcher/remove_tree.h"
#include "launcher/sys.h"
#include "launcher/walls/disk.h"
#include "launcher/walls/host.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <time.h>

enum {
    REFILL_MS = 20,
    SWEEP_MS = 1000,
    BUILDER_LOOK_MS = 2,
    BUILDER_LOOKS = 1000,
};

static const struct backoff build_backoff_ms = { .first = 1000, .most = 60 * 1000 };

void spares_wait_for_lull(struct spares *spares)
{
    spares->due_ms = sys_now_ms() + REFILL_MS;
}

/* Waits until the builder of a killed launcher has ended, so that all its directories are found
 * below. */
static void await_other_builder(const struct context *context)
{
    int lock;

    for (int i = 0; (lock = directories_lock(context, LOCK_EX)) < 0 && i < BUILDER_LOOKS; i++)
        (void)poll(NULL, 0, BUILDER_LOOK_MS);
    if (lock >= 0)
        close(lock);
}

void spares_open(struct spares *spares, const struct spares_parts *parts, unsigned wanted)
{
    const uint64_t gigabyte = (uint64_t)1 << 30;
    const struct context *context = parts->builder.spare.context;

    spares->parts = *parts;
    await_other_builder(context);
    cgroups_sweep(parts->builder.spare.cgroups, CGROUP_SPARE_PREFIX);
    directories_sweep(context);
    spares->wanted = wanted < SPARES_MAX ? wanted : SPARES_MAX;
    spares->limits = (struct launch_limits){
        .memory_bytes = 2 * gigabyte, .disk_bytes = 4 * gigabyte, .cpu_millis = 1000, .pids = 256
    };
    spares->builder = spares->builder_pidfd = -1;
    spares->issued = calloc(UID_RANGES_MAX, sizeof(*spares->issued));
    if (!spares->issued)
        abort();
}

void spares_start(struct spares *spares, const char *template_name)
{
    snprintf(spares->template_name, sizeof(spares->template_name), "%s", template_name);
    spares->is_started = true;
}

/* Retries with back-off. Failures of earlier orders during the pause do not count. */
static void put_off(struct spares *spares, const struct fail *fail)
{
    int64_t now = sys_now_ms();

    if (now < spares->again_ms)
        return;
    spares->failures++;
    spares->again_ms = now + backoff_delay(&build_backoff_ms, spares->failures);
    if (spares->failures == 1)
        spares->parts.report(spares->parts.builder.user, fail);
}

static void close_builder(struct spares *spares)
{
    if (spares->builder >= 0)
        close(spares->builder);
    if (spares->builder_pidfd >= 0)
        close(spares->builder_pidfd);
    spares->builder = spares->builder_pidfd = -1;
}

static void start_builder(struct spares *spares)
{
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = spares };
    struct fail fail;

    spares->builder = builder_start(&spares->parts.builder, &spares->builder_pidfd);
    if (spares->builder >= 0 &&
        epoll_ctl(spares->parts.epoll, EPOLL_CTL_ADD, spares->builder, &event) == 0)
        return;
    fail_sys(&fail, "start the builder");
    close_builder(spares);
    put_off(spares, &fail);
}

/* The dead builder may have made any of the ordered spares. */
static void drop_ordered(struct spares *spares)
{

    while (spares->ordered > 0) {
        struct spare spare;

        spare_init(&spare);
        spare.slot = spares->ordered_slots[--spares->ordered];
        spare_name_cgroup(spares_parts_of(spares), &spare);
        directory_drop_ahead(spares_parts_of(spares)->context, (unsigned)spare.slot);
        spare_drop(spares_parts_of(spares), &spare);
    }
}

static void lose_builder(struct spares *spares)
{
    (void)epoll_ctl(spares->parts.epoll, EPOLL_CTL_DEL, spares->builder, NULL);
    close_builder(spares);
    spares->sweeping = false;
    drop_ordered(spares);
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

/* Kills the builder: its orders may be many, and no request waits for them. The names of unfinished
 * spares are known. */
static void end_builder(struct spares *spares)
{
    struct pollfd end = { .fd = spares->builder_pidfd, .events = POLLIN };

    if (spares->builder < 0)
        return;
    if (end.fd >= 0 && sys_pidfd_kill(end.fd, SIGKILL) == 0)
        (void)poll(&end, 1, BUILDER_LOOK_MS * BUILDER_LOOKS);
    lose_builder(spares);
}

void spares_close(struct spares *spares)
{

    bool has_trash = spares->sweeping || spares->trash_since_ms;

    end_builder(spares);
    if (has_trash)
        (void)remove_content(spares_parts_of(spares)->context->state.trash);
    while (spares->count > 0)
        spare_drop(spares_parts_of(spares), &spares->items[--spares->count]);
    while (spares->reclaimed_count > 0)
        spare_drop(spares_parts_of(spares), &spares->reclaimed[--spares->reclaimed_count]);
    free(spares->issued);
    spares->issued = NULL;
}

/* --- ordering ------------------------------------------------------------------------------ */

/* Begins a spare with the one that was reclaimed first, or else with a new slot. */
static bool begin_spare(struct spares *spares, struct spare *spare)
{

    if (spares->reclaimed_count > 0) {
        *spare = spares->reclaimed[0];
        memmove(&spares->reclaimed[0], &spares->reclaimed[1],
                sizeof(spares->reclaimed[0]) * --spares->reclaimed_count);
        return true;
    }
    spare_init(spare);
    spare->slot = uid_ranges_take(spares_parts_of(spares)->uid_ranges);
    return spare->slot != UID_RANGE_NONE;
}

static void order(struct spares *spares, unsigned wanted)
{
    struct spare spare;

    while (spares->count + spares->ordered < wanted && begin_spare(spares, &spare)) {
        spare_name_cgroup(spares_parts_of(spares), &spare);
        memcpy(spare.template_name, spares->template_name, sizeof(spare.template_name));
        if (builder_order(spares->builder, &spare, &spares->limits) < 0) {
            spare_drop(spares_parts_of(spares), &spare);
            return;
        }
        spares->ordered_slots[spares->ordered++] = spare.slot;
        spare_close(&spare);
    }
}

/* More than are wanted came back from a time when many were used. */
static int drop_surplus(struct spares *spares)
{

    if (spares->reclaimed_count == 0)
        return -1;
    spare_drop(spares_parts_of(spares), &spares->reclaimed[--spares->reclaimed_count]);
    return spares->reclaimed_count > 0 ? REFILL_MS : -1;
}

static int spares_due(struct spares *spares, int64_t now)
{
    unsigned there = spares->count + spares->ordered;
    int left_ms = spares->due_ms > now ? (int)(spares->due_ms - now) : 0;

    if (there >= spares->wanted && spares->reclaimed_count == 0)
        return -1;
    if (spares->again_ms > now)
        return (int)(spares->again_ms - now);
    if (left_ms > 0) {
        order(spares, (spares->wanted + 1) / 2);
        return left_ms;
    }
    if (there >= spares->wanted)
        return drop_surplus(spares);
    order(spares, spares->wanted);
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

int spares_turn(struct spares *spares)
{
    int64_t now = sys_now_ms();
    int spares_ms;
    int sweep_ms;

    if (!spares->is_started)
        return -1;
    if (spares->builder < 0 && spares->again_ms <= now)
        start_builder(spares);
    if (spares->builder < 0)
        return (int)(spares->again_ms - now);
    spares_ms = spares_due(spares, now);
    sweep_ms = sweep_due(spares, now);
    if (spares_ms < 0 || sweep_ms < 0)
        return spares_ms < 0 ? sweep_ms : spares_ms;
    return spares_ms < sweep_ms ? spares_ms : sweep_ms;
}

bool spares_sweep(struct spares *spares)
{

    if (spares->builder < 0)
        return false;
    spares_wait_for_lull(spares);
    if (!spares->trash_since_ms)
        spares->trash_since_ms = sys_now_ms();
    return true;
}

/* After a failure the next create makes its own spare. */
static void store(struct spares *spares, struct spare *spare, bool made, struct fail *fail)
{

    /* The limits may have changed since the order. */
    if (made && *spare->cgroup_name && !cgroups_limits_equal(&spare->limits, &spares->limits))
        made = cgroups_limit(spares_parts_of(spares)->cgroups, spare->cgroup_name, &spares->limits,
                             fail) == 0;
    if (made) {
        spares->items[spares->count++] = *spare;
        spares->failures = 0;
        return;
    }
    put_off(spares, fail);
    spare_drop(spares_parts_of(spares), spare);
}

void spares_receive(struct spares *spares)
{
    struct fail fail;
    struct spare spare;
    bool made;

    if (builder_receive(spares->builder, &spare, &made, &fail) < 0) {
        fail_set(&fail, "the builder has died", ECHILD);
        lose_builder(spares);
        put_off(spares, &fail);
        return;
    }
    if (spare.slot == UID_RANGE_NONE) {
        spares->sweeping = false;
        return;
    }
    spares->ordered--;
    memmove(&spares->ordered_slots[0], &spares->ordered_slots[1],
            sizeof(spares->ordered_slots[0]) * spares->ordered);
    store(spares, &spare, made, &fail);
}

void spares_close_fds(struct spares *spares)
{
    close_builder(spares);

    while (spares->count > 0)
        spare_close(&spares->items[--spares->count]);
    while (spares->reclaimed_count > 0)
        spare_close(&spares->reclaimed[--spares->reclaimed_count]);
}

void spares_mark(const struct spares *spares)
{
    for (unsigned i = 0; i < spares->count; i++)
        uid_ranges_mark(spares_parts_of(spares)->uid_ranges, (uint32_t)spares->items[i].slot);
    for (unsigned i = 0; i < spares->reclaimed_count; i++)
        uid_ranges_mark(spares_parts_of(spares)->uid_ranges, (uint32_t)spares->reclaimed[i].slot);
    for (unsigned i = 0; i < spares->ordered; i++)
        uid_ranges_mark(spares_parts_of(spares)->uid_ranges, (uint32_t)spares->ordered_slots[i]);
}

/* --- taking one ----------------------------------------------------------------------------- */

bool spare_root_fits(const struct disks *disks, const struct spare *spare,
                     const struct template *template, const struct launch_create *create)
{
    return spare->root >= 0 && !template->imported && create->network == LAUNCH_NETWORK_NONE &&
           strcmp(spare->template_name, template->name) == 0 &&
           !disk_is_wanted(disks, &create->limits) &&
           spare->limits.disk_bytes == create->limits.disk_bytes &&
           spare->limits.memory_bytes == create->limits.memory_bytes;
}

/* Gives the cgroups of the spare their name and limits, or makes them now. */
static int settle_cgroups(struct spares *spares, struct spare *spare, const char *id,
                          const struct launch_limits *limits, bool current, struct fail *fail)
{
    if (!*spare->cgroup_name)
        return cgroups_make(spares_parts_of(spares)->cgroups, id, limits, &spare->cgroup, fail);
    if (cgroups_rename(spares_parts_of(spares)->cgroups, spare->cgroup_name, id, fail) < 0)
        return -1;
    spare->cgroup_name[0] = '\0';
    return current ? 0 : cgroups_limit(spares_parts_of(spares)->cgroups, id, limits, fail);
}

static int make_now(struct spares *spares, const struct launch_limits *limits,
                    struct spare *out_spare, struct fail *fail)
{
    struct netns_traces traces;
    struct cgroup_watch watch;
    int result;

    if (!begin_spare(spares, out_spare))
        return uid_ranges_fail(fail);
    netns_traces_init(&traces);
    cgroup_watch_init(&watch);
    result = spare_complete(spares_parts_of(spares), out_spare, limits, &traces, &watch, fail);
    netns_traces_close(&traces);
    cgroup_watch_close(&watch);
    return result;
}

/* Notes the identity of the issued parts, to recognise them when the sandbox is destroyed. */
static void note_issued(struct spares *spares, const struct spare *spare)
{
    spares->issued[spare->slot] = (struct issued){
        .userns = sys_inode(spare->userns),
        .netns = sys_inode(spare->netns),
        .socket = sys_socket_cookie(spare->directory.socket),
        .stamp = spare->stamp,
    };
}

/* The cgroups of the stock have the limits of the request before: set the new ones. */
static void follow_limits(struct spares *spares, const struct launch_limits *limits)
{
    bool current = cgroups_limits_equal(&spares->limits, limits);
    struct fail ignored;

    spares->limits = *limits;
    for (unsigned i = 0; !current && i < spares->count; i++) {
        if (*spares->items[i].cgroup_name)
            (void)cgroups_limit(spares_parts_of(spares)->cgroups, spares->items[i].cgroup_name,
                                limits, &ignored);
    }
}

int spare_take(struct spares *spares, const char *id, const struct launch_limits *limits,
               struct spare *out_spare, struct fail *fail)
{
    bool current = true;

    spares_wait_for_lull(spares);
    if (spares->count > 0) {
        *out_spare = spares->items[0];
        memmove(&spares->items[0], &spares->items[1], sizeof(spares->items[0]) * --spares->count);
        current = cgroups_limits_equal(&spares->limits, limits);
    } else if (make_now(spares, limits, out_spare, fail) < 0) {
        spare_drop(spares_parts_of(spares), out_spare);
        return -1;
    }
    if (directory_rename(spares_parts_of(spares)->context, &out_spare->directory, id, fail) < 0 ||
        settle_cgroups(spares, out_spare, id, limits, current, fail) < 0) {
        spare_drop(spares_parts_of(spares), out_spare);
        return -1;
    }
    note_issued(spares, out_spare);
    follow_limits(spares, limits);
    return 0;
}
