/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of files as Server-Sent Events. Watching is looking: it does not keep a session from
 * being idle, and it ends with the sandbox.
 */

#include "api/files/files.h"
#include "base/alloc.h"
#include "core/core.h"
#include "core/sandbox/sandbox.h"
#include "face/events.h"
#include "wire/http/sse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { PIECE = 32 * 1024 };

struct watch {
    struct file_call *call;
    struct io_watch pipe; /* its fd is owned; -1 without */
    struct buffer bytes;
    struct event_answer answer;
    char reason[END_TEXT_SIZE]; /* how the sandbox ended; "" before */
};

static void release(struct file_call *call)
{
    struct watch *watch = file_request_of(call)->extra;

    event_answer_fini(&watch->answer);
    io_watch_stop(&watch->pipe);
    fd_close(watch->pipe.fd);
    buffer_fini(&watch->bytes);
    free(watch);
}

static const char *change_name(uint64_t mask)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } names[] = {
        { IN_Q_OVERFLOW, "overflow" },   { IN_CREATE, "created" },    { IN_DELETE, "deleted" },
        { IN_MOVED_FROM, "moved_from" }, { IN_MOVED_TO, "moved_to" }, { IN_CLOSE_WRITE, "written" },
        { IN_MODIFY, "modified" },       { IN_ATTRIB, "attributes" }, { IN_DELETE_SELF, "deleted" },
        { IN_MOVE_SELF, "moved_from" },  { IN_UNMOUNT, "deleted" },
    };

    for (size_t i = 0; i < ARRAY_LENGTH(names); i++)
        if (mask & names[i].bit)
            return names[i].name;
    return "attributes";
}

static void send_event(struct watch *watch, const char *name, struct buffer *data)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256 * 1024);

    if (sse_write(&text, NULL, name, data->data, data->length) == 0)
        http_respond_write(file_request_of(watch->call)->request->exchange, text.data, text.length);
}

static void send_note(struct watch *watch, const struct protocol_note_view *note)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(128 * 1024);
    struct json_writer json = JSON_WRITER(&data);

    json_begin_object(&json, NULL);
    if (note->fixed.kind == NOTE_LAST) {
        json_put_int(&json, "directories", (int64_t)note->fixed.number);
        json_put_bool(&json, "truncated", note->fixed.flags & NOTE_CUT);
    } else {
        json_put_bytes(&json, "path", note->path, note->fixed.path_length);
        json_put_bool(&json, "is_directory", note->fixed.number & IN_ISDIR);
    }
    json_end_object(&json);
    send_event(watch, note->fixed.kind == NOTE_LAST ? "watching" : change_name(note->fixed.number),
               &data);
}

/* False when what init says makes no sense. */
static bool take_notes(struct watch *watch)
{
    struct protocol_note_view note;
    long used;

    while ((used = protocol_note_decode(watch->bytes.data, watch->bytes.length, &note)) > 0) {
        if (note.fixed.error)
            return false;
        send_note(watch, &note);
        buffer_consume(&watch->bytes, (size_t)used);
    }
    return used == 0;
}

/* Events that the sandbox has sent are still in the pipe: the watch ends at the end of the pipe. */
static void on_lost(struct file_call *call, const struct error *err UNUSED)
{
    struct watch *watch = file_request_of(call)->extra;

    end_reason_text(&call->hold.lost, watch->reason);
}

/* How the session or its sandbox ended, as far as it is known by now. */
static const char *find_reason(const struct watch *watch, char text[END_TEXT_SIZE])
{
    const struct request *request = file_request_of(watch->call)->request;
    const struct session *session = map_get(&request->core->sessions_by_id, request->session_id);
    const struct end_reason *why = !session ? NULL
                                   : session_end_reason(session)->kind != END_NONE
                                       ? session_end_reason(session)
                                   : session_sandbox(session)
                                       ? sandbox_end(session_sandbox(session))
                                       : session_previous_end(session);

    if (*watch->reason)
        return watch->reason;
    return why ? end_reason_text_or_null(why, text) : "session ended";
}

