/*
 * Replacing a text in a file, exactly: the file is read, and replaced as a whole if it has not
 * changed until then. A text that is not there exactly once changes nothing.
 */

#include "api/files.h"
#include "base/alloc.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EDIT_MAXIMUM = 16 * 1024 * 1024 };

struct edit_body {
    const char *path, *old, *new;
    bool replace_all;
};

struct edit {
    struct edit_body body; /* borrowed from the request */
    struct protocol_stat stat;
    struct buffer content;
    size_t count;
};

#define BODY(name) offsetof(struct edit_body, name)

static const struct json_field fields[] = {
    { "path", JSON_KIND_TEXT, BODY(path), .required = true, .max_length = PROTOCOL_MAX_PATH - 1 },
    { "old", JSON_KIND_TEXT, BODY(old), .required = true, .max_length = EDIT_MAXIMUM },
    { "new", JSON_KIND_TEXT, BODY(new), .required = true, .max_length = EDIT_MAXIMUM },
    { "replace_all", JSON_KIND_BOOL, BODY(replace_all) },
};

static void release(struct file_call *call)
{
    struct edit *edit = call->extra;

    buffer_fini(&edit->content);
    free(edit);
}

static void fail_changed(struct file_call *call)
{
    file_call_fail(call, ESTALE, call->path);
}

/* --- the text --------------------------------------------------------------------------------- */

static size_t count_matches(const struct buffer *content, const char *text)
{
    const uint8_t *at = content->data;
    const uint8_t *end = content->data + content->length;
    size_t length = strlen(text);
    size_t count = 0;

    while (at < end && (at = memmem(at, (size_t)(end - at), text, length))) {
        at += length;
        count++;
    }
    return count;
}

static int write_replaced(int fd, const struct edit *edit)
{
    const uint8_t *at = edit->content.data;
    const uint8_t *end = at + edit->content.length;
    size_t old_length = strlen(edit->body.old);
    size_t new_length = strlen(edit->body.new);
    const uint8_t *match;

    while (at < end && (match = memmem(at, (size_t)(end - at), edit->body.old, old_length))) {
        if (file_write(fd, at, (size_t)(match - at)) < 0 ||
            file_write(fd, edit->body.new, new_length) < 0)
            return -1;
        at = match + old_length;
    }
    return file_write(fd, at, (size_t)(end - at));
}

static void fail_count(struct file_call *call, size_t count)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    struct error err = { 0 };

    error_named(&err, ERR_CONFLICT, "match_count", "%.200s has the old text %zu times, not once",
                call->path, count);
    error_hint(&err, count ? "give more of the text around it, or replace_all"
                           : "read the file again: spaces and line ends count");
    json_begin_object(&json, NULL);
    api_write_error(&json, "error", &err);
    json_put_int(&json, "count", (int64_t)count);
    json_end_object(&json);
    json_end_object(&json);
    api_reply(call->request, 409, &text);
}

/* --- the steps -------------------------------------------------------------------------------- */

static void on_committed(struct file_call *call)
{
    struct edit *edit = call->extra;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    free(steal_ptr(&call->temporary));
    file_write_json(&json, NULL, call->path, strlen(call->path), &call->operation.result.file.stat);
    json_put_int(&json, "replacements", (int64_t)edit->count);
    json_end_object(&json);
    api_reply(call->request, 200, &text);
}

static void on_opened_for_writing(struct file_call *call)
{
    struct edit *edit = call->extra;
    struct agent_file file = { .kind = FILE_COMMIT,
                               .user = "",
                               .path = call->path,
                               .flags = FILE_EXPECT,
                               .expected = file_version(&edit->stat) };

    call->fd = call->operation.result.file.fd;
    call->temporary = xstrdup(call->operation.result.file.temporary);
    if (write_replaced(call->fd, edit) < 0) {
        file_call_fail(call, errno, call->path);
        return;
    }
    fd_close(steal_fd(&call->fd));
    file.second = call->temporary;
    file_call_do(call, &file, on_committed);
}

static int read_content(int fd, struct buffer *content)
{
    for (;;) {
        void *place = buffer_reserve(content, 64 * 1024);
        ssize_t count;

        if (!place) {
            errno = EFBIG;
            return -1;
        }
        count = read(fd, place, 64 * 1024);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return (int)count;
        buffer_advance(content, (size_t)count);
    }
}

static void on_opened_for_reading(struct file_call *call)
{
    struct edit *edit = call->extra;
    scoped(fd_close) int fd = call->operation.result.file.fd;
    struct agent_file file = { .kind = FILE_OPEN_WRITE, .user = "", .path = call->path };

    if (call->operation.result.file.stat.inode != edit->stat.inode) {
        fail_changed(call);
        return;
    }
    edit->stat = call->operation.result.file.stat;
    edit->content = BUFFER_INIT(EDIT_MAXIMUM + 64 * 1024);
    if (read_content(fd, &edit->content) < 0) {
        file_call_fail(call, errno, call->path);
        return;
    }
    edit->count = count_matches(&edit->content, edit->body.old);
    if (edit->count == 1 || (edit->count && edit->body.replace_all))
        file_call_do(call, &file, on_opened_for_writing);
    else
        fail_count(call, edit->count);
}

static void on_stat(struct file_call *call)
{
    struct edit *edit = call->extra;
    struct agent_file file = { .kind = FILE_OPEN_READ, .user = "", .path = call->path };
    struct error err = { 0 };

    edit->stat = call->operation.result.file.stat;
    if (S_ISLNK(edit->stat.mode)) {
        error_named(&err, ERR_CONFLICT, "is_a_link", "%.200s is a symbolic link", call->path);
        error_hint(&err, "edit the file that it leads to: files/list tells its target");
        api_fail(call->request, &err);
        return;
    }
    file_call_do(call, &file, on_opened_for_reading);
}

static void start_edit(struct file_call *call)
{
    struct agent_file file = {
        .kind = FILE_STAT, .user = "", .path = call->path, .flags = FILE_NO_FOLLOW
    };
    struct edit *edit = xnew(struct edit);

    (void)api_decode(call->request, &edit->body, NULL);
    call->extra = edit;
    call->release = release;
    file_call_do(call, &file, on_stat);
}

static int check_body(const struct edit_body *body, struct error *err)
{
    if (!*body->path || !*body->old)
        return error_named(err, ERR_INVALID, "invalid_field", "%s must not be empty",
                           *body->path ? "old" : "path");
    if (strcmp(body->old, body->new) == 0)
        return error_named(err, ERR_INVALID, "invalid_field", "old and new are the same");
    return 0;
}

static void post_edit(struct api_request *request)
{
    struct edit_body body = { 0 };
    struct error err = { 0 };

    if (api_decode(request, &body, &err) < 0 || check_body(&body, &err) < 0)
        api_fail(request, &err);
    else
        file_call_begin(request, body.path, NULL, start_edit);
}

static const struct api_answer answers[] = {
    { 200, "the file as it is now, and replacements" },
    { 404, "session_not_found, file_not_found" },
    { 409, "match_count: error.count says how often the text is there; is_a_directory, is_a_link" },
    { 412, "precondition_failed: it was changed meanwhile" },
    { 413, "file_too_large: over 16 MiB" },
    { 0 },
};

const struct api_route api_edit_routes[] = {
    { HTTP_POST, "/api/v1/sessions/{session}/files/edit", post_edit,
      "Replace a text that a file has exactly once", .body = API_JSON_BODY,
      .session = API_LIVE_SESSION, .fields = fields, .field_count = ARRAY_LENGTH(fields),
      .answers = answers },
    { 0 },
};
