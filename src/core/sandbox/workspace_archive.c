#include "core/sandbox/workspace_archive.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "core/sandbox/archive_private.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct keep *keep_new(struct core *core)
{
    struct keep *keep = xnew(struct keep);

    keep->core = core;
    return keep;
}

void keep_free(struct keep *keep)
{
    free(keep);
}

void keep_name(const char *session_id, char name[KEEP_NAME_SIZE])
{
    snprintf(name, KEEP_NAME_SIZE, "kept/%s.tar", session_id);
}

static void look_at(struct keep *keep, int folder, const char *name)
{
    struct stat status;

    if (str_ends_with(name, ".part"))
        (void)unlinkat(folder, name, 0);
    else if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode))
        keep->total_bytes += (uint64_t)status.st_size;
}

void keep_start(struct keep *keep)
{
    int fd = openat(keep->core->parts.state_dir, "kept", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *entry;

    keep->total_bytes = 0;
    if (!folder)
        return;
    while ((entry = readdir(folder)))
        look_at(keep, dirfd(folder), entry->d_name);
    closedir(folder);
}

uint64_t keep_unlink(int state_dir, const char *session_id)
{
    char name[KEEP_NAME_SIZE];
    struct stat status;

    keep_name(session_id, name);
    if (fstatat(state_dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
        unlinkat(state_dir, name, 0) < 0)
        return 0;
    return (uint64_t)status.st_size;
}

void keep_forget(struct keep *keep, uint64_t bytes)
{
    keep->total_bytes -= MIN(bytes, keep->total_bytes);
}

uint64_t keep_total_bytes(const struct keep *keep)
{
    return keep->total_bytes;
}

/* --- what both halves need -------------------------------------------------------------------- */

struct keep_work *keep_work_new(struct sandbox *sandbox, keep_done_fn *done, int64_t timeout_ms,
                                void (*on_timeout)(struct timer *timer))
{
    struct keep_work *work = xnew(struct keep_work);

    work->sandbox = sandbox;
    work->done = done;
    work->stream.fd = work->file = -1;
    work->notes = BUFFER_INIT(128 * 1024);
    work->state_dir = sandbox->core->parts.state_dir;
    snprintf(work->session_id, sizeof(work->session_id), "%s", sandbox->order.session_id);
    timer_init(&work->timer, sandbox->core->loop, on_timeout);
    timer_arm_in(&work->timer, timeout_ms * 1000);
    sandbox->keep_work = work;
    return work;
}

void keep_work_free(struct keep_work *work)
{
    timer_stop(&work->timer);
    io_watch_stop(&work->stream);
    loop_undefer(work->timer.loop, &work->later);
    fd_close(work->stream.fd);
    fd_close(work->file);
    buffer_fini(&work->notes);
    free(work);
}

void keep_cancel(struct sandbox *sandbox)
{
    struct keep_work *work = steal_ptr(&sandbox->keep_work);

    if (!work)
        return;
    agent_cancel(&work->request);
    timer_stop(&work->timer);
    io_watch_stop(&work->stream);
    work->sandbox = NULL;
    if (!work->in_job)
        keep_work_free(work);
}
