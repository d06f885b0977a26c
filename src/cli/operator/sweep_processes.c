#include "base/scoped.h"
#include "base/str.h"
#include "cli/operator/sweep.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEATH_TIMEOUT_MS = 5000, ROUNDS = 100 };

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

static uint64_t read_field(pid_t pid, int after_name)
{
    char text[1024];
    char *at;

    if (!read_stat(pid, text, &at))
        return 0;
    for (int field = 0; at && field < after_name; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

uint64_t process_start_time(pid_t pid)
{
    return read_field(pid, 20);
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

struct descent {
    pid_t ancestor;
    unsigned found;
};

static bool descends_from(pid_t pid, pid_t ancestor)
{
    for (int depth = 0; depth < 256 && pid > 1; depth++) {
        pid = (pid_t)read_field(pid, 2);
        if (pid == ancestor)
            return true;
    }
    return false;
}

static bool is_zombie(pid_t pid)
{
    char text[1024];
    char *fields;

    return read_stat(pid, text, &fields) && strncmp(fields, ") Z", 3) == 0;
}

static bool kill_descendant(void *user, pid_t pid)
{
    struct descent *descent = user;

    if (descends_from(pid, descent->ancestor) && !is_zombie(pid) && kill(pid, SIGKILL) == 0)
        descent->found++;
    return true;
}

/* With the top standing still: it makes no more of them, and reaps none. */
static void kill_descendants(pid_t pid)
{
    for (int round = 0; round < ROUNDS; round++) {
        struct descent descent = { .ancestor = pid };

        processes_each(kill_descendant, &descent);
        if (!descent.found)
            return;
        (void)poll(NULL, 0, 2);
    }
}

/* Init runs from a file in memory that has this name, whatever the process calls itself. */
static bool runs_our_program(pid_t pid)
{
    char path[32];
    char program[64] = "";

    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    return readlink(path, program, sizeof(program) - 1) > 0 &&
           str_starts_with(program, "/memfd:sandglass-");
}

enum process_kind process_kind_of(pid_t pid, uint64_t start_time)
{
    uint64_t started = process_start_time(pid);

    if (started == 0 || started != start_time || is_zombie(pid))
        return PROCESS_GONE;
    return pid > 1 && runs_our_program(pid) ? PROCESS_SANDBOX : PROCESS_STRANGER;
}

int process_remove(pid_t pid, uint64_t start_time)
{
    scoped(fd_close) int pidfd = pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    struct pollfd death = { .fd = pidfd, .events = POLLIN };

    if (pidfd < 0)
        return pid <= 1 || errno == ESRCH ? 0 : -1;
    /* The descriptor came first: nobody gets the number from here on. */
    if (process_kind_of(pid, start_time) != PROCESS_SANDBOX)
        return 0;
    (void)syscall(SYS_pidfd_send_signal, pidfd, SIGSTOP, NULL, 0);
    kill_descendants(pid);
    if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
        return -1;
    if (poll(&death, 1, DEATH_TIMEOUT_MS) > 0)
        return 0;
    errno = EBUSY;
    return -1;
}
