/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/busiest.h"

#include "base/fd.h"
#include "base/scoped.h"
#include "base/str.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEMBERS_SIZE = 512, STAT_SIZE = 512, PATH_SIZE = 2048, FIELDS_BEFORE_TIME = 12 };

static const char own_name[] = "sandglass-init";

static bool read_text(const char *path, char *text, size_t size)
{
    scoped(fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);

    text[fd < 0 ? 0 : fd_read_at(fd, text, size - 1, 0)] = '\0';
    return *text;
}

/* "PID (NAME) STATE …": the name may hold anything, parentheses too. User and system time are the
 * 12th and 13th field behind it, in ticks. */
static bool parse_stat(char *text, struct sandbox_process *out_process)
{
    char *name = strchr(text, '(');
    char *end = strrchr(text, ')');
    unsigned long long user, system;

    if (!name || !end || end < name)
        return false;
    *end++ = '\0';
    snprintf(out_process->name, sizeof(out_process->name), "%s", name + 1);
    for (int field = 0; field < FIELDS_BEFORE_TIME; field++) {
        end = strchr(end, ' ');
        if (!end++)
            return false;
    }
    if (sscanf(end, "%llu %llu", &user, &system) != 2)
        return false;
    out_process->cpu_us = (user + system) * 1000000 / (unsigned long long)sysconf(_SC_CLK_TCK);
    return true;
}

/* The list is kept in order, the busiest first. */
static void insert(struct sandbox_usage *usage, struct sandbox_process process)
{
    for (size_t i = 0; i < USAGE_PROCESSES; i++) {
        struct sandbox_process moved = usage->processes[i];

        if (moved.number && moved.cpu_us >= process.cpu_us)
            continue;
        usage->processes[i] = process;
        if (!moved.number)
            return;
        process = moved;
    }
}

static void add(long pid, struct sandbox_usage *usage)
{
    struct sandbox_process process = { .number = (uint32_t)pid };
    char path[64];
    char stat[STAT_SIZE];

    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    if (read_text(path, stat, sizeof(stat)) && parse_stat(stat, &process) &&
        !str_equal(process.name, own_name))
        insert(usage, process);
}

void busiest_read(const char *cgroup, struct sandbox_usage *usage)
{
    char path[PATH_SIZE];
    char members[MEMBERS_SIZE];
    char *at = members;

    snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
    (void)read_text(path, members, sizeof(members));
    for (;;) {
        char *end;
        long pid = strtol(at, &end, 10);

        if (end == at || *end != '\n')
            return; /* the last one may be cut */
        at = end;
        if (pid > 0)
            add(pid, usage);
    }
}
