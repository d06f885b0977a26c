/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/fd.h"
#include "base/str.h"
#include "core/core.h"
#include "e2b/envd/filesystem.h"
#include "e2b/envd/watch_private.h"

#include <errno.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

enum { PIECE = 32 * 1024 };

static void read_on(struct watch *watch);

/* --- the end ---------------------------------------------------------------------------------- */

static void end(struct watch *watch, int number, const struct error *err)
{
    if (watch->is_over)
        return;
    watch->is_over = true;
    io_watch_stop(&watch->pipe);
    watch->on_end(watch, number, err);
}

static struct watch *watch_of(struct file_call *call)
{
    return container_of(call, struct watch, call);
}

static void on_error(struct file_call *call, const struct error *err)
{
    end(watch_of(call), 0, err);
}

static bool on_failure(struct file_call *call, int number)
{
    end(watch_of(call), number, NULL);
    return true;
}

static void on_lost(struct file_call *call, const struct error *err UNUSED)
{
    end(watch_of(call), 0, NULL);
}

/* --- events ----------------------------------------------------------------------------------- */

static bool wants_entry(const struct watch *watch, const char *type)
{
    return watch->has_entries &&
           (str_equal(type, "EVENT_TYPE_CREATE") || str_equal(type, "EVENT_TYPE_WRITE") ||
            str_equal(type, "EVENT_TYPE_CHMOD"));
}

static void tell(struct watch *watch, const json_t *event, const struct describe *describe)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    const char *name = json_string_value(json_object_get(event, "name"));
    struct file_description description;

    json_begin_object(&json, NULL);
    json_put_text(&json, "name", name);
    json_put_text(&json, "type", json_string_value(json_object_get(event, "type")));
    if (describe && !describe->err.code && describe_first(describe, &description)) {
        scoped(free) char *base = envd_path_join(describe->directory, watch->path);
        scoped(free) char *path = envd_path_join(base, name);

        entry_write(&json, "entry", path, &description);
    }
    json_end_object(&json);
    watch->on_event(watch, &text);
}

static void tell_waiting(struct watch *watch);

/* A path that is gone again has no entry. */
static void on_described(struct describe *describe)
{
    struct watch *watch = container_of(describe, struct watch, describe);
    scoped(json_decref) json_t *event = json_incref(json_array_get(watch->waiting, 0));

    json_array_remove(watch->waiting, 0);
    tell(watch, event, describe);
    describe_fini(describe);
    tell_waiting(watch);
}

static void describe_next(struct watch *watch, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "name"));
    scoped(free) char *path = path_join(watch->path, name);

    describe_start(&watch->describe, watch->loop, watch->call.hold.agent, watch->user, path, 0,
                   on_described);
}

/* In their order: one that needs an entry keeps those behind it waiting. */
static void tell_waiting(struct watch *watch)
{
    while (json_array_size(watch->waiting) && !watch->describe.done && !watch->is_over) {
        scoped(json_decref) json_t *event = json_incref(json_array_get(watch->waiting, 0));

        if (wants_entry(watch, json_string_value(json_object_get(event, "type"))) &&
            watch->call.in_use && watch->call.hold.agent) {
            describe_next(watch, event);
            return;
        }
        json_array_remove(watch->waiting, 0);
        tell(watch, event, NULL);
    }
    if (!watch->is_over)
        read_on(watch);
}

static void add_event(struct watch *watch, const struct protocol_note_view *note, const char *type)
{
    json_t *name = note->fixed.path_length ? json_stringn(note->path, note->fixed.path_length)
                                           : json_string(".");

    if (name) /* a name that is not UTF-8 cannot be told */
        json_array_append_new(watch->waiting, json_pack("{s:o, s:s}", "name", name, "type", type));
}

/* A file that was uploaded takes its name when it is complete: it is new, its owner and
 * permissions are set, and it is written. */
static void add_events(struct watch *watch, const struct protocol_note_view *note)
{
    uint64_t mask = note->fixed.number;
    bool is_upload = mask & IN_MOVED_TO && mask & IN_CLOSE_WRITE;

    if (mask & (IN_CREATE | IN_MOVED_TO))
        add_event(watch, note, "EVENT_TYPE_CREATE");
    if (mask & IN_ATTRIB || is_upload)
        add_event(watch, note, "EVENT_TYPE_CHMOD");
    if (mask & IN_MODIFY || is_upload)
        add_event(watch, note, "EVENT_TYPE_WRITE");
    if (mask & (IN_DELETE | IN_DELETE_SELF | IN_UNMOUNT))
        add_event(watch, note, "EVENT_TYPE_REMOVE");
    if (mask & (IN_MOVED_FROM | IN_MOVE_SELF))
        add_event(watch, note, "EVENT_TYPE_RENAME");
}

/* --- notes of init ---------------------------------------------------------------------------- */

/* 0; an errno that init tells; or -1 when its notes make no sense. */
static int take_notes(struct watch *watch)
{
    struct protocol_note_view note;
    long used = 0;

    while (!watch->is_over &&
           (used = protocol_note_decode(watch->bytes.data, watch->bytes.length, &note)) > 0) {
        if (note.fixed.error)
            return note.fixed.error;
        if (note.fixed.kind == NOTE_CHANGED) {
            add_events(watch, &note);
        } else if (note.fixed.kind == NOTE_LAST && !watch->is_on) {
            watch->is_on = true;
            watch->on_start(watch);
        }
        buffer_consume(&watch->bytes, (size_t)used);
    }
    return used < 0 ? -1 : 0;
}

