/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root of a native sandbox, assembled by the child in its own mount namespace, with the
 * launcher's power, and entered before that power is given up. All paths are fixed; nothing here
 * depends on the content of a template, except that every mount point is checked to be a directory
 * of the new root itself and no link.
 */

#include "launcher/sys.h"
#include "launcher/walls/ids.h"
#include "launcher/walls/layers.h"
#include "launcher/walls/mounts.h"
#include "launcher/walls/native.h"
#include "launcher/walls/skeleton.h"
#include "launcher/walls/walls.h"

#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

enum {
    BYTES_PER_INODE = 16384,
    MEMORY_PER_INODE = 8192, /* four times the size of an inode: a quarter of the memory at most */
    MIN_INODES = 4096,
    MAX_INODES = 1 << 20,
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t native_inodes(const struct disks *disks, const struct launch_limits *limits)
{
    uint64_t count = limits->disk_bytes / BYTES_PER_INODE;

    if (!disk_is_wanted(disks, limits))
        count = least(least(count, MAX_INODES), limits->memory_bytes / MEMORY_PER_INODE);
    return count < MIN_INODES ? MIN_INODES : least(count, UINT32_MAX / 2);
}

/* Files are memory: however many there are, some is left for the processes, so that a full disk
 * is an error for the writer and does not end a process. */
static void format_store(const struct disks *disks, const struct launch_limits *limits,
                         char size[24], char inodes[24])
{
    uint64_t bytes = least(limits->disk_bytes, limits->memory_bytes / 2);

    snprintf(size, 24, "%llu", (unsigned long long)bytes);
    snprintf(inodes, 24, "%llu", (unsigned long long)native_inodes(disks, limits));
}

/* A directory that the sandbox sees. */
static int make_directory(const struct spawn *spawn, const char *path)
{
    uid_t owner = ids_first(spawn->spawner->context, spawn->mark.slot);

    return mkdir(path, 0755) < 0 || (owner && chown(path, owner, owner) < 0) ? -1 : 0;
}

/* One file system for everything that the sandbox writes. It is made by a process of the sandbox's
 * own group, so its pages count as the sandbox's memory too. */
static int make_store(struct spawn *spawn)
{
    char size[24];
    char inodes[24];
    const struct mount_option options[] = { { "size", size }, { "nr_inodes", inodes }, { 0 } };

    format_store(&spawn->walls->disks, &spawn->mark.limits, size, inodes);
    if (spawn->disk >= 0
            ? sys_attach(spawn->disk, AT_FDCWD, HOST_STORE) < 0
            : mount_at("tmpfs", options, SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV, HOST_STORE) < 0)
        return fail_sys(&spawn->fail, "mount the store");
    if (make_directory(spawn, HOST_STORE "/upper") < 0 || mkdir(HOST_STORE "/work", 0755) < 0 ||
        (spawn->template->kind == TEMPLATE_USR &&
         (make_directory(spawn, HOST_STORE "/usr-upper") < 0 ||
          mkdir(HOST_STORE "/usr-work", 0755) < 0)) ||
        make_directory(spawn, HOST_STORE "/shm") < 0 || chmod(HOST_STORE "/shm", 01777) < 0)
        return fail_sys(&spawn->fail, "make directories of the store");
    return 0;
}

int native_resize_store(const struct disks *disks, int store, const struct launch_limits *limits,
                        struct fail *fail)
{
    char size[24];
    char inodes[24];
    int context = sys_fspick(store, "", SYS_FSPICK_EMPTY_PATH | SYS_FSPICK_CLOEXEC);
    int result = -1;

