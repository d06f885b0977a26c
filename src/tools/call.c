/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"
#include "base/mask.h"
#include "base/str.h"
#include "core/core.h"
#include "core/session/session.h"
#include "service/find.h"
#include "tools/memory.h"
#include "tools/work.h"

#include <stdio.h>
#include <string.h>

/* --- the answer ------------------------------------------------------------------------------ */

void tool_say(struct tool_call *call, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)buffer_vappendf(&call->text, format, args);
    va_end(args);
}

static struct tool_content *add_content(struct tool_call *call, enum tool_content_kind kind)
{
    struct tool_content *content = &call->result.contents[call->result.count];

    if (call->result.count == TOOL_CONTENTS_MAXIMUM)
        return NULL;
    call->result.count++;
    content->kind = kind;
    return content;
}

void tool_add_image(struct tool_call *call, const char *mime, char *data)
{
    struct tool_content *content = add_content(call, TOOL_CONTENT_IMAGE);

    if (!content) {
        free(data);
        return;
    }
    content->mime = xstrdup(mime);
    content->data = data;
}

static char *make_uri(const char *session_id, const char *path)
{
    scoped(buffer_fini) struct buffer uri = BUFFER_INIT(16 * 1024);

    buffer_appendf(&uri, "sandglass://%s/", session_id);
    for (; *path; path++) {
        if (strchr("%?# ", *path) || (unsigned char)*path < 32 || (unsigned char)*path > 126)
            buffer_appendf(&uri, "%%%02X", (unsigned char)*path);
        else
            buffer_append_byte(&uri, (uint8_t)*path);
    }
    return buffer_steal_text(&uri);
}

void tool_add_file(struct tool_call *call, const char *path, const char *mime, uint64_t size,
                   char *data)
{
    struct tool_content *content = add_content(call, data ? TOOL_CONTENT_BLOB : TOOL_CONTENT_LINK);
    const char *name = strrchr(path, '/');

    if (!content) {
        free(data);
        return;
    }
    content->uri = make_uri(call->session_id, path);
    content->name = xstrdup(name ? name + 1 : path);
    content->mime = xstrdup(mime);
    content->data = data;
    content->size = size;
}

/* Masks the values of the session's secrets in the result of any tool. */
static void mask_result(struct tool_call *call)
{
    const struct session *session = tool_session(call);
    const struct mask *mask = session ? session_mask(session) : NULL;
    scoped(buffer_fini) struct buffer masked = BUFFER_INIT(TOOL_RESULT_MAXIMUM);
    struct tool_result *result = &call->result;
    char *structured = result->structured;

    if (mask_is_empty(mask))
        return;
    mask_append(mask, call->text.data, call->text.length, &masked);
    buffer_fini(&call->text);
    call->text = masked;
    masked = (struct buffer){ 0 };
    if (structured) {
        result->structured = mask_text(mask, structured);
        free(structured);
    }
}

/* Moves the text before images and files that were added earlier. */
static void put_text_first(struct tool_call *call)
{
    struct tool_result *result = &call->result;

    if (call->text.length == 0)
        return;
    if (result->count == TOOL_CONTENTS_MAXIMUM)
        result->count--;
    memmove(result->contents + 1, result->contents, result->count * sizeof(result->contents[0]));
    result->count++;
    result->contents[0] = (struct tool_content){ .kind = TOOL_CONTENT_TEXT };
    result->contents[0].text = buffer_steal_text(&call->text);
}

static void drop_work(struct tool_call *call)
{
    struct tool_work *work = steal_ptr(&call->work);

    if (work)
        work->release(work);
    if (call->in_use)
        session_hold_end(&call->hold);
    call->in_use = false;
}

static void on_finish(struct deferred *deferred)
{
    struct tool_call *call = container_of(deferred, struct tool_call, finish);

    drop_work(call);
    mask_result(call);
    put_text_first(call);
    list_remove(&call->node);
    call->on_done(call);
}

void tool_finish(struct tool_call *call)
{
    if (call->is_finished)
        return;
    call->is_finished = true;
    loop_defer(call->tools->core->loop, &call->finish, on_finish);
}

