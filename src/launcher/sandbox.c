/*
 * Making a sandbox and looking after it; destroy.c takes it away. A half-made one is undone by the
 * same steps that destroy a whole one, so there is a single way back.
 */

#include "launcher/direct/kill.h"
#include "launcher/sys.h"
#include "launcher/teardown/destroy.h"
#include "launcher/walls/native.h"
#include "launcher/walls/spawn.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>

static const struct {
    const char *name;
    uint32_t bit;
    unsigned request; /* that gives it by a pidfd, since Linux 6.11 */
} namespaces[NAMESPACES] = {
    { "user", LAUNCH_NS_USER, 9 },     { "pid", LAUNCH_NS_PID, 5 }, { "mnt", LAUNCH_NS_MNT, 3 },
    { "net", LAUNCH_NS_NET, 4 },       { "ipc", LAUNCH_NS_IPC, 2 }, { "uts", LAUNCH_NS_UTS, 10 },
    { "cgroup", LAUNCH_NS_CGROUP, 1 },
};

#define PIDFD_REQUEST(number) _IO(0xff, number)

static uint64_t own_namespace(const struct launcher *launcher, size_t i)
{
    char path[48];
    struct stat status;

    snprintf(path, sizeof(path), "self/ns/%s", namespaces[i].name);
    return fstatat(launcher->state.proc, path, &status, 0) < 0 ? 0 : status.st_ino;
}

void sandbox_note_host(struct launcher *launcher)
{
    struct stat mounts;

    for (size_t i = 0; i < NAMESPACES; i++) {
        launcher->namespaces[i] = own_namespace(launcher, i);
        /* The launcher has left the host's mount namespace itself. */
        if (namespaces[i].bit == LAUNCH_NS_MNT && launcher->host.mounts >= 0 &&
            fstat(launcher->host.mounts, &mounts) == 0)
            launcher->namespaces[i] = mounts.st_ino;
    }
}

/* By its descriptor, which is faster than by /proc, where the kernel can. */
static int open_namespace(const struct launcher *launcher, pid_t pid, int pidfd, size_t i)
{
    int fd = ioctl(pidfd, PIDFD_REQUEST(namespaces[i].request), 0);
    char path[48];

    if (fd >= 0)
        return fd;
    snprintf(path, sizeof(path), "%d/ns/%s", (int)pid, namespaces[i].name);
    return openat(launcher->state.proc, path, O_RDONLY | O_CLOEXEC);
}

int sandbox_open_namespace(const struct launcher *launcher, pid_t pid, int pidfd, uint32_t bit)
{
    size_t i = 0;

    while (namespaces[i].bit != bit)
        i++;
    return open_namespace(launcher, pid, pidfd, i);
}

/* Read back from the kernel: which namespaces are not those of the host. */
static uint32_t read_namespaces(const struct launcher *launcher, pid_t pid, int pidfd)
{
    uint32_t found = 0;

    for (size_t i = 0; i < NAMESPACES; i++) {
        int fd = open_namespace(launcher, pid, pidfd, i);
        uint64_t theirs = sys_inode(fd);

        if (fd >= 0)
            close(fd);
        if (theirs && theirs != launcher->namespaces[i])
            found |= namespaces[i].bit;
    }
    return found;
}

/* One in which any of these failed was not made. */
static uint32_t namespaces_of_new(const struct mark *mark)
{
    uint32_t all = 0;

    for (size_t i = 0; mark->mode == LAUNCH_NATIVE && i < NAMESPACES; i++)
        all |= namespaces[i].bit;
    return all;
}

/* A new one was not made without it. */
static bool network_is_held(struct launcher *launcher, const struct mark *mark, int pidfd)
{
    int netns;
    bool holds;

    if (mark->network != LAUNCH_NETWORK_OPEN || mark->mode != LAUNCH_NATIVE)
        return true;
    netns = sandbox_open_namespace(launcher, mark->pid, pidfd, LAUNCH_NS_NET);
    holds = network_holds(launcher, netns);
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
        .own_ids = mark->mode == LAUNCH_NATIVE ? launcher->root : kill_has_own_uid(launcher, mark),
        .network_holds = true,
    };
}

