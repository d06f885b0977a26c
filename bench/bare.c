/* SPDX-License-Identifier: Apache-2.0 */
#include "bare.h"

#include "backend/native/seccomp.h"
#include "base/alloc.h"
#include "base/landlock.h"
#include "base/macros.h"
#include "base/scoped.h"
#include "launcher/sys.h"
#include "launcher/walls/skeleton_usr.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

enum { FIRST_OWNER = 0x70000000, OWNERS = 65536, FILTER_MAXIMUM = 64 << 10 };

static const char *const hierarchies[] = { "memory", "cpu", "cpuacct", "pids", "freezer", "blkio" };

_Static_assert(ARRAY_LENGTH(hierarchies) == BARE_GROUPS, "each has a place in a slot");

/* --- what all share --------------------------------------------------------------------------- */

static int make_tree(const struct bare_host *host)
{
    static const char *const folders[] = {
        "store",         "lower",        "lower-usr",    "root",           "mask-folder",
        "dev",           "dev/pts",      "dev/shm",      "skeleton",       "skeleton/usr",
        "skeleton/proc", "skeleton/dev", "skeleton/etc", "skeleton/bench", "skeleton/tmp",
    };
    static const struct {
        const char *target, *name;
    } links[] = { { "usr/bin", "skeleton/bin" },
                  { "usr/lib", "skeleton/lib" },
                  { "usr/lib64", "skeleton/lib64" } };
    static const struct {
        const char *name;
        unsigned minor;
    } devices[] = {
        { "null", 3 }, { "zero", 5 }, { "full", 7 }, { "random", 8 }, { "urandom", 9 }
    };
    char path[256];

    for (size_t i = 0; i < ARRAY_LENGTH(folders); i++) {
        snprintf(path, sizeof(path), "%s/%s", host->folder, folders[i]);
        if (mkdir(path, 0755) < 0)
            return -1;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(links); i++) {
        snprintf(path, sizeof(path), "%s/%s", host->folder, links[i].name);
        if (symlink(links[i].target, path) < 0)
            return -1;
    }
    for (size_t i = 0; i < ARRAY_LENGTH(devices); i++) {
        snprintf(path, sizeof(path), "%s/dev/%s", host->folder, devices[i].name);
        if (mknod(path, S_IFCHR | 0666, makedev(1, devices[i].minor)) < 0 || chmod(path, 0666) < 0)
            return -1;
    }
    snprintf(path, sizeof(path), "%s/mask-file", host->folder);
    return mknod(path, S_IFREG | 0444, 0);
}

static int copy_file(const char *from, const char *to, mode_t mode)
{
    scoped(fd_close) int in = open(from, O_RDONLY | O_CLOEXEC);
    scoped(fd_close) int out = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
    struct stat status;

    if (in < 0 || out < 0 || fstat(in, &status) < 0)
        return -1;
    return sendfile(out, in, NULL, (size_t)status.st_size) == status.st_size ? 0 : -1;
}

static int copy_files(const struct bare_host *host, const char *tools)
{
    char from[256], to[256];

    snprintf(from, sizeof(from), "%s/true", tools);
    snprintf(to, sizeof(to), "%s/skeleton/bench/true", host->folder);
    if (copy_file(from, to, 0755) < 0)
        return -1;
    snprintf(to, sizeof(to), "%s/skeleton/etc/ld.so.cache", host->folder);
    return copy_file("/etc/ld.so.cache", to, 0644);
}

/* Those that others than root can read, as in the launcher. */
static void find_masks(struct bare_host *host)
{
    static const char *const names[] = { "acpi",       "asound",     "bootconfig", "bus",
                                         "cmdline",    "config.gz",  "diskstats",  "fs",
                                         "interrupts", "iomem",      "ioports",    "irq",
                                         "kallsyms",   "key-users",  "keys",       "modules",
                                         "mtrr",       "partitions", "pressure",   "sched_debug",
                                         "scsi",       "slabinfo",   "swaps",      "timer_list",
                                         "vmallocinfo" };
    size_t count = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
        char path[64];
        struct stat status;

        snprintf(path, sizeof(path), "/proc/%s", names[i]);
        if (lstat(path, &status) < 0 || !(status.st_mode & S_IROTH))
            continue;
        host->mask_is_folder[count] = S_ISDIR(status.st_mode);
        host->masks[count++] = names[i];
    }
}

static int load_filter(struct bare_host *host, struct error *err)
{
    scoped(fd_close) int fd = seccomp_compile(&(struct seccomp_options){ 0 }, err);
    ssize_t length;

    if (fd < 0)
        return -1;
    host->filter = xmalloc(FILTER_MAXIMUM);
    length = pread(fd, host->filter, FILTER_MAXIMUM, 0);
    if (length <= 0)
        return error_sys(err, "read the filter");
    host->filter_length = (unsigned short)(length / 8);
    return 0;
}