    if (context < 0)
        return fail_sys(fail, "open the store");
    format_store(disks, limits, size, inodes);
    if (sys_fsconfig(context, SYS_FSCONFIG_STRING, "size", size) == 0 &&
        sys_fsconfig(context, SYS_FSCONFIG_STRING, "nr_inodes", inodes) == 0)
        result = sys_fsconfig(context, SYS_FSCONFIG_RECONFIGURE, NULL, NULL);
    if (result < 0)
        fail_sys(fail, "resize the store");
    close(context);
    return result;
}

static int mount_overlay(struct spawn *spawn, const char *lower, const char *upper,
                         const char *work, const char *target)
{
    bool root = spawn->spawner->context->root;
    const struct mount_option options[] = {
        { "source", "sandbox" },
        { "lowerdir", lower },
        { "upperdir", upper },
        { "workdir", work },
        /* A mount in a user namespace cannot use trusted.* attributes. */
        { root ? "redirect_dir" : "userxattr", root ? "on" : NULL },
        /* A disk that goes with its sandbox need not be written out at the end. */
        { spawn->disk >= 0 ? "volatile" : NULL, NULL },
        { 0 },
    };

    return mount_at("overlay", options, SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV, target);
}

static int mount_usr(struct spawn *spawn, const char *usr)
{
    switch (spawn->template->kind) {
    case TEMPLATE_WHOLE:
    case TEMPLATE_USR_JOINED:
        break;
    case TEMPLATE_USR:
        return mount_overlay(spawn, usr, HOST_STORE "/usr-upper", HOST_STORE "/usr-work",
                             HOST_ROOT "/usr");
    case TEMPLATE_USR_FIXED:
        return mount_bind(usr, HOST_ROOT "/usr", 0, SYS_AT_RECURSIVE, -1);
    }
    return 0;
}

static int mount_overlays(struct spawn *spawn)
{
    const struct template *template = spawn->template;
    const struct layers *cached = spawn->layers;
    const char *root = cached ? cached->root : HOST_LOWER;
    const char *usr = cached ? cached->usr : HOST_LOWER_USR;
    int unmapped = cached ? !cached->is_mapped : layers_mount(spawn, root, usr);
    char both[2 * LAYERS_PATH_SIZE];

    if (unmapped < 0)
        return -1;
    snprintf(both, sizeof(both), "%s:%s", root, usr);
    if (mount_overlay(spawn, template->kind == TEMPLATE_USR_JOINED ? both : root,
                      HOST_STORE "/upper", HOST_STORE "/work", HOST_ROOT) < 0)
        return fail_sys(&spawn->fail, "mount the root");
    if (unmapped && template->kind != TEMPLATE_WHOLE &&
        skeleton_own(HOST_ROOT, ids_first(spawn->spawner->context, spawn->mark.slot)) < 0)
        return fail_sys(&spawn->fail, "own the root");
    if (mount_usr(spawn, usr) < 0)
        return fail_sys(&spawn->fail, "mount /usr");
    return 0;
}

/* A template may have anything where a mount point is to be, a link for example. Anything but a
 * directory is replaced: this is the sandbox's own copy of it. */
static int make_mount_point(const char *path)
{
    struct stat status;

    if (lstat(path, &status) == 0) {
        if (S_ISDIR(status.st_mode))
            return 0;
        if (unlink(path) < 0)
            return -1;
    }
    return mkdir(path, 0755);
}

static int mount_devices(struct spawn *spawn)
{
    const struct layers *cached = spawn->layers;

    if (make_mount_point(HOST_ROOT "/dev") < 0)
        return fail_sys(&spawn->fail, "make /dev");
    if (cached ? mount_bind(cached->devices, HOST_ROOT "/dev", 0, SYS_AT_RECURSIVE, -1) < 0
               : layers_mount_devices(spawn, HOST_ROOT "/dev") < 0)
        return fail_sys(&spawn->fail, "mount /dev");
    if (mount_bind(HOST_STORE "/shm", HOST_ROOT "/dev/shm", 0, 0, -1) < 0)
        return fail_sys(&spawn->fail, "mount /dev/shm");
    return 0;
}

/* Mounts the masks from inside /proc, with the shortest paths. */
static int mask_proc(struct spawn *spawn)
{
    const struct host *host = &spawn->walls->host;

    if (chdir("proc") < 0)
        return fail_sys(&spawn->fail, "mask /proc");
    for (unsigned i = 0; i < host->mask_count; i++) {
        if (mount(host->mask_is_directory[i] ? HOST_MASK_DIRECTORY : HOST_MASK_FILE, host->masks[i],
                  NULL, MS_BIND, NULL) < 0)
            return fail_sys(&spawn->fail, "mask /proc");
    }
    return 0;
}

/* In the new root, which is the working directory. */
static int mount_proc(struct spawn *spawn)
{
    if (mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return fail_sys(&spawn->fail, "mount /proc");
    if (!spawn->spawner->context->root && umount2(HOST_PROC, MNT_DETACH) < 0)
        return fail_sys(&spawn->fail, "leave the host's /proc");
    return mask_proc(spawn);
}

/* Opens the mount point in the new root, making missing directories. Links are followed, but never
 * out. */
static int open_mount_point(const char *path, bool is_directory)
{
    const uint64_t inside = SYS_RESOLVE_IN_ROOT | SYS_RESOLVE_NO_MAGICLINKS;
    char part[LAUNCH_PATH_SIZE];
    int root = open(HOST_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int at = root < 0 ? -1 : dup(root);

    for (const char *end = path; at >= 0 && *end;) {
        const char *begin = end + 1;
        int next;

        end = begin + strcspn(begin, "/");
        snprintf(part, sizeof(part), "%.*s", (int)(end - begin), begin);
        if (*end || is_directory)
            (void)mkdirat(at, part, 0755);
        else
            (void)mknodat(at, part, S_IFREG | 0644, 0);
        snprintf(part, sizeof(part), "%.*s", (int)(end - path), path);
        next = sys_openat2(root, part, O_PATH, inside);
        close(at);
        at = next;
    }
    if (root >= 0)
        close(root);
    return at;
}

/* Private: later mounts of the host below the tree would not be read-only, so they do not
 * propagate. */
static int mount_of_host(struct spawn *spawn, int tree, int target, bool read_only)
{
    struct sys_mount_attr attributes = { .set = SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV |
                                                (read_only ? SYS_MOUNT_RDONLY : 0),
                                         .propagation = MS_PRIVATE };
    struct sys_mount_attr mapped = { .set = SYS_MOUNT_IDMAP, .userns_fd = (uint64_t)spawn->userns };

    if (sys_mount_setattr(tree, SYS_AT_RECURSIVE, &attributes) < 0)
        return -1;
    /* A file system that cannot do this shows unmapped owners inside. */
    if (spawn->spawner->context->root)
        (void)sys_mount_setattr(tree, SYS_AT_RECURSIVE, &mapped);
    return (int)syscall(SYS_move_mount, tree, "", target, "",
                        SYS_MOVE_MOUNT_F_EMPTY_PATH | SYS_MOVE_MOUNT_T_EMPTY_PATH);
}

static int mount_shared(struct spawn *spawn, const struct host_mount *shared)
{
    int tree = sys_clone_tree(AT_FDCWD, shared->source, 0);
    int target = tree < 0 ? -1 : open_mount_point(shared->path, shared->is_directory);
    int result = target < 0 ? -1 : mount_of_host(spawn, tree, target, shared->read_only);

    if (result < 0)
        fail_sys(&spawn->fail, "mount something of the host");
    sys_close(target);
    sys_close(tree);
    return result;
}

static int mount_binds(struct spawn *spawn)
{
    for (unsigned i = 0; i < spawn->bind_count; i++) {
        const struct launch_bind *bind = &spawn->binds[i];
        int target = open_mount_point(bind->path, true);
        int result = target < 0 ? -1
                                : mount_of_host(spawn, spawn->trees[i], target, bind->read_only);

        if (result < 0)
            fail_sys(&spawn->fail, "mount a directory of the host");
        sys_close(target);
        if (result < 0)
            return -1;
    }
    return 0;
}

static int mount_all_shared(struct spawn *spawn)
{
    const struct host *host = &spawn->walls->host;

    for (unsigned i = 0; i < host->shared_count; i++) {
        if (mount_shared(spawn, &host->shared[i]) < 0)
            return -1;
    }
    return 0;
}

/* Everything except /proc and the mounts that depend on the sandbox's processes. */
static int build_files(struct spawn *spawn)
{
    if (make_store(spawn) < 0 || mount_overlays(spawn) < 0 || passwd_write(spawn) < 0 ||
        mount_all_shared(spawn) < 0 || mount_binds(spawn) < 0 || mount_devices(spawn) < 0)
        return -1;
    if (make_mount_point(HOST_ROOT "/proc") < 0 ||
        (spawn->template->kind == TEMPLATE_WHOLE && make_mount_point(HOST_ROOT "/sys") < 0))
        return fail_sys(&spawn->fail, "make /proc and /sys");
    return 0;
}

/* The first program, most often a login shell, looks up these names, each of which is new to the
 * file systems of the sandbox: looking them up here moves that out of the request. A name that a
 * template lacks costs as little. */
static void look_up(void)
{
    static const char *const paths[] = {
#if defined(__x86_64__)
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libtinfo.so.6",
#elif defined(__aarch64__)
        "/lib/ld-linux-aarch64.so.1",
        "/lib/aarch64-linux-gnu/libc.so.6",
        "/lib/aarch64-linux-gnu/libtinfo.so.6",
#endif
        "/bin/bash",
        "/etc/ld.so.cache",
        "/etc/ld.so.preload",
        "/etc/passwd",
        "/etc/group",
        "/etc/nsswitch.conf",
        "/etc/profile",
        "/etc/profile.d",
        "/home/user/.bash_profile",
        "/home/user/.bash_login",
        "/home/user/.profile",
    };
    int root = open(HOST_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (size_t i = 0; root >= 0 && i < sizeof(paths) / sizeof(paths[0]); i++) {
        int fd = sys_openat2(root, paths[i], O_PATH, SYS_RESOLVE_IN_ROOT);

        if (fd >= 0)
            close(fd);
    }
    if (root >= 0)
        close(root);
}

/* Assembles the root below one mount, so that all mounts are removed at once: for each removal the
 * kernel waits for all processors. */
int root_prepare(struct spawn *spawn)
{
    int root = -1;

    if (mount_bind(HOST_BUILD, HOST_BUILD, 0, 0, -1) < 0)
        return -1;
    if (build_files(spawn) == 0) {
        look_up();
        root = sys_clone_tree(AT_FDCWD, HOST_ROOT, SYS_AT_RECURSIVE);
    }
    (void)umount2(HOST_BUILD, MNT_DETACH);
    return root;
}

static int take_files(struct spawn *spawn)
{
    if (spawn->root >= 0)
        return 0;
    if (build_files(spawn) < 0)
        return -1;
    spawn->root = open(HOST_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return spawn->root < 0 ? fail_sys(&spawn->fail, "open the root") : 0;
}

/* Over the launcher's root, which paths still begin at until the end. */
int root_build(struct spawn *spawn)
{
    if (take_files(spawn) < 0)
        return -1;
    if (sys_attach(spawn->root, AT_FDCWD, "/") < 0 || fchdir(spawn->root) < 0)
        return fail_sys(&spawn->fail, "mount the root");
    if (mount_proc(spawn) < 0)
        return -1;
    if (fchdir(spawn->root) < 0 || chroot(".") < 0)
        return fail_sys(&spawn->fail, "change to the new root");
    return 0;
}
