/* SPDX-License-Identifier: Apache-2.0 */
#include "bare.h"

#include "base/landlock.h"
#include "base/macros.h"
#include "launcher/sys.h"
#include "launcher/walls/mounts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* Numbers as in the launcher: what a sandbox is allowed. */
enum { CAPABILITY_VERSION = 0x20080522 };
#define CAPABILITIES 0x800405fbu

static int put(char out[256], const struct bare_host *host, const char *name)
{
    return snprintf(out, 256, "%s/%s", host->folder, name);
}

static int enter_groups(struct bare_start *start)
{
    for (int i = 0; i < BARE_GROUPS; i++) {
        if (start->slot->tasks[i] >= 0 && write(start->slot->tasks[i], "0", 1) != 1)
            return -1;
    }
    return 0;
}

static int make_store(struct bare_start *start)
{
    static const char *const names[] = { "store/upper", "store/work", "store/shm" };
    const struct mount_option options[] = {
        { "size", "1073741824" }, { "nr_inodes", "262144" }, { "mode", "0755" }, { 0 }
    };
    char path[256];

    put(path, start->host, "store");
    if (mount_at("tmpfs", options, SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV, path) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        put(path, start->host, names[i]);
        if (mkdir(path, 0755) < 0 || chown(path, start->slot->owner, start->slot->owner) < 0)
            return -1;
    }
    return 0;
}

/* A lower layer, with the sandbox's ids. */
static int mount_layer(struct bare_start *start, const char *from, const char *to)
{
    return mount_bind(from, to, SYS_MOUNT_RDONLY | SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV, 0,
                      start->slot->user);
}

static int mount_root(struct bare_start *start)
{
    const struct bare_host *host = start->host;
    char skeleton[256], lower[256], lower_usr[256], layers[520], upper[256], work[256], root[256];
    const struct mount_option options[] = { { "source", "sandbox" },  { "lowerdir", layers },
                                            { "upperdir", upper },    { "workdir", work },
                                            { "redirect_dir", "on" }, { 0 } };

    put(skeleton, host, "skeleton");
    put(lower, host, "lower");
    put(lower_usr, host, "lower-usr");
    put(upper, host, "store/upper");
    put(work, host, "store/work");
    put(root, host, "root");
    snprintf(layers, sizeof(layers), "%s:%s", lower, lower_usr);
    return mount_layer(start, skeleton, lower) < 0 || mount_layer(start, "/usr", lower_usr) < 0
               ? -1
               : mount_at("overlay", options, SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV, root);
}

static int mount_devices(struct bare_start *start)
{
    const struct mount_option terminals[] = {
        { "newinstance", NULL }, { "ptmxmode", "0666" }, { "mode", "0620" }, { "max", "64" }, { 0 }
    };
    char from[256], to[256];

    put(from, start->host, "dev");
    put(to, start->host, "root/dev");
    if (mount_bind(from, to, SYS_MOUNT_RDONLY | SYS_MOUNT_NOSUID | SYS_MOUNT_NOEXEC,
                   SYS_AT_RECURSIVE, -1) < 0)
        return -1;
    put(to, start->host, "root/dev/pts");
    if (mount_at("devpts", terminals, SYS_MOUNT_NOSUID | SYS_MOUNT_NOEXEC, to) < 0)
        return -1;
    put(from, start->host, "store/shm");
    put(to, start->host, "root/dev/shm");
    return mount_bind(from, to, SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV, 0, -1);
}

static int mount_proc(struct bare_start *start)
{
    static const struct mount_option none[] = { { 0 } };
    const struct bare_host *host = start->host;
    char path[256], file[256], folder[256];

    put(path, host, "root/proc");
    put(file, host, "mask-file");
    put(folder, host, "mask-folder");
    if (mount_at("proc", none, SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV | SYS_MOUNT_NOEXEC, path) < 0 ||
        chdir(path) < 0)
        return -1;
    for (int i = 0; host->masks[i]; i++) {
        if (mount(host->mask_is_folder[i] ? folder : file, host->masks[i], NULL, MS_BIND, NULL) < 0)
            return -1;
    }
    return 0;
}

