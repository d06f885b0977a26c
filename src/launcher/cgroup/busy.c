/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/cgroup/busy.h"

#include "launcher/cgroup/cgroup_files.h"
#include "launcher/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS_SIZE = 512, STAT_SIZE = 512, FIELDS_BEFORE_TIME = 12 };

static const char own_name[] = "sandglass-init";

static int read_stat(int proc, long pid, char text[STAT_SIZE])
{
    char path[40];
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "%ld/stat", pid);
    fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    length = read(fd, text, STAT_SIZE - 1);
    close(fd);
    text[length > 0 ? length : 0] = '\0';
    return length > 0 ? 0 : -1;
}

/* "PID (NAME) STATE …": the name may hold anything, parentheses too. User and system time are the
 * 12th and 13th field behind it, in ticks. */
static int parse_stat(char *text, struct launch_process *out)
{
    char *name = strchr(text, '(');
    char *end = strrchr(text, ')');
    unsigned long long user, system;

    if (!name || !end || end < name)
        return -1;
    *end++ = '\0';
    snprintf(out->name, sizeof(out->name), "%s", name + 1);
    for (int field = 0; field < FIELDS_BEFORE_TIME; field++) {
        end = strchr(end, ' ');
        if (!end++)
            return -1;
    }
    if (sscanf(end, "%llu %llu", &user, &system) != 2)
        return -1;
    out->cpu_us = (user + system) * 1000000 / (unsigned long long)sysconf(_SC_CLK_TCK);
    return 0;
}

/* The list is kept in order, the busiest first. */
static void insert(struct launch_usage *usage, struct launch_process process)
{
    for (size_t i = 0; i < LAUNCH_PROCESSES; i++) {
        struct launch_process *entry = &usage->processes[i];
        struct launch_process moved = *entry;

        if (entry->pid && entry->cpu_us >= process.cpu_us)
            continue;
        *entry = process;
        if (!moved.pid)
            return;
        process = moved;
    }
}

void busy_find(int proc, int cgroup, struct launch_usage *usage)
{
    char members[MEMBERS_SIZE];
    char stat[STAT_SIZE];
    char *at = members;

    if (cgroup_read_text(cgroup, "cgroup.procs", members, sizeof(members)) <= 0)
        return;
    for (;;) {
        struct launch_process process = { 0 };
        char *end;
        long pid = strtol(at, &end, 10);

        if (end == at || *end != '\n')
            return; /* the last one may be cut */
        at = end;
        process.pid = (uint32_t)pid;
        if (pid > 0 && read_stat(proc, pid, stat) == 0 && parse_stat(stat, &process) == 0 &&
            strcmp(process.name, own_name) != 0)
            insert(usage, process);
    }
}
