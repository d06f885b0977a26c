#include "launcher/walls/skeleton_disk.h"

#include "launcher/launcher.h"
#include "launcher/sys.h"
#include "launcher/teardown/destroy.h"
#include "launcher/walls/mounts.h"
#include "launcher/walls/native.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#define DIRECTORY "skeletons"

static bool maps_ids(struct launcher *launcher, int mount)
{
    struct fail ignored;
    int userns = userns_make(launcher, 0, &ignored);
    struct sys_mount_attr mapped = { .set = SYS_MOUNT_IDMAP, .userns_fd = (uint64_t)userns };
    bool result = userns >= 0 && sys_mount_setattr(mount, 0, &mapped) == 0;

    if (userns >= 0)
        close(userns);
    return result;
}

bool skeleton_maps_in_memory(struct launcher *launcher)
{
    static const struct mount_option options[] = { { "size", "4k" }, { 0 } };
    int mount = mount_make("tmpfs", options, 0);
    bool result = mount >= 0 && maps_ids(launcher, mount);

    if (mount >= 0)
        close(mount);
    return result;
}

static int open_directory(struct launcher *launcher)
{
    (void)mkdirat(launcher->host.state, DIRECTORY, 0700);
    return sys_open_beneath(launcher->host.state, DIRECTORY, O_RDONLY | O_DIRECTORY);
}

int skeleton_make_on_disk(struct launcher *launcher, struct fail *fail)
{
    struct timespec now;
    char name[48];
    int directory;
    int tree = -1;
    int probe;

    skeletons_sweep(launcher);
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(name, sizeof(name), "%d.%lld.%ld", launcher->pid, (long long)now.tv_sec, now.tv_nsec);
    directory = open_directory(launcher);
    if (directory < 0 || mkdirat(directory, name, 0755) < 0 ||
        fchmodat(directory, name, 0755, 0) < 0) {
        if (directory >= 0)
            close(directory);
        return fail_sys(fail, "make a directory for the skeleton");
    }
    probe = sys_clone_tree(directory, name, 0);
    if (probe >= 0 && maps_ids(launcher, probe))
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

void skeletons_sweep(struct launcher *launcher)
{
    bool used = false;
    int directory;

    if (launcher->host.state < 0 || state_each(&launcher->state, look, &used) < 0 || used)
        return;
    directory = sys_open_beneath(launcher->host.state, DIRECTORY, O_RDONLY | O_DIRECTORY);
    if (directory < 0)
        return;
    (void)remove_content(directory);
    close(directory);
    (void)unlinkat(launcher->host.state, DIRECTORY, AT_REMOVEDIR);
}
