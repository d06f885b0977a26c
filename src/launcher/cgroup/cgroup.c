/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/cgroup/cgroup.h"

#include "launcher/cgroup/busy.h"
#include "launcher/cgroup/cgroup_files.h"
#include "launcher/sys.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CPU_PERIOD_US = 100000, FREEZE_ATTEMPTS = 2000 };

/* --- one cgroup ----------------------------------------------------------------------------- */

static int open_cgroup(const struct cgroups *cgroups, enum cgroup_part part, const char *id)
{
    if (cgroups->base[part] < 0) {
        errno = ENOENT;
        return -1;
    }
    return openat(cgroups->base[part], id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int limit_memory(int cgroup, const struct launch_limits *limits)
{
    /* Swap is counted with memory; where the host does not account it there is no such file. The
     * two may only move so that the first never passes the second. */
    (void)cgroup_write_text(cgroup, "memory.memsw.limit_in_bytes", "-1");
    if (cgroup_write_number(cgroup, "memory.limit_in_bytes", limits->memory_bytes) < 0)
        return -1;
    (void)cgroup_write_number(cgroup, "memory.memsw.limit_in_bytes", limits->memory_bytes);
    /* Socket buffers are counted apart, and only if they have a limit of their own. */
    (void)cgroup_write_number(cgroup, "memory.kmem.tcp.limit_in_bytes", limits->memory_bytes / 16);
    return 0;
}

static int limit_cpu(int cgroup, const struct launch_limits *limits)
{
    uint64_t quota = (uint64_t)limits->cpu_millis * CPU_PERIOD_US / 1000;

    return cgroup_write_number(cgroup, "cpu.cfs_quota_us", quota);
}

static int limit_unified(const struct cgroups *cgroups, int cgroup,
                         const struct launch_limits *limits)
{
    uint32_t features = cgroups->features;
    char text[64];
    uint64_t quota = (uint64_t)limits->cpu_millis * CPU_PERIOD_US / 1000;

    snprintf(text, sizeof(text), "%llu %d", (unsigned long long)quota, CPU_PERIOD_US);
    if ((features & LAUNCH_HAS_MEMORY) &&
        cgroup_write_number(cgroup, "memory.max", limits->memory_bytes) < 0)
        return -1;
    (void)cgroup_write_text(cgroup, "memory.swap.max", "0");
    if ((features & LAUNCH_HAS_CPU) && cgroup_write_text(cgroup, "cpu.max", text) < 0)
        return -1;
    if ((features & LAUNCH_HAS_PIDS) &&
        cgroup_write_number(cgroup, "pids.max", limits->pids + cgroups->own_processes) < 0)
        return -1;
    return features & LAUNCH_HAS_IO ? cgroup_io_limit_v2(&cgroups->io, cgroup) : 0;
}

static int limit_part(const struct cgroups *cgroups, enum cgroup_part part, int cgroup,
                      const struct launch_limits *limits)
{
    switch (part) {
    case CGROUP_MEMORY:
        return limit_memory(cgroup, limits);
    case CGROUP_CPU:
        return limit_cpu(cgroup, limits);
    case CGROUP_PIDS:
        return cgroup_write_number(cgroup, "pids.max", limits->pids + cgroups->own_processes);
    case CGROUP_IO:
        return cgroup_io_limit_v1(&cgroups->io, cgroup);
    case CGROUP_UNIFIED:
        return limit_unified(cgroups, cgroup, limits);
    case CGROUP_CPUACCT:
    case CGROUP_FREEZER:
    case CGROUP_PARTS:
        break;
    }
    return 0;
}

/* A cgroup that an earlier attempt left behind is used again: it is empty, or limits would fail. */
static int make_part(struct cgroups *cgroups, enum cgroup_part part, const char *id,
                     const struct launch_limits *limits, int *out_fd)
{
    int cgroup;
    int result;

    if (!cgroups->is_shared[part] && cgroup_make(cgroups->base[part], id) < 0)
        return -1;
    cgroup = open_cgroup(cgroups, part, id);
    if (cgroup < 0)
        return -1;
    result = limit_part(cgroups, part, cgroup, limits);
    if (result == 0 && part == CGROUP_UNIFIED) {
        *out_fd = cgroup;
        return 0;
    }
    if (result == 0 && !cgroups->is_shared[part]) {
        *out_fd = openat(cgroup, "tasks", O_WRONLY | O_CLOEXEC);
        result = *out_fd < 0 ? -1 : 0;
    }
    close(cgroup);
    return result;
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
        int cgroup;
        int result;

        if (cgroups->base[part] < 0)
            continue;
        cgroup = open_cgroup(cgroups, part, id);
        if (cgroup < 0)
            return fail_sys(fail, "open cgroup");
        result = limit_part(cgroups, part, cgroup, limits);
        close(cgroup);
        if (result < 0)
            return fail_sys(fail, "set limits");
    }
    return 0;
}

/* --- used again ---------------------------------------------------------------------------- */

bool cgroups_limits_equal(const struct launch_limits *a, const struct launch_limits *b)
{
    return a->memory_bytes == b->memory_bytes && a->cpu_millis == b->cpu_millis &&
           a->pids == b->pids;
}

bool cgroups_are_empty(struct cgroups *cgroups, const char *id)
{
    int cgroup = open_cgroup(cgroups, CGROUP_PIDS, id);
    char text[24];
    bool empty;

    if (cgroup < 0)
        return false;
    empty = cgroup_read_text(cgroup, "pids.current", text, sizeof(text)) > 0 &&
            strcmp(text, "0\n") == 0;
    close(cgroup);
    return empty;
}

/* --- freezing ------------------------------------------------------------------------------ */

static bool is_frozen(int cgroup, bool unified)
{
    char text[256];

    if (unified)
        return cgroup_read_keyed(cgroup, "cgroup.events", "frozen") == 1;
    return cgroup_read_text(cgroup, "freezer.state", text, sizeof(text)) > 0 &&
           strncmp(text, "FROZEN", 6) == 0;
}

static int set_frozen(int cgroup, bool unified, bool frozen)
{
    if (unified)
        return cgroup_write_text(cgroup, "cgroup.freeze", frozen ? "1" : "0");
    return cgroup_write_text(cgroup, "freezer.state", frozen ? "FROZEN" : "THAWED");
}

bool cgroups_is_frozen(const struct cgroups *cgroups, const char *id)
{
    bool unified = cgroups_are_v2(cgroups);
    int cgroup = open_cgroup(cgroups, unified ? CGROUP_UNIFIED : CGROUP_FREEZER, id);
    char text[16];
    bool frozen;

    if (cgroup < 0)
        return false;
    frozen = cgroup_read_text(cgroup, unified ? "cgroup.freeze" : "freezer.self_freezing", text,
                              sizeof(text)) > 0 &&
             text[0] == '1';
    close(cgroup);
    return frozen;
}

int cgroups_freeze(struct cgroups *cgroups, const char *id, bool frozen, struct fail *fail)
{
    bool unified = cgroups_are_v2(cgroups);
    int cgroup = open_cgroup(cgroups, unified ? CGROUP_UNIFIED : CGROUP_FREEZER, id);
    int result = 0;

    if (cgroup < 0)
        return fail_sys(fail, "open freezer");
    if (set_frozen(cgroup, unified, frozen) < 0)
        result = fail_sys(fail, frozen ? "freeze" : "thaw");
    /* Notifications of these files are limited to one in 10 ms; reading again is faster. A member
     * that has used up its share of the processor freezes when it would run next: nothing to wait
     * for. */
    for (int i = 0; result == 0 && frozen && !is_frozen(cgroup, unified) && i < FREEZE_ATTEMPTS;
         i++)
        sched_yield();
    close(cgroup);
    return result;
}

/* --- killing and removing ------------------------------------------------------------------ */

static int kill_members(int cgroup)
{
    FILE *members;
    char line[32];
    int found = 0;
    int fd = openat(cgroup, "cgroup.procs", O_RDONLY | O_CLOEXEC);

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
    int cgroup = open_cgroup(cgroups, unified ? CGROUP_UNIFIED : CGROUP_FREEZER, id);
    struct fail ignored;
    int found;

    if (cgroup < 0)
        return -1;
    /* Frozen, members can neither fork nor exit, so their numbers cannot become another's. A v1
     * cgroup dies only when it is thawed again. */
    (void)cgroups_freeze(cgroups, id, true, &ignored);
    found = kill_members(cgroup);
    (void)set_frozen(cgroup, unified, false);
    close(cgroup);
    return found;
}

int cgroups_remove(struct cgroups *cgroups, const char *id)
{
    int error = 0;

    for (int part = 0; part < CGROUP_PARTS; part++) {
        if (!cgroups_has_hierarchy(cgroups, part))
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

        if (cgroups_has_hierarchy(cgroups, part) && renameat(base, from, base, to) < 0)
            return fail_sys(fail, "name cgroup");
    }
    return 0;
}

/* --- usage --------------------------------------------------------------------------------- */

static void usage_v1(struct cgroups *cgroups, const char *id, struct launch_usage *usage)
{
    int memory = open_cgroup(cgroups, CGROUP_MEMORY, id);
    int cpuacct = open_cgroup(cgroups, CGROUP_CPUACCT, id);
    int pids = open_cgroup(cgroups, CGROUP_PIDS, id);

    if (memory >= 0) {
        /* Buffers of TCP are counted apart here. */
        usage->memory_bytes = cgroup_read_number(memory, "memory.usage_in_bytes") +
                              cgroup_read_number(memory, "memory.kmem.tcp.usage_in_bytes");
        usage->memory_peak_bytes = cgroup_read_number(memory, "memory.max_usage_in_bytes");
        if (usage->memory_peak_bytes < usage->memory_bytes)
            usage->memory_peak_bytes = usage->memory_bytes;
        usage->oom_kills = (uint32_t)cgroup_read_keyed(memory, "memory.oom_control", "oom_kill");
        close(memory);
    }
    if (cpuacct >= 0) {
        usage->cpu_us = cgroup_read_number(cpuacct, "cpuacct.usage") / 1000;
        close(cpuacct);
    }
    if (pids >= 0) {
        usage->pids = (uint32_t)cgroup_read_number(pids, "pids.current");
        close(pids);
    }
}

static void usage_v2(struct cgroups *cgroups, const char *id, struct launch_usage *usage)
{
    int cgroup = open_cgroup(cgroups, CGROUP_UNIFIED, id);

    if (cgroup < 0)
        return;
    usage->memory_bytes = cgroup_read_number(cgroup, "memory.current");
    usage->memory_peak_bytes = cgroup_read_number(cgroup, "memory.peak");
    usage->oom_kills = (uint32_t)cgroup_read_keyed(cgroup, "memory.events", "oom_kill");
    usage->cpu_us = cgroup_read_keyed(cgroup, "cpu.stat", "usage_usec");
    usage->pids = (uint32_t)cgroup_read_number(cgroup, "pids.current");
    close(cgroup);
}

void cgroups_usage(struct cgroups *cgroups, const char *id, struct launch_usage *out_usage)
{
    if (cgroups_are_v2(cgroups))
        usage_v2(cgroups, id, out_usage);
    else
        usage_v1(cgroups, id, out_usage);
    /* Init is ours, not the payload's. */
    out_usage->pids -= out_usage->pids < cgroups->own_processes ? out_usage->pids
                                                                : cgroups->own_processes;
}

void cgroups_processes(struct cgroups *cgroups, int proc, const char *id,
                       struct launch_usage *out_usage)
{
    int cgroup = open_cgroup(cgroups, cgroups_are_v2(cgroups) ? CGROUP_UNIFIED : CGROUP_PIDS, id);

    if (cgroup < 0)
        return;
    busy_find(proc, cgroup, out_usage);
    close(cgroup);
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

int cgroup_enter_unified(const struct cgroup_entry *entry)
{
    int file = openat(entry->fds[CGROUP_UNIFIED], "cgroup.procs", O_WRONLY | O_CLOEXEC);
    int result = file >= 0 && write(file, "0", 1) == 1 ? 0 : -1;

    if (file >= 0)
        close(file);
    return result;
}

void cgroup_entry_close(struct cgroup_entry *entry)
{
    for (int part = 0; part < CGROUP_PARTS; part++) {
        if (entry->fds[part] >= 0)
            close(entry->fds[part]);
        entry->fds[part] = -1;
    }
}
