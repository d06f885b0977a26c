/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/native/template_build.h"

#include "base/clock.h"
#include "base/scoped.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { WORK_NAME_SIZE = TEMPLATE_NAME_SIZE + 32 };

#define OLD ".old" /* suffix of a work directory's name: the template that it replaces */

int template_open_directory(int parent, const char *name, unsigned mode)
{
    if (mkdirat(parent, name, mode) < 0 && errno != EEXIST)
        return -1;
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

int template_open_all(const char *state_path, struct error *err)
{
    scoped(fd_close) int state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int templates = state < 0 ? -1 : template_open_directory(state, "templates", 0755);

    if (templates < 0)
        return error_sys(err, "open %s/templates", state_path);
    return templates;
}

/* A name in users/ counts as long as there is a sandbox of that name. */
size_t template_count_users(int state, int template_dir)
{
    int fd = openat(template_dir, "users", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    size_t count = 0;

    while (stream && (entry = readdir(stream))) {
        char path[NAME_MAX + 16];

        snprintf(path, sizeof(path), "sandboxes/%s", entry->d_name);
        count += entry->d_name[0] != '.' && faccessat(state, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    }
    if (stream)
        closedir(stream);
    return count;
}

/* --- the name -------------------------------------------------------------------------------- */

static int refuse_name(const char *name, struct error *err)
{
    error_set(err, ERR_CONFLICT, "the template \"%s\" already exists", name);
    return error_hint(err, "give it another name, or replace it with --replace");
}

static int refuse_users(const char *name, size_t users, struct error *err)
{
    error_named(err, ERR_CONFLICT, "template_in_use", "%zu sandboxes use the template \"%s\"",
                users, name);
    return error_hint(err, "end their sessions first");
}

int template_check_free(const char *state_path, const char *name, bool replace, struct error *err)
{
    scoped(fd_close) int state = -1;
    scoped(fd_close) int templates = -1;
    scoped(fd_close) int old = -1;
    size_t users;

    if (template_check_name(name, err) < 0)
        return -1;
    templates = template_open_all(state_path, err);
    if (templates < 0)
        return -1;
    old = openat(templates, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (old < 0 && errno == ENOENT)
        return 0;
    if (!replace)
        return refuse_name(name, err);
    state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    users = template_count_users(state, old);
    return users > 0 ? refuse_users(name, users, err) : 0;
}

/* The old one is renamed before its users are counted, so that no new sandbox can begin to use it
 * meanwhile. */
static int set_old_aside(const struct template_build *build, int templates, int old,
                         const char *aside, struct error *err)
{
    scoped(fd_close) int state = open(build->state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    size_t users;

    if (state < 0 || flock(old, LOCK_EX) < 0 ||
        renameat(templates, build->name, templates, aside) < 0)
        return error_sys(err, "replace the template \"%s\"", build->name);
    users = template_count_users(state, old);
    if (users == 0)
        return 0;
    (void)renameat(templates, aside, templates, build->name);
    return refuse_users(build->name, users, err);
}

/* The finished directory gets its name. */
static int publish(const struct template_build *build, int templates, const char *work_name,
                   struct error *err)
{
    char aside[WORK_NAME_SIZE + 8];
    scoped(fd_close) int old = -1;

    snprintf(aside, sizeof(aside), "%s" OLD, work_name);
    if (build->options && build->options->replace)
        old = openat(templates, build->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (old >= 0 && set_old_aside(build, templates, old, aside, err) < 0)
        return -1;
    if (renameat2(templates, work_name, templates, build->name, RENAME_NOREPLACE) < 0) {
        int failure = errno;

        if (old >= 0)
            (void)renameat(templates, aside, templates, build->name);
        errno = failure;
        return failure == EEXIST ? refuse_name(build->name, err)
                                 : error_sys(err, "rename the template");
    }
    if (old >= 0)
        (void)tree_remove(templates, aside);
    return 0;
}

/* --- the directory --------------------------------------------------------------------------- */

/* ".NAME.PID" and ".NAME.PID.old" were the template NAME, or were to become it. Whether it is called
 * that again. */
static bool restore_name(int templates, const char *work_name)
{
    char name[NAME_MAX + 1];
    uint64_t pid;
    char *dot;

    snprintf(name, sizeof(name), "%s", work_name + 1);
    if (str_ends_with(name, OLD))
        name[strlen(name) - strlen(OLD)] = '\0';
    dot = strrchr(name, '.');
    if (!dot || str_to_u64(dot + 1, &pid) < 0)
        return false;
    *dot = '\0';
    return template_check_name(name, NULL) == 0 &&
           renameat2(templates, work_name, templates, name, RENAME_NOREPLACE) == 0;
}

/* Settles the directory of a command that was killed; a running command holds its lock. A template
 * that was being removed or replaced gets its name back if sandboxes use it or if the name is
 * free. */
static void settle_abandoned(int state, int templates, const char *work_name)
{
    scoped(fd_close) int work =
        openat(templates, work_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    size_t users;

    if (work < 0 || flock(work, LOCK_EX | LOCK_NB) < 0)
        return;
    users = template_count_users(state, work);
    if ((users > 0 || str_ends_with(work_name, OLD)) && restore_name(templates, work_name))
        return;
    if (users == 0)
        (void)tree_remove(templates, work_name);
}

static void settle_all_abandoned(int state, int templates)
{
    int fd = openat(templates, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    while (stream && (entry = readdir(stream)))
        if (entry->d_name[0] == '.' && !str_equal(entry->d_name, ".") &&
            !str_equal(entry->d_name, "..") && !str_equal(entry->d_name, TEMPLATE_BLOBS))
            settle_abandoned(state, templates, entry->d_name);
    if (stream)
        closedir(stream);
}

/* Makes and locks the directory in which the template comes into being. */
static int open_work(const char *state_path, int templates, const char *work_name,
                     struct error *err)
{
    scoped(fd_close) int state = open(state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped(fd_close) int lock = openat(templates, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped(fd_close) int work = -1;

    /* Held until the new directory has a lock of its own: without one it looks abandoned. */
    if (state < 0 || lock < 0 || flock(lock, LOCK_EX) < 0)
        return error_sys(err, "lock the directory of templates");
    settle_all_abandoned(state, templates);
    work = template_open_directory(templates, work_name, 0755);
    if (work < 0 || flock(work, LOCK_EX) < 0)
        return error_sys(err, "make the directory %s", work_name);
    return steal_fd(&work);
}

static int write_info(int dir, const struct template_info *info, struct error *err)
{
    scoped(fd_close) int fd =
        openat(dir, "info.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

    if (fd < 0 || dprintf(fd, "{\"bytes\":%llu,\"entries\":%llu,\"imported_us\":%lld}\n",
                          (unsigned long long)info->bytes, (unsigned long long)info->entries,
                          (long long)info->imported_us) < 0)
        return error_sys(err, "write info.json");
    return fsync(fd) < 0 ? error_sys(err, "write info.json") : 0;
}

/* `work` becomes the template: files/root with its files, users/ for its sandboxes. */
static int fill(const struct template_build *build, int work, struct template_info *info,
                struct error *err)
{
    static const struct template_options defaults = { 0 };
    const struct template_options *options = build->options ? build->options : &defaults;
    scoped(fd_close) int files = template_open_directory(work, "files", 0700);
    scoped(fd_close) int users = template_open_directory(work, "users", 0700);
    struct extract extract = {
        .root = -1,
        .owners = geteuid() == 0,
        .on_progress = options->on_progress,
        .user = options->user,
    };

    if (files < 0 || users < 0)
        return error_sys(err, "create the directories of the template");
    if (build->fill(build->user, work, files, &extract, err) < 0)
        return -1;
    if (extract.entries == 0)
        return error_set(err, ERR_INVALID, "the archive is empty");
    if (fchmodat(files, "root", 0755, 0) < 0)
        return error_sys(err, "set the mode of the root");
    info->bytes = extract.bytes;
    info->entries = extract.entries;
    return write_info(work, info, err);
}

int template_build(const struct template_build *build, struct template_info *out_info,
                   struct error *err)
{
    scoped(fd_close) int templates = -1;
    scoped(fd_close) int work = -1;
    struct template_info info = { .imported_us = clock_wall_us(&clock_system) };
    char work_name[WORK_NAME_SIZE];

    if (template_check_name(build->name, err) < 0)
        return -1;
    templates = template_open_all(build->state_path, err);
    if (templates < 0)
        return -1;
    snprintf(info.name, sizeof(info.name), "%s", build->name);
    snprintf(work_name, sizeof(work_name), ".%s.%d", build->name, (int)getpid());
    work = open_work(build->state_path, templates, work_name, err);
    if (work < 0)
        return -1;
    if (template_check_free(build->state_path, build->name,
                            build->options && build->options->replace, err) < 0 ||
        fill(build, work, &info, err) < 0 || publish(build, templates, work_name, err) < 0) {
        (void)tree_remove(templates, work_name);
        return -1;
    }
    *out_info = info;
    return 0;
}
