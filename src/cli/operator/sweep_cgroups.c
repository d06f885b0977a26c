/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/launcher_sweep.h"
#include "base/alloc.h"
#include "base/id.h"
#include "base/scoped.h"
#include "base/str.h"
#include "cli/operator/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define INSTANCE_PREFIX "sandglass."
#define SPARE_PREFIX "kit-" /* see launcher/cgroup/cgroup.h */

enum { HIERARCHIES = 16 };

struct hierarchy {
    char path[PATH_MAX]; /* where the directories of instances are */
};

/* --- hierarchies ----------------------------------------------------------------------------- */

/* Root works at the top of version 2, an ordinary user in the cgroup that was delegated. */
static void own_cgroup(char path[PATH_MAX])
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX];
    size_t length = strlen(path);

    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (str_starts_with(line, "0::"))
            snprintf(path + length, PATH_MAX - length, "%s", line + 3);
    }
    if (file)
        fclose(file);
}

static size_t find_hierarchies(struct hierarchy found[HIERARCHIES])
{
    FILE *mounts = fopen("/proc/self/mounts", "re");
    char line[2 * PATH_MAX];
    char type[64];
    size_t count = 0;

    while (mounts && count < HIERARCHIES && fgets(line, sizeof(line), mounts)) {
        char *path = found[count].path;

        if (sscanf(line, "%*s %4095s %63s", path, type) != 2 || strncmp(type, "cgroup", 6) != 0)
            continue;
        if (str_equal(type, "cgroup2") && geteuid() != 0)
            own_cgroup(path);
        count++;
    }
    if (mounts)
        fclose(mounts);
    return count;
}

/* --- one cgroup ------------------------------------------------------------------------------ */

/* Calls `visit` for the pid of each member; how many there were. */
static unsigned each_member(int cgroup, void (*visit)(void *user, pid_t pid), void *user)
{
    int fd = openat(cgroup, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
    unsigned count = 0;
    int pid;

    while (file && fscanf(file, "%d", &pid) == 1) {
        count++;
        visit(user, pid);
    }
    if (file)
        fclose(file);
    else
        fd_close(fd);
    return count;
}

static void directory_of(const struct hierarchy *hierarchy, const char *instance,
                         char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/" INSTANCE_PREFIX "%s", hierarchy->path, instance) >= PATH_MAX)
        *path = '\0';
}

/* --- instances with a launcher --------------------------------------------------------------- */

struct search {
    const char *directory; /* "/sandglass.<instance>" */
    bool found;
};

/* In doubt it is served: a launcher whose descriptors we may not see. */
static bool look_at_launcher(void *user, pid_t pid)
{
    struct search *search = user;
    char path[64];
    char link[PATH_MAX];
    struct dirent *entry;
    DIR *descriptors;

    if (!process_is_named(pid, "sandglass-launcher"))
        return true;
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    descriptors = opendir(path);
    search->found = !descriptors && errno != ENOENT;
    while (descriptors && !search->found && (entry = readdir(descriptors))) {
        ssize_t length = readlinkat(dirfd(descriptors), entry->d_name, link, sizeof(link) - 1);

        link[length > 0 ? length : 0] = '\0';
        search->found = str_ends_with(link, search->directory);
    }
    if (descriptors)
        closedir(descriptors);
    return !search->found;
}

static bool is_served(const char *instance)
{
    scoped(free) char *directory = xasprintf("/" INSTANCE_PREFIX "%s", instance);
    struct search search = { .directory = directory };

    processes_each(look_at_launcher, &search);
    return search.found;
}

/* Cgroups that a launcher had ready for sandboxes to come: they are empty. */
static void remove_spares(const char *directory)
{
    DIR *stream = opendir(directory);
    struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        if (str_starts_with(entry->d_name, SPARE_PREFIX))
            (void)unlinkat(dirfd(stream), entry->d_name, AT_REMOVEDIR);
    }
    if (stream)
        closedir(stream);
}

/* --- sandboxes without a state directory ----------------------------------------------------- */

static void look_for_init(void *user, pid_t pid)
{
    bool *found = user;

    *found = *found || process_is_named(pid, "sandglass-init");
}

