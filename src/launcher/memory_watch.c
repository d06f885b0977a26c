#include "launcher/memory_watch.h"

#include "launcher/kill.h"
#include "launcher/launcher.h"
#include "launcher/sys.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 500, PAGE = 4096 };

static const uint64_t little_bytes = 32 << 20;

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Of the whole host, whichever namespace asks. */
static uint64_t read_socket_bytes(const struct launcher *launcher)
{
    char text[512];
    const char *line;
    const char *pages;
    int fd = openat(launcher->state.proc, "self/net/sockstat", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    unsigned long long count = 0;

    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    line = strstr(text, "TCP: ");
    pages = line ? strstr(line, " mem ") : NULL;
    return pages && sscanf(pages, " mem %llu", &count) == 1 ? count * PAGE : 0;
}

/* Some room, because what is charged is rounded and the kernel frees late. */
static bool is_over(const struct launch_usage *usage, const struct launch_limits *limits)
{
    return usage->memory_bytes > limits->memory_bytes + limits->memory_bytes / 8;
}

static void end(struct launcher *launcher, const struct mark *mark)
{
    struct memory_watch *watch = &launcher->memory_watch;
    int pidfd = state_open_process(&launcher->state, mark->pid, mark->start_time);

    if (pidfd < 0)
        return;
    memcpy(watch->ended[watch->next++ % MEMORY_WATCH_ENDED], mark->id, LAUNCH_ID_SIZE);
    if (mark->mode == LAUNCH_NATIVE)
        kill_init(launcher, pidfd);
    else
        kill_tree(launcher, mark, pidfd, mark->id);
    close(pidfd);
}

static void look_at(void *user, const char *id)
{
    struct launcher *launcher = user;
    struct launch_usage usage = { 0 };
    struct mark mark;
    int dir = state_open_sandbox(&launcher->state, id);
    bool known = dir >= 0 && mark_read(dir, &mark) == 0 &&
                 mark_is_ours(&launcher->state, &mark, id);

    if (dir >= 0)
        close(dir);
    if (!known)
        return;
    cgroups_usage(&launcher->cgroups, id, &usage);
    if (is_over(&usage, &mark.limits))
        end(launcher, &mark);
}

int memory_watch_turn(struct launcher *launcher)
{
    struct memory_watch *watch = &launcher->memory_watch;
    int64_t now = now_ms();

    if (!launcher->ready || !(launcher->cgroups.features & LAUNCH_HAS_MEMORY))
        return -1;
    if (now < watch->due_ms)
        return (int)(watch->due_ms - now);
    watch->due_ms = now + LOOK_MS;
    if (read_socket_bytes(launcher) > little_bytes)
        (void)state_each(&launcher->state, look_at, launcher);
    return LOOK_MS;
}

bool memory_watch_has_ended(const struct memory_watch *watch, const char *id)
{
    for (unsigned i = 0; i < MEMORY_WATCH_ENDED; i++) {
        if (strcmp(watch->ended[i], id) == 0)
            return true;
    }
    return false;
}
