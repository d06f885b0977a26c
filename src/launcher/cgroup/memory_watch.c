/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/cgroup/memory_watch.h"

#include "launcher/sys.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    LOOK_MS = 500, /* between two rounds */
    STEP_MS = 100, /* between two parts of a round */
    STEP_SANDBOXES = 16,
    PAGE = 4096,
    FEW_SOCKETS = 4,
    NETLINK_SOCKET = 2048, /* the size of an empty socket */
};

static const uint64_t little_bytes = 32 << 20;

/* Of the whole host, in every namespace. */
static uint64_t read_socket_bytes(const struct memory_watch *watch)
{
    char text[512];
    const char *line;
    const char *pages;
    int fd = openat(watch->state->proc, "self/net/sockstat", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    unsigned long long count = 0;

    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = '\0';
    line = strstr(text, "TCP: ");
    pages = line ? strstr(line, " mem ") : NULL;
    return pages && sscanf(pages, " mem %llu", &count) == 1 ? count * PAGE : 0;
}

static int open_network_file(const struct memory_watch *watch, pid_t pid, const char *name)
{
    char path[64];

    snprintf(path, sizeof(path), "%d/net/%s", (int)pid, name);
    return openat(watch->state->proc, path, O_RDONLY | O_CLOEXEC);
}

/* Of all families, in the network namespace of the process. */
static bool has_sockets(const struct memory_watch *watch, pid_t pid)
{
    char text[64] = "";
    unsigned long count = 0;
    int fd = open_network_file(watch, pid, "sockstat");
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    return length > 0 && sscanf(text, "sockets: used %lu", &count) == 1 && count > FEW_SOCKETS;
}

/* The columns: address, family, port, groups, bytes to be read, bytes to be sent. The kernel's own
 * sockets are listed as well and are empty. */
static uint64_t sum_netlink(FILE *file, uint64_t enough)
{
    char line[256];
    uint64_t sum = 0;

    while (sum <= enough && fgets(line, sizeof(line), file)) {
        unsigned long long received;
        unsigned long long sent;

        if (sscanf(line, "%*s %*s %*s %*s %llu %llu", &received, &sent) == 2)
            sum += received + sent + NETLINK_SOCKET;
    }
    return sum;
}

/* No limit of the kernel counts these bytes. Counting stops above `enough`. */
static uint64_t read_netlink_bytes(const struct memory_watch *watch, const struct mark *mark,
                                   uint64_t enough)
{
    uint64_t sum = 0;
    FILE *file;
    int fd;

    /* In a sandbox without namespaces the file would list the host's sockets. */
    if (mark->mode != LAUNCH_NATIVE || mark->pid <= 0 || !has_sockets(watch, mark->pid))
        return 0;
    fd = open_network_file(watch, mark->pid, "netlink");
    file = fd < 0 ? NULL : fdopen(fd, "r");
    if (file) {
        sum = sum_netlink(file, enough);
        fclose(file);
    } else if (fd >= 0) {
        close(fd);
    }
    return sum;
}

/* With a margin, because charges are rounded and the kernel frees late. */
static uint64_t bound_of(const struct launch_limits *limits)
{
    return limits->memory_bytes + limits->memory_bytes / 8;
}

static void end(struct memory_watch *watch, const struct mark *mark)
{
    int pidfd = state_open_process(watch->state, mark->pid, mark->start_time);

    if (pidfd < 0)
        return;
    memcpy(watch->ended[watch->next++ % MEMORY_WATCH_ENDED], mark->id, LAUNCH_ID_SIZE);
    watch->on_over(watch->user, mark, pidfd);
    close(pidfd);
}

static bool is_over(struct memory_watch *watch, const struct mark *mark, bool with_tcp)
{
    uint64_t bound = bound_of(&mark->limits);
    uint64_t netlink = read_netlink_bytes(watch, mark, bound);
    struct launch_usage usage = { 0 };

    if (!with_tcp && netlink == 0)
        return false;
    cgroups_usage(watch->cgroups, mark->id, &usage);
    return usage.memory_bytes + netlink > bound;
}

static void look_at(struct memory_watch *watch, const char *id, bool with_tcp)
{
    struct mark mark;
    int dir = state_open_sandbox(watch->state, id);
    bool known = dir >= 0 && mark_read(dir, &mark) == 0 && mark_is_ours(watch->state, &mark, id);

    if (dir >= 0)
        close(dir);
    if (known && mark.limits.memory_bytes > 0 && is_over(watch, &mark, with_tcp))
        end(watch, &mark);
}

/* The next part of the round, or all that is left of it when TCP has much. Whether that was the
 * end of it. */
static bool go_on(struct memory_watch *watch)
{
    bool with_tcp = read_socket_bytes(watch) > little_bytes;
    char id[LAUNCH_ID_SIZE];

    if (!watch->round)
        watch->round = state_list(watch->state);
    for (unsigned i = 0; watch->round && (with_tcp || i < STEP_SANDBOXES); i++) {
        if (state_next(watch->round, id)) {
            look_at(watch, id, with_tcp);
        } else {
            closedir(watch->round);
            watch->round = NULL;
        }
    }
    return !watch->round;
}

int memory_watch_turn(struct memory_watch *watch)
{
    int64_t now = sys_now_ms();

    if (!(watch->cgroups->features & LAUNCH_HAS_MEMORY))
        return -1;
    if (now >= watch->due_ms)
        watch->due_ms = now + (go_on(watch) ? LOOK_MS : STEP_MS);
    return (int)(watch->due_ms - now);
}

bool memory_watch_has_ended(const struct memory_watch *watch, const char *id)
{
    for (unsigned i = 0; i < MEMORY_WATCH_ENDED; i++) {
        if (strcmp(watch->ended[i], id) == 0)
            return true;
    }
    return false;
}
