/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/namespaces.h"

#include "launcher/sys.h"
#include "wire/launch.h"

#include <assert.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

static const struct {
    const char *name;
    uint32_t bit;
    unsigned request; /* of the ioctl on a pidfd that opens it, since Linux 6.11 */
} kinds[NAMESPACES] = {
    { "user", LAUNCH_NS_USER, 9 },     { "pid", LAUNCH_NS_PID, 5 }, { "mnt", LAUNCH_NS_MNT, 3 },
    { "net", LAUNCH_NS_NET, 4 },       { "ipc", LAUNCH_NS_IPC, 2 }, { "uts", LAUNCH_NS_UTS, 10 },
    { "cgroup", LAUNCH_NS_CGROUP, 1 },
};

#define PIDFD_REQUEST(number) _IO(0xff, number)

void namespaces_open(struct namespaces *namespaces, int proc, int mounts)
{
    for (size_t i = 0; i < NAMESPACES; i++) {
        struct stat status;
        char path[48];

        snprintf(path, sizeof(path), "self/ns/%s", kinds[i].name);
        namespaces->host[i] = fstatat(proc, path, &status, 0) < 0 ? 0 : status.st_ino;
        if (kinds[i].bit == LAUNCH_NS_MNT && mounts >= 0 && sys_inode(mounts))
            namespaces->host[i] = sys_inode(mounts);
    }
}

/* By the pidfd where the kernel can, which is faster than by /proc. */
static int open_kind(int proc, pid_t pid, int pidfd, size_t i)
{
    int fd = ioctl(pidfd, PIDFD_REQUEST(kinds[i].request), 0);
    char path[48];

    if (fd >= 0)
        return fd;
    snprintf(path, sizeof(path), "%d/ns/%s", (int)pid, kinds[i].name);
    return openat(proc, path, O_RDONLY | O_CLOEXEC);
}

int namespace_of_process(int proc, pid_t pid, int pidfd, uint32_t bit)
{
    size_t i = 0;

    while (i < NAMESPACES && kinds[i].bit != bit)
        i++;
    assert(i < NAMESPACES);
    return open_kind(proc, pid, pidfd, i);
}

uint32_t namespaces_of_process(const struct namespaces *namespaces, int proc, pid_t pid, int pidfd)
{
    uint32_t found = 0;

    for (size_t i = 0; i < NAMESPACES; i++) {
        int fd = open_kind(proc, pid, pidfd, i);
        uint64_t inode = sys_inode(fd);

        if (fd >= 0)
            close(fd);
        if (inode && inode != namespaces->host[i])
            found |= kinds[i].bit;
    }
    return found;
}

uint32_t namespaces_all(void)
{
    uint32_t all = 0;

    for (size_t i = 0; i < NAMESPACES; i++)
        all |= kinds[i].bit;
    return all;
}
