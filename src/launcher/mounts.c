#include "launcher/mounts.h"

#include "launcher/sys.h"

#include <errno.h>

int mount_make(const char *type, const struct mount_option *options, uint64_t attributes)
{
    int context = sys_fsopen(type);
    int mount = -1;
    int error;

    if (context < 0)
        return -1;
    for (; options->key; options++) {
        if (sys_fsconfig(context, options->value ? SYS_FSCONFIG_STRING : SYS_FSCONFIG_FLAG,
                         options->key, options->value) < 0)
            goto out;
    }
    if (sys_fsconfig(context, SYS_FSCONFIG_CREATE, NULL, NULL) == 0)
        mount = sys_fsmount(context, attributes);
out:
    error = errno;
    close(context);
    errno = error;
    return mount;
}

int mount_procfs(int shared)
{
    static const struct mount_option none[] = { { 0 } };
    int mount = mount_make("proc", none, 0);

    return mount >= 0 ? mount : fcntl(shared, F_DUPFD_CLOEXEC, 0);
}

static int attach(int mount, const char *path)
{
    int result;
    int error;

    if (mount < 0)
        return -1;
    result = sys_attach(mount, AT_FDCWD, path);
    error = errno;
    close(mount);
    errno = error;
    return result;
}

int mount_at(const char *type, const struct mount_option *options, uint64_t attributes,
             const char *path)
{
    return attach(mount_make(type, options, attributes), path);
}

int mount_bind(const char *from, const char *to, uint64_t attributes, unsigned flags, int userns)
{
    struct sys_mount_attr plain = { .set = attributes };
    struct sys_mount_attr mapped = { .set = SYS_MOUNT_IDMAP, .userns_fd = (uint64_t)userns };
    int mount = sys_clone_tree(AT_FDCWD, from, flags);
    int result = 0;

    if (mount < 0)
        return -1;
    if (attributes && sys_mount_setattr(mount, flags, &plain) < 0) {
        close(mount);
        return -1;
    }
    if (userns >= 0 && sys_mount_setattr(mount, 0, &mapped) < 0)
        result = 1;
    return attach(mount, to) < 0 ? -1 : result;
}
