/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/clone_ns.h"

#include "launcher/sys.h"
#include "launcher/walls/host.h"

#include <stdlib.h>
#include <sys/mount.h>

static bool empty(const struct host *host)
{
    static const char *const others[] = { HOST_SKELETON, HOST_BLOCKS, HOST_DEVICES };

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (umount2(others[i], MNT_DETACH) < 0 && errno != EINVAL)
            return false;
    }
    for (unsigned i = 0; i < host->template_count; i++) {
        if (umount2(host->templates[i].path, MNT_DETACH) < 0)
            return false;
    }
    return true;
}

void clone_ns_open(struct host *host, const struct context *context)
{
    /* Without root no root is made ahead. */
    if (!context->root || unshare(CLONE_NEWNS) < 0)
        return;
    if (empty(host))
        host->clone_ns = openat(context->state.proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
    clone_ns_leave(host);
}

bool clone_ns_enter(const struct host *host)
{
    return host->clone_ns >= 0 && setns(host->clone_ns, CLONE_NEWNS) == 0;
}

void clone_ns_leave(const struct host *host)
{
    if (setns(host->own, CLONE_NEWNS) < 0)
        abort();
}
