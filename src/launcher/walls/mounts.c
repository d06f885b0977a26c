/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/mounts.h"

#include "launcher/sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

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

/* The attributes that we use are the same bits for both kinds of calls. */
_Static_assert(SYS_MOUNT_NOSUID == MS_NOSUID && SYS_MOUNT_NODEV == MS_NODEV &&
                   SYS_MOUNT_NOEXEC == MS_NOEXEC,
               "attributes are not flags");

int mount_at(const char *type, const struct mount_option *options, uint64_t attributes,
             const char *path)
{
    const char *source = NULL;
    char text[512] = "";
    size_t length = 0;

    for (; options->key && length < sizeof(text); options++) {
        if (strcmp(options->key, "source") == 0)
            source = options->value;
        else
            length += (size_t)snprintf(text + length, sizeof(text) - length, "%s%s%s%s",
                                       length ? "," : "", options->key, options->value ? "=" : "",
                                       options->value ? options->value : "");
    }
    if (length >= sizeof(text)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return mount(source, path, type, attributes, text);
}

static int bind_plain(const char *from, const char *to, unsigned flags)
{
    return mount(from, to, NULL, MS_BIND | (flags & SYS_AT_RECURSIVE ? MS_REC : 0), NULL);
}

/* A descriptor of the mount, and a namespace for it alone, only where one call cannot do it. */
int mount_bind(const char *from, const char *to, uint64_t attributes, unsigned flags, int userns)
{
    struct sys_mount_attr plain = { .set = attributes };
    struct sys_mount_attr mapped = { .set = SYS_MOUNT_IDMAP, .userns_fd = (uint64_t)userns };
    int result = 0;
    int tree;

    if (!attributes && userns < 0)
        return bind_plain(from, to, flags);
    tree = sys_clone_tree(AT_FDCWD, from, flags);
    if (tree < 0)
        return -1;
    if (attributes && sys_mount_setattr(tree, flags, &plain) < 0) {
        close(tree);
        return -1;
    }
    if (userns >= 0 && sys_mount_setattr(tree, 0, &mapped) < 0)
        result = 1;
    return attach(tree, to) < 0 ? -1 : result;
}
