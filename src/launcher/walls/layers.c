/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/walls/layers.h"

#include "launcher/sys.h"
#include "launcher/walls/host.h"
#include "launcher/walls/mounts.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>

int layers_mount(struct spawn *spawn, const char *root, const char *usr)
{
    const uint64_t attributes = SYS_MOUNT_RDONLY | SYS_MOUNT_NOSUID | SYS_MOUNT_NODEV;
    int map = spawn->spawner->context->root ? spawn->userns : -1;
    const struct template *template = spawn->template;
    unsigned flags = template->kind == TEMPLATE_USR_FIXED ? SYS_AT_RECURSIVE : 0;
    bool whole = template->kind == TEMPLATE_WHOLE;
    int unmapped = mount_bind(whole ? template->path : HOST_SKELETON, root, attributes, 0, map);

    if (unmapped < 0)
        return fail_sys(&spawn->fail, "mount the template");
    if (!whole && mount_bind(template->path, usr, attributes, flags, map) < 0)
        return fail_sys(&spawn->fail, "mount the host's /usr");
    return unmapped;
}

static int mount_terminals(const char *devices)
{
    static const struct mount_option options[] = {
        { "ptmxmode", "0666" }, { "mode", "0620" }, { "max", "16" }, { 0 }
    };
    char path[LAYERS_PATH_SIZE + 8];

    snprintf(path, sizeof(path), "%s/pts", devices);
    return mount_at("devpts", options, SYS_MOUNT_NOSUID | SYS_MOUNT_NOEXEC, path);
}

int layers_mount_devices(struct spawn *spawn, const char *path)
{
    const uint64_t attributes = SYS_MOUNT_RDONLY | SYS_MOUNT_NOSUID | SYS_MOUNT_NOEXEC;

    if (mount_bind(HOST_DEVICES, path, attributes, SYS_AT_RECURSIVE, -1) < 0)
        return fail_sys(&spawn->fail, "mount /dev");
    if (mount_terminals(path) < 0)
        return fail_sys(&spawn->fail, "mount /dev/pts");
    return 0;
}

/* --- cached layers ------------------------------------------------------------------------- */

int layers_reset(void)
{
    (void)umount2(HOST_CACHE, MNT_DETACH);
    return mount_bind(HOST_CACHE, HOST_CACHE, 0, 0, -1);
}

static int make_mount_points(struct layers *layers, unsigned number)
{
    char path[LAYERS_PATH_SIZE];
    const char *paths[] = { path, layers->root, layers->usr, layers->devices };

    snprintf(path, sizeof(path), HOST_CACHE "/%u", number);
    snprintf(layers->root, sizeof(layers->root), HOST_CACHE "/%u/root", number);
    snprintf(layers->usr, sizeof(layers->usr), HOST_CACHE "/%u/usr", number);
    snprintf(layers->devices, sizeof(layers->devices), HOST_CACHE "/%u/dev", number);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (mkdir(paths[i], 0755) < 0 && errno != EEXIST)
            return -1;
    }
    return 0;
}

/* Without leaving a trace ourselves. */
static int open_terminals(const struct layers *layers)
{
    char path[LAYERS_PATH_SIZE + 8];

    snprintf(path, sizeof(path), "%s/pts", layers->devices);
    return open(path, O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC);
}

static int look_at_terminals(int dir, struct stat status[2])
{
    return fstat(dir, &status[0]) == 0 && fstatat(dir, "ptmx", &status[1], 0) == 0 ? 0 : -1;
}

static int note_terminals(struct layers *layers)
{
    int dir = open_terminals(layers);
    int result = dir < 0 ? -1 : look_at_terminals(dir, layers->terminals);

    if (dir >= 0)
        close(dir);
    return result;
}

static bool times_equal(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

static bool is_untouched(const struct stat *now, const struct stat *before)
{
    return now->st_mode == before->st_mode && now->st_uid == before->st_uid &&
           now->st_gid == before->st_gid && times_equal(&now->st_atim, &before->st_atim) &&
           times_equal(&now->st_mtim, &before->st_mtim) &&
           times_equal(&now->st_ctim, &before->st_ctim);
}

/* Besides itself, its parent and the file by which terminals are made. */
static bool has_terminals(int dir)
{
    char entries[1024];
    long length = syscall(SYS_getdents64, dir, entries, sizeof(entries));
    unsigned count = 0;

    for (long at = 0; at < length; count++)
        at += ((struct dirent *)(entries + at))->d_reclen;
    return length <= 0 || count != 3;
}

static bool are_terminals_unused(const struct layers *layers)
{
    struct stat now[2];
    int dir = open_terminals(layers);
    bool result = dir >= 0 && look_at_terminals(dir, now) == 0 &&
                  is_untouched(&now[0], &layers->terminals[0]) &&
                  is_untouched(&now[1], &layers->terminals[1]) && !has_terminals(dir);

    if (dir >= 0)
        close(dir);
    return result;
}

static int renew_terminals(struct layers *layers)
{
    char path[LAYERS_PATH_SIZE + 8];

    if (are_terminals_unused(layers))
        return 0;
    snprintf(path, sizeof(path), "%s/pts", layers->devices);
    return umount2(path, MNT_DETACH) == 0 && mount_terminals(layers->devices) == 0
               ? note_terminals(layers)
               : -1;
}

int layers_cache(struct layers *layers, unsigned number, struct spawn *spawn)
{
    int unmapped;

    if (layers->is_mounted)
        return renew_terminals(layers);
    if (make_mount_points(layers, number) < 0)
        return -1;
    unmapped = layers_mount(spawn, layers->root, layers->usr);
    if (unmapped < 0 || layers_mount_devices(spawn, layers->devices) < 0 ||
        note_terminals(layers) < 0)
        return -1;
    layers->is_mapped = unmapped == 0;
    layers->is_mounted = true;
    return 0;
}
