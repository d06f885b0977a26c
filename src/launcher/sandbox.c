/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating a sandbox and requests about it; destroy.c removes it. A half-made sandbox is undone by
 * the same steps as a complete one, so there is a single way back.
 */

#include "launcher/direct/direct.h"
#include "launcher/direct/kill.h"
#include "launcher/launcher.h"
#include "launcher/sys.h"
#include "launcher/walls/native.h"

#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>

/* A sandbox in which one of these steps failed was not made. */
static uint32_t namespaces_of_new(const struct mark *mark)
{
    return mark->mode == LAUNCH_NATIVE ? namespaces_all() : 0;
}

/* A new sandbox is not made without its rules. */
static bool network_is_held(struct launcher *launcher, const struct mark *mark, int pidfd)
{
    int netns;
    bool holds;

    if (mark->network != LAUNCH_NETWORK_OPEN || mark->mode != LAUNCH_NATIVE)
        return true;
    netns = namespace_of_process(launcher->context.state.proc, mark->pid, pidfd, LAUNCH_NS_NET);
    holds = network_holds(&launcher->walls.network, netns);
    if (netns >= 0)
        close(netns);
    return holds;
}

static void fill_made(const struct launcher *launcher, const struct mark *mark, uint32_t found,
                      struct launch_made *made)
{
    *made = (struct launch_made){
        .start_time = mark->start_time,
        .pid = mark->pid,
        .slot = mark->slot,
        .namespaces = found,
        .landlock_abi = mark->landlock_abi,
        .mode = mark->mode,
        .network = mark->network,
        .own_ids = mark->mode == LAUNCH_NATIVE ? launcher->context.root
                                               : kill_has_own_uid(&launcher->context, mark),
        .network_holds = true,
    };
}

static void take_directory(struct spawn *spawn, const struct directory *directory)
{
    spawn->dir = directory->dir;
    spawn->mark_fd = directory->mark;
    spawn->socket = directory->socket;
}

/* Takes a spare: the slot, the directory, namespaces and cgroups. */
static int equip_native(struct launcher *launcher, struct spawn *spawn,
                        const struct launch_create *create)
{
    struct spare spare;

    if (spare_take(&launcher->spares, create->id, &create->limits, &spare, &spawn->fail) < 0)
        return -1;
    take_directory(spawn, &spare.directory);
    spawn->mark.slot = (uint32_t)spare.slot;
    spawn->userns = spare.userns;
    spawn->netns = spare.netns;
    spawn->cgroup = spare.cgroup;
    if (!spawn->bind_count &&
        spare_root_fits(&launcher->walls.disks, &spare, spawn->template, create))
        spawn->root = spare.root;
    else
        teardown_process_take(&launcher->teardown,
                              &(struct teardown_job){ .mounts = spare.root, .netns = -1 });
    return 0;
}

static int equip_direct(struct launcher *launcher, struct spawn *spawn,
                        const struct launch_create *create)
{
    const struct context *context = &launcher->context;
    struct directory directory;
    int slot = uid_ranges_take(&launcher->uid_ranges);

    if (slot == UID_RANGE_NONE)
        return uid_ranges_fail(&spawn->fail);
    spawn->mark.slot = (uint32_t)slot;
    if (directory_make(context, &directory, spawn->mark.slot, &spawn->fail) < 0 ||
        directory_rename(context, &directory, create->id, &spawn->fail) < 0) {
        directory_drop(context, &directory);
        uid_ranges_release(&launcher->uid_ranges, spawn->mark.slot);
        return -1;
    }
    take_directory(spawn, &directory);
    return cgroups_make(&launcher->cgroups, create->id, &create->limits, &spawn->cgroup,
                        &spawn->fail);
}

static int make(struct launcher *launcher, struct spawn *spawn, const struct launch_create *create)
{
    bool native = create->mode == LAUNCH_NATIVE;

    if ((native ? equip_native(launcher, spawn, create) : equip_direct(launcher, spawn, create)) <
        0)
        return -1;
    /* Before any process runs with these ids: the mark in the directory shows that they are
     * taken. */
    if (pwrite(spawn->mark_fd, &spawn->mark, sizeof(spawn->mark), 0) != sizeof(spawn->mark))
        return fail_sys(&spawn->fail, "write mark");
    if (host_use_template(&launcher->walls.host, &spawn->mark, &spawn->fail) < 0)
        return -1;
    return native ? native_start(spawn) : direct_start(spawn);
}

static int check_mode(const struct launcher *launcher, const struct launch_create *create,
                      struct fail *fail)
{
    static const uint8_t no_key[LAUNCH_KEY_SIZE];
    bool has_key = memcmp(create->key, no_key, sizeof(no_key)) != 0;

