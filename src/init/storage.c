/* SPDX-License-Identifier: Apache-2.0 */
#include "init/storage.h"

#include "init/connection.h"
#include "init/init.h"
#include "init/sys.h"
#include "init/tree.h"

#include <stddef.h>
#include <string.h>
#include <sys/un.h>

#define PREFIX "sandglass-storage"

enum { BACKLOG = 16, RANDOM_BYTES = 8, MAX_ANCESTORS = 4096 };

static int listener = -1;
static char name[sizeof PREFIX + 1 + 2 * RANDOM_BYTES];

static int make_name(void)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char random[RANDOM_BYTES];
    char *at = name + sizeof PREFIX - 1;

    memcpy(name, PREFIX, sizeof PREFIX);
    if (!settings.direct)
        return 0;
    if (sys(getrandom, random, sizeof random, 0) != sizeof random)
        return -1;
    *at++ = '-';
    for (unsigned i = 0; i < sizeof random; i++) {
        *at++ = digits[random[i] >> 4];
        *at++ = digits[random[i] & 15];
    }
    *at = 0;
    return 0;
}

void storage_prepare(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = (int)sys(socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && !make_name()) {
        size_t length = strlen(name);

        memcpy(address.sun_path + 1, name, length);
        length += offsetof(struct sockaddr_un, sun_path) + 1;
        if (!sys(bind, fd, &address, length) && !sys(listen, fd, BACKLOG)) {
            listener = fd;
            return;
        }
    }
    sys_close(fd);
    name[0] = 0;
}

const char *storage_name(void)
{
    return name;
}

int storage_poll_fd(void)
{
    return connection.fd >= 0 && !connection.congested ? listener : -1;
}

static const struct process *find_running(int root)
{
    for (unsigned i = 0; i < process_places(); i++)
        if (processes[i].state == PROCESS_RUNNING && process_root(&processes[i]) == root)
            return &processes[i];
    return NULL;
}

/* The running process whose tree has the pid. NULL for a background process whose program has
 * ended. */
static const struct process *find_owner(int pid)
{
    const struct process *process = NULL;

    for (unsigned i = 0; i < MAX_ANCESTORS && pid > 0 && pid != settings.own_pid && !process; i++) {
        process = find_running(pid);
        pid = tree_parent(pid);
    }
    return process;
}

/* gVisor gives init's own pid for every peer. The program that was started last is the most likely
 * one; the session is right in any case. */
static const struct process *guess_owner(void)
{
    const struct process *youngest = NULL;

    for (unsigned i = 0; i < process_places(); i++) {
        const struct process *process = &processes[i];

        if (process->state == PROCESS_RUNNING && process->control < 0 &&
            (!youngest || process->started_us > youngest->started_us))
            youngest = process;
    }
    return youngest;
}

void storage_accept(void)
{
    int fd = (int)sys(accept4, listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred peer = { .pid = 0 };
    socklen_t length = sizeof peer;
    const struct process *process = NULL;

    if (fd < 0)
        return;
    if (settings.proc_fd >= 0 && !sys(getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &length))
        process = peer.pid == settings.own_pid && tree_is_weak() ? guess_owner()
                                                                 : find_owner(peer.pid);
    if (process)
        connection_pass_storage(process->number, fd);
    sys_close(fd);
}