static void send_end(struct watch *watch)
{
    scoped(buffer_fini) struct buffer data = BUFFER_INIT(1024);
    struct json_writer json = JSON_WRITER(&data);
    char text[END_TEXT_SIZE];

    json_begin_object(&json, NULL);
    json_put_text(&json, "reason", find_reason(watch, text));
    json_end_object(&json);
    send_event(watch, "end", &data);
}

static void on_notes(struct io_watch *pipe, unsigned events UNUSED)
{
    struct watch *watch = container_of(pipe, struct watch, pipe);
    struct http_exchange *exchange = file_request_of(watch->call)->request->exchange;
    void *place = buffer_reserve(&watch->bytes, PIECE);
    ssize_t count = place ? read(pipe->fd, place, PIECE) : 0;

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count > 0)
        buffer_advance(&watch->bytes, (size_t)count);
    if (count <= 0 || !take_notes(watch)) {
        io_watch_stop(pipe);
        event_answer_fini(&watch->answer);
        send_end(watch);
        http_respond_end(exchange);
        return;
    }
    if (http_respond_pending(exchange) >= HTTP_HIGH_WATER)
        io_watch_stop(pipe);
}

static void on_drain(struct http_exchange *exchange)
{
    struct request *request = http_exchange_user(exchange);
    struct file_call *call = file_request_call(request);
    struct watch *watch = file_request_of(call)->extra;

    io_watch_start(&watch->pipe, request->core->loop, watch->pipe.fd, IO_READ, on_notes);
}

static void on_opened(struct file_call *call)
{
    struct request *request = file_request_of(call)->request;
    struct watch *watch = xnew(struct watch);

    watch->call = call;
    watch->bytes = BUFFER_INIT(4 * PIECE);
    watch->pipe.fd = call->operation.result.file.fd;
    event_answer_init(&watch->answer, request);
    file_request_of(call)->extra = watch;
    file_request_of(call)->release = release;
    call->on_lost = on_lost;
    session_hold_weaken(&call->hold);

    http_respond_on_drain(request->exchange, on_drain);
    event_answer_start(&watch->answer);
    if (request->is_head) {
        event_answer_end(&watch->answer);
        return;
    }
    io_watch_start(&watch->pipe, request->core->loop, watch->pipe.fd, IO_READ, on_notes);
}

static void start_watch(struct file_call *call)
{
    struct agent_file file = { .kind = FILE_WATCH, .user = "", .path = call->path };
    bool recursive = false;

    (void)request_parameter_bool(file_request_of(call)->request, "recursive", &recursive, NULL);
    if (recursive)
        file.flags = FILE_RECURSIVE;
    file_call_do(call, &file, on_opened);
}

static void get_watch(struct request *request)
{
    const char *path = request_parameter(request, "path");
    struct error err = { 0 };
    bool recursive;

    if ((path && !file_path(request, &err)) ||
        request_parameter_bool(request, "recursive", &recursive, &err) < 0)
        request_fail(request, &err);
    else
        file_request_begin(request, path ? path : ".", NULL, start_watch);
}

static const struct route_parameter parameters[] = {
    { "path", "string", "path of the directory; the workspace by default" },
    { "recursive", "boolean", "1: watch subdirectories too, 1024 at most" },
    { 0 },
};

static const struct route_answer answers[] = {
    { 200, "text/event-stream: watching, then created, modified, written, deleted, moved_from, "
           "moved_to, attributes, overflow; end with the reason" },
    { 404, "session_not_found, file_not_found, not_a_directory" },
    { 429, "too_many_file_operations: four watches for each session" },
    { 0 },
};

const struct route api_watch_routes[] = {
    { HTTP_GET, "/api/v1/sessions/{session}/files/watch", get_watch, "Follow changes of files",
      .session = ROUTE_LIVE_SESSION, .parameters = parameters, .answers = answers },
    { 0 },
};
