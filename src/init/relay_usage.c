/* SPDX-License-Identifier: Apache-2.0 */
#include "init/relay_usage.h"

#include "init/sys.h"
#include "init/text.h"

#include <stdalign.h>
#include <string.h>

enum {
    FILE_SIZE = 1024,
    MAX_LOOKED_AT = 512, /* processes: the relay has streams to serve */
    TICK_US = 10000,
    PAGE_BYTES = 4096,
    FIELD_FIRST = 3, /* behind the name, as proc(5) counts them */
    FIELD_USER_TIME = 14,
    FIELD_SYSTEM_TIME = 15,
    FIELD_RESIDENT = 24,
};

static const char own_name[] = "sandglass-init";

/* --- texts ------------------------------------------------------------------------------------ */

static uint64_t parse_number(const char *at, const char *end)
{
    uint64_t value = 0;

    for (; at < end && *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    return value;
}

uint64_t usage_find_number(const char *text, size_t length, const char *word)
{
    const char *end = text + length;
    size_t word_length = strlen(word);

    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));

        if ((size_t)(end - text) >= word_length && !memcmp(text, word, word_length))
            return parse_number(text + word_length, end);
        if (!line_end)
            return 0;
        text = line_end + 1;
    }
    return 0;
}

static uint64_t find_field(const char *at, const char *end, unsigned number)
{
    for (unsigned i = FIELD_FIRST; at && i < number; i++) {
        at = memchr(at, ' ', (size_t)(end - at));
        at = at ? at + 1 : NULL;
    }
    return at ? parse_number(at, end) : 0;
}

bool usage_parse_stat(const char *text, size_t length, struct usage_stat *out_stat)
{
    const char *end = text + length;
    const char *name = memchr(text, '(', length);
    const char *close = end;
    struct usage_stat stat = { 0 };
    size_t name_length;

    while (close > text && close[-1] != ')')
        close--;
    if (!name || close <= name + 1 || end - close < 2)
        return false;
    name_length = (size_t)(close - name) - 2;
    if (name_length > sizeof stat.process.name - 1)
        name_length = sizeof stat.process.name - 1;
    memcpy(stat.process.name, name + 1, name_length);
    stat.process.cpu_us = (find_field(close + 1, end, FIELD_USER_TIME) +
                           find_field(close + 1, end, FIELD_SYSTEM_TIME)) *
                          TICK_US;
    stat.memory_bytes = find_field(close + 1, end, FIELD_RESIDENT) * PAGE_BYTES;
    *out_stat = stat;
    return true;
}

void usage_insert(struct relay_usage *usage, const struct relay_process *process)
{
    struct relay_process carried = *process;

    for (unsigned i = 0; i < RELAY_PROCESSES && carried.number; i++) {
        struct relay_process *place = &usage->processes[i];
        struct relay_process moved = *place;

        if (moved.number && moved.cpu_us >= carried.cpu_us)
            continue;
        *place = carried;
        carried = moved;
    }
}

/* --- files ------------------------------------------------------------------------------------ */

static size_t read_text(int directory, const char *path, char text[FILE_SIZE])
{
    int fd = (int)sys(openat, directory, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
    long length = fd < 0 ? 0 : sys(read, fd, text, FILE_SIZE);

    sys_close(fd);
    return length > 0 ? (size_t)length : 0;
}

static uint64_t read_number(const char *path, const char *word)
{
    char text[FILE_SIZE];

    return usage_find_number(text, read_text(AT_FDCWD, path, text), word);
}

/* Version 2, and version 1 with a directory for each controller. */
static void read_cgroup(struct relay_usage *usage)
{
    usage->memory_bytes = read_number("/sys/fs/cgroup/memory.current", "");
    if (usage->memory_bytes) {
        usage->memory_peak_bytes = read_number("/sys/fs/cgroup/memory.peak", "");
        usage->cpu_us = read_number("/sys/fs/cgroup/cpu.stat", "usage_usec ");
        usage->oom_kills = (uint32_t)read_number("/sys/fs/cgroup/memory.events", "oom_kill ");
        usage->pids = (uint32_t)read_number("/sys/fs/cgroup/pids.current", "");
        return;
    }
    usage->memory_bytes = read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", "");
    usage->memory_peak_bytes = read_number("/sys/fs/cgroup/memory/memory.max_usage_in_bytes", "");
    usage->cpu_us = read_number("/sys/fs/cgroup/cpuacct/cpuacct.usage", "") / 1000;
    usage->oom_kills =
        (uint32_t)read_number("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill ");
    usage->pids = (uint32_t)read_number("/sys/fs/cgroup/pids/pids.current", "");
}

/* --- processes -------------------------------------------------------------------------------- */

static void add_process(int proc_fd, const char *name, struct relay_usage *usage,
                        struct relay_usage *sum)
{
    char path[TEXT_NUMBER_SIZE + 8];
    char text[FILE_SIZE];
    struct usage_stat stat;
    uint32_t pid;

    if (!text_to_u32(name, name + strlen(name), INT32_MAX, &pid) ||
        text_concat(path, sizeof path, name, strlen(name), "/stat") < 0 ||
        !usage_parse_stat(text, read_text(proc_fd, path, text), &stat))
        return;
    sum->pids++;
    sum->cpu_us += stat.process.cpu_us;
    sum->memory_bytes += stat.memory_bytes;
    stat.process.number = pid;
    if (strcmp(stat.process.name, own_name) != 0)
        usage_insert(usage, &stat.process);
}

static void read_processes(struct relay_usage *usage, struct relay_usage *sum)
{
    alignas(8) char buffer[4096];
    int fd = (int)sys(open, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    long length;

    while (fd >= 0 && sum->pids < MAX_LOOKED_AT &&
           (length = sys(getdents64, fd, buffer, sizeof buffer)) > 0)
        for (long at = 0; at < length;) {
            const struct sys_dirent *entry = (const struct sys_dirent *)(buffer + at);

            add_process(fd, entry->name, usage, sum);
            at += entry->length;
        }
    sys_close(fd);
}

void relay_usage_read(struct relay_usage *out_usage)
{
    struct relay_usage sum = { 0 };

    *out_usage = (struct relay_usage){ 0 };
    read_cgroup(out_usage);
    read_processes(out_usage, &sum);
    if (!out_usage->memory_bytes) {
        out_usage->memory_bytes = sum.memory_bytes;
        out_usage->cpu_us = sum.cpu_us;
    }
    if (!out_usage->pids)
        out_usage->pids = sum.pids;
}
