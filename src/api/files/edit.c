/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replacing a text in a file, exactly: the file is read, and replaced as a whole if it has not
 * changed until then. A text that is not there exactly once changes nothing.
 */

#include "api/files/files.h"
#include "base/alloc.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

enum { EDIT_MAXIMUM = 16 * 1024 * 1024 };

struct edit_body {
    const char *path, *old, *new;
    bool replace_all;
};

struct edit {
    struct edit_body body; /* borrowed from the request */
    struct file_reader reader;
    struct file_writer writer;
    struct file_call *call;
    size_t count;
    size_t replaced; /* bytes of the old content that are done with */
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
    struct edit *edit = file_request_of(call)->extra;

    file_reader_fini(&edit->reader);
    file_writer_fini(&edit->writer, call->in_use ? call->hold.agent : NULL);
    free(edit);
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

/* The next piece: what is before a match and what takes its place, or the rest of the file. 1 when
 * there is more, 0 at the end, -1 when it has failed. */
static int write_piece(struct edit *edit)
{
    const uint8_t *at = edit->reader.content.data + edit->replaced;
    size_t left = edit->reader.content.length - edit->replaced;
    size_t old_length = strlen(edit->body.old);
    const uint8_t *match = left ? memmem(at, left, edit->body.old, old_length) : NULL;

    if (!match)
        return file_writer_add(&edit->writer, at, left);
    if (file_writer_add(&edit->writer, at, (size_t)(match - at)) < 0 ||
        file_writer_add(&edit->writer, edit->body.new, strlen(edit->body.new)) < 0)
        return -1;
    edit->replaced += (size_t)(match - at) + old_length;
    return 1;
}

static void fail_count(struct file_call *call, size_t count)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    struct error err = { 0 };

    error_named(&err, ERR_CONFLICT, "match_count",
                "%.200s contains the old text %zu times, not once", call->path, count);
    error_hint(&err, count ? "give more of the text around it, or replace_all"
                           : "read the file again: spaces and line ends count");
    json_begin_object(&json, NULL);
    request_write_error(file_request_of(call)->request, &json, "error", &err);
    json_put_int(&json, "count", (int64_t)count);
    json_end_object(&json);
    json_end_object(&json);
    request_reply(file_request_of(call)->request, 409, &text);
}

/* --- the steps -------------------------------------------------------------------------------- */

static void on_committed(struct file_writer *writer)
{
    struct edit *edit = container_of(writer, struct edit, writer);
    struct file_call *call = edit->call;
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64 * 1024);
    struct json_writer json = JSON_WRITER(&text);

    if (writer->err.code) {
        request_fail(file_request_of(call)->request, &writer->err);
        return;
    }
    file_write_json(&json, NULL, call->path, strlen(call->path), &writer->stat);
    json_put_int(&json, "replacements", (int64_t)edit->count);
    json_end_object(&json);
    request_reply(file_request_of(call)->request, 200, &text);
}

static void write_replaced(struct file_writer *writer)
{
    struct edit *edit = container_of(writer, struct edit, writer);
    struct protocol_version expected = file_version(&edit->reader.stat);
    int result = writer->err.code ? -1 : 1;

    while (result > 0 && !file_writer_is_full(writer))
        result = write_piece(edit);
    if (result < 0)
        request_fail(file_request_of(edit->call)->request, &writer->err);
    else if (result == 0)
        file_writer_commit(writer, edit->call->hold.agent, FILE_EXPECT, &expected, on_committed);
}

static void on_opened(struct file_writer *writer)
{
    writer->on_room = write_replaced;
    write_replaced(writer);
}

static void on_read(struct file_reader *reader)
{
    struct edit *edit = container_of(reader, struct edit, reader);
    struct file_call *call = edit->call;

    if (reader->err.code) {
        request_fail(file_request_of(call)->request, &reader->err);
        return;
    }
    edit->count = count_matches(&reader->content, edit->body.old);
    if (edit->count == 1 || (edit->count && edit->body.replace_all))
        file_writer_open(&edit->writer, call->hold.agent, call->path, 0, on_opened);
    else
        fail_count(call, edit->count);
}

static void start_edit(struct file_call *call)
{
    struct edit *edit = xnew(struct edit);

    (void)request_decode(file_request_of(call)->request, &edit->body, NULL);
    edit->call = call;
    file_request_of(call)->extra = edit;
    file_request_of(call)->release = release;
    file_reader_start(&edit->reader, call->hold.agent, call->path, EDIT_MAXIMUM, true, on_read);
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

static void post_edit(struct request *request)
{
    struct edit_body body = { 0 };
    struct error err = { 0 };

    if (request_decode(request, &body, &err) < 0 || check_body(&body, &err) < 0)
        request_fail(request, &err);
    else
        file_request_begin(request, body.path, NULL, start_edit);
}

static const struct route_answer answers[] = {
    { 200, "the file as it is now, and replacements" },
    { 404, "session_not_found, file_not_found" },
    { 409, "match_count: error.count is the number of matches; is_a_directory, is_a_link" },
    { 412, "precondition_failed: the file was changed in the meantime" },
    { 413, "file_too_large: over 16 MiB" },
    { 0 },
};

const struct route api_edit_routes[] = {
    { HTTP_POST, "/api/v1/sessions/{session}/files/edit", post_edit,
      "Replace a text that occurs exactly once in a file", .body = ROUTE_JSON_BODY,
      .session = ROUTE_LIVE_SESSION, .fields = fields, .field_count = ARRAY_LENGTH(fields),
      .answers = answers },
    { 0 },
};
