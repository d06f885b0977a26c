/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/skeleton_disk.h"

#include "launcher/remove_tree.h"
#include "launcher/sys.h"
#include "launcher/walls/mounts.h"
#include "launcher/walls/userns.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#define DIRECTORY "skeletons"

static bool maps_ids(const struct context *context, int mount)
{
    struct fail ignored;
    int userns = userns_make(context, 0, &ignored);
    struct sys_mount_attr mapped = { .set = SYS_MOUNT_IDMAP, .userns_fd = (uint64_t)userns };
    bool result = userns >= 0 && sys_mount_setattr(mount, 0, &mapped) == 0;

    if (userns >= 0)
        close(userns);
    return result;
}

bool skeleton_maps_in_memory(const struct context *context)
{
    static const struct mount_option options[] = { { "size", "4k" }, { 0 } };
    int mount = mount_make("tmpfs", options, 0);
    bool result = mount >= 0 && maps_ids(context, mount);

    if (mount >= 0)
        close(mount);
    return result;
}

static int open_directory(int state)
{
    (void)mkdirat(state, DIRECTORY, 0700);
    return sys_open_beneath(state, DIRECTORY, O_RDONLY | O_DIRECTORY);
}

int skeleton_make_on_disk(const struct context *context, int state, struct fail *fail)
{
    struct timespec now;
    char name[48];
    int directory;
    int tree = -1;
    int probe;

    skeletons_sweep(context, state);
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, sizeof(name), "%d.%lld.%ld", context->pid, (long long)now.tv_sec, now.tv_nsec);
    directory = open_directory(state);
    if (directory < 0 || mkdirat(directory, name, 0755) < 0 ||
        fchmodat(directory, name, 0755, 0) < 0) {
        if (directory >= 0)
            close(directory);
        return fail_sys(fail, "make a directory for the skeleton");
    }
    probe = sys_clone_tree(directory, name, 0);
    if (probe >= 0 && maps_ids(context, probe))
        tree = sys_clone_tree(directory, name, 0);
    if (tree < 0)
        (void)unlinkat(directory, name, AT_REMOVEDIR);
    if (probe >= 0)
        close(probe);
    close(directory);
    return tree;
}

static void look(void *user, const char *id)
{
    (void)id;
    *(bool *)user = true;
}

void skeletons_sweep(const struct context *context, int state)
{
    bool used = false;
    int directory;

    if (state < 0 || state_each(&context->state, look, &used) < 0 || used)
        return;
    directory = sys_open_beneath(state, DIRECTORY, O_RDONLY | O_DIRECTORY);
    if (directory < 0)
        return;
    (void)remove_content(directory);
    close(directory);
    (void)unlinkat(state, DIRECTORY, AT_REMOVEDIR);
}
