/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher's setup: puts the parts together, once, when the daemon has sent its settings. */

#include "launcher/direct/kill.h"
#include "launcher/launcher.h"
#include "launcher/power.h"
#include "launcher/probe.h"
#include "launcher/remove_tree.h"
#include "launcher/sys.h"
#include "launcher/walls/clone_ns.h"
#include "launcher/walls/landlock.h"
#include "launcher/walls/skeleton_disk.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

enum { SPARES_READY = 16 };

void launcher_init(struct launcher *self)
{
    self->context.pid = getpid();
    self->socket = LAUNCH_FD_SOCKET;
    host_init(&self->walls.host);
    self->walls.disks.control = -1;
    self->walls.network.watch = -1;
    self->walls.spawner =
        (struct spawner){ .context = &self->context, .init = LAUNCH_FD_INIT, .mounts = -1 };
}

/* --- callbacks of the parts ------------------------------------------------------------------ */

/* In a child that is the builder or the teardown process. A copy of the daemon's socket would hide our
 * end from it; locks and spares that live on there could not be taken again. */
static void on_child(void *user)
{
    struct launcher *self = user;

    close(self->socket);
    close(self->epoll);
    uid_blocks_forget(&self->uid_ranges.blocks);
    spares_close_fds(&self->spares);
    destroys_close_fds(&self->destroys);
}

static void on_report(void *user, const struct fail *fail)
{
    launcher_report(user, fail);
}

static void on_reply(void *user, struct launch_reply *reply)
{
    launcher_reply(user, reply, -1);
}

static void on_reap(void *user)
{
    launcher_reap(user);
}

static void on_over(void *user, const struct mark *mark, int pidfd)
{
    struct launcher *self = user;

    if (mark->mode == LAUNCH_NATIVE)
        kill_init(&self->context, pidfd);
    else
        kill_tree(&self->context, &self->cgroups, mark, pidfd, mark->id);
}

/* --- the host -------------------------------------------------------------------------------- */

static bool dumps_are_piped(void)
{
    char first = 0;
    int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!read(fd, &first, 1);
        close(fd);
    }
    return first == '|';
}

/* Terminals are limited for the whole host, and the reserve of the host itself is not for sandboxes:
 * with this many each sandbox can have as many as it may. */
static void raise_terminals(int proc)
{
    static const char wanted[] = "65536";
    char text[16] = "";
    int fd = openat(proc, "sys/kernel/pty/max", O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return;
    if (read(fd, text, sizeof(text) - 1) > 0 && strtol(text, NULL, 10) < strtol(wanted, NULL, 10))
        (void)!pwrite(fd, wanted, strlen(wanted), 0);
    close(fd);
}

/* Leaves the host's files for a root of our own; fails with the step that this host refuses. */
static int open_walls(struct walls *walls, struct context *context, struct fail *fail)
{
    struct host *host = &walls->host;
    int result = host_enter(host, context, fail);

    walls->spawner.mounts = host->mounts;
    if (result < 0)
        return -1;
    network_open(&walls->network, context, host->mounts, host->network);
    disks_open(&walls->disks, context->root, host->mounts);
    if (host_build(host, context, walls->disks.control >= 0, fail) < 0 ||
        probe_native(context, fail) < 0)
        return -1;
    clone_ns_open(host, context);
    host->native = true;
    return 0;
}

/* Reads the files of the host before its mount namespace is left. */
static int open_spawner(struct spawner *spawner, const struct context *context, int filter,
                        struct fail *fail)
{
    if (spawner_load_filter(spawner, filter) < 0)
        return fail_set(fail, "load seccomp program", EINVAL);
    oom_score_open(&spawner->oom_score, &context->state, power_has_resources());
    spawner->landlock_abi = landlock_abi();
    if (spawner_lower_limits(spawner, dumps_are_piped()) < 0)
        return fail_sys(fail, "set rlimits");
    (void)syscall(SYS_setgroups, 0, NULL);
    spawner->has_groups = getgroups(0, NULL) != 0;
    return 0;
}

/* --- the parts ------------------------------------------------------------------------------- */

static void open_spares(struct launcher *self)
{
    const struct spares_parts parts = {
        .builder = { .spare = { .context = &self->context,
                                .cgroups = &self->cgroups,
                                .uid_ranges = &self->uid_ranges,
                                .home = { .proc = self->context.state.proc,
                                          .netns = self->walls.host.network } },
                     .walls = &self->walls,
                     .on_child = on_child,
                     .user = self },
        .epoll = self->epoll,
        .report = on_report,
    };

    spares_open(&self->spares, &parts, SPARES_READY);
}

static void open_teardown(struct launcher *self)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    self->trash.dir = self->context.state.trash;
    self->destroys = (struct destroys){
        .context = &self->context,
        .cgroups = &self->cgroups,
        .uid_ranges = &self->uid_ranges,
        .spares = &self->spares,
        .process = &self->teardown,
        .marks = &self->mark_cache,
        .trash = &self->trash,
        .host = &self->walls.host,
        .disks = &self->walls.disks,
        .epoll = self->epoll,
        .reply = on_reply,
        .reap = on_reap,
        .user = self,
        .trash_number = (uint64_t)now.tv_sec * 1000000,
    };
    self->teardown = (struct teardown_process){
        .cgroups = &self->cgroups,
        .on_child = on_child,
        .user = self,
        .launcher = self->context.pid,
        .is_wanted = self->walls.host.native,
        .socket = -1,
    };
    teardown_process_start(&self->teardown);
}

