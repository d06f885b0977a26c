/* SPDX-License-Identifier: Apache-2.0 */
#include "api/files/files.h"
#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void file_etag(const struct protocol_stat *stat, char etag[ETAG_SIZE])
{
    snprintf(etag, ETAG_SIZE, "\"%llx-%llx-%llx\"", (unsigned long long)stat->inode,
             (unsigned long long)stat->modified_us, (unsigned long long)stat->size);
}

static const char *type_name(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "link";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    default:
        return "device";
    }
}

void file_write_json(struct json_writer *json, const char *key, const char *path,
                     size_t path_length, const struct protocol_stat *stat)
{
    char text[ETAG_SIZE];

    json_begin_object(json, key);
    json_put_bytes(json, "path", path, path_length);
    json_put_text(json, "type", type_name(stat->mode));
    json_put_int(json, "size_bytes", (int64_t)stat->size);
    json_put_int(json, "size", (int64_t)stat->size);
    snprintf(text, sizeof(text), "%04o", stat->mode & 07777);
    json_put_text(json, "mode", text);
    json_put_int(json, "uid", stat->uid);
    json_put_int(json, "gid", stat->gid);
    json_put_time(json, "modified", stat->modified_us);
    file_etag(stat, text);
    json_put_text(json, "etag", text);
}

bool file_etag_is_in(const char *header, const char *etag)
{
    size_t length = strlen(etag);

    while (*header) {
        header += strspn(header, " \t,");
        if (*header == '*')
            return true;
        if (str_starts_with(header, "W/"))
            header += 2;
        if (strncmp(header, etag, length) == 0 && strspn(header + length, " \t,") > 0)
            return true;
        if (strcmp(header, etag) == 0)
            return true;
        header += strcspn(header, ",");
    }
    return false;
}

void file_write_entry(struct json_writer *json, const struct protocol_entry_view *entry)
{
    file_write_json(json, NULL, entry->path, entry->fixed.path_length, &entry->fixed.stat);
    if (entry->fixed.target_length)
        json_put_bytes(json, "target", entry->target, entry->fixed.target_length);
    if (entry->fixed.error) {
        json_begin_object(json, "error");
        json_put_text(json, "code", "unreadable");
        json_put_text(json, "message", strerror(entry->fixed.error));
        json_put_text(json, "hint", "");
        json_put_bool(json, "retryable", false);
        json_end_object(json);
    }
    json_end_object(json);
}

const char *file_path(const struct request *request, struct error *err)
{
    const char *path = request_parameter(request, "path");

    if (!str_is_empty(path) && strlen(path) < PROTOCOL_MAX_PATH)
        return path;
    if (str_is_empty(path))
        error_named(err, ERR_INVALID, "invalid_parameter", "parameter path is missing");
    else
        error_named(err, ERR_INVALID, "invalid_path", "the path is too long");
    return NULL;
}

/* --- a request ------------------------------------------------------------------------------- */

static void on_gone(struct request *request)
{
    struct file_request *files = request->state;

    request->on_gone = NULL;
    listing_fini(&files->listing);
    if (files->release)
        files->release(&files->call);
    file_source_fini(&files->source);
    file_writer_fini(&files->writer, files->call.in_use ? files->call.hold.agent : NULL);
    file_call_fini(&files->call);
    free(files);
}

static void on_error(struct file_call *call, const struct error *err)
{
    request_fail(file_request_of(call)->request, err);
}

/* An answer that is on its way is cut off. */
static void on_lost(struct file_call *call, const struct error *err)
{
    struct request *request = file_request_of(call)->request;

    if (http_exchange_status(request->exchange))
        http_exchange_abort(request->exchange);
    else
        request_fail(request, err);
}

void file_request_begin(struct request *request, const char *path, const char *second,
                        file_call_fn *start)
{
    struct file_request *files = xnew(struct file_request);

    files->request = request;
    files->second = second;
    files->call.path = path;
    files->call.on_error = on_error;
    files->call.on_lost = on_lost;
    request->state = files;
    request->on_gone = on_gone;
    file_call_begin(&files->call, request->session, start);
}