void tool_fail(struct tool_call *call, const char *format, ...)
{
    va_list args;

    if (call->is_finished)
        return;
    if (call->text.length)
        tool_say(call, call->text.data[call->text.length - 1] == '\n' ? "\n" : "\n\n");
    tool_say(call, "ERROR: ");
    va_start(args, format);
    (void)buffer_vappendf(&call->text, format, args);
    va_end(args);
    call->result.is_error = true;
    tool_finish(call);
}

void tool_fail_error(struct tool_call *call, const struct error *err)
{
    const char *hint = error_hint_for(err, SURFACE_MCP);

    if (*hint)
        tool_fail(call, "%s (%s).", err->message, hint);
    else
        tool_fail(call, "%s.", err->message);
}

/* --- the beginning --------------------------------------------------------------------------- */

struct caller_identity tool_identity(const struct tool_call *call)
{
    return (struct caller_identity){ .owner = call->owner,
                                     .on_behalf_of = call->on_behalf_of,
                                     .any_owner = call->any_owner };
}

struct session *tool_session(const struct tool_call *call)
{
    return map_get(&call->tools->core->sessions_by_id, call->session_id);
}

void tool_say_reset(struct tool_call *call, const struct end_reason *why)
{
    char text[END_TEXT_SIZE];
    const char *reason = end_reason_text_or_null(why, text);

    tool_say(call,
             "[notice] The sandbox of this session was reset%s%s%s: it is a fresh one. Files, "
             "packages, variables and processes of before are gone; make again what you need.\n\n",
             reason ? " (reason: " : "", reason ? reason : "", reason ? ")" : "");
}

/* Tells the model once, with its next call, that the files it may count on are gone. */
static void tell_reset(struct tool_call *call, struct session *session)
{
    struct tool_memory *memory = tool_memory_of(call->tools, session);
    bool is_other = memory->generation && memory->generation != session_generation(session);

    if (is_other || session_reset_is_pending(session)) {
        tool_memory_forget_files(memory);
        tool_say_reset(call, session_previous_end(session));
    }
    session_acknowledge_reset(session);
    memory->generation = session_generation(session);
}

static void on_ready(struct session_hold *hold)
{
    struct tool_call *call = container_of(hold, struct tool_call, hold);

    if (hold->err.code) {
        call->in_use = false;
        tool_fail_error(call, &hold->err);
        return;
    }
    tell_reset(call, hold->session);
    if (!hold->agent)
        tool_fail(call, "the sandbox cannot be reached at the moment. Try again.");
    else
        call->tool->start(call);
}

static void on_lost(struct session_hold *hold)
{
    struct tool_call *call = container_of(hold, struct tool_call, hold);
    char reason[END_TEXT_SIZE];

    call->in_use = false;
    if (call->work && call->work->on_lost) {
        call->work->on_lost(call->work);
        return;
    }
    end_reason_text(&hold->lost, reason);
    tool_fail(call,
              "the sandbox went away meanwhile (%s). Call again: a new one is started, without "
              "the files of the old one.",
              reason);
}

static void on_begin(struct deferred *deferred)
{
    struct tool_call *call = container_of(deferred, struct tool_call, begin);

    if (!call->is_finished)
        call->tool->start(call);
}

static void begin(struct tool_call *call, const char *reference)
{
    struct core *core = call->tools->core;
    struct caller_identity identity = tool_identity(call);
    struct session *session = NULL;
    struct error err = { 0 };

    if (reference) {
        session = find_live_session(core, &identity, reference, &err);
        if (!session) {
            tool_fail_error(call, &err);
            return;
        }
        memcpy(call->session_id, session_id(session), sizeof(call->session_id));
    } else if (call->tool->needs_session) {
        tool_fail(call, "%s needs a session.", call->tool->name);
        return;
    }
    if (!call->tool->needs_sandbox) {
        loop_defer(core->loop, &call->begin, on_begin);
        return;
    }
    call->in_use = true;
    session_hold_begin(&call->hold, session, 0, on_ready, on_lost);
}

int tools_check(const struct tools *tools, const struct tool *tool, const json_t *arguments,
                struct error *err)
{
    if (tool_check(tool, arguments, err) < 0)
        return -1;
    return tool->check ? tool->check(tools->core, arguments, err) : 0;
}