/* Members that have no init of ours are nothing that we have made. */
static bool is_ours(const char *path)
{
    scoped(fd_close) int cgroup = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool has_init = false;

    return cgroup >= 0 && (each_member(cgroup, look_for_init, &has_init) == 0 || has_init);
}

static int64_t age_of(const char *path)
{
    struct stat status;

    return stat(path, &status) < 0 ? 0 : (int64_t)(time(NULL) - status.st_mtim.tv_sec);
}

/* The launcher of an instance, in a state directory that is gone again afterwards. */
struct instance {
    const char *name;
    struct launcher_sweep launcher;
    char state[PATH_MAX]; /* "" until it is needed */
};

static int start_launcher(struct instance *instance, struct error *err)
{
    const char *temporary = getenv("TMPDIR");

    snprintf(instance->state, sizeof(instance->state), "%s/sandglass-sweep.XXXXXX",
             str_is_empty(temporary) ? "/tmp" : temporary);
    if (!mkdtemp(instance->state)) {
        error_sys(err, "make %s", instance->state);
        instance->state[0] = '\0';
        return -1;
    }
    return launcher_sweep_start(&instance->launcher, instance->state, instance->name, err);
}

static void stop_launcher(struct instance *instance)
{
    scoped(fd_close) int parent = -1;
    char *name = strrchr(instance->state, '/');

    launcher_sweep_stop(&instance->launcher);
    if (!name)
        return;
    *name++ = '\0';
    parent = open(*instance->state ? instance->state : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent >= 0)
        (void)sweep_remove_tree(parent, name);
}

static int remove_sandbox(struct instance *instance, const char *id, struct error *err)
{
    if (instance->launcher.socket < 0 && start_launcher(instance, err) < 0)
        return -1;
    return launcher_sweep_destroy(&instance->launcher, id, err);
}

static void sweep_cgroup(struct sweep *sweep, const char *directory, struct instance *instance,
                         const char *id)
{
    scoped(free) char *path = path_join(directory, id);
    struct sweep_item item = { "cgroup", id, instance->name, path };
    struct error err = { 0 };

    if (!is_ours(path))
        sweep_report(sweep, &item, SWEEP_SKIPPED, "what runs in it is not ours");
    else if (sweep_may_remove(sweep, &item, age_of(path)))
        sweep_report_result(sweep, &item, remove_sandbox(instance, id, &err), &err);
}

static void sweep_instance(struct sweep *sweep, const char *directory, const char *name)
{
    struct instance instance = { .name = name, .launcher = LAUNCHER_SWEEP_INIT };
    DIR *stream = opendir(directory);
    struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        if (id_is_valid(entry->d_name, ID_SANDBOX) && !sweep_has_seen(sweep, entry->d_name))
            sweep_cgroup(sweep, directory, &instance, entry->d_name);
    }
    if (stream)
        closedir(stream);
    stop_launcher(&instance);
    if (sweep->dry_run)
        return;
    remove_spares(directory);
    (void)rmdir(directory);
}

static bool is_wanted(const struct sweep *sweep, const char *instance)
{
    for (size_t i = 0; i < sweep->instances.count; i++)
        if (str_equal(sweep->instances.items[i], instance))
            return true;
    return sweep->instances.count == 0;
}

static void sweep_hierarchy(struct sweep *sweep, const struct hierarchy *hierarchy)
{
    DIR *stream = opendir(hierarchy->path);
    struct dirent *entry;
    char directory[PATH_MAX];

    while (stream && (entry = readdir(stream))) {
        const char *instance = entry->d_name + strlen(INSTANCE_PREFIX);

        if (!str_starts_with(entry->d_name, INSTANCE_PREFIX) || !is_wanted(sweep, instance) ||
            is_served(instance))
            continue;
        directory_of(hierarchy, instance, directory);
        sweep_instance(sweep, directory, instance);
    }
    if (stream)
        closedir(stream);
}

void sweep_cgroups(struct sweep *sweep)
{
    scoped(free) struct hierarchy *all = xcalloc(HIERARCHIES, sizeof(*all));
    size_t count = find_hierarchies(all);

    for (size_t i = 0; i < count; i++)
        sweep_hierarchy(sweep, &all[i]);
}
