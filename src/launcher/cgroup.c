#include "launcher/cgroup.h"

#include "launcher/sys.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CPU_PERIOD_US = 100000, FREEZE_ATTEMPTS = 2000 };

static int write_text(int dir, const char *name, const char *text)
{
    int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    ssize_t written;
    int error;

    if (fd < 0)
        return -1;
    written = write(fd, text, strlen(text));
    error = errno;
    close(fd);
    errno = error;
    return written < 0 ? -1 : 0;
}

static int write_number(int dir, const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
    return write_text(dir, name, text);
}

static ssize_t read_text(int dir, const char *name, char *text, size_t size)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    ssize_t length;

    text[0] = '\0';
    if (fd < 0)
        return -1;
    length = read(fd, text, size - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length;
}

static uint64_t read_number(int dir, const char *name)
{
    char text[32];

    return read_text(dir, name, text, sizeof(text)) > 0 ? strtoull(text, NULL, 10) : 0;
}

/* The value behind "key " in a file of such lines. */
static uint64_t read_keyed(int dir, const char *name, const char *key)
{
    char text[2048];
    char *save = NULL;
    size_t length = strlen(key);

    if (read_text(dir, name, text, sizeof(text)) <= 0)
        return 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            return strtoull(line + length + 1, NULL, 10);
    }
    return 0;
}

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