static void start_network(struct launcher *self)
{
    struct network *network = &self->walls.network;
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = network };
    struct fail fail;

    if (network_start(network, &fail) < 0)
        launcher_report(self, &fail);
    if (network->watch >= 0)
        (void)epoll_ctl(self->epoll, EPOLL_CTL_ADD, network->watch, &event);
}

static void describe_host(const struct launcher *self, const struct fail *missing,
                          struct launch_host *out_host)
{
    const struct walls *walls = &self->walls;
    bool root = self->context.root;

    *out_host = (struct launch_host){
        .features = self->cgroups.features | (root ? LAUNCH_HAS_ROOT : 0) |
                    (walls->host.native ? LAUNCH_HAS_NATIVE : 0) |
                    (root ? LAUNCH_HAS_UID_RANGE : 0) |
                    (walls->spawner.filter_length ? LAUNCH_HAS_SECCOMP : 0) |
                    (walls->network.available ? LAUNCH_HAS_NETWORK_OPEN : 0),
        .landlock_abi = walls->spawner.landlock_abi,
        .missing_errno = missing->error,
    };
    if (missing->step)
        strncpy(out_host->missing, missing->step, sizeof(out_host->missing) - 1);
}

/* Opens the common parts of native and direct sandboxes: the state directory, cgroups, limits and
 * ids. */
static int open_base(struct launcher *self, const struct launch_setup *setup, int filter,
                     struct fail *fail)
{
    struct context *context = &self->context;

    context->setup = *setup;
    context->root = power_is_root();
    context->changes_ids = context->root || power_changes_ids();
    context->ids = context->root ? IDS_OWN : IDS_SINGLE;
    if (state_open(&context->state, LAUNCH_FD_STATE, context->setup.instance, fail) < 0 ||
        state_lock(&context->state, self->socket, fail) < 0)
        return -1;
    if (open_spawner(&self->walls.spawner, context, filter, fail) < 0 ||
        uid_ranges_open(&self->uid_ranges, setup->slots, LAUNCH_FD_STATE, context->root, fail) < 0)
        return -1;
    /* Last: it makes a directory, which a launcher that fails here would leave. */
    cgroups_open(&self->cgroups, &context->setup);
    uid_ranges_scan(&self->uid_ranges, &context->state);
    return 0;
}

int launcher_setup(struct launcher *self, const struct launch_setup *setup, int filter,
                   struct launch_host *out_host, struct fail *fail)
{
    struct context *context = &self->context;
    struct fail missing = { 0 };

    if (self->ready)
        return fail_set(fail, "set up twice", EALREADY);
    if (open_base(self, setup, filter, fail) < 0)
        return -1;
    if (setup->flags & LAUNCH_SETUP_NATIVE)
        (void)open_walls(&self->walls, context, &missing);
    self->walls.spawner.stays_dumpable = !context->root && self->walls.host.native;
    if (context->root && self->walls.host.native)
        raise_terminals(context->state.proc);
    namespaces_open(&self->namespaces, context->state.proc, self->walls.host.mounts);
    self->memory_watch = (struct memory_watch){
        .state = &context->state, .cgroups = &self->cgroups, .on_over = on_over, .user = self
    };
    open_spares(self);
    open_teardown(self);
    start_network(self);
    self->ready = true;
    if (!(setup->flags & LAUNCH_SETUP_ONLY_DESTROY)) {
        trash_start(&self->trash);
        destroys_resume(&self->destroys);
    }
    describe_host(self, &missing, out_host);
    return 0;
}

void launcher_seal(struct launcher *self)
{
    const struct host *host = &self->walls.host;

    if (!self->sealed && host->native)
        spares_start(&self->spares,
                     self->context.root && host->template_count > 0 ? host->templates[0].name : "");
    self->sealed = true;
}

void launcher_close(struct launcher *self)
{
    struct context *context = &self->context;

    if (!self->ready)
        return;
    destroys_close(&self->destroys);
    spares_close(&self->spares);
    if (context->setup.flags & LAUNCH_SETUP_ONLY_DESTROY)
        (void)remove_content(context->state.trash);
    teardown_process_stop(&self->teardown);
    network_close(&self->walls.network);
    skeletons_sweep(context, self->walls.host.state);
    uid_ranges_close(&self->uid_ranges);
    cgroups_close(&self->cgroups, context->setup.instance);
    state_unlock(&context->state);
}
