/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup hierarchies of the host, and the directory of this instance in each. */

#include "launcher/cgroup/cgroup.h"
#include "launcher/cgroup/cgroup_files.h"
#include "launcher/sys.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- finding the hierarchies --------------------------------------------------------------- */

static const struct {
    const char *controller;
    enum cgroup_part part;
    uint32_t feature;
} controllers[] = {
    { "memory", CGROUP_MEMORY, LAUNCH_HAS_MEMORY },
    { "cpu", CGROUP_CPU, LAUNCH_HAS_CPU },
    { "cpuacct", CGROUP_CPUACCT, 0 },
    { "pids", CGROUP_PIDS, LAUNCH_HAS_PIDS },
    { "freezer", CGROUP_FREEZER, LAUNCH_HAS_FREEZER },
    { "blkio", CGROUP_IO, LAUNCH_HAS_IO },
};

static bool has_word(const char *list, const char *word, const char *separators)
{
    size_t length = strlen(word);

    while (*list) {
        size_t span = strcspn(list, separators);

        if (span == length && strncmp(list, word, length) == 0)
            return true;
        list += span + strspn(list + span, separators);
    }
    return false;
}

/* A directory of this name may belong to another user, with a daemon of the same instance name:
 * then there are no cgroups for us. */
static int open_base(int root, const char *instance)
{
    char name[LAUNCH_NAME_SIZE + 16];
    struct stat status;
    int base;

    snprintf(name, sizeof(name), "sandglass.%s", instance);
    if (cgroup_make(root, name) < 0)
        return -1;
    base = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (base < 0 || geteuid() == 0 || (fstat(base, &status) == 0 && status.st_uid == geteuid()))
        return base;
    close(base);
    return -1;
}

static void add_v1(struct cgroups *cgroups, const char *path, const char *options,
                   const char *instance)
{
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (root < 0)
        return;
    for (size_t i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++) {
        int *base = &cgroups->base[controllers[i].part];

        if (*base >= 0 || !has_word(options, controllers[i].controller, ",\n") ||
            (controllers[i].part == CGROUP_IO && !cgroup_io_is_limited(&cgroups->io)))
            continue;
        *base = open_base(root, instance);
        if (*base >= 0)
            cgroups->features |= controllers[i].feature | LAUNCH_HAS_CGROUP_V1;
    }
    close(root);
}

#define DAEMON_CGROUP "sandglass.daemon"

/* Where the daemon is in the cgroup that we have moved it to, the delegated one is above. */
static void leave_daemon_cgroup(char *path)
{
    size_t length = strlen(path);
    size_t suffix = strlen("/" DAEMON_CGROUP);

    if (length > suffix && strcmp(path + length - suffix, "/" DAEMON_CGROUP) == 0)
        path[length - suffix] = '\0';
}

