/* SPDX-License-Identifier: Apache-2.0 */
/* Templates and mounts that come after the launcher has left the host's files. */

#include "launcher/sys.h"
#include "launcher/walls/host.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* A copy of a directory's mount can be made only where that mount is. */
static int clone_in_host(struct host *host, int dir, bool reopened, struct fail *fail)
{
    int tree = -1;
    int own = dir;

    if (setns(host->mounts, CLONE_NEWNS) < 0)
        return fail_sys(fail, "go to the host's mounts");
    if (!reopened)
        own = host_reopen(dir);
    if (own >= 0)
        tree = sys_clone_tree(own, "", AT_EMPTY_PATH);
    if (tree < 0)
        fail_sys(fail, "open template");
    if (own >= 0 && own != dir)
        close(own);
    if (setns(host->own, CLONE_NEWNS) < 0)
        _exit(1);
    return tree;
}

static struct template *find(struct host *host, const char *name)
{
    for (unsigned i = 0; i < host->template_count; i++) {
        if (strcmp(host->templates[i].name, name) == 0)
            return &host->templates[i];
    }
    return NULL;
}

int host_add_template(struct host *host, const char *name, int dir, struct fail *fail)
{
    struct template *template;
    int tree;

    if (!host->native)
        return fail_set(fail, "native sandboxes are not available", EOPNOTSUPP);
    if (find(host, name))
        return fail_set(fail, "template exists", EEXIST);
    tree = clone_in_host(host, dir, false, fail);
    if (tree < 0)
        return -1;
    template = host_mount_template(host, name, tree, fail);
    close(tree);
    return template ? 0 : -1;
}

int host_add_mount(struct host *host, const struct launch_mount *mount, int fd, struct fail *fail)
{
    struct host_mount *shared = &host->shared[host->shared_count];
    struct stat status;
    int result;
    int tree;

    if (!host->native || host->shared_count == LAUNCH_MAX_MOUNTS || fstat(fd, &status) < 0)
        return fail_set(fail, "add a mount", ENOSPC);
    *shared = (struct host_mount){ .read_only = mount->read_only,
                                   .is_directory = S_ISDIR(status.st_mode) };
    snprintf(shared->source, sizeof(shared->source), HOST_MOUNTS "/%u", host->shared_count);
    memcpy(shared->path, mount->path, sizeof(shared->path));
    if (shared->is_directory ? mkdir(shared->source, 0755)
                             : mknod(shared->source, S_IFREG | 0600, 0))
        return fail_sys(fail, "make a mount point");
    tree = clone_in_host(host, fd, false, fail);
    if (tree < 0)
        return -1;
    result = sys_attach(tree, AT_FDCWD, shared->source);
    if (result < 0)
        fail_sys(fail, "keep a mount");
    else
        host->shared_count++;
    close(tree);
    return result;
}

int host_allow(struct host *host, const struct launch_allow *allow, struct fail *fail)
{
    struct host_allowed *allowed = &host->allowed[host->allowed_count];

    if (!host->native || host->allowed_count == LAUNCH_MAX_ALLOWED)
        return fail_set(fail, "allow a mount", ENOSPC);
    memcpy(allowed->path, allow->path, sizeof(allowed->path));
    allowed->read_only = allow->read_only;
    host->allowed_count++;
    return 0;
}

/* In the host's mounts. No link is followed on the way to the directory that the operator named, and
 * none out of it from there on. */
static int open_allowed(const struct host_allowed *allowed, const char *source)
{
    int root = sys_openat2(AT_FDCWD, allowed->path, O_PATH | O_DIRECTORY, SYS_RESOLVE_NO_SYMLINKS);
    int dir;

    if (root < 0 || !*source)
        return root;
    dir = sys_openat2(root, source, O_PATH | O_DIRECTORY,
                      SYS_RESOLVE_BENEATH | SYS_RESOLVE_NO_MAGICLINKS);
    close(root);
    return dir;
}

/* Clones the directory without the mounts below it; locked mounts, which hide files, are cloned
 * too. */
static int clone_directory(int dir)
{
    int tree = sys_clone_tree(dir, "", AT_EMPTY_PATH);

    return tree < 0 && errno == EINVAL ? sys_clone_tree(dir, "", AT_EMPTY_PATH | SYS_AT_RECURSIVE)
                                       : tree;
}