static void take_directory(struct spawn *spawn, const struct directory *directory)
{
    spawn->dir = directory->dir;
    spawn->mark_fd = directory->mark;
    spawn->socket = directory->socket;
}

/* The slot and what goes with it, its directory to begin with. */
static int equip_native(struct spawn *spawn, const struct launch_create *create)
{
    struct spare spare;

    if (spare_take(spawn->launcher, create->id, &create->limits, &spare, &spawn->fail) < 0)
        return -1;
    take_directory(spawn, &spare.directory);
    spawn->mark.slot = (uint32_t)spare.slot;
    spawn->userns = spare.userns;
    spawn->netns = spare.netns;
    spawn->cgroup = spare.cgroup;
    if (spare_root_fits(spawn->launcher, &spare, spawn->template, create))
        spawn->root = spare.root;
    else
        teardown_process_take(spawn->launcher,
                              &(struct teardown_job){ .mounts = spare.root, .netns = -1 });
    return 0;
}

static int equip_direct(struct spawn *spawn, const struct launch_create *create)
{
    struct launcher *launcher = spawn->launcher;
    struct directory directory;
    int slot = uid_ranges_take(&launcher->uid_ranges);

    if (slot == UID_RANGE_NONE)
        return uid_ranges_fail(&spawn->fail);
    spawn->mark.slot = (uint32_t)slot;
    if (directory_make(launcher, &directory, spawn->mark.slot, &spawn->fail) < 0 ||
        directory_rename(launcher, &directory, create->id, &spawn->fail) < 0) {
        directory_drop(launcher, &directory);
        uid_ranges_release(&launcher->uid_ranges, spawn->mark.slot);
        return -1;
    }
    take_directory(spawn, &directory);
    return cgroups_make(&launcher->cgroups, create->id, &create->limits, &spawn->cgroup,
                        &spawn->fail);
}

static int make(struct spawn *spawn, const struct launch_create *create)
{
    bool native = create->mode == LAUNCH_NATIVE;

    if ((native ? equip_native(spawn, create) : equip_direct(spawn, create)) < 0)
        return -1;
    /* Before anything runs with its ids: who finds the directory knows that they are taken. */
    if (pwrite(spawn->mark_fd, &spawn->mark, sizeof(spawn->mark), 0) != sizeof(spawn->mark))
        return fail_sys(&spawn->fail, "write mark");
    if (host_use_template(spawn->launcher, &spawn->mark, &spawn->fail) < 0)
        return -1;
    if (native)
        return native_start(spawn);
    if (direct_prepare(spawn) < 0)
        return -1;
    return spawn_run(spawn, 0, direct_child);
}

static int check_mode(const struct launcher *launcher, const struct launch_create *create,
                      struct fail *fail)
{
    if (create->mode == LAUNCH_NATIVE && !launcher->host.native)
        return fail_set(fail, "native sandboxes are not available", EOPNOTSUPP);
    if (create->mode == LAUNCH_DIRECT && !launcher->root && launcher->host.mounts >= 0)
        return fail_set(fail, "direct sandboxes need a launcher of their own", EOPNOTSUPP);
    if (create->network == LAUNCH_NETWORK_OPEN && create->mode == LAUNCH_NATIVE &&
        !launcher->network.available)
        return fail_set(fail, "network open is not available", EOPNOTSUPP);
    return 0;
}

int sandbox_create(struct launcher *launcher, const struct launch_create *create,
                   struct launch_made *out_made, int *out_pidfd, struct fail *fail)
{
    struct spawn spawn;

