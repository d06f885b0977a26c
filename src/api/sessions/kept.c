/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that were kept when a sandbox ended (keep.h), of live and of ended sessions: what there
 * is, all of it as a tar, and single files. The archive is read on a worker's thread.
 */

#include "api/files/files.h"
#include "base/alloc.h"
#include "base/str.h"
#include "core/metrics.h"
#include "core/sandbox/workspace_archive.h"
#include "loop/worker.h"
#include "wire/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 256 * 1024, LIST_MAXIMUM = 16 * 1024 * 1024 };

struct reading {
    struct job job;
    struct request *request;
    int fd;     /* owned; the archive */
    char *path; /* owned; the file that is wanted, NULL for a list */
    bool is_for_all;

    /* what was found */
    struct buffer list;
    struct json_writer json;
    bool is_found, is_directory;
    bool is_whole; /* its end was seen */
    uint64_t offset, size;
    const char *problem;
};

static void reading_free(struct reading *reading)
{
    fd_close(reading->fd);
    buffer_fini(&reading->list);
    free(reading->path);
    free(reading);
}

/* --- on a worker's thread --------------------------------------------------------------------- */

static const char *type_name(enum tar_type type)
{
    return type == TAR_DIRECTORY ? "directory" : type == TAR_LINK ? "symlink" : "file";
}

static void list_member(struct reading *reading, const struct tar_member *member, const char *path)
{
    json_begin_object(&reading->json, NULL);
    json_put_text(&reading->json, "path", path);
    json_put_text(&reading->json, "type", type_name(member->type));
    json_put_int(&reading->json, "size_bytes", (int64_t)member->size);
    json_put_int(&reading->json, "size", (int64_t)member->size);
    json_put_time(&reading->json, "modified", member->modified_s * 1000000);
    json_end_object(&reading->json);
}

/* `place` is where its content begins. */
static void take_member(struct reading *reading, const struct tar_member *member, uint64_t place)
{
    char path[TAR_PATH_SIZE];

    if (member->is_too_long || member->has_nul || tar_clean_path(member->path, path))
        return;
    if (!reading->path) {
        list_member(reading, member, path);
    } else if (str_equal(path, reading->path)) {
        reading->is_found = member->type == TAR_FILE;
        reading->is_directory = member->type == TAR_DIRECTORY;
        reading->offset = place;
        reading->size = member->size;
    }
}

/* False when there is no going on. */
static bool parse_piece(struct reading *reading, struct tar_parser *parser, const uint8_t *data,
                        size_t length, uint64_t place)
{
    size_t at = 0;

    for (;;) {
        const void *piece;
        size_t used, piece_length;

        switch (tar_parser_feed(parser, data + at, length - at, &used, &piece, &piece_length)) {
        case TAR_NEED_MORE:
            return true;
        case TAR_MEMBER:
            take_member(reading, &parser->member, place + at + used);
            break;
        case TAR_DATA:
        case TAR_MEMBER_END:
            break;
        case TAR_BAD:
            reading->problem = parser->problem;
            return false;
        case TAR_END:
            reading->is_whole = true;
            return false;
        }
        at += used;
    }
}

static void read_archive(struct job *job)
{
    struct reading *reading = container_of(job, struct reading, job);
    scoped(free) struct tar_parser *parser = xnew(struct tar_parser);
    scoped(free) uint8_t *piece = xmalloc(PIECE);
    uint64_t place = 0;
    ssize_t count = 0;
    struct stat status;

    tar_parser_init(parser);
    while (!reading->is_found && (count = pread(reading->fd, piece, PIECE, (off_t)place)) > 0) {
        if (!parse_piece(reading, parser, piece, (size_t)count, place))
            break;
        place += (uint64_t)count;
    }
    if (!reading->is_found && !reading->is_whole && !reading->problem)
        reading->problem = count < 0 ? strerror(errno) : "it is cut short";
    if (reading->is_found && fstat(reading->fd, &status) == 0 &&
        reading->offset + reading->size > (uint64_t)status.st_size)
        reading->problem = "it is cut short";
}

/* --- answers ---------------------------------------------------------------------------------- */

static void send_part(struct request *request, int fd, const char *type, uint64_t offset,
                      uint64_t size)
{
    metrics_add(request->core->metrics, METRIC_HTTP_REQUESTS, 2, 1);
    http_respond_start(request->exchange, 200, type, (int64_t)size);
    if (size > 0 && !request->is_head)
        http_respond_write_file(request->exchange, fd, (int64_t)offset, (size_t)size);
    http_respond_end(request->exchange);
}

static void answer_file(struct reading *reading)
{
    struct request *request = reading->request;
    struct error err = { 0 };

    if (reading->is_found) {
        send_part(request, reading->fd, "application/octet-stream", reading->offset, reading->size);
        return;
    }
    if (reading->is_directory)
        error_named(&err, ERR_CONFLICT, "is_a_directory", "\"%.200s\" is a directory",
                    reading->path);
    else
        error_named(&err, ERR_NOT_FOUND, "file_not_found",
                    "file \"%.200s\" is not among the kept files", reading->path);
    error_hint_known(&err, HINT_KEPT_FILES);
    request_fail(request, &err);
}

static void answer_list(struct reading *reading)
{
    struct stat status = { 0 };

    json_end_array(&reading->json);
    (void)fstat(reading->fd, &status);
    json_put_int(&reading->json, "size_bytes", status.st_size);
    json_put_int(&reading->json, "bytes", status.st_size);
    json_put_time(&reading->json, "kept_at",
                  status.st_mtim.tv_sec * 1000000 + status.st_mtim.tv_nsec / 1000);
    json_end_object(&reading->json);
    request_reply(reading->request, 200, &reading->list);
}