/* Root works at the top of the hierarchy, an ordinary user in the cgroup that was delegated. */
static int open_unified_root(const char *path)
{
    char text[4096];
    char *own;
    int root;
    int proc;
    int top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (top < 0 || geteuid() == 0)
        return top;
    proc = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    own = proc >= 0 && cgroup_read_text(proc, "cgroup", text, sizeof(text)) > 0
              ? strstr(text, "0::/")
              : NULL;
    if (proc >= 0)
        close(proc);
    if (!own || strlen(own) < 6) {
        close(top);
        return -1;
    }
    own += 4;
    own[strcspn(own, "\n")] = '\0';
    leave_daemon_cgroup(own);
    root = openat(top, own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(top);
    return root;
}

static const struct {
    const char *controller;
    uint32_t feature;
} handed_down[] = {
    { "memory", LAUNCH_HAS_MEMORY },
    { "pids", LAUNCH_HAS_PIDS },
    { "cpu", LAUNCH_HAS_CPU },
    { "io", LAUNCH_HAS_IO },
};

/* A cgroup that enables controllers for its children may have no processes, unless it is the root:
 * its processes, ours included, move into a child. */
static void move_members(int cgroup)
{
    char members[4096];
    char *save = NULL;

    if (cgroup_make(cgroup, DAEMON_CGROUP) < 0)
        return;
    while (cgroup_read_text(cgroup, "cgroup.procs", members, sizeof(members)) > 0) {
        char *pid = strtok_r(members, "\n", &save);

        for (; pid; pid = strtok_r(NULL, "\n", &save)) {
            if (cgroup_write_text(cgroup, DAEMON_CGROUP "/cgroup.procs", pid) < 0 && errno != ESRCH)
                return;
        }
    }
}

/* One after the other, so that a missing controller does not prevent the others. */
static void hand_down(int cgroup, const struct cgroups *cgroups)
{
    char text[16];
    bool moved = false;

    for (size_t i = 0; i < sizeof(handed_down) / sizeof(handed_down[0]); i++) {
        if (handed_down[i].feature == LAUNCH_HAS_IO && !cgroup_io_is_limited(&cgroups->io))
            continue;
        snprintf(text, sizeof(text), "+%s", handed_down[i].controller);
        if (cgroup_write_text(cgroup, "cgroup.subtree_control", text) < 0 && errno == EBUSY &&
            !moved) {
            move_members(cgroup);
            moved = true;
            (void)cgroup_write_text(cgroup, "cgroup.subtree_control", text);
        }
    }
}

static void add_v2(struct cgroups *cgroups, const char *path, const char *instance)
{
    char text[512];
    int root = open_unified_root(path);
    int base;

    if (root < 0)
        return;
    if (cgroup_read_text(root, "cgroup.controllers", text, sizeof(text)) <= 0 ||
        !has_word(text, "memory", " \n")) {
        close(root);
        return;
    }
    hand_down(root, cgroups);
    base = open_base(root, instance);
    close(root);
    if (base < 0)
        return;
    hand_down(base, cgroups);
    (void)cgroup_read_text(base, "cgroup.subtree_control", text, sizeof(text));
    cgroups->base[CGROUP_UNIFIED] = base;
    cgroups->features = LAUNCH_HAS_CGROUP_V2 | LAUNCH_HAS_FREEZER;
    for (size_t i = 0; i < sizeof(handed_down) / sizeof(handed_down[0]); i++) {
        if (has_word(text, handed_down[i].controller, " \n"))
            cgroups->features |= handed_down[i].feature;
    }
}

static bool is_same_directory(int a, int b)
{
    struct stat of_a, of_b;

    return a >= 0 && b >= 0 && fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 &&
           of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

static void find_shared(struct cgroups *cgroups)
{
    for (int part = 0; part < CGROUP_PARTS; part++) {
        for (int earlier = 0; earlier < part && !cgroups->is_shared[part]; earlier++)
            cgroups->is_shared[part] =
                is_same_directory(cgroups->base[earlier], cgroups->base[part]);
    }
}

void cgroups_find(struct cgroups *cgroups, FILE *mounts, const struct launch_setup *setup)
{
    char line[4096];
    char path[1024];
    char type[64];
    char options[1024];

    *cgroups = (struct cgroups){ .base = { -1, -1, -1, -1, -1, -1, -1 },
                                 .own_processes = launch_own_processes(setup),
                                 .io = { .bytes_per_s = setup->io_bytes_per_s,
                                         .operations_per_s = setup->io_operations_per_s } };
    cgroup_io_find_disks(&cgroups->io);
    while (mounts && fgets(line, sizeof(line), mounts)) {
        if (sscanf(line, "%*s %1023s %63s %1023s", path, type, options) != 3)
            continue;
        if (strcmp(type, "cgroup2") == 0 && !(cgroups->features & LAUNCH_HAS_CGROUP_V1))
            add_v2(cgroups, path, setup->instance);
        else if (strcmp(type, "cgroup") == 0 && !cgroups_are_v2(cgroups))
            add_v1(cgroups, path, options, setup->instance);
    }
    find_shared(cgroups);
}

void cgroups_open(struct cgroups *cgroups, const struct launch_setup *setup)
{
    FILE *mounts = fopen("/proc/self/mounts", "re");

    cgroups_find(cgroups, mounts, setup);
    if (mounts)
        fclose(mounts);
}

/* --- leaving ------------------------------------------------------------------------------- */

/* Another launcher of the same instance may be alive, with a state directory of its own. */
static bool is_abandoned(const char *pid_text)
{
    int pid = atoi(pid_text);

    return pid <= 0 || pid == getpid() || (kill(pid, 0) < 0 && errno == ESRCH);
}

static void sweep_part(int base, const char *prefix)
{
    int fd = openat(base, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (!stream) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((entry = readdir(stream))) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 &&
            is_abandoned(entry->d_name + strlen(prefix)))
            (void)unlinkat(base, entry->d_name, AT_REMOVEDIR);
    }
    closedir(stream);
}

void cgroups_sweep(struct cgroups *cgroups, const char *prefix)
{
    for (int part = 0; part < CGROUP_PARTS; part++) {
        if (cgroups_has_hierarchy(cgroups, part))
            sweep_part(cgroups->base[part], prefix);
    }
}

void cgroups_close(struct cgroups *cgroups, const char *instance)
{
    char name[LAUNCH_NAME_SIZE + 16];

    snprintf(name, sizeof(name), "../sandglass.%s", instance);
    for (int part = 0; part < CGROUP_PARTS; part++) {
        if (cgroups->base[part] < 0)
            continue;
        (void)unlinkat(cgroups->base[part], name, AT_REMOVEDIR);
        close(cgroups->base[part]);
        cgroups->base[part] = -1;
    }
}