/* In memory, as ours is: a file of the host is nothing that landlock lets a sandbox execute. */
static int load_init(struct bare_host *host, const char *tools, struct error *err)
{
    char path[256];
    scoped(fd_close) int file = -1;
    struct stat status;

    snprintf(path, sizeof(path), "%s/init", tools);
    file = open(path, O_RDONLY | O_CLOEXEC);
    host->init = memfd_create("init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0 || host->init < 0 || fstat(file, &status) < 0 ||
        sendfile(host->init, file, NULL, (size_t)status.st_size) != status.st_size ||
        fchmod(host->init, 0555) < 0)
        return error_sys(err, "read %s", path);
    return 0;
}

/* As in the launcher: one overlay shows the skeleton and the host's /usr. */
static int join_usr(const struct bare_host *host)
{
    char path[256];
    scoped(fd_close) int usr = open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped(fd_close) int skeleton = -1;

    snprintf(path, sizeof(path), "%s/skeleton", host->folder);
    skeleton = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return usr >= 0 && skeleton >= 0 && skeleton_join_usr(skeleton, usr) ? 0 : -1;
}

int bare_open(struct bare_host *host, const char *tools, struct error *err)
{
    *host = (struct bare_host){ .init = -1 };
    snprintf(host->folder, sizeof(host->folder), "%s/bare.XXXXXX", tools);
    if (load_filter(host, err) < 0 || load_init(host, tools, err) < 0)
        return -1;
    host->landlock_abi = landlock_version();
    find_masks(host);
    if (!mkdtemp(host->folder) || unshare(CLONE_NEWNS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("bare", host->folder, "tmpfs", 0, "mode=0755") < 0)
        return error_sys(err, "mount a place for bare sandboxes");
    if (make_tree(host) < 0 || copy_files(host, tools) < 0 || join_usr(host) < 0)
        return error_sys(err, "fill %s", host->folder);
    return 0;
}

void bare_close(struct bare_host *host)
{
    (void)umount2(host->folder, MNT_DETACH);
    (void)rmdir(host->folder);
    free(host->filter);
    if (host->init >= 0)
        close(host->init);
}

/* --- what is used again ----------------------------------------------------------------------- */

static int make_network(void)
{
    scoped(fd_close) int before = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    int made = -1, fd;

    if (before < 0 || unshare(CLONE_NEWNET) < 0)
        return -1;
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (ioctl(fd, SIOCSIFFLAGS, &request) == 0)
        made = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    close(fd);
    return setns(before, CLONE_NEWNET) < 0 ? -1 : made;
}

static int write_text(const char *path, const char *text)
{
    scoped(fd_close) int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd < 0 || write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

static int map_ids(pid_t pid, unsigned owner)
{
    char path[64], map[64];

    snprintf(map, sizeof(map), "0 %u %u", owner, OWNERS);
    snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    if (write_text(path, map) < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
    if (write_text(path, map) < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Held by a child until we have it. */
static int make_user(unsigned owner)
{
    int channel[2], made = -1;
    char byte = 0;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) < 0)
        return -1;
    pid = fork();
    if (pid == 0) {
        close(channel[0]);
        if (unshare(CLONE_NEWUSER) == 0 && write(channel[1], &byte, 1) == 1)
            (void)!read(channel[1], &byte, 1);
        _exit(0);
    }
    close(channel[1]);
    if (pid > 0 && read(channel[0], &byte, 1) == 1)
        made = map_ids(pid, owner);
    close(channel[0]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    return made;
}

static void group_path(char out[128], size_t hierarchy, unsigned number)
{
    snprintf(out, 128, "/sys/fs/cgroup/%s/sandglass-bare-%d-%u", hierarchies[hierarchy],
             (int)getpid(), number);
}

static void limit_group(const char *group)
{
    static const char *const limits[][2] = { { "memory.limit_in_bytes", "2147483648" },
                                             { "cpu.cfs_quota_us", "100000" },
                                             { "pids.max", "256" } };
    char path[192];

    for (size_t i = 0; i < ARRAY_LENGTH(limits); i++) {
        snprintf(path, sizeof(path), "%s/%s", group, limits[i][0]);
        (void)write_text(path, limits[i][1]); /* each is there in one of them */
    }
}

int bare_slot_make(struct bare_slot *slot, unsigned number, struct error *err)
{
    slot->owner = FIRST_OWNER + number * OWNERS;
    slot->network = make_network();
    slot->user = make_user(slot->owner);
    if (slot->network < 0 || slot->user < 0)
        return error_sys(err, "make namespaces");
    for (size_t i = 0; i < BARE_GROUPS; i++) {
        char path[128], tasks[160];

        group_path(path, i, number);
        slot->tasks[i] = -1;
        if (mkdir(path, 0755) < 0)
            continue;
        limit_group(path);
        snprintf(tasks, sizeof(tasks), "%s/tasks", path);
        slot->tasks[i] = open(tasks, O_WRONLY | O_CLOEXEC);
    }
    return 0;
}

void bare_slot_drop(struct bare_slot *slot, unsigned number)
{
    close(slot->network);
    close(slot->user);
    for (size_t i = 0; i < BARE_GROUPS; i++) {
        char path[128];

        if (slot->tasks[i] < 0)
            continue;
        close(slot->tasks[i]);
        group_path(path, i, number);
        (void)rmdir(path);
    }
}