static int open_base(int root, const char *instance)
{
    char name[LAUNCH_NAME_SIZE + 16];

    snprintf(name, sizeof(name), "sandglass.%s", instance);
    if (mkdirat(root, name, 0755) < 0 && errno != EEXIST)
        return -1;
    return openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void add_v1(struct cgroups *cgroups, const char *path, const char *options,
                   const char *instance)
{
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (root < 0)
        return;
    for (size_t i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++) {
        int *base = &cgroups->base[controllers[i].part];

        if (*base >= 0 || !has_word(options, controllers[i].controller, ",\n"))
            continue;
        *base = open_base(root, instance);
        if (*base >= 0)
            cgroups->features |= controllers[i].feature | LAUNCH_HAS_CGROUP_V1;
    }
    close(root);
}

/* Root works at the top of the hierarchy, an ordinary user in the group that was delegated. */
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
    own = proc >= 0 && read_text(proc, "cgroup", text, sizeof(text)) > 0 ? strstr(text, "0::/")
                                                                         : NULL;
    if (proc >= 0)
        close(proc);
    if (!own || strlen(own) < 6) {
        close(top);
        return -1;
    }
    own += 4;
    own[strcspn(own, "\n")] = '\0';
    root = openat(top, own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(top);
    return root;
}

static void add_v2(struct cgroups *cgroups, const char *path, const char *instance)
{
    char text[512];
    int root = open_unified_root(path);
    int base;

    if (root < 0)
        return;
    if (read_text(root, "cgroup.controllers", text, sizeof(text)) <= 0 ||
        !has_word(text, "memory", " \n")) {
        close(root);
        return;
    }
    (void)write_text(root, "cgroup.subtree_control", "+memory +pids +cpu");
    base = open_base(root, instance);
    close(root);
    if (base < 0)
        return;
    (void)write_text(base, "cgroup.subtree_control", "+memory +pids +cpu");
    (void)read_text(base, "cgroup.subtree_control", text, sizeof(text));
    cgroups->base[CGROUP_UNIFIED] = base;
    cgroups->features = LAUNCH_HAS_CGROUP_V2 | LAUNCH_HAS_FREEZER;
    cgroups->features |= has_word(text, "memory", " \n") ? LAUNCH_HAS_MEMORY : 0;
    cgroups->features |= has_word(text, "pids", " \n") ? LAUNCH_HAS_PIDS : 0;
    cgroups->features |= has_word(text, "cpu", " \n") ? LAUNCH_HAS_CPU : 0;
}

void cgroups_open(struct cgroups *cgroups, const char *instance)
{
    FILE *mounts = fopen("/proc/self/mounts", "re");
    char line[4096];
    char path[1024];
    char type[64];
    char options[1024];

    *cgroups = (struct cgroups){ .base = { -1, -1, -1, -1, -1, -1 } };
    while (mounts && fgets(line, sizeof(line), mounts)) {
        if (sscanf(line, "%*s %1023s %63s %1023s", path, type, options) != 3)
            continue;
        if (strcmp(type, "cgroup2") == 0 && !(cgroups->features & LAUNCH_HAS_CGROUP_V1))
            add_v2(cgroups, path, instance);
        else if (strcmp(type, "cgroup") == 0 && !cgroups_are_v2(cgroups))
            add_v1(cgroups, path, options, instance);
    }
    if (mounts)
        fclose(mounts);
}

/* --- one group ----------------------------------------------------------------------------- */

static int open_group(const struct cgroups *cgroups, enum cgroup_part part, const char *id)
{
    if (cgroups->base[part] < 0) {
        errno = ENOENT;
        return -1;
    }
    return openat(cgroups->base[part], id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int limit_memory(int group, const struct launch_limits *limits)
{
    /* Swap is counted with memory; where the host does not account it there is no such file. The
     * two may only move so that the first never passes the second. */
    (void)write_text(group, "memory.memsw.limit_in_bytes", "-1");
    if (write_number(group, "memory.limit_in_bytes", limits->memory_bytes) < 0)
        return -1;
    (void)write_number(group, "memory.memsw.limit_in_bytes", limits->memory_bytes);
    return 0;
}

static int limit_cpu(int group, const struct launch_limits *limits)
{
    uint64_t quota = (uint64_t)limits->cpu_millis * CPU_PERIOD_US / 1000;

    return write_number(group, "cpu.cfs_quota_us", quota);
}

static int limit_unified(int group, const struct launch_limits *limits, uint32_t features)
{
    char text[64];
    uint64_t quota = (uint64_t)limits->cpu_millis * CPU_PERIOD_US / 1000;

    snprintf(text, sizeof(text), "%llu %d", (unsigned long long)quota, CPU_PERIOD_US);
    if ((features & LAUNCH_HAS_MEMORY) &&
        write_number(group, "memory.max", limits->memory_bytes) < 0)
        return -1;
    (void)write_text(group, "memory.swap.max", "0");
    if ((features & LAUNCH_HAS_CPU) && write_text(group, "cpu.max", text) < 0)
        return -1;
    /* One more for init. */
    if ((features & LAUNCH_HAS_PIDS) && write_number(group, "pids.max", limits->pids + 1) < 0)
        return -1;
    return 0;
}

static int limit_part(const struct cgroups *cgroups, enum cgroup_part part, int group,
                      const struct launch_limits *limits)
{
    switch (part) {
    case CGROUP_MEMORY:
        return limit_memory(group, limits);
    case CGROUP_CPU:
        return limit_cpu(group, limits);
    case CGROUP_PIDS:
        return write_number(group, "pids.max", limits->pids + 1);
    case CGROUP_UNIFIED:
        return limit_unified(group, limits, cgroups->features);
    case CGROUP_CPUACCT:
    case CGROUP_FREEZER:
    case CGROUP_PARTS:
        break;
    }
    return 0;
}

/* A group that an earlier attempt left behind is used again: it is empty, or limits would fail. */
static int make_part(struct cgroups *cgroups, enum cgroup_part part, const char *id,
                     const struct launch_limits *limits, int *out_fd)
{
    int group;

    if (mkdirat(cgroups->base[part], id, 0755) < 0 && errno != EEXIST)
        return -1;
    group = open_group(cgroups, part, id);
    if (group < 0)
        return -1;
    if (limit_part(cgroups, part, group, limits) < 0) {
        close(group);
        return -1;
    }
    if (part == CGROUP_UNIFIED) {
        *out_fd = group;
        return 0;
    }
    *out_fd = openat(group, "tasks", O_WRONLY | O_CLOEXEC);
    close(group);
    return *out_fd < 0 ? -1 : 0;
}

int cgroups_make(struct cgroups *cgroups, const char *id, const struct launch_limits *limits,
                 struct cgroup_entry *out_entry, struct fail *fail)
{
    *out_entry = (struct cgroup_entry)CGROUP_ENTRY_NONE;
    for (int part = 0; part < CGROUP_PARTS; part++) {
        if (cgroups->base[part] < 0)
            continue;
        if (make_part(cgroups, part, id, limits, &out_entry->fds[part]) < 0) {
            fail_sys(fail, "make cgroup");
            cgroup_entry_close(out_entry);
            return -1;
        }
    }
    return 0;
}

int cgroups_limit(struct cgroups *cgroups, const char *id, const struct launch_limits *limits,
                  struct fail *fail)
{
    for (int part = 0; part < CGROUP_PARTS; part++) {
        int group;
        int result;

        if (cgroups->base[part] < 0)
            continue;
        group = open_group(cgroups, part, id);
        if (group < 0)
            return fail_sys(fail, "open cgroup");
        result = limit_part(cgroups, part, group, limits);
        close(group);
        if (result < 0)
            return fail_sys(fail, "set limits");
    }
    return 0;
}

/* --- freezing ------------------------------------------------------------------------------ */

static bool is_frozen(int group, bool unified)
{
    char text[256];

    if (unified)
        return read_keyed(group, "cgroup.events", "frozen") == 1;
    return read_text(group, "freezer.state", text, sizeof(text)) > 0 &&
           strncmp(text, "FROZEN", 6) == 0;
}

static int set_frozen(int group, bool unified, bool frozen)
{
    if (unified)
        return write_text(group, "cgroup.freeze", frozen ? "1" : "0");
    return write_text(group, "freezer.state", frozen ? "FROZEN" : "THAWED");
}

int cgroups_freeze(struct cgroups *cgroups, const char *id, bool frozen, struct fail *fail)
{
    bool unified = cgroups_are_v2(cgroups);
    int group = open_group(cgroups, unified ? CGROUP_UNIFIED : CGROUP_FREEZER, id);
    int result = 0;

    if (group < 0)
        return fail_sys(fail, "open freezer");
    if (set_frozen(group, unified, frozen) < 0)
        result = fail_sys(fail, frozen ? "freeze" : "thaw");
    /* Notifications of these files are limited to one in 10 ms; reading again is faster. A member
     * that has used up its share of the processor freezes when it would run next: nothing to wait
     * for. */
    for (int i = 0; result == 0 && frozen && !is_frozen(group, unified) && i < FREEZE_ATTEMPTS; i++)
        sched_yield();
    close(group);
    return result;
}

/* --- killing and removing ------------------------------------------------------------------ */

static int kill_members(int group)
{
    FILE *members;
    char line[32];
    int found = 0;
    int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);

    members = fd < 0 ? NULL : fdopen(fd, "r");
    if (!members) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    while (fgets(line, sizeof(line), members)) {
        pid_t pid = (pid_t)strtol(line, NULL, 10);

        if (pid > 1) {
            (void)kill(pid, SIGKILL);
            found = 1;
        }
    }
    fclose(members);
    return found;
}

int cgroups_kill(struct cgroups *cgroups, const char *id)
{
    bool unified = cgroups_are_v2(cgroups);
    int group = open_group(cgroups, unified ? CGROUP_UNIFIED : CGROUP_FREEZER, id);
    struct fail ignored;
    int found;

    if (group < 0)
        return -1;
    /* Frozen, members can neither fork nor exit, so their numbers cannot become another's. A v1
     * group dies only when it is thawed again. */
    (void)cgroups_freeze(cgroups, id, true, &ignored);
    found = kill_members(group);
    (void)set_frozen(group, unified, false);
    close(group);
    return found;
}

int cgroups_remove(struct cgroups *cgroups, const char *id)
{
    int error = 0;

    for (int part = 0; part < CGROUP_PARTS; part++) {
        if (cgroups->base[part] < 0)
            continue;
        if (unlinkat(cgroups->base[part], id, AT_REMOVEDIR) < 0 && errno != ENOENT)
            error = errno;
    }
    errno = error;
    return error ? -1 : 0;
}

bool cgroups_can_rename(const struct cgroups *cgroups)
{
    return cgroups->features & LAUNCH_HAS_CGROUP_V1;
}

int cgroups_rename(struct cgroups *cgroups, const char *from, const char *to, struct fail *fail)
{
    for (int part = 0; part < CGROUP_UNIFIED; part++) {
        int base = cgroups->base[part];

        if (base >= 0 && renameat(base, from, base, to) < 0)
            return fail_sys(fail, "name cgroup");
    }
    return 0;
}

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
        if (cgroups->base[part] >= 0)
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

/* --- usage --------------------------------------------------------------------------------- */

static void usage_v1(struct cgroups *cgroups, const char *id, struct launch_usage *usage)
{
    int memory = open_group(cgroups, CGROUP_MEMORY, id);
    int cpuacct = open_group(cgroups, CGROUP_CPUACCT, id);
    int pids = open_group(cgroups, CGROUP_PIDS, id);

    if (memory >= 0) {
        usage->memory_bytes = read_number(memory, "memory.usage_in_bytes");
        usage->memory_peak_bytes = read_number(memory, "memory.max_usage_in_bytes");
        usage->oom_kills = (uint32_t)read_keyed(memory, "memory.oom_control", "oom_kill");
        close(memory);
    }
    if (cpuacct >= 0) {
        usage->cpu_us = read_number(cpuacct, "cpuacct.usage") / 1000;
        close(cpuacct);
    }
    if (pids >= 0) {
        usage->pids = (uint32_t)read_number(pids, "pids.current");
        close(pids);
    }
}

static void usage_v2(struct cgroups *cgroups, const char *id, struct launch_usage *usage)
{
    int group = open_group(cgroups, CGROUP_UNIFIED, id);

    if (group < 0)
        return;
    usage->memory_bytes = read_number(group, "memory.current");
    usage->memory_peak_bytes = read_number(group, "memory.peak");
    usage->oom_kills = (uint32_t)read_keyed(group, "memory.events", "oom_kill");
    usage->cpu_us = read_keyed(group, "cpu.stat", "usage_usec");
    usage->pids = (uint32_t)read_number(group, "pids.current");
    close(group);
}

void cgroups_usage(struct cgroups *cgroups, const char *id, struct launch_usage *out_usage)
{
    if (cgroups_are_v2(cgroups))
        usage_v2(cgroups, id, out_usage);
    else
        usage_v1(cgroups, id, out_usage);
    /* Init is ours, not the payload's. */
    if (out_usage->pids > 0)
        out_usage->pids--;
}

/* --- the child's side ---------------------------------------------------------------------- */

int cgroup_enter(const struct cgroup_entry *entry)
{
    for (int part = 0; part < CGROUP_UNIFIED; part++) {
        if (entry->fds[part] >= 0 && write(entry->fds[part], "0", 1) != 1)
            return -1;
    }
    return 0;
}

void cgroup_entry_close(struct cgroup_entry *entry)
{
    for (int part = 0; part < CGROUP_PARTS; part++) {
        if (entry->fds[part] >= 0)
            close(entry->fds[part]);
        entry->fds[part] = -1;
    }
}