static void on_notes(struct io_watch *pipe, unsigned events UNUSED)
{
    struct watch *watch = container_of(pipe, struct watch, pipe);
    void *place = buffer_reserve(&watch->bytes, PIECE);
    ssize_t count = place ? read(pipe->fd, place, PIECE) : 0;
    int result = 0;

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (count > 0) {
        buffer_advance(&watch->bytes, (size_t)count);
        result = take_notes(watch);
    }
    tell_waiting(watch);
    if (result || count <= 0)
        end(watch, result > 0 ? result : 0, NULL);
}

static void read_on(struct watch *watch)
{
    bool may_read = !watch->is_held_back && json_array_size(watch->waiting) < WATCH_EVENTS;

    if (watch->pipe.fd < 0 || watch->is_over)
        return;
    if (may_read)
        io_watch_start(&watch->pipe, watch->loop, watch->pipe.fd, IO_READ, on_notes);
    else
        io_watch_stop(&watch->pipe);
}

void watch_hold_back(struct watch *watch, bool is_held_back)
{
    watch->is_held_back = is_held_back;
    read_on(watch);
}

bool watch_is_behind(const struct watch *watch)
{
    return json_array_size(watch->waiting) > 0;
}

/* --- life ------------------------------------------------------------------------------------- */

static void on_opened(struct file_call *call)
{
    struct watch *watch = watch_of(call);

    watch->pipe.fd = call->operation.result.file.fd;
    call->operation.result.file.fd = -1;
    session_hold_weaken(&call->hold);
    read_on(watch);
}

static void start(struct file_call *call)
{
    struct watch *watch = watch_of(call);
    struct agent_file file = { .kind = FILE_WATCH,
                               .user = watch->user,
                               .path = watch->path,
                               .flags = FILE_BY_ROOT |
                                        (watch->is_recursive ? FILE_RECURSIVE : 0U) };

    if (!envd_is_known(call->hold.agent))
        end(watch, 0, &(struct error){ .code = ERR_UNAVAILABLE, .message = ENVD_UNKNOWN });
    else
        file_call_do(call, &file, on_opened);
}

bool watch_begin(struct watch *watch, struct rpc *rpc)
{
    const char *path = json_string_value(json_object_get(rpc->input, "path"));
    const char *for_init = envd_path_for_init(path ? path : "");
    struct session *session;

    watch->pipe.fd = -1;
    if (!for_init || strlen(for_init) >= PROTOCOL_MAX_PATH) {
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "the path is too long, or another user's home");
        return false;
    }
    session = rpc_session(rpc);
    if (!session)
        return false;
    watch->loop = rpc->request->core->loop;
    watch->user = xstrdup(rpc->user);
    watch->path = xstrdup(for_init);
    watch->is_recursive = json_is_true(json_object_get(rpc->input, "recursive"));
    watch->has_entries = json_is_true(json_object_get(rpc->input, "includeEntry"));
    watch->bytes = BUFFER_INIT(4 * PIECE);
    watch->waiting = json_array();
    watch->call.path = watch->path;
    watch->call.on_error = on_error;
    watch->call.on_failure = on_failure;
    watch->call.on_lost = on_lost;
    file_call_begin(&watch->call, session, start);
    return true;
}

void watch_fini(struct watch *watch)
{
    watch->is_over = true;
    io_watch_stop(&watch->pipe);
    fd_close(steal_fd(&watch->pipe.fd));
    describe_fini(&watch->describe);
    file_call_fini(&watch->call);
    buffer_fini(&watch->bytes);
    json_decref(watch->waiting);
    free(watch->user);
    free(watch->path);
}

/* --- WatchDir --------------------------------------------------------------------------------- */

struct stream {
    struct rpc *rpc;
    struct watch watch;
};

static void stream_release(struct rpc *rpc)
{
    struct stream *stream = rpc->state;

    watch_fini(&stream->watch);
    free(stream);
}

static void on_stream_start(struct watch *watch)
{
    struct stream *stream = container_of(watch, struct stream, watch);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(64);

    (void)buffer_append_text(&text, "{\"start\":{}}");
    rpc_send(stream->rpc, &text);
}

static void on_stream_event(struct watch *watch, struct buffer *json)
{
    struct stream *stream = container_of(watch, struct stream, watch);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(json->length + 64);

    if (stream->rpc->state_of_answer == RPC_OVER)
        return;
    (void)buffer_append_text(&text, "{\"filesystem\":");
    (void)buffer_append(&text, json->data, json->length);
    (void)buffer_append_text(&text, "}");
    rpc_send(stream->rpc, &text);
    if (!rpc_has_room(stream->rpc))
        watch_hold_back(watch, true);
}

static void on_stream_end(struct watch *watch, int number, const struct error *err)
{
    struct stream *stream = container_of(watch, struct stream, watch);

    if (number)
        files_call_fail(stream->rpc, number, watch->path);
    else if (err)
        rpc_fail_error(stream->rpc, err);
    else
        rpc_abort(stream->rpc); /* it went with its sandbox */
}

static void on_stream_room(struct rpc *rpc)
{
    struct stream *stream = rpc->state;

    watch_hold_back(&stream->watch, false);
}

void watch_stream(struct rpc *rpc)
{
    struct stream *stream = xnew(struct stream);

    stream->rpc = rpc;
    stream->watch.on_start = on_stream_start;
    stream->watch.on_event = on_stream_event;
    stream->watch.on_end = on_stream_end;
    rpc->state = stream;
    rpc->release = stream_release;
    rpc->on_room = on_stream_room;
    (void)watch_begin(&stream->watch, rpc);
}