int host_open_bind(struct host *host, const struct launch_bind *bind, struct fail *fail)
{
    int tree = -1;
    int dir;

    if (bind->allowed >= host->allowed_count)
        return fail_set(fail, LAUNCH_BIND_STEP, EPERM);
    if (host->allowed[bind->allowed].read_only && !bind->read_only)
        return fail_set(fail, LAUNCH_BIND_STEP, EROFS);
    if (setns(host->mounts, CLONE_NEWNS) < 0)
        return fail_sys(fail, "go to the host's mounts");
    dir = open_allowed(&host->allowed[bind->allowed], bind->source);
    if (dir >= 0)
        tree = clone_directory(dir);
    if (tree < 0)
        fail_sys(fail, LAUNCH_BIND_STEP);
    sys_close(dir);
    if (setns(host->own, CLONE_NEWNS) < 0)
        _exit(1);
    return tree;
}

/* Imported templates are directories of the state directory. Only a process with the launcher's
 * own rights can have written them. */
static int open_imported(struct host *host, const char *name, struct stat *out_status,
                         struct fail *fail)
{
    char path[LAUNCH_NAME_SIZE + 32];
    struct stat owner;
    int dir;

    snprintf(path, sizeof(path), "templates/%s/files/root", name);
    dir = sys_open_beneath(host->state, path, O_RDONLY | O_DIRECTORY);
    if (dir < 0)
        return fail_set(fail, "no such template", ENOENT);
    snprintf(path, sizeof(path), "templates/%s", name);
    if (fstat(dir, out_status) < 0 || fstatat(host->state, path, &owner, AT_SYMLINK_NOFOLLOW) < 0 ||
        owner.st_uid != geteuid()) {
        close(dir);
        return fail_set(fail, "template belongs to another user", EPERM);
    }
    return dir;
}

/* A template that was removed and imported again is a different one. */
static void forget_template(struct template *template)
{
    (void)umount2(template->path, MNT_DETACH);
    template->name[0] = '\0';
}

static struct template *mount_imported(struct host *host, const char *name, int dir,
                                       const struct stat *status, struct fail *fail)
{
    struct template *template;
    int tree = clone_in_host(host, dir, true, fail);

    if (tree < 0)
        return NULL;
    template = host_mount_template(host, name, tree, fail);
    close(tree);
    if (template) {
        template->imported = true;
        template->inode = status->st_ino;
    }
    return template;
}

const struct template *host_template(struct host *host, const char *name, struct fail *fail)
{
    struct template *template = find(host, name);
    struct stat status;
    int dir;

    if (template && !template->imported)
        return template;
    dir = open_imported(host, name, &status, fail);
    if (template && (dir < 0 || template->inode != status.st_ino)) {
        forget_template(template);
        template = NULL;
    }
    if (dir >= 0 && !template)
        template = mount_imported(host, name, dir, &status, fail);
    if (dir >= 0)
        close(dir);
    return template;
}

int host_use_template(const struct host *host, const struct mark *mark, struct fail *fail)
{
    char path[LAUNCH_NAME_SIZE + LAUNCH_ID_SIZE + 32];
    int fd;

    if (!*mark->template_name)
        return 0;
    snprintf(path, sizeof(path), "templates/%s/users", mark->template_name);
    fd = sys_open_beneath(host->state, path, O_PATH | O_DIRECTORY);
    if (fd >= 0) {
        int user = openat(fd, mark->id, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

        close(fd);
        fd = user;
    }
    if (fd < 0)
        return fail_sys(fail, "note the use of the template");
    close(fd);
    return 0;
}

void host_leave_template(const struct host *host, const struct mark *mark)
{
    char path[LAUNCH_NAME_SIZE + LAUNCH_ID_SIZE + 32];
    int fd;

    if (!*mark->template_name || host->state < 0)
        return;
    snprintf(path, sizeof(path), "templates/%s/users", mark->template_name);
    fd = sys_open_beneath(host->state, path, O_PATH | O_DIRECTORY);
    if (fd < 0)
        return;
    (void)unlinkat(fd, mark->id, 0);
    close(fd);
}