    if (has_key != ((launcher->context.setup.flags & LAUNCH_SETUP_RELAY) != 0))
        return fail_set(fail, "key of the relay", EINVAL);
    if (create->mode == LAUNCH_NATIVE && !launcher->walls.host.native)
        return fail_set(fail, "native sandboxes are not available", EOPNOTSUPP);
    if (create->mode == LAUNCH_DIRECT && !launcher->context.root &&
        launcher->walls.host.mounts >= 0)
        return fail_set(fail, "direct sandboxes need a launcher of their own", EOPNOTSUPP);
    if (create->network == LAUNCH_NETWORK_OPEN && create->mode == LAUNCH_NATIVE &&
        !launcher->walls.network.available)
        return fail_set(fail, "network open is not available", EOPNOTSUPP);
    return 0;
}

static int open_binds(struct launcher *launcher, struct spawn *spawn,
                      const struct launch_create_bound *bound, struct fail *fail)
{
    spawn->binds = bound->binds;
    for (; spawn->bind_count < bound->bind_count; spawn->bind_count++) {
        int tree = host_open_bind(&launcher->walls.host, &bound->binds[spawn->bind_count], fail);

        if (tree < 0) {
            spawn_fini(spawn);
            return -1;
        }
        spawn->trees[spawn->bind_count] = tree;
    }
    return 0;
}