static int change_root(struct bare_start *start)
{
    char path[256];

    put(path, start->host, "root");
    return chdir(path) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
                   chdir("/") < 0
               ? -1
               : 0;
}

static int limit(struct bare_start *start UNUSED)
{
    static const struct {
        int resource;
        rlim_t value;
    } limits[] = { { RLIMIT_CORE, 0 },          { RLIMIT_NOFILE, 16384 },
                   { RLIMIT_MEMLOCK, 8 << 20 }, { RLIMIT_MSGQUEUE, 819200 },
                   { RLIMIT_NPROC, 257 },       { RLIMIT_SIGPENDING, 4096 },
                   { RLIMIT_RTPRIO, 0 },        { RLIMIT_NICE, 0 } };

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct rlimit value = { limits[i].value, limits[i].value };

        if (setrlimit((__rlimit_resource_t)limits[i].resource, &value) < 0)
            return -1;
    }
    return 0;
}

static int drop_powers(struct bare_start *start)
{
    struct {
        uint32_t version;
        int pid;
    } header = { .version = CAPABILITY_VERSION };
    struct {
        uint32_t effective, permitted, inheritable;
    } sets[2] = { { .effective = CAPABILITIES, .permitted = CAPABILITIES } };

    if (setns(start->slot->user, CLONE_NEWUSER) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
        syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
        return -1;
    for (unsigned i = 0; i < 64; i++) {
        if (i < 32 && CAPABILITIES >> i & 1)
            continue;
        if (prctl(PR_CAPBSET_DROP, i) < 0 && errno == EINVAL)
            break;
    }
    return syscall(SYS_capset, &header, sets) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -1
                                                                                                : 0;
}

static int restrict_files(struct bare_start *start)
{
    struct landlock_path rule = { 0 };
    uint32_t abi = (uint32_t)start->host->landlock_abi;
    int fd, result;

    if (start->host->landlock_abi < 6)
        return 0;
    rule.rights = landlock_file_rights(abi) & ~(uint64_t)LANDLOCK_DEVICES;
    fd = landlock_create(
        abi, (struct landlock_ruleset){ .files = ~(uint64_t)0,
                                        .scopes = LANDLOCK_ABSTRACT_SOCKETS | LANDLOCK_SIGNALS });
    rule.parent = open("/", O_PATH | O_CLOEXEC);
    result = fd < 0 || rule.parent < 0 || landlock_add_path(fd, &rule) < 0 ||
                     landlock_restrict(fd) < 0
                 ? -1
                 : 0;
    close(rule.parent);
    close(fd);
    return result;
}

static int become_init(struct bare_start *start)
{
    static char *const argv[] = { (char *)"init", NULL };
    static char *const environment[] = { NULL };
    struct {
        unsigned short length;
        void *filter;
    } program = { start->host->filter_length, start->host->filter };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
        dup2(start->channel, 3) < 0 || sys_close_range(4, ~0U, SYS_CLOSE_RANGE_CLOEXEC) < 0 ||
        prctl(PR_SET_SECCOMP, 2, &program) < 0)
        return -1;
    return (int)syscall(SYS_execveat, start->host->init, "", argv, environment, AT_EMPTY_PATH);
}

static int join(struct bare_start *start)
{
    return enter_groups(start) < 0 || setns(start->slot->network, CLONE_NEWNET) < 0 ||
                   unshare((int)SYS_CLONE_NEWCGROUP) < 0 || sethostname("sandbox", 7) < 0 ||
                   setsid() < 0
               ? -1
               : 0;
}

void bare_child(struct bare_start *start)
{
    static const struct {
        const char *name;
        int (*run)(struct bare_start *start);
    } steps[] = {
        { "enter groups and namespaces", join },
        { "make the store", make_store },
        { "mount the root", mount_root },
        { "mount /dev", mount_devices },
        { "mount /proc", mount_proc },
        { "change the root", change_root },
        { "limit resources", limit },
        { "drop powers", drop_powers },
        { "restrict files", restrict_files },
        { "execute init", become_init },
    };

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (steps[i].run(start) < 0) {
            start->error_number = errno;
            start->step = steps[i].name;
            return;
        }
    }
}
