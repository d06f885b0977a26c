/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sandbox/workspace_archive.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"
#include "core/sandbox/archive_private.h"
#include "wire/tar.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct workspace_archive *workspace_archive_new(struct core *core)
{
    struct workspace_archive *archives = xnew(struct workspace_archive);

    archives->core = core;
    return archives;
}

void workspace_archive_free(struct workspace_archive *archives)
{
    free(archives);
}

void workspace_archive_name(const char *session_id, char name[ARCHIVE_NAME_SIZE])
{
    snprintf(name, ARCHIVE_NAME_SIZE, "kept/%s.tar", session_id);
}

static void count(struct workspace_archive *archives, int directory, const char *name)
{
    struct stat status;

    if (str_ends_with(name, ".part") && archives->core->parts.node)
        return; /* nodes may share the directory: another one may be writing it */
    if (str_ends_with(name, ".part"))
        (void)unlinkat(directory, name, 0);
    else if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode))
        archives->total_bytes += (uint64_t)status.st_size;
}

void workspace_archive_start(struct workspace_archive *archives)
{
    int fd = openat(archives->core->parts.state_dir, "kept", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    archives->total_bytes = 0;
    if (!directory)
        return;
    while ((entry = readdir(directory)))
        count(archives, dirfd(directory), entry->d_name);
    closedir(directory);
}

bool workspace_archive_exists(int state_dir, const char *session_id)
{
    char name[ARCHIVE_NAME_SIZE];
    struct stat status;

    workspace_archive_name(session_id, name);
    return fstatat(state_dir, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

uint64_t workspace_archive_unlink(int state_dir, const char *session_id)
{
    char name[ARCHIVE_NAME_SIZE];
    struct stat status;

    workspace_archive_name(session_id, name);
    if (fstatat(state_dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
        unlinkat(state_dir, name, 0) < 0)
        return 0;
    return (uint64_t)status.st_size;
}

void workspace_archive_forget(struct workspace_archive *archives, uint64_t bytes)
{
    archives->total_bytes -= MIN(bytes, archives->total_bytes);
}

/* --- what both halves need -------------------------------------------------------------------- */

struct archive_work *archive_work_new(struct sandbox *sandbox, archive_done_fn *done,
                                      int64_t timeout_ms, void (*on_timeout)(struct timer *timer))
{
    struct archive_work *work = xnew(struct archive_work);

    work->sandbox = sandbox;
    work->done = done;
    work->stream.fd = work->file = -1;
    work->notes = BUFFER_INIT(128 * 1024);
    work->state_dir = sandbox->core->parts.state_dir;
    snprintf(work->session_id, sizeof(work->session_id), "%s", sandbox->order.session_id);
    timer_init(&work->timer, sandbox->core->loop, on_timeout);
    timer_arm_in(&work->timer, timeout_ms * 1000);
    sandbox->archive_work = work;
    return work;
}

void archive_work_free(struct archive_work *work)
{
    timer_stop(&work->timer);
    io_watch_stop(&work->stream);
    loop_undefer(work->timer.loop, &work->later);
    fd_close(work->stream.fd);
    fd_close(work->file);
    buffer_fini(&work->notes);
    free(work);
}

/* A packing that broke off lacks it, and so does a file that was cut later. */
bool archive_has_end(int file, uint64_t bytes)
{
    static const uint8_t zeros[2 * TAR_BLOCK];
    uint8_t end[sizeof(zeros)];

    return bytes >= sizeof(end) && bytes % TAR_BLOCK == 0 &&
           fd_read_at(file, end, sizeof(end), (off_t)(bytes - sizeof(end))) == sizeof(end) &&
           memcmp(end, zeros, sizeof(end)) == 0;
}

void workspace_archive_cancel(struct sandbox *sandbox)
{
    struct archive_work *work = steal_ptr(&sandbox->archive_work);

    if (!work)
        return;
    agent_cancel(&work->request);
    timer_stop(&work->timer);
    io_watch_stop(&work->stream);
    work->sandbox = NULL;
    if (!work->in_job)
        archive_work_free(work);
}