int sandbox_create(struct launcher *launcher, const struct launch_create *create,
                   const struct launch_create_bound *bound, struct launch_made *out_made,
                   int *out_pidfd, struct fail *fail)
{
    struct spawn spawn;

    if (check_mode(launcher, create, fail) < 0)
        return -1;
    /* Checked first: the undo of a later failure removes everything of this id. */
    if (faccessat(launcher->context.state.sandboxes, create->id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return fail_set(fail, "name sandbox directory", EEXIST);
    spawn_init(&spawn, &launcher->walls.spawner, &launcher->walls);
    if (create->mode == LAUNCH_NATIVE) {
        spawn.template = host_template(&launcher->walls.host, create->template_name, fail);
        if (!spawn.template)
            return -1;
        if (bound && open_binds(launcher, &spawn, bound, fail) < 0)
            return -1;
    }
    mark_init(&spawn.mark, &launcher->context.state, create->id);
    spawn.mark.mode = create->mode;
    spawn.mark.network = create->network;
    spawn.mark.limits = create->limits;
    spawn.mark.landlock_abi = launcher->walls.spawner.landlock_abi;
    if (launcher->context.setup.flags & LAUNCH_SETUP_RELAY)
        spawn_set_key(&spawn, create->key);
    if (spawn.template && spawn.template->imported)
        memcpy(spawn.mark.template_name, spawn.template->name, sizeof(spawn.mark.template_name));
    if (make(launcher, &spawn, create) < 0) {
        *fail = spawn.fail;
        spawn_fini(&spawn);
        /* EEXIST: the directory belongs to an existing sandbox; leave it. */
        if (fail->error != EEXIST)
            destroy_start(&launcher->destroys, create->id, NULL);
        return -1;
    }
    fill_made(launcher, &spawn.mark, namespaces_of_new(&spawn.mark), out_made);
    mark_cache_add(&launcher->mark_cache, &spawn.mark, spawn.pidfd);
    *out_pidfd = spawn.pidfd;
    spawn_fini(&spawn);
    return 0;
}

/* The mark of a sandbox of ours; -1 with ENOENT when there is none. */
static int find_mark(struct launcher *launcher, const char *id, struct mark *out_mark,
                     struct fail *fail)
{
    int dir = state_open_sandbox(&launcher->context.state, id);
    int result;

    if (dir < 0)
        return fail_sys(fail, "find sandbox");
    result = mark_read(dir, out_mark);
    close(dir);
    if (result < 0)
        return fail_sys(fail, "read mark");
    if (!mark_is_ours(&launcher->context.state, out_mark, id))
        return fail_set(fail, "sandbox belongs to another instance", EPERM);
    return 0;
}

int sandbox_adopt(struct launcher *launcher, const struct launch_adopt *adopt,
                  struct launch_made *out_made, int *out_pidfd, struct fail *fail)
{
    struct mark mark;

    if (find_mark(launcher, adopt->id, &mark, fail) < 0)
        return fail->error == ENOENT ? fail_set(fail, "find sandbox", ESRCH) : -1;
    if (mark.pid != adopt->pid || mark.start_time != adopt->start_time)
        return fail_set(fail, "recorded process is another", ESRCH);
    *out_pidfd = state_open_process(&launcher->context.state, mark.pid, mark.start_time);
    if (*out_pidfd < 0)
        return fail_sys(fail, "open process");
    /* A zombie that has no reaper can be opened, too. */
    if (sys_pidfd_is_dead(*out_pidfd)) {
        close(*out_pidfd);
        *out_pidfd = -1;
        return fail_set(fail, "its first process has ended", ESRCH);
    }
    fill_made(launcher, &mark,
              namespaces_of_process(&launcher->namespaces, launcher->context.state.proc, mark.pid,
                                    *out_pidfd),
              out_made);
    out_made->network_holds = network_is_held(launcher, &mark, *out_pidfd);
    out_made->frozen = cgroups_is_frozen(&launcher->cgroups, adopt->id);
    return 0;
}

/* Files, /dev/shm included, are on one file system of the sandbox; init's own /dev/shm is a
 * directory of it that the payload cannot replace. */
static int open_store(struct launcher *launcher, const struct mark *mark, struct fail *fail)
{
    char path[48];
    int pidfd = state_open_process(&launcher->context.state, mark->pid, mark->start_time);
    int fd;

    if (pidfd < 0)
        return fail_sys(fail, "open process");
    snprintf(path, sizeof(path), "%d/root/dev/shm", (int)mark->pid);
    fd = openat(launcher->context.state.proc, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        fail_sys(fail, "open workspace");
    /* The pid is still that of the process whose descriptor we hold. */
    else if (sys_pidfd_kill(pidfd, 0) < 0) {
        close(fd);
        fd = fail_set(fail, "open process", ESRCH);
    }
    close(pidfd);
    return fd;
}

/* The store follows the limits; a disk keeps the size that it was made with. */
static int update_store(struct launcher *launcher, const struct mark *mark,
                        const struct launch_limits *limits, struct fail *fail)
{
    bool disk_changes = limits->disk_bytes != mark->limits.disk_bytes;
    int store;
    int result = 0;

    if (!disk_changes && limits->memory_bytes == mark->limits.memory_bytes)
        return 0;
    store = open_store(launcher, mark, fail);
    if (store < 0)
        return -1;
    if (!disk_is_one(store))
        result = native_resize_store(&launcher->walls.disks, store, limits, fail);
    else if (disk_changes)
        result = fail_set(fail, "change the size of a disk", EOPNOTSUPP);
    close(store);
    return result;
}

static int set_limits(struct launcher *launcher, const struct mark *mark,
                      const struct launch_limits *limits, struct fail *fail)
{
    struct mark changed = *mark;
    int dir;
    int result;

    changed.limits = *limits;
    changed.limits.image = mark->limits.image; /* where files are does not change */
    if (cgroups_limit(&launcher->cgroups, mark->id, limits, fail) < 0 ||
        (mark->mode == LAUNCH_NATIVE && update_store(launcher, mark, &changed.limits, fail) < 0))
        return -1;
    dir = state_open_sandbox(&launcher->context.state, mark->id);
    result = dir < 0 || mark_write(dir, &changed) < 0 ? fail_sys(fail, "write mark") : 0;
    if (dir >= 0)
        close(dir);
    return result;
}

int sandbox_update(struct launcher *launcher, const struct launch_update *update, struct fail *fail)
{
    struct mark mark;

    mark_cache_forget(&launcher->mark_cache, update->id);
    if (find_mark(launcher, update->id, &mark, fail) < 0)
        return -1;
    if (set_limits(launcher, &mark, &update->limits, fail) == 0)
        return 0;
    spare_pin(&launcher->spares, &mark);
    return -1;
}

int sandbox_freeze(struct launcher *launcher, const struct launch_freeze *freeze, struct fail *fail)
{
    struct mark mark;

    if (!(launcher->cgroups.features & LAUNCH_HAS_FREEZER))
        return fail_set(fail, "this host has no freezer", EOPNOTSUPP);
    if (find_mark(launcher, freeze->id, &mark, fail) < 0)
        return -1;
    spare_pin(&launcher->spares, &mark);
    return cgroups_freeze(&launcher->cgroups, freeze->id, freeze->frozen, fail);
}

int sandbox_inspect(struct launcher *launcher, const struct launch_inspect *inspect,
                    struct launch_usage *out_usage, struct fail *fail)
{
    struct mark mark;
    struct statfs space;
    int store;

    if (find_mark(launcher, inspect->id, &mark, fail) < 0)
        return -1;
    *out_usage = (struct launch_usage){ 0 };
    cgroups_usage(&launcher->cgroups, inspect->id, out_usage);
    cgroups_processes(&launcher->cgroups, launcher->context.state.proc, inspect->id, out_usage);
    out_usage->oom_kills += memory_watch_has_ended(&launcher->memory_watch, inspect->id);
    if (mark.mode != LAUNCH_NATIVE)
        return 0;
    store = open_store(launcher, &mark, fail);
    /* Of a sandbox that an earlier launcher without root made only the cgroups can be read, not the
     * files; of a dead one the cgroups show the cause. */
    if (store < 0)
        return fail->error == EACCES || fail->error == EPERM || fail->error == ESRCH ? 0 : -1;
    if (fstatfs(store, &space) == 0)
        out_usage->disk_bytes = (uint64_t)(space.f_blocks - space.f_bfree) *
                                (uint64_t)space.f_bsize;
    close(store);
    return 0;
}
