/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/direct/kill.h"

#include "launcher/sys.h"
#include "launcher/walls/ids.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { WALK_ROUNDS = 64, MAX_PROCESSES = 65536 };

/* --- by user id ---------------------------------------------------------------------------- */

bool kill_has_own_uid(const struct context *context, const struct mark *mark)
{
    uint64_t first = context->setup.uid_base + (uint64_t)mark->slot * LAUNCH_IDS_STEP;

    return context->changes_ids && mark->uid >= first && mark->uid < first + LAUNCH_IDS_PER_SLOT;
}

/* Whether a process of that user lives: 1, 0 for a zombie, -1 for a process of another user. A
 * process with threads may live although its first thread is a zombie. */
static int lives_as(const struct state *state, const char *pid, uid_t uid)
{
    char path[32];
    char text[4096];
    const char *line;
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "%.16s/status", pid);
    fd = openat(state->proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    length = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    line = strstr(text, "\nUid:\t");
    if (!line || strtoul(line + 6, NULL, 10) != uid)
        return -1;
    line = strstr(text, "\nThreads:\t");
    return !strstr(text, "\nState:\tZ") || (line && strtoul(line + 10, NULL, 10) > 1);
}

/* Without a reaper of orphans, dead processes stay as zombies. A process that cannot be read
 * counts as alive. */
static bool has_only_zombies(const struct state *state, uid_t uid)
{
    int fd = openat(state->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    bool has_zombie = false;
    int lives = 0;

    if (!stream) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    while (lives <= 0 && (entry = readdir(stream))) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        lives = lives_as(state, entry->d_name, uid);
        has_zombie = has_zombie || lives == 0;
    }
    closedir(stream);
    return has_zombie && lives <= 0;
}

/* One call that no fork can slip through: kill(-1) as that user. 1 when a process is left that
 * has still to die. */
static int kill_by_uid(const struct state *state, uid_t uid)
{
    pid_t child = fork();

    if (child == 0) {
        /* The real id too: by a real id of 0 the kernel would let us kill root's processes. */
        if (syscall(SYS_setresuid, uid, uid, uid) == 0)
            (void)kill(-1, SIGKILL);
        _exit(0);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return -1;
    errno = 0;
    (void)getpriority(PRIO_USER, uid);
    return errno == ESRCH || has_only_zombies(state, uid) ? 0 : 1;
}

/* --- native ------------------------------------------------------------------------------- */

/* Without root, a sandbox of an earlier launcher is in a user namespace that we have no power
 * over. A process with the same ids may signal it. */
void kill_init(const struct context *context, int pidfd)
{
    pid_t child;

    if (sys_pidfd_kill(pidfd, SIGKILL) == 0 || errno != EPERM || context->ids != IDS_RANGE)
        return;
    child = fork();
    if (child == 0) {
        uid_t uid = ids_first(context, 0);

        if (syscall(SYS_setresuid, uid, uid, uid) == 0)
            (void)sys_pidfd_kill(pidfd, SIGKILL);
        _exit(0);
    }
    if (child > 0)
        (void)waitpid(child, NULL, 0);
}

/* --- by descent ---------------------------------------------------------------------------- */

static pid_t parent_of(const struct state *state, pid_t pid)
{
    char path[32];
    char text[512];
    const char *at;
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "%d/stat", (int)pid);
    fd = openat(state->proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    at = strrchr(text, ')');
    if (!at || strlen(at) < 4 || at[2] == 'Z')
        return 0;
    return (pid_t)strtol(at + 4, NULL, 10);
}

static int list_processes(const struct state *state, pid_t *pids, pid_t *parents)
{
    int fd = openat(state->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    int count = 0;

    if (!stream) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    while ((entry = readdir(stream)) && count < MAX_PROCESSES) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (pid <= 1)
            continue;
        pids[count] = pid;
        parents[count] = parent_of(state, pid);
        count += parents[count] > 0;
    }
    closedir(stream);
    return count;
}

static pid_t parent_in(const pid_t *pids, const pid_t *parents, int count, pid_t pid)
{
    for (int i = 0; i < count; i++) {
        if (pids[i] == pid)
            return parents[i];
    }
    return 0;
}

static bool descends(const pid_t *pids, const pid_t *parents, int count, pid_t pid, pid_t ancestor)
{
    for (int depth = 0; depth < 1024 && pid > 1; depth++) {
        pid = parent_in(pids, parents, count, pid);
        if (pid == ancestor)
            return true;
    }
    return false;
}

static int signal_descendants(const struct state *state, pid_t ancestor, int signal_number)
{
    static pid_t pids[MAX_PROCESSES];
    static pid_t parents[MAX_PROCESSES];
    int count = list_processes(state, pids, parents);
    int found = 0;

    for (int i = 0; i < count; i++) {
        if (!descends(pids, parents, count, pids[i], ancestor))
            continue;
        (void)kill(pids[i], signal_number);
        found++;
    }
    return found;
}

/* Init stays alive meanwhile, so that orphans keep descending from it. Stopping all processes first
 * ends the race with those that fork. */
static void kill_by_descent(const struct context *context, pid_t init)
{
    int before = -1;

    for (int round = 0; round < WALK_ROUNDS; round++) {
        int found = signal_descendants(&context->state, init, SIGSTOP);

        if (found == before)
            break;
        before = found;
    }
    for (int round = 0; round < WALK_ROUNDS; round++) {
        if (signal_descendants(&context->state, init, SIGKILL) == 0)
            break;
        sched_yield();
    }
}

void kill_tree(const struct context *context, struct cgroups *cgroups, const struct mark *mark,
               int pidfd, const char *id)
{
    bool has_cgroup = cgroups_kill(cgroups, id) >= 0;

    if (!has_cgroup && kill_has_own_uid(context, mark))
        (void)kill_by_uid(&context->state, mark->uid);
    else if (!has_cgroup && pidfd >= 0)
        kill_by_descent(context, mark->pid);
    if (pidfd >= 0)
        (void)sys_pidfd_kill(pidfd, SIGKILL);
}

int kill_stragglers(const struct context *context, struct cgroups *cgroups, const struct mark *mark,
                    const char *id)
{
    int found = cgroups_kill(cgroups, id);

    if (found >= 0)
        return found;
    if (kill_has_own_uid(context, mark))
        return kill_by_uid(&context->state, mark->uid);
    return 0;
}
