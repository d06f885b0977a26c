#include "base/alloc.h"
#include "base/id.h"
#include "base/scoped.h"
#include "base/str.h"
#include "cli/operator/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER_PREFIX "sandglass."
#define SPARE_PREFIX "kit-" /* see launcher/ahead/spare.h */

enum { HIERARCHIES = 16, EMPTY_TIMEOUT_MS = 5000, LOOK_MS = 5 };

struct hierarchy {
    char path[PATH_MAX]; /* where the folders of instances are */
};

/* --- hierarchies ----------------------------------------------------------------------------- */

/* Root works at the top of version 2, an ordinary user in the group that was delegated. */
static void own_group(char path[PATH_MAX])
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
            own_group(path);
        count++;
    }
    if (mounts)
        fclose(mounts);
    return count;
}

/* --- one group ------------------------------------------------------------------------------- */

static void write_file(int group, const char *name, const char *text)
{
    scoped(fd_close) int fd = openat(group, name, O_WRONLY | O_CLOEXEC);

    if (fd >= 0)
        (void)!write(fd, text, strlen(text));
}

/* Calls `visit` for the pid of each member; how many there were. */
static unsigned each_member(int group, void (*visit)(void *user, pid_t pid), void *user)
{
    int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
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

static void kill_member(void *user UNUSED, pid_t pid)
{
    if (pid > 1)
        (void)kill(pid, SIGKILL);
}

/* A frozen group of version 1 dies only when it is thawed, and its freezer is another hierarchy
 * than most of its groups are in. True when nobody is in it. */
static bool kill_group(int group)
{
    bool empty;

    write_file(group, "cgroup.kill", "1");
    empty = each_member(group, kill_member, NULL) == 0;
    write_file(group, "freezer.state", "THAWED");
    write_file(group, "cgroup.freeze", "0");
    return empty;
}

/* Kills what is in the group, and removes it when nobody was. 0 when there is none any more. */
static int try_remove(const char *folder, const char *id)
{
    scoped(fd_close) int base = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    scoped(fd_close) int group =
        base < 0 ? -1 : openat(base, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (group < 0)
        return errno == ENOENT ? 0 : -1;
    if (!kill_group(group)) {
        errno = EBUSY;
        return -1;
    }
    return unlinkat(base, id, AT_REMOVEDIR) < 0 && errno != ENOENT ? -1 : 0;
}

static void folder_of(const struct hierarchy *hierarchy, const char *instance, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/" FOLDER_PREFIX "%s", hierarchy->path, instance) >= PATH_MAX)
        *path = '\0';
}

/* In every hierarchy, before anything is waited for. The kernel lets go of the last member a moment
 * after it has left the list, so that EBUSY means: once more. */
static int remove_round(const struct hierarchy *all, size_t count, const char *instance,
                        const char *id)
{
    int failure = 0;

    for (size_t i = 0; i < count; i++) {
        char folder[PATH_MAX];

        folder_of(&all[i], instance, folder);
        if (try_remove(folder, id) < 0 && (failure == 0 || failure == EBUSY))
            failure = errno;
    }
    errno = failure;
    return failure ? -1 : 0;
}

int groups_remove(const char *instance, const char *id)
{
    scoped(free) struct hierarchy *all = xcalloc(HIERARCHIES, sizeof(*all));
    size_t count = find_hierarchies(all);

    for (int waited_ms = 0; remove_round(all, count, instance, id) < 0; waited_ms += LOOK_MS) {
        if (errno != EBUSY || waited_ms >= EMPTY_TIMEOUT_MS)
            return -1;
        (void)poll(NULL, 0, LOOK_MS);
    }
    return 0;
}

/* --- instances that somebody serves ---------------------------------------------------------- */

struct search {
    const char *folder; /* "/sandglass.<instance>" */
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
        search->found = str_ends_with(link, search->folder);
    }
    if (descriptors)
        closedir(descriptors);
    return !search->found;
}

static bool is_served(const char *instance)
{
    scoped(free) char *folder = xasprintf("/" FOLDER_PREFIX "%s", instance);
    struct search search = { .folder = folder };

    processes_each(look_at_launcher, &search);
    return search.found;
}

/* Groups that a launcher had ready for sandboxes to come: they are empty. */
static void remove_spares(const char *folder)
{
    DIR *stream = opendir(folder);
    struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        if (str_starts_with(entry->d_name, SPARE_PREFIX))
            (void)unlinkat(dirfd(stream), entry->d_name, AT_REMOVEDIR);
    }
    if (stream)
        closedir(stream);
}

static void remove_folder(const char *folder)
{
    remove_spares(folder);
    (void)rmdir(folder);
}

void groups_remove_folder(const char *instance)
{
    scoped(free) struct hierarchy *all = xcalloc(HIERARCHIES, sizeof(*all));
    size_t count = is_served(instance) ? 0 : find_hierarchies(all);
    char folder[PATH_MAX];

    for (size_t i = 0; i < count; i++) {
        folder_of(&all[i], instance, folder);
        remove_folder(folder);
    }
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
    scoped(fd_close) int group = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool has_init = false;

    return group >= 0 && (each_member(group, look_for_init, &has_init) == 0 || has_init);
}

static int64_t age_of(const char *path)
{
    struct stat status;

    return stat(path, &status) < 0 ? 0 : (int64_t)(time(NULL) - status.st_mtim.tv_sec);
}

static void sweep_group(struct sweep *sweep, const char *folder, const char *instance,
                        const char *id)
{
    scoped(free) char *path = path_join(folder, id);
    struct sweep_item item = { "cgroup", id, instance, path };

    if (!is_ours(path))
        sweep_report(sweep, &item, SWEEP_SKIPPED, "what runs in it is not ours");
    else if (sweep_may_remove(sweep, &item, age_of(path)))
        sweep_report_result(sweep, &item, groups_remove(instance, id));
}

static void sweep_instance(struct sweep *sweep, const char *folder, const char *instance)
{
    DIR *stream = opendir(folder);
    struct dirent *entry;

    while (stream && (entry = readdir(stream))) {
        if (id_is_valid(entry->d_name, ID_SANDBOX) && !sweep_has_seen(sweep, entry->d_name))
            sweep_group(sweep, folder, instance, entry->d_name);
    }
    if (stream)
        closedir(stream);
    if (!sweep->dry_run)
        remove_folder(folder);
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
    char folder[PATH_MAX];

    while (stream && (entry = readdir(stream))) {
        const char *instance = entry->d_name + strlen(FOLDER_PREFIX);

        if (!str_starts_with(entry->d_name, FOLDER_PREFIX) || !is_wanted(sweep, instance) ||
            is_served(instance))
            continue;
        folder_of(hierarchy, instance, folder);
        sweep_instance(sweep, folder, instance);
    }
    if (stream)
        closedir(stream);
}

void sweep_groups(struct sweep *sweep)
{
    scoped(free) struct hierarchy *all = xcalloc(HIERARCHIES, sizeof(*all));
    size_t count = find_hierarchies(all);

    for (size_t i = 0; i < count; i++)
        sweep_hierarchy(sweep, &all[i]);
}
