/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "cli/operator/sweep.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_stat(pid_t pid, char text[1024], char **out_fields)
{
    char path[32];
    FILE *file;
    size_t length;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return false;
    length = fread(text, 1, 1023, file);
    fclose(file);
    text[length] = '\0';
    *out_fields = strrchr(text, ')'); /* the name in brackets may hold anything */
    return *out_fields != NULL;
}

/* The 22nd field, the 20th behind the name; 0 when there is no such process. */
static uint64_t read_start_time(pid_t pid)
{
    char text[1024];
    char *at;

    if (!read_stat(pid, text, &at))
        return 0;
    for (int field = 0; at && field < 20; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

bool process_is_named(pid_t pid, const char *name)
{
    char text[1024];
    char *end;
    char *begin;

    if (!read_stat(pid, text, &end))
        return false;
    begin = strchr(text, '(');
    return begin && (size_t)(end - begin - 1) == strnlen(name, 15) &&
           strncmp(begin + 1, name, (size_t)(end - begin - 1)) == 0;
}

void processes_each(bool (*visit)(void *user, pid_t pid), void *user)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    while (proc && (entry = readdir(proc))) {
        if (isdigit((unsigned char)entry->d_name[0]) && !visit(user, atoi(entry->d_name)))
            break;
    }
    if (proc)
        closedir(proc);
}

static bool is_zombie(pid_t pid)
{
    char text[1024];
    char *fields;

    return read_stat(pid, text, &fields) && strncmp(fields, ") Z", 3) == 0;
}

/* Init runs from a file in memory that has this name; the name of the process can be changed. An
 * ordinary user may not look at the program of an init without walls, which cannot be traced: pid
 * and start time have to do then, as for the launcher. */
static bool runs_our_program(pid_t pid)
{
    char path[32];
    char program[64] = "";

    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    if (readlink(path, program, sizeof(program) - 1) < 0)
        return errno == EACCES || errno == EPERM;
    return str_starts_with(program, "/memfd:sandglass-");
}

bool process_is_stranger(pid_t pid, uint64_t start_time)
{
    uint64_t started = pid > 0 ? read_start_time(pid) : 0;

    if (started == 0 || started != start_time || is_zombie(pid))
        return false;
    return pid == 1 || !runs_our_program(pid);
}