static void fail_damaged(struct request *request, const char *problem)
{
    struct error err = { 0 };

    error_named(&err, ERR_INTERNAL, "archive_damaged", "the archive cannot be read: %s", problem);
    error_hint(&err, "kept/%s.tar in the state directory is what is left of it",
               request->session_id);
    request_fail(request, &err);
}

static void answer_all(struct request *request, int fd)
{
    struct stat status;
    struct error err = { 0 };

    if (fstat(fd, &status) == 0) {
        send_part(request, fd, "application/x-tar", 0, (uint64_t)status.st_size);
        return;
    }
    error_sys(&err, "read the archive");
    request_fail(request, &err);
}

static void on_read(struct job *job)
{
    struct reading *reading = container_of(job, struct reading, job);

    if (!request_finish(reading->request)) {
        if (reading->problem || reading->list.overflowed) {
            fail_damaged(reading->request,
                         reading->problem ? reading->problem : "the archive has too many members");
        } else if (reading->is_for_all) {
            answer_all(reading->request, reading->fd);
        } else if (reading->path) {
            answer_file(reading);
        } else {
            answer_list(reading);
        }
    }
    reading_free(reading);
}

/* --- routes ----------------------------------------------------------------------------------- */

/* How long the archive is by the record of the session; 0 without one. */
static uint64_t recorded_bytes(const struct request *request)
{
    scoped(json_decref) json_t *record = NULL;
    const json_t *kept;

    if (request->session)
        return session_kept_bytes(request->session);
    record = json_read(request->ended_json, strlen(request->ended_json), NULL);
    kept = json_object_get(record, "kept");
    return (uint64_t)json_integer_value(json_object_get(kept, "size_bytes"));
}

static int open_archive(struct request *request)
{
    char name[ARCHIVE_NAME_SIZE];
    struct error err = { 0 };
    int fd;

    workspace_archive_name(request->session_id, name);
    fd = openat(request->core->parts.state_dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        return fd;
    if (errno != ENOENT) {
        error_sys(&err, "open the archive");
        request_fail(request, &err);
        return -1;
    }
    if (recorded_bytes(request)) {
        fail_damaged(request, "it is missing");
        return -1;
    }
    error_named(&err, ERR_NOT_FOUND, "nothing_kept", "no files of session %s were kept",
                request->session_id);
    error_hint(&err, "files are kept at the end of a sandbox if keep_files is on");
    request_fail(request, &err);
    return -1;
}

static void read_kept(struct request *request, int fd, const char *path, bool for_all)
{
    struct reading *reading;

    if (fd < 0)
        return;
    reading = xnew(struct reading);
    reading->is_for_all = for_all;
    reading->request = request;
    reading->fd = fd;
    reading->path = path ? xstrdup(path) : NULL;
    reading->list = BUFFER_INIT(LIST_MAXIMUM);
    reading->json = JSON_WRITER(&reading->list);
    json_begin_object(&reading->json, NULL);
    json_begin_array(&reading->json, "files");
    reading->job = (struct job){ .run = read_archive, .done = on_read };
    request_begin(request);
    if (request->core->parts.worker) {
        worker_submit(request->core->parts.worker, &reading->job);
        return;
    }
    read_archive(&reading->job);
    on_read(&reading->job);
}

static void get_kept(struct request *request)
{
    read_kept(request, open_archive(request), NULL, false);
}

static void get_kept_file(struct request *request)
{
    char clean[TAR_PATH_SIZE];
    struct error err = { 0 };
    const char *path = file_path(request, &err);
    const char *problem = path && strlen(path) < sizeof(clean) ? tar_clean_path(path, clean)
                                                               : "it is too long";

    if (path && problem)
        error_named(&err, ERR_INVALID, "invalid_parameter", "parameter path: %s", problem);
    if (err.code)
        request_fail(request, &err);
    else
        read_kept(request, open_archive(request), clean, false);
}

/* An archive of another length than the recorded one is damaged, or newer than its record: it is
 * read before it is sent. */
static void get_kept_archive(struct request *request)
{
    scoped(fd_close) int fd = open_archive(request);
    struct stat status;

    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && (uint64_t)status.st_size == recorded_bytes(request))
        answer_all(request, fd);
    else
        read_kept(request, steal_fd(&fd), NULL, true);
}

static const struct route_parameter file_parameters[] = {
    { "path", "string", "path relative to the workspace, as listed", true },
    { 0 },
};

static const struct route_answer list_answers[] = {
    { 200, "{files: [{path, type, size, modified}], bytes, kept_at}" },
    { 404, "session_not_found, or nothing_kept" },
    { 0 },
};

static const struct route_answer file_answers[] = {
    { 200, "its bytes" },
    { 400, "the path leads out of the workspace" },
    { 404, "session_not_found, nothing_kept or file_not_found" },
    { 409, "is_a_directory" },
    { 0 },
};

static const struct route_answer archive_answers[] = {
    { 200, "application/x-tar" },
    { 404, "session_not_found, or nothing_kept" },
    { 0 },
};

#define KEPT "/api/v1/sessions/{session}/kept"

const struct route api_kept_routes[] = {
    { HTTP_GET, KEPT, get_kept, "List the files kept at the end of a sandbox",
      .session = ROUTE_ANY_SESSION, .answers = list_answers },
    { HTTP_GET, KEPT "/archive", get_kept_archive, "Read all kept files as a tar archive",
      .session = ROUTE_ANY_SESSION, .answers = archive_answers },
    { HTTP_GET, KEPT "/file", get_kept_file, "One of them", .session = ROUTE_ANY_SESSION,
      .parameters = file_parameters, .answers = file_answers },
    { 0 },
};
