/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/operator/doctor.h"

#include "backend/native/remedy.h"
#include "backend/registry.h"
#include "backend/report_kernel.h"
#include "base/buffer.h"
#include "base/fd.h"
#include "base/str.h"
#include "daemon/needed_calls.h"
#include "daemon/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/landlock.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KERNEL_MAJOR = 5, KERNEL_MINOR = 11, WANTED_FILES = 65536, MOUNTS_MAX = 1 << 20 };

/* Runs the attempt in a child: 0, or the errno that it returned. */
static int try_in_child(int (*attempt)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(attempt());
    if (pid < 0)
        return errno;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

static bool read_text(const char *path, char *text, size_t size)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? -1 : read(fd, text, size - 1);

    if (count < 0)
        return false;
    text[count] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return true;
}

static void check_kernel(const struct doctor *doctor UNUSED, struct finding *finding)
{
    struct utsname name;
    unsigned major = 0, minor = 0;

    uname(&name);
    sscanf(name.release, "%u.%u", &major, &minor);
    if (major > KERNEL_MAJOR || (major == KERNEL_MAJOR && minor >= KERNEL_MINOR))
        finding_set(finding, FINDING_OK, NULL, "Linux %s %s", name.release, name.machine);
    else
        finding_set(finding, FINDING_FAIL, "use Linux 5.11 or later",
                    "Linux %s lacks features that Sandglass needs", name.release);
}

static int attempt_namespaces(void)
{
    return unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                   CLONE_NEWUTS) < 0
               ? errno
               : 0;
}

static void check_namespaces(const struct doctor *doctor UNUSED, struct finding *finding)
{
    int number = try_in_child(attempt_namespaces);

    if (number == 0)
        finding_set(finding, FINDING_OK, NULL,
                    "user, mount, pid, net, ipc and uts namespaces can be created");
    else
        finding_set(finding, FINDING_WARN, native_remedy("namespaces"), "cannot be created: %s",
                    strerror(number));
}

static int write_text(const char *path, const char *text)
{
    scoped(fd_close) int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd < 0 || write(fd, text, strlen(text)) < 0 ? errno : 0;
}

static int become_root_inside(void)
{
    char map[64];
    unsigned uid = geteuid(), gid = getegid();

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return errno;
    (void)write_text("/proc/self/setgroups", "deny");
    snprintf(map, sizeof(map), "0 %u 1", uid);
    if (write_text("/proc/self/uid_map", map) != 0)
        return errno;
    snprintf(map, sizeof(map), "0 %u 1", gid);
    return write_text("/proc/self/gid_map", map);
}

/* In a mount namespace of its own, on a tmpfs that goes with it. */
static int attempt_overlay(void)
{
    int number = become_root_inside();

    if (number)
        return number;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/tmp", "tmpfs", 0, NULL) < 0 || mkdir("/tmp/lower", 0700) < 0 ||
        mkdir("/tmp/upper", 0700) < 0 || mkdir("/tmp/work", 0700) < 0 ||
        mkdir("/tmp/merged", 0700) < 0 ||
        mount("overlay", "/tmp/merged", "overlay", 0,
              "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work") < 0)
        return errno;
    return 0;
}

static void check_overlay(const struct doctor *doctor UNUSED, struct finding *finding)
{
    int number = try_in_child(attempt_overlay);

    if (number == 0)
        finding_set(finding, FINDING_OK, NULL, "can be mounted in a user namespace");
    else if (try_in_child(attempt_namespaces))
        finding_set(finding, FINDING_WARN, native_remedy("namespaces"),
                    "not tested: namespaces are not available");
    else
        finding_set(finding, FINDING_WARN, "run 'modprobe overlay' and use Linux 5.11 or later",
                    "cannot be mounted: %s; templates are copied instead", strerror(number));
}

/* The cgroup of this process, or the root when it cannot be read. */
static void own_cgroup(char *path, size_t size)
{
    char line[256];

    snprintf(path, size, "/sys/fs/cgroup");
    if (read_text("/proc/self/cgroup", line, sizeof(line)) && strncmp(line, "0::", 3) == 0 &&
        strcmp(line + 3, "/") != 0)
        snprintf(path, size, "/sys/fs/cgroup%s", line + 3);
}

static void read_mounts(struct buffer *out)
{
    scoped(fd_close) int fd = open("/proc/self/mounts", O_RDONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)fd_read_all(fd, out);
}

static bool may_use_controller(const char *mounts, const char *controller)
{
    char path[PATH_MAX];
    scoped(free) char *tasks = NULL;

    if (!kernel_find_hierarchy(mounts, controller, path, sizeof(path)))
        return false;
    tasks = path_join(path, "tasks");
    return access(tasks, W_OK) == 0;
}

