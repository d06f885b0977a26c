#include "agent/files.h"

#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    int number;
    enum error_code code;
    const char *name;
    const char *text;
} failures[] = {
    { ENOENT, ERR_NOT_FOUND, "file_not_found", "no such file or directory" },
    { ENOTDIR, ERR_NOT_FOUND, "not_a_directory", "a part of the path is not a directory" },
    { EACCES, ERR_FORBIDDEN, "permission_denied", "permission denied" },
    { EPERM, ERR_FORBIDDEN, "permission_denied", "not permitted" },
    { EROFS, ERR_FORBIDDEN, "read_only", "the file system is read-only" },
    { EISDIR, ERR_CONFLICT, "is_a_directory", "it is a directory" },
    { EEXIST, ERR_CONFLICT, "file_exists", "it already exists" },
    { ENOTEMPTY, ERR_CONFLICT, "directory_not_empty", "the directory is not empty" },
    { ETXTBSY, ERR_CONFLICT, "file_busy", "the program is being run" },
    { EBUSY, ERR_CONFLICT, "file_busy", "it is in use" },
    { EXDEV, ERR_CONFLICT, "cross_device", "source and target are on different file systems" },
    { ELOOP, ERR_CONFLICT, "too_many_links", "too many symbolic links" },
    { ENXIO, ERR_CONFLICT, "not_a_file", "it is not a regular file" },
    { ENODEV, ERR_CONFLICT, "not_a_file", "it is not a regular file" },
    { ENAMETOOLONG, ERR_INVALID, "invalid_path", "the path is too long" },
    { EINVAL, ERR_INVALID, "invalid_path", "neither a regular file nor a valid path" },
    { ESTALE, ERR_CONFLICT, "precondition_failed", "it has changed in the meantime" },
    { EBADMSG, ERR_INVALID, "invalid_pattern", "the pattern is malformed" },
    { EFBIG, ERR_TOO_LARGE, "file_too_large", "the file is too large" },
    { ENOSPC, ERR_NO_SPACE, "no_space", "no space is left" },
    { EDQUOT, ERR_NO_SPACE, "no_space", "the quota is used up" },
    { EAGAIN, ERR_LIMIT, "too_many_file_operations", "too many file operations at the same time" },
};

static int hint_at_space(struct error *err)
{
    return error_hint(err, "remove files, or open a session with more disk; limits.disk_bytes of a "
                           "session is what its files may take, at most half of its memory where "
                           "they are kept in memory");
}

int file_error(struct error *err, int number, const char *path)
{
    for (size_t i = 0; i < ARRAY_LENGTH(failures); i++) {
        if (failures[i].number != number)
            continue;
        error_named(err, failures[i].code, failures[i].name, "%.200s: %s", path, failures[i].text);
        return failures[i].code == ERR_NO_SPACE ? hint_at_space(err) : -1;
    }
    return error_named(err, ERR_BACKEND, "file_failed", "%.200s: %s", path, strerror(number));
}

/* --- reading --------------------------------------------------------------------------------- */

static void reader_fail(struct file_reader *reader, int number)
{
    reader->sys_errno = number;
    file_error(&reader->err, number, reader->path);
    reader->done(reader);
}

/* True when the operation has failed and the failure was reported. */
static bool reader_has_failed(struct file_reader *reader)
{
    if (!reader->request.err.code)
        return false;
    if (reader->request.sys_errno) {
        reader_fail(reader, reader->request.sys_errno);
        return true;
    }
    reader->err = reader->request.err;
    reader->done(reader);
    return true;
}

static void on_opened_for_reading(struct agent_request *request)
{
    struct file_reader *reader = container_of(request, struct file_reader, request);
    scoped(fd_close) int fd = request->err.code ? -1 : request->result.file.fd;
    uint64_t inode = reader->stat.inode;

    if (reader_has_failed(reader))
        return;
    reader->stat = request->result.file.stat;
    if (fd < 0)
        reader_fail(reader, ENXIO);
    else if (inode && inode != reader->stat.inode)
        reader_fail(reader, ESTALE);
    else if (fd_read_all(fd, &reader->content) < 0)
        reader_fail(reader, errno);
    else
        reader->done(reader);
}

