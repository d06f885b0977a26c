#include "launcher/ahead/clone_ns.h"

#include "launcher/launcher.h"
#include "launcher/sys.h"

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

void clone_ns_open(struct launcher *launcher)
{
    struct host *host = &launcher->host;

    /* Without root no root is made ahead. */
    if (!launcher->root || unshare(CLONE_NEWNS) < 0)
        return;
    if (empty(host))
        host->clone_ns = openat(launcher->state.proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
    clone_ns_leave(launcher);
}

bool clone_ns_enter(const struct launcher *launcher)
{
    return launcher->host.clone_ns >= 0 && setns(launcher->host.clone_ns, CLONE_NEWNS) == 0;
}

void clone_ns_leave(const struct launcher *launcher)
{
    if (setns(launcher->host.own, CLONE_NEWNS) < 0)
        abort();
}
