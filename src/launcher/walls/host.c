/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/host.h"

#include "launcher/sys.h"
#include "launcher/walls/ids.h"
#include "launcher/walls/mounts.h"
#include "launcher/walls/skeleton.h"
#include "launcher/walls/skeleton_disk.h"
#include "launcher/walls/skeleton_usr.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

static const struct {
    const char *name;
    unsigned major, minor;
} nodes[] = {
    { "null", 1, 3 },   { "zero", 1, 5 },    { "full", 1, 7 },
    { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 },
};

enum { NODES = sizeof(nodes) / sizeof(nodes[0]) };

/* Descriptors of the host's files that the rest of the setup needs, opened before the launcher
 * leaves the host's root. */
struct gathered {
    int nodes[NODES];
    int skeleton;
    int usr;
    int proc;
    bool joined; /* the skeleton leads to /usr */
};

/* --- namespaces ----------------------------------------------------------------------------- */

/* Once we have left the user namespace there is no way back, and direct sandboxes need it: a child
 * tries first. */
static int try_user_namespace(void)
{
    pid_t child = fork();
    int status = 0;

    if (child == 0)
        _exit(unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET) < 0 ? errno : 0);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
    return errno ? -1 : 0;
}

static int enter_user_namespace(struct context *context, struct fail *fail)
{
    unsigned uid = geteuid();
    unsigned gid = getegid();
    int helper;

    if (try_user_namespace() < 0)
        return fail_sys(fail, "make a user namespace");
    helper = ids_prepare();
    if (unshare(CLONE_NEWUSER) < 0)
        return fail_sys(fail, "make a user namespace");
    /* The files of /proc by which ids are mapped, ours and those of our children, belong to us only
     * as long as we may be traced; by this user's other processes, that is. */
    (void)prctl(PR_SET_DUMPABLE, 1);
    return ids_map(context, helper, uid, gid, fail);
}

/* A descriptor from another mount namespace cannot be mounted, and getcwd() does not know it. */
int host_reopen(int fd)
{
    char link[48];
    char path[4096];
    struct stat given;
    struct stat found;
    ssize_t length;
    int again;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof(path) - 1);
    if (length <= 0)
        return -1;
    path[length] = '\0';
    again = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (again < 0)
        return -1;
    if (fstat(fd, &given) < 0 || fstat(again, &found) < 0 || given.st_dev != found.st_dev ||
        given.st_ino != found.st_ino) {
        close(again);
        errno = ESTALE;
        return -1;
    }
    return again;
}

