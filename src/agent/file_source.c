/* SPDX-License-Identifier: Apache-2.0 */
/* Chosen bytes of a file: from a descriptor of it, or through a pipe. */

#include "agent/files_private.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ATTEMPTS = 4 }; /* with a file that changes each time before it is opened */

/* --- opening --------------------------------------------------------------------------------- */

static void open_source(struct file_source *source);

static void fail(struct file_source *source, int number)
{
    fd_close(steal_fd(&source->fd));
    source->sys_errno = number;
    file_error(&source->err, number, source->path);
    source->done(source);
}

/* True when the request has failed and the failure was reported: the source may be freed. */
static bool has_failed(struct file_source *source)
{
    file_request_error(&source->ask.request, source->path, &source->err, &source->sys_errno);
    if (!source->err.code)
        return false;
    source->done(source);
    return true;
}

static void want_all(struct file_source *source)
{
    source->offset = 0;
    source->length = source->stat.size;
}

/* False when no bytes are wanted. */
static bool choose_bytes(struct file_source *source)
{
    want_all(source);
    return !source->choose || source->choose(source);
}

static void finish(struct file_source *source)
{
    source->position = source->offset;
    source->done(source);
}

static void on_file(struct agent_request *request)
{
    struct file_source *source = container_of(request, struct file_source, ask.request);

    if (has_failed(source))
        return;
    source->fd = request->result.file.fd;
    source->stat = request->result.file.stat;
    if (source->fd < 0) {
        fail(source, ENXIO);
        return;
    }
    if (!choose_bytes(source))
        fd_close(steal_fd(&source->fd));
    finish(source);
}

static bool is_same_version(const struct protocol_stat *one, const struct protocol_stat *other)
{
    return one->size == other->size && one->inode == other->inode &&
           one->modified_us == other->modified_us;
}

/* The bytes that come were chosen by an earlier stat. If the file has changed, they are still right
 * when the same ones would be chosen now. */
static void on_pipe_opened(struct agent_request *request)
{
    struct file_source *source = container_of(request, struct file_source, ask.request);
    uint64_t offset = source->offset, length = source->length;
    struct protocol_stat before = source->stat;

    if (has_failed(source))
        return;
    source->fd = request->result.file.fd;
    source->stat = request->result.file.stat;
    if (!source->choose || is_same_version(&before, &source->stat)) {
        if (!source->choose)
            want_all(source);
        finish(source);
        return;
    }
    if (choose_bytes(source) && source->offset == offset && source->length == length) {
        finish(source);
        return;
    }
    fd_close(steal_fd(&source->fd));
    if (++source->attempts >= ATTEMPTS)
        fail(source, ESTALE);
    else
        open_source(source);
}

static void open_pipe(struct file_source *source)
{
    struct agent_file file = {
        .kind = FILE_READ,
        .user = source->actor.user,
        .path = source->path,
        .flags = source->actor.flags,
        .offset = source->offset,
        .bytes = source->choose ? source->length : 0,
    };

    file_ask_start(&source->ask, source->agent, &file, on_pipe_opened);
}

/* A file that is not regular goes to open_pipe(): init refuses it. */
static void on_stat(struct agent_request *request)
{
    struct file_source *source = container_of(request, struct file_source, ask.request);

    if (has_failed(source))
        return;
    source->stat = request->result.file.stat;
    if (!S_ISREG(source->stat.mode) || (choose_bytes(source) && source->length))
        open_pipe(source);
    else
        finish(source);
}

static void open_source(struct file_source *source)
{
    struct agent_file file = { .kind = FILE_OPEN_READ,
                               .user = source->actor.user,
                               .path = source->path,
                               .flags = source->actor.flags };

    if (!source->is_pipe) {
        file_ask_start(&source->ask, source->agent, &file, on_file);
    } else if (!source->choose) {
        open_pipe(source);
    } else {
        file.kind = FILE_STAT;
        file_ask_start(&source->ask, source->agent, &file, on_stat);
    }
}

static void on_next(struct timer *timer)
{
    struct file_source *source = container_of(timer, struct file_source, next);

    source->on_ready(source);
}

void file_source_open_as(struct file_source *source, struct agent *agent,
                         const struct file_actor *actor, const char *path, file_choose_fn *choose,
                         file_source_fn *done)
{
    *source = (struct file_source){
        .agent = agent,
        .actor = *actor,
        .path = path,
        .choose = choose,
        .done = done,
        .fd = -1,
        .is_pipe = !files_pass(agent),
    };
    timer_init(&source->next, agent_loop(agent), on_next);
    open_source(source);
}

void file_source_open(struct file_source *source, struct agent *agent, const char *path,
                      file_choose_fn *choose, file_source_fn *done)
{
    file_source_open_as(source, agent, &(struct file_actor){ .user = "" }, path, choose, done);
}

/* --- reading --------------------------------------------------------------------------------- */

/* A pipe that breaks reads as end of file: missing bytes are an error, not the end of the file. */
static ssize_t end_pipe(const struct file_source *source)
{
    if (source->position >= source->offset + source->length)
        return 0;
    errno = EIO;
    return -1;
}

ssize_t file_source_read(struct file_source *source, void *bytes, size_t size)
{
    uint64_t left = source->offset + source->length - source->position;
    ssize_t count;

    if (source->choose)
        size = (size_t)MIN((uint64_t)size, left);
    if (source->fd < 0 || size == 0)
        return 0;
    count = source->is_pipe ? read(source->fd, bytes, size)
                            : pread(source->fd, bytes, size, (off_t)source->position);
    if (count > 0)
        source->position += (uint64_t)count;
    return count == 0 && source->is_pipe ? end_pipe(source) : count;
}

static void on_pipe(struct io_watch *watch, unsigned events UNUSED)
{
    struct file_source *source = container_of(watch, struct file_source, pipe);

    io_watch_stop(watch);
    source->on_ready(source);
}

void file_source_wait(struct file_source *source, file_source_fn *on_ready)
{
    source->on_ready = on_ready;
    if (source->is_pipe && source->fd >= 0)
        io_watch_start(&source->pipe, source->next.loop, source->fd, IO_READ, on_pipe);
    else
        timer_arm_in(&source->next, 0);
}

void file_source_fini(struct file_source *source)
{
    if (!source->path)
        return;
    file_ask_cancel(&source->ask);
    timer_stop(&source->next);
    io_watch_stop(&source->pipe);
    fd_close(steal_fd(&source->fd));
}
