/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/files.h"

#include "agent/files_private.h"
#include "base/macros.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

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
    { ENOSYS, ERR_CONFLICT, "not_a_file", "the kernel cannot read or write it" }, /* gVisor */
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
                           "session limits the size of its files, which is at most half of its "
                           "memory where they are kept in memory");
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

bool files_pass(const struct agent *agent)
{
    return !agent_has_streams(agent);
}

void file_request_error(const struct agent_request *request, const char *path,
                        struct error *out_err, int *out_errno)
{
    *out_err = request->err;
    *out_errno = request->sys_errno;
    if (request->sys_errno)
        file_error(out_err, request->sys_errno, path);
}

/* --- reading --------------------------------------------------------------------------------- */

enum { PIECE = 64 * 1024 };

static void reader_fail(struct file_reader *reader, int number)
{
    reader->sys_errno = number;
    file_error(&reader->err, number, reader->path);
    reader->done(reader);
}

/* 1 with a piece, 0 at the end, -1 with errno, which is EFBIG when there is more than the maximum.
 */
static int take_piece(struct file_reader *reader)
{
    struct buffer *content = &reader->content;
    size_t room = MIN((size_t)PIECE, content->maximum - content->length);
    char one_more; /* of a full buffer: is this the end of the file? */
    ssize_t count = file_source_read(
        &reader->source, room ? buffer_reserve(content, room) : (void *)&one_more, room ? room : 1);

    if (count <= 0)
        return (int)count;
    if (!room) {
        errno = EFBIG;
        return -1;
    }
    buffer_advance(content, (size_t)count);
    return 1;
}

static void take_pieces(struct file_source *source)
{
    struct file_reader *reader = container_of(source, struct file_reader, source);
    int result;

    do {
        result = take_piece(reader);
    } while (result > 0 || (result < 0 && errno == EINTR));
    if (result == 0)
        reader->done(reader);
    else if (errno == EAGAIN)
        file_source_wait(source, take_pieces);
    else
        reader_fail(reader, errno);
}

static void on_source(struct file_source *source)
{
    struct file_reader *reader = container_of(source, struct file_reader, source);
    uint64_t inode = reader->stat.inode;

    reader->err = source->err;
    reader->sys_errno = source->sys_errno;
    reader->stat = source->stat;
    if (reader->err.code)
        reader->done(reader);
    else if (inode && inode != reader->stat.inode)
        reader_fail(reader, ESTALE);
    else
        take_pieces(source);
}

static void on_looked_at(struct agent_request *request)
{
    struct file_reader *reader = container_of(request, struct file_reader, request);

    file_request_error(request, reader->path, &reader->err, &reader->sys_errno);
    if (reader->err.code) {
        reader->done(reader);
        return;
    }
    reader->stat = request->result.file.stat;
    if (!S_ISLNK(reader->stat.mode)) {
        file_source_open(&reader->source, reader->agent, reader->path, NULL, on_source);
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
        file_source_open(&reader->source, agent, path, NULL, on_source);
}

void file_reader_fini(struct file_reader *reader)
{
    agent_cancel(&reader->request);
    file_source_fini(&reader->source);
    buffer_fini(&reader->content);
}