    if (check_mode(launcher, create, fail) < 0)
        return -1;
    /* Looked at first: whatever fails later may undo what there is of this id. */
    if (faccessat(launcher->state.sandboxes, create->id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return fail_set(fail, "name sandbox directory", EEXIST);
    spawn_init(&spawn, launcher);
    if (create->mode == LAUNCH_NATIVE) {
        spawn.template = host_template(launcher, create->template_name, fail);
        if (!spawn.template)
            return -1;
    }
    mark_init(&spawn.mark, &launcher->state, create->id);
    spawn.mark.mode = create->mode;
    spawn.mark.network = create->network;
    spawn.mark.limits = create->limits;
    spawn.mark.landlock_abi = launcher->landlock_abi;
    if (spawn.template && spawn.template->imported)
        memcpy(spawn.mark.template_name, spawn.template->name, sizeof(spawn.mark.template_name));
    if (make(&spawn, create) < 0) {
        *fail = spawn.fail;
        spawn_fini(&spawn);
        /* Whose directory it is that was there before us, that one stays. */
        if (fail->error != EEXIST)
            destroy_start(launcher, create->id, NULL);
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
    int dir = state_open_sandbox(&launcher->state, id);
    int result;

    if (dir < 0)
        return fail_sys(fail, "find sandbox");
    result = mark_read(dir, out_mark);
    close(dir);
    if (result < 0)
        return fail_sys(fail, "read mark");
    if (!mark_is_ours(&launcher->state, out_mark, id))
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
    *out_pidfd = state_open_process(&launcher->state, mark.pid, mark.start_time);
    if (*out_pidfd < 0)
        return fail_sys(fail, "open process");
    /* A zombie has a descriptor, too, where nobody reaps it. */
    if (sys_pidfd_is_dead(*out_pidfd)) {
        close(*out_pidfd);
        *out_pidfd = -1;
        return fail_set(fail, "its first process has ended", ESRCH);
    }
    fill_made(launcher, &mark, read_namespaces(launcher, mark.pid, *out_pidfd), out_made);
    out_made->network_holds = network_is_held(launcher, &mark, *out_pidfd);
    out_made->frozen = cgroups_is_frozen(&launcher->cgroups, adopt->id);
    return 0;
}

/* Files, /dev/shm included, live on one file system of the sandbox; init's own /dev/shm is a place
 * in it that the payload cannot replace. */
static int open_store(struct launcher *launcher, const struct mark *mark, struct fail *fail)
{
    char path[48];
    int pidfd = state_open_process(&launcher->state, mark->pid, mark->start_time);
    int fd;

    if (pidfd < 0)
        return fail_sys(fail, "open process");
    snprintf(path, sizeof(path), "%d/root/dev/shm", (int)mark->pid);
    fd = openat(launcher->state.proc, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
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
        result = native_resize_store(launcher, store, limits, fail);
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
    dir = state_open_sandbox(&launcher->state, mark->id);
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
    spare_pin(launcher, &mark);
    return -1;
}

int sandbox_freeze(struct launcher *launcher, const struct launch_freeze *freeze, struct fail *fail)
{
    struct mark mark;

    if (!(launcher->cgroups.features & LAUNCH_HAS_FREEZER))
        return fail_set(fail, "this host has no freezer", EOPNOTSUPP);
    if (find_mark(launcher, freeze->id, &mark, fail) < 0)
        return -1;
    spare_pin(launcher, &mark);
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
    cgroups_processes(&launcher->cgroups, launcher->state.proc, inspect->id, out_usage);
    out_usage->oom_kills += memory_watch_has_ended(&launcher->memory_watch, inspect->id);
    if (mark.mode != LAUNCH_NATIVE)
        return 0;
    store = open_store(launcher, &mark, fail);
    /* One that an earlier launcher without root made lets us see its groups, not its files; of a
     * dead one the groups say why. */
    if (store < 0)
        return fail->error == EACCES || fail->error == EPERM || fail->error == ESRCH ? 0 : -1;
    if (fstatfs(store, &space) == 0)
        out_usage->disk_bytes = (uint64_t)(space.f_blocks - space.f_bfree) *
                                (uint64_t)space.f_bsize;
    close(store);
    return 0;
}