void tool_call_start(struct tools *tools, struct tool_call *call,
                     const struct tool_request *request)
{
    struct error err = { 0 };

    call->tools = tools;
    call->tool = request->tool;
    call->arguments = request->arguments ? json_incref(request->arguments) : json_object();
    call->owner = xstrdup(request->owner ? request->owner : "");
    call->on_behalf_of = xstrdup(request->on_behalf_of ? request->on_behalf_of : "");
    call->client = xstrdup(request->client ? request->client : "");
    call->labels_json = request->labels_json ? xstrdup(request->labels_json) : NULL;
    call->any_owner = request->any_owner;
    call->text = BUFFER_INIT(TOOL_RESULT_MAXIMUM);
    list_append(&tools->calls, &call->node);
    if (tools_check(tools, call->tool, call->arguments, &err) < 0)
        tool_fail_error(call, &err);
    else
        begin(call, request->session);
}

/* --- the end --------------------------------------------------------------------------------- */

void tool_call_cancel(struct tool_call *call)
{
    if (call->is_finished || call->is_cancelled)
        return;
    call->is_cancelled = true;
    if (call->work && call->work->cancel)
        call->work->cancel(call->work);
    else
        tool_fail(call, "interrupted by the user before it was done. The sandbox is kept.");
}

static void result_fini(struct tool_result *result)
{
    for (size_t i = 0; i < result->count; i++) {
        struct tool_content *content = &result->contents[i];

        free(content->text);
        free(content->data);
        free(content->mime);
        free(content->uri);
        free(content->name);
    }
    free(result->structured);
    *result = (struct tool_result){ 0 };
}

void tool_call_fini(struct tool_call *call)
{
    if (!call->tools)
        return;
    loop_undefer(call->tools->core->loop, &call->begin);
    loop_undefer(call->tools->core->loop, &call->finish);
    drop_work(call);
    list_remove(&call->node);
    buffer_fini(&call->text);
    result_fini(&call->result);
    json_decref(call->arguments);
    free(call->owner);
    free(call->on_behalf_of);
    free(call->client);
    free(call->labels_json);
    call->tools = NULL;
}

/* --- all of them ----------------------------------------------------------------------------- */

struct tools *tools_new(struct core *core)
{
    struct tools *tools = xnew(struct tools);

    tools->core = core;
    list_init(&tools->calls);
    return tools;
}

void tools_free(struct tools *tools)
{
    if (!tools)
        return;
    tool_memories_free(tools);
    free(tools);
}

unsigned tools_interrupt(struct tools *tools, const char *session_id)
{
    struct tool_call *call;
    unsigned count = 0;

    list_for_each (call, &tools->calls, node) {
        if (strcmp(call->session_id, session_id) != 0 || call->is_finished)
            continue;
        tool_call_cancel(call);
        count++;
    }
    return count;
}

/* --- as JSON --------------------------------------------------------------------------------- */

static const char *const kind_names[] = {
    [TOOL_CONTENT_TEXT] = "text",
    [TOOL_CONTENT_IMAGE] = "image",
    [TOOL_CONTENT_LINK] = "file",
    [TOOL_CONTENT_BLOB] = "file",
};

static void write_content(const struct tool_content *content, struct json_writer *json)
{
    json_begin_object(json, NULL);
    json_put_text(json, "type", kind_names[content->kind]);
    if (content->text)
        json_put_text(json, "text", content->text);
    if (content->name) {
        json_put_text(json, "name", content->name);
        json_put_text(json, "uri", content->uri);
        json_put_int(json, "size_bytes", (int64_t)content->size);
        json_put_int(json, "size", (int64_t)content->size);
    }
    if (content->mime)
        json_put_text(json, "mime_type", content->mime);
    if (content->data)
        json_put_text(json, "data", content->data);
    json_end_object(json);
}

void tool_result_write_json(const struct tool_result *result, struct json_writer *json,
                            const char *key)
{
    json_begin_object(json, key);
    json_begin_array(json, "content");
    for (size_t i = 0; i < result->count; i++)
        write_content(&result->contents[i], json);
    json_end_array(json);
    json_put_bool(json, "is_error", result->is_error);
    json_put_raw(json, "structured", result->structured ? result->structured : "null");
    json_end_object(json);
}