static int copy_host_namespace(struct host *host, bool root, struct fail *fail)
{
    /* Without root the launcher could not return to the host's network namespace either, so it
     * moves to one of its own. */
    if (unshare(CLONE_NEWNS | (root ? 0 : CLONE_NEWNET)) < 0)
        return fail_sys(fail, "make a mount namespace");
    /* Unmounts of the host propagate here; mounts made here do not propagate to the host. */
    if (mount("", "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return fail_sys(fail, "part from the host's mounts");
    host->mounts = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    host->network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    host->state = host_reopen(LAUNCH_FD_STATE);
    if (host->mounts < 0 || host->network < 0 || host->state < 0)
        return fail_sys(fail, "find the host's namespaces");
    return 0;
}

/* --- files shared by all sandboxes --------------------------------------------------------- */

/* Made by its owner: root of the host, whose ids are mapped later, or, where ids cannot be
 * mapped, the root of all sandboxes. */
static int fill_skeleton(const struct context *context, int dir, struct fail *fail)
{
    uint32_t owner = context->ids == IDS_RANGE ? ids_first(context, 0) : 0;
    int result;

    if (owner && fchown(dir, owner, owner) < 0)
        return fail_sys(fail, "give the skeleton away");
    (void)syscall(SYS_setfsgid, owner);
    (void)syscall(SYS_setfsuid, owner);
    result = skeleton_fill(dir, context->setup.hostname, fail);
    (void)syscall(SYS_setfsuid, 0);
    (void)syscall(SYS_setfsgid, 0);
    /* setfsuid() cleared the dumpable flag, which enter_user_namespace() set and our children
     * need. */
    if (owner)
        (void)prctl(PR_SET_DUMPABLE, 1);
    if (result == 0 && ids_are_many(context) &&
        fchownat(dir, "home/user", owner + IDS_USER, owner + IDS_USER, 0) < 0)
        return fail_sys(fail, "give the home away");
    return result;
}

/* In memory, unless only a disk can show it as the sandbox's own. */
static int make_skeleton(const struct host *host, const struct context *context, struct fail *fail)
{
    static const struct mount_option options[] = { { "mode", "0755" }, { "size", "64m" }, { 0 } };
    int mount = -1;

    if (context->root && !skeleton_maps_in_memory(context))
        mount = skeleton_make_on_disk(context, host->state, fail);
    if (mount < 0)
        mount = mount_make("tmpfs", options, SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV);
    if (mount < 0)
        return fail_sys(fail, "make a tmpfs");
    if (fill_skeleton(context, mount, fail) < 0) {
        close(mount);
        return -1;
    }
    return mount;
}

static int gather(const struct host *host, const struct context *context, struct gathered *gathered,
                  struct fail *fail)
{
    char path[32];

    gathered->usr = sys_clone_tree(AT_FDCWD, "/usr", SYS_AT_RECURSIVE);
    gathered->proc = context->root ? -1 : sys_clone_tree(AT_FDCWD, "/proc", SYS_AT_RECURSIVE);
    if (gathered->usr < 0 || (gathered->proc < 0 && !context->root))
        return fail_sys(fail, "copy mounts of the host");
    for (size_t i = 0; i < NODES; i++) {
        snprintf(path, sizeof(path), "/dev/%s", nodes[i].name);
        gathered->nodes[i] = sys_clone_tree(AT_FDCWD, path, 0);
    }
    gathered->skeleton = make_skeleton(host, context, fail);
    if (gathered->skeleton < 0)
        return -1;
    gathered->joined = context->root && skeleton_join_usr(gathered->skeleton, gathered->usr);
    return 0;
}

static void gathered_close(struct gathered *gathered)
{
    int fds[] = { gathered->skeleton, gathered->usr, gathered->proc };

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    for (size_t i = 0; i < NODES; i++) {
        if (gathered->nodes[i] >= 0)
            close(gathered->nodes[i]);
    }
}

/* The new root is mounted over /proc, the one directory that every host has. */
static int enter_empty_root(struct host *host, const struct context *context, struct fail *fail)
{
    static const char *const directories[] = {
        HOST_TEMPLATES, HOST_MOUNTS, HOST_SKELETON, HOST_DEVICES, HOST_MASKS_DIRECTORY,
        HOST_BLOCKS,    HOST_PROC,   HOST_CACHE,    HOST_BUILD,   HOST_LOWER,
        HOST_LOWER_USR, HOST_STORE,  HOST_ROOT,
    };
    static const struct mount_option options[] = { { "mode", "0755" }, { "size", "1m" }, { 0 } };
    int file;

    if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return fail_sys(fail, "make a mount namespace");
    if (mount_at("tmpfs", options, SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV, "/proc") < 0)
        return fail_sys(fail, "mount an empty root");
    if (chdir("/proc") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
        umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return fail_sys(fail, "change to an empty root");
    for (size_t i = 0; i < sizeof(directories) / sizeof(directories[0]); i++) {
        if (mkdir(directories[i], 0755) < 0)
            return fail_sys(fail, "make directories");
    }
    file = openat(context->state.proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
    host->own = file;
    return file < 0 ? fail_sys(fail, "find own namespace") : 0;
}

/* On a file system of their own that is read-only as a whole, and so are bind mounts from it. */
static int make_masks(struct fail *fail)
{
    static const struct mount_option options[] = { { "mode", "0755" }, { "size", "4k" }, { 0 } };
    struct sys_mount_attr locked = { .set = SYS_MOUNT_RDONLY | SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV |
                                            SYS_MOUNT_NOEXEC };
    int mount = mount_make("tmpfs", options, 0);
    int result = -1;
    int file;

    if (mount < 0)
        return fail_sys(fail, "make masks");
    file = openat(mount, "file", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (file >= 0)
        close(file);
    if (file >= 0 && fchmodat(mount, "file", 0444, 0) == 0 &&
        mkdirat(mount, "directory", 0555) == 0 && fchmodat(mount, "directory", 0555, 0) == 0 &&
        sys_mount_setattr(mount, 0, &locked) == 0)
        result = sys_attach(mount, AT_FDCWD, HOST_MASKS_DIRECTORY);
    if (result < 0)
        fail_sys(fail, "make masks");
    close(mount);
    return result;
}

/* Where the nodes of loop devices are for the moment that it takes to mount them: in a directory that
 * no sandbox sees. */
static int make_blocks(bool with_disks, struct fail *fail)
{
    static const struct mount_option options[] = { { "mode", "0700" }, { "size", "64k" }, { 0 } };

    if (with_disks &&
        mount_at("tmpfs", options, SYS_MOUNT_NOSUID | SYS_MOUNT_NOEXEC, HOST_BLOCKS) < 0)
        return fail_sys(fail, "make a directory for disks");
    return 0;
}

/* Real nodes where we may make them, the host's own by a mount where we may not. */
static int make_node(const struct context *context, const struct gathered *gathered, size_t i)
{
    char path[32];
    int fd;

    snprintf(path, sizeof(path), HOST_DEVICES "/%s", nodes[i].name);
    if (context->root) {
        if (mknod(path, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) < 0)
            return -1;
        return chmod(path, 0666);
    }
    if (gathered->nodes[i] < 0)
        return -1;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    close(fd);
    return sys_attach(gathered->nodes[i], AT_FDCWD, path);
}

static int make_devices(const struct context *context, const struct gathered *gathered,
                        struct fail *fail)
{
    static const struct mount_option options[] = { { "mode", "0755" }, { "size", "64k" }, { 0 } };
    static const struct {
        const char *path, *target;
    } links[] = {
        { HOST_DEVICES "/fd", "/proc/self/fd" },
        { HOST_DEVICES "/stdin", "/proc/self/fd/0" },
        { HOST_DEVICES "/stdout", "/proc/self/fd/1" },
        { HOST_DEVICES "/stderr", "/proc/self/fd/2" },
        { HOST_DEVICES "/ptmx", "pts/ptmx" },
    };

    if (mount_at("tmpfs", options, SYS_MOUNT_NOSUID | SYS_MOUNT_NOEXEC, HOST_DEVICES) < 0)
        return fail_sys(fail, "mount a tmpfs for devices");
    for (size_t i = 0; i < NODES; i++) {
        if (make_node(context, gathered, i) < 0)
            return fail_sys(fail, "make device nodes");
    }
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
        if (symlink(links[i].target, links[i].path) < 0)
            return fail_sys(fail, "make links to devices");
    }
    if (mkdir(HOST_DEVICES "/pts", 0755) < 0 || mkdir(HOST_DEVICES "/shm", 0755) < 0)
        return fail_sys(fail, "make directories for devices");
    return 0;
}

/* Files of root in /proc that all users can read and that reveal facts about the host. */
static void find_masks(struct host *host, int proc)
{
    static const char *const candidates[] = {
        "acpi",      "asound", "bootconfig",    "bus",        "cmdline",     "config.gz",
        "diskstats", "fs",     "interrupts",    "iomem",      "ioports",     "irq",
        "kallsyms",  "kcore",  "key-users",     "keys",       "kmsg",        "latency_stats",
        "modules",   "mtrr",   "partitions",    "pressure",   "sched_debug", "scsi",
        "slabinfo",  "swaps",  "sysrq-trigger", "timer_list", "vmallocinfo",
    };
    struct stat status;

    for (size_t i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
        if (fstatat(proc, candidates[i], &status, AT_SYMLINK_NOFOLLOW) < 0 ||
            !(status.st_mode & S_IROTH) || host->mask_count == HOST_MASKS)
            continue;
        host->masks[host->mask_count] = candidates[i];
        host->mask_is_directory[host->mask_count++] = S_ISDIR(status.st_mode);
    }
}

struct template *host_mount_template(struct host *host, const char *name, int tree,
                                     struct fail *fail)
{
    unsigned index = 0;
    struct template *template;

    while (index < host->template_count && *host->templates[index].name)
        index++;
    if (index == LAUNCH_MAX_TEMPLATES) {
        fail_set(fail, "too many templates", ENOSPC);
        return NULL;
    }
    template = &host->templates[index];
    *template = (struct template){ 0 };
    snprintf(template->path, sizeof(template->path), HOST_TEMPLATES "/%u", index);
    strncpy(template->name, name, sizeof(template->name) - 1);
    if ((mkdir(template->path, 0755) < 0 && errno != EEXIST) ||
        sys_attach(tree, AT_FDCWD, template->path) < 0) {
        fail_sys(fail, "mount template");
        template->name[0] = '\0';
        return NULL;
    }
    if (index == host->template_count)
        host->template_count++;
    return template;
}

/* Mounts of the host below /usr are locked in a user namespace. */
static enum template_kind kind_of_usr(const struct gathered *gathered, const char *path)
{
    int tree = sys_clone_tree(AT_FDCWD, path, 0);

    if (tree < 0)
        return TEMPLATE_USR_FIXED;
    close(tree);
    return gathered->joined ? TEMPLATE_USR_JOINED : TEMPLATE_USR;
}

static int share(struct host *host, const struct context *context, bool with_disks,
                 const struct gathered *gathered, struct fail *fail)
{
    struct template *template;

    if (sys_attach(gathered->skeleton, AT_FDCWD, HOST_SKELETON) < 0)
        return fail_sys(fail, "mount the skeleton");
    /* A new /proc may be mounted in a user namespace only where a whole one is visible. */
    if (gathered->proc >= 0 && sys_attach(gathered->proc, AT_FDCWD, HOST_PROC) < 0)
        return fail_sys(fail, "keep /proc");
    template = host_mount_template(host, "host", gathered->usr, fail);
    if (!template)
        return -1;
    template->kind = kind_of_usr(gathered, template->path);
    return make_masks(fail) < 0 || make_blocks(with_disks, fail) < 0
               ? -1
               : make_devices(context, gathered, fail);
}

void host_init(struct host *host)
{
    *host = (struct host){ .mounts = -1, .own = -1, .clone_ns = -1, .state = -1, .network = -1 };
}

int host_enter(struct host *host, struct context *context, struct fail *fail)
{
    if (!context->root && enter_user_namespace(context, fail) < 0)
        return -1;
    return copy_host_namespace(host, context->root, fail);
}

int host_build(struct host *host, const struct context *context, bool with_disks, struct fail *fail)
{
    struct gathered gathered = { .skeleton = -1, .usr = -1, .proc = -1 };
    int result;

    for (size_t i = 0; i < NODES; i++)
        gathered.nodes[i] = -1;
    result = gather(host, context, &gathered, fail);
    if (result == 0)
        result = enter_empty_root(host, context, fail);
    if (result == 0)
        result = share(host, context, with_disks, &gathered, fail);
    gathered_close(&gathered);
    find_masks(host, context->state.proc);
    return result;
}