/* Version 1, one hierarchy for each controller or for several; only root can use it. */
static void check_cgroups_v1(struct finding *finding)
{
    static const char *const controllers[] = { "memory", "cpu", "pids", "freezer" };
    scoped(buffer_fini) struct buffer mounts = BUFFER_INIT(MOUNTS_MAX);

    read_mounts(&mounts);
    for (size_t i = 0; i < ARRAY_LENGTH(controllers); i++) {
        if (may_use_controller(buffer_text(&mounts), controllers[i]))
            continue;
        finding_set(
            finding, FINDING_WARN,
            "run the daemon as root, or boot with systemd.unified_cgroup_hierarchy=1; in a "
            "container: mount cgroup v2 writable (--cgroupns=private)",
            "no %s controller is writable: limits apply to single processes, not to sandboxes",
            controllers[i]);
        return;
    }
    finding_set(finding, FINDING_OK, NULL, "v1 with memory, cpu, pids and freezer");
}

static void check_cgroups(const struct doctor *doctor UNUSED, struct finding *finding)
{
    char controllers[256] = "";
    char path[320];
    struct statfs fs;

    if (statfs("/sys/fs/cgroup", &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC) {
        check_cgroups_v1(finding);
        return;
    }
    (void)read_text("/sys/fs/cgroup/cgroup.controllers", controllers, sizeof(controllers));
    own_cgroup(path, sizeof(path));
    if (!strstr(controllers, "memory") || !strstr(controllers, "pids") ||
        !strstr(controllers, "cpu"))
        finding_set(finding, FINDING_WARN, "enable the cpu, memory and pids controllers",
                    "v2 has only: %s", controllers);
    else if (access(path, W_OK) < 0)
        finding_set(finding, FINDING_WARN,
                    "run the daemon as root, or under systemd with Delegate=yes",
                    "v2 with %s, but %s is not writable", controllers, path);
    else
        finding_set(finding, FINDING_OK, NULL, "v2 with %s", controllers);
}

static void check_landlock(const struct doctor *doctor UNUSED, struct finding *finding)
{
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

    if (version > 0)
        finding_set(finding, FINDING_OK, NULL, "ABI %ld", version);
    else
        finding_set(finding, FINDING_WARN, "boot Linux 5.13 or later with lsm=landlock",
                    "not available: %s", strerror(errno));
}

static void check_seccomp(const struct doctor *doctor UNUSED, struct finding *finding)
{
    unsigned action = SECCOMP_RET_USER_NOTIF;

    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0)
        finding_set(finding, FINDING_OK, NULL, "filters with user notification");
    else
        finding_set(finding, FINDING_WARN, "use a kernel with CONFIG_SECCOMP_FILTER",
                    "not available: %s", strerror(errno));
}

static void check_files(const struct doctor *doctor UNUSED, struct finding *finding)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max >= WANTED_FILES)
        finding_set(finding, FINDING_OK, NULL, "up to %llu", (unsigned long long)limit.rlim_max);
    else if (limit.rlim_max < LEAST_OPEN_FILES)
        finding_set(finding, FINDING_FAIL, "ulimit -Hn 65536, or LimitNOFILE=65536 in systemd",
                    "up to %llu, too few for a daemon", (unsigned long long)limit.rlim_max);
    else
        finding_set(finding, FINDING_WARN, "ulimit -Hn 65536, or LimitNOFILE=65536 in systemd",
                    "up to %llu, enough for about %llu sandboxes",
                    (unsigned long long)limit.rlim_max, (unsigned long long)limit.rlim_max / 8);
}

static void check_calls(const struct doctor *doctor, struct finding *finding)
{
    struct error err = { 0 };

    if (needed_calls_check(!doctor->config || backends_need_launcher(doctor->config), &err) < 0)
        finding_set(finding, FINDING_FAIL, err.hint, "%s", err.message);
    else
        finding_set(finding, FINDING_OK, NULL, "all that a daemon needs can be called");
}

/* What sandboxes with an open network take. */
static void check_network(const struct doctor *doctor UNUSED, struct finding *finding)
{
    static const char nft[] = "/usr/sbin/nft";

    if (geteuid() != 0)
        finding_set(finding, FINDING_WARN, "run the daemon as root",
                    "sandboxes have no network: a daemon of an ordinary user cannot give them one");
    else if (access(nft, X_OK) < 0)
        finding_set(finding, FINDING_WARN, "install the package nftables",
                    "sandboxes have no network: %s is missing", nft);
    else
        finding_set(finding, FINDING_OK, NULL, "sandboxes can have one, with %s", nft);
}

const struct check host_checks[] = {
    { "kernel", check_kernel },      { "namespaces", check_namespaces },
    { "overlayfs", check_overlay },  { "cgroups", check_cgroups },
    { "landlock", check_landlock },  { "seccomp", check_seccomp },
    { "system calls", check_calls }, { "network", check_network },
    { "open files", check_files },   { 0 },
};