static void open_for_reading(struct file_reader *reader)
{
    struct agent_file file = { .kind = FILE_OPEN_READ, .user = "", .path = reader->path };

    agent_file(reader->agent, &file, &reader->request, on_opened_for_reading);
}

static void on_looked_at(struct agent_request *request)
{
    struct file_reader *reader = container_of(request, struct file_reader, request);

    if (reader_has_failed(reader))
        return;
    reader->stat = request->result.file.stat;
    if (!S_ISLNK(reader->stat.mode)) {
        open_for_reading(reader);
        return;
    }
    error_named(&reader->err, ERR_CONFLICT, "is_a_link", "%.200s is a symbolic link", reader->path);
    error_hint(&reader->err, "edit the file that it points to: files/list shows its target");
    reader->done(reader);
}

void file_reader_start(struct file_reader *reader, struct agent *agent, const char *path,
                       size_t maximum, bool refuses_links, file_reader_fn *done)
{
    struct agent_file file = {
        .kind = FILE_STAT, .user = "", .path = path, .flags = FILE_NO_FOLLOW
    };

    *reader = (struct file_reader){
        .agent = agent, .path = path, .done = done, .content = BUFFER_INIT(maximum)
    };
    if (refuses_links)
        agent_file(agent, &file, &reader->request, on_looked_at);
    else
        open_for_reading(reader);
}

void file_reader_fini(struct file_reader *reader)
{
    agent_cancel(&reader->request);
    buffer_fini(&reader->content);
}

/* --- writing --------------------------------------------------------------------------------- */

static void on_written(struct agent_request *request, bool is_open)
{
    struct file_writer *writer = container_of(request, struct file_writer, request);

    writer->err = request->err;
    writer->sys_errno = request->sys_errno;
    if (request->sys_errno)
        file_error(&writer->err, request->sys_errno, writer->path);
    if (!request->err.code && is_open) {
        writer->fd = request->result.file.fd;
        writer->temporary = xstrdup(request->result.file.temporary);
        if (writer->fd < 0)
            file_error(&writer->err, ENXIO, writer->path);
    } else if (!request->err.code) {
        writer->stat = request->result.file.stat;
        free(steal_ptr(&writer->temporary));
    }
    writer->done(writer);
}

static void on_opened_for_writing(struct agent_request *request)
{
    on_written(request, true);
}

static void on_committed(struct agent_request *request)
{
    on_written(request, false);
}

void file_writer_open(struct file_writer *writer, struct agent *agent, const char *path,
                      uint32_t mode, file_writer_fn *done)
{
    struct agent_file file = { .kind = FILE_OPEN_WRITE, .user = "", .path = path, .mode = mode };

    *writer = (struct file_writer){ .agent = agent, .path = path, .done = done, .fd = -1 };
    agent_file(agent, &file, &writer->request, on_opened_for_writing);
}

int file_writer_add(struct file_writer *writer, const void *data, size_t length)
{
    if (fd_write_all(writer->fd, data, length) == 0)
        return 0;
    writer->sys_errno = errno;
    return file_error(&writer->err, writer->sys_errno, writer->path);
}

void file_writer_commit(struct file_writer *writer, uint32_t flags,
                        const struct protocol_version *expected, file_writer_fn *done)
{
    struct agent_file file = {
        .kind = FILE_COMMIT,
        .user = "",
        .path = writer->path,
        .second = writer->temporary,
        .flags = flags,
        .expected = expected ? *expected : (struct protocol_version){ 0 },
    };

    fd_close(steal_fd(&writer->fd));
    writer->done = done;
    agent_file(writer->agent, &file, &writer->request, on_committed);
}

static void on_abandoned(struct agent_request *request UNUSED)
{
}

void file_writer_fini(struct file_writer *writer, struct agent *agent)
{
    struct agent_file file = { .kind = FILE_COMMIT,
                               .user = "",
                               .path = writer->path,
                               .second = writer->temporary,
                               .flags = FILE_ABANDON };

    if (!writer->agent)
        return;
    agent_cancel_write(&writer->request, writer->path);
    fd_close(steal_fd(&writer->fd));
    if (writer->temporary && agent) {
        agent_file(agent, &file, &writer->request, on_abandoned);
        agent_cancel(&writer->request);
    }
    free(steal_ptr(&writer->temporary));
    writer->agent = NULL;
}
