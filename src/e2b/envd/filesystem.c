/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/envd/filesystem.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"

#include <errno.h>
#include <string.h>

/* --- a call about files ----------------------------------------------------------------------- */

static void release(struct rpc *rpc)
{
    struct files_call *files = rpc->state;

    describe_fini(&files->describe);
    file_call_fini(&files->call);
    free(files->parent);
    free(files);
}

static enum connect_code code_of(int number)
{
    switch (number) {
    case ENOENT:
        return CONNECT_NOT_FOUND;
    case EEXIST:
        return CONNECT_ALREADY_EXISTS;
    case ENOTDIR:
    case EISDIR:
    case EINVAL:
    case ENAMETOOLONG:
        return CONNECT_INVALID_ARGUMENT;
    case EACCES:
    case EPERM:
    case EROFS:
        return CONNECT_PERMISSION_DENIED;
    case ENOSPC:
    case EDQUOT:
    case EAGAIN:
        return CONNECT_RESOURCE_EXHAUSTED;
    default:
        return CONNECT_INTERNAL;
    }
}

void files_call_fail(struct rpc *rpc, int number, const char *path)
{
    struct error err = { 0 };

    if (number == EINVAL && *rpc->user) {
        rpc_fail(rpc, CONNECT_UNAUTHENTICATED, "invalid username: '%s'", rpc->user);
        return;
    }
    file_error(&err, number, path);
    rpc_fail(rpc, code_of(number), "%s%s%s", err.message, *err.hint ? "; " : "", err.hint);
}

static void on_error(struct file_call *call, const struct error *err)
{
    rpc_fail_error(files_call_of(call)->rpc, err);
}

static bool on_failure(struct file_call *call, int number)
{
    files_call_fail(files_call_of(call)->rpc, number, files_call_of(call)->asked);
    return true;
}

static const char *read_path(struct rpc *rpc, const char *name)
{
    const char *path = json_string_value(json_object_get(rpc->input, name));
    const char *for_init = envd_path_for_init(path ? path : "");

    if (!for_init)
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "path '%.200s' names the home of another user",
                 path);
    else if (strlen(for_init) >= PROTOCOL_MAX_PATH)
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "the path is too long");
    else
        return for_init;
    return NULL;
}

static void on_ready(struct file_call *call)
{
    struct files_call *files = files_call_of(call);

    if (envd_is_known(call->hold.agent))
        files->start(call);
    else
        rpc_fail(files->rpc, CONNECT_FAILED_PRECONDITION, ENVD_UNKNOWN);
}

struct files_call *files_call_begin(struct rpc *rpc, const char *name, file_call_fn *start)
{
    const char *path = read_path(rpc, name);
    struct session *session = path ? rpc_session(rpc) : NULL;
    const char *asked = json_string_value(json_object_get(rpc->input, name));
    struct files_call *files;

    if (!session)
        return NULL;
    files = xnew(struct files_call);
    files->rpc = rpc;
    files->asked = asked ? asked : "";
    files->call.path = path;
    files->call.on_error = files->call.on_lost = on_error;
    files->call.on_failure = on_failure;
    rpc->state = files;
    rpc->release = release;
    files->start = start;
    file_call_begin(&files->call, session, on_ready);
    return files;
}

static void operate(struct file_call *call, enum protocol_file_kind kind, uint32_t flags,
                    file_call_fn *next)
{
    struct agent_file file = { .kind = kind,
                               .user = files_call_of(call)->rpc->user,
                               .path = call->path,
                               .second = kind == FILE_MOVE ? files_call_of(call)->second : NULL,
                               .flags = flags | FILE_BY_ROOT };

    file_call_do(call, &file, next);
}

static void describe(struct file_call *call, const char *path, unsigned depth, describe_fn *done)
{
    struct files_call *files = files_call_of(call);

    describe_start(&files->describe, files->rpc->request->core->loop, call->hold.agent,
                   files->rpc->user, path, depth, done);
}

/* Whether it failed; then it is answered. */
static bool has_failed(struct files_call *files)
{
    if (files->describe.sys_errno)
        files_call_fail(files->rpc, files->describe.sys_errno, files->asked);
    else if (files->describe.err.code)
        rpc_fail_error(files->rpc, &files->describe.err);
    return files->describe.err.code != ERR_NONE;
}

/* --- one entry -------------------------------------------------------------------------------- */

static void reply_entry(struct files_call *files, const char *for_init)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(256 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    struct file_description description;
    scoped(free) char *path = NULL;

    if (!describe_first(&files->describe, &description)) {
        rpc_fail(files->rpc, CONNECT_INTERNAL, "the sandbox described no file");
        return;
    }
    path = envd_path_join(files->describe.directory, for_init);
    json_begin_object(&json, NULL);
    entry_write(&json, "entry", path, &description);
    json_end_object(&json);
    rpc_reply(files->rpc, &text);
}

static void on_described(struct describe *describe)
{
    struct files_call *files = container_of(describe, struct files_call, describe);

    if (!has_failed(files))
        reply_entry(files, files->second ? files->second : files->call.path);
}

static void reply_with_entry(struct file_call *call)
{
    const struct files_call *files = files_call_of(call);

    describe(call, files->second ? files->second : call->path, 0, on_described);
}

void filesystem_stat(struct rpc *rpc)
{
    (void)files_call_begin(rpc, "path", reply_with_entry);
}

/* --- a directory ------------------------------------------------------------------------------ */

/* Entries in the order of their paths, a directory before its content. */
static void write_entries(const struct files_call *files, struct json_writer *json)
{
    scoped(free) char *base = envd_path_join(files->describe.directory, files->call.path);
    size_t count;
    scoped(free) size_t *places = listing_sort(&files->describe.listing, &count);

    for (size_t i = 0; i < count; i++) {
        struct protocol_note_view note;
        struct file_description description;
        scoped(free) char *name = NULL;
        scoped(free) char *path = NULL;
        size_t at = places[i];

        if (!listing_next_note(&files->describe.listing, &at, &note) ||
            !file_description_read(&note, &description) || *note.path == '/')
            continue; /* the directory itself, and the end */
        name = xstrndup(note.path, note.fixed.path_length);
        path = envd_path_join(base, name);
        entry_write(json, NULL, path, &description);
    }
}

static void on_entries(struct describe *describe)
{
    struct files_call *files = container_of(describe, struct files_call, describe);
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(REQUEST_REPLY_MAXIMUM);
    struct json_writer json = JSON_WRITER(&text);

    if (has_failed(files))
        return;
    json_begin_object(&json, NULL);
    json_begin_array(&json, "entries");
    write_entries(files, &json);
    json_end_array(&json);
    json_end_object(&json);
    rpc_reply(files->rpc, &text);
}

static void start_list(struct file_call *call)
{
    describe(call, call->path, files_call_of(call)->depth, on_entries);
}

void filesystem_list_dir(struct rpc *rpc)
{
    json_int_t depth = json_integer_value(json_object_get(rpc->input, "depth"));
    struct files_call *files = files_call_begin(rpc, "path", start_list);

    if (files)
        files->depth = depth ? (unsigned)MIN(depth, (json_int_t)PROTOCOL_MAX_DEPTH) : 1;
}

/* --- changes ---------------------------------------------------------------------------------- */

static void on_existing(struct describe *describe)
{
    struct files_call *files = container_of(describe, struct files_call, describe);
    struct file_description description;

    if (has_failed(files))
        return;
    if (describe_first(describe, &description) && entry_is_directory(&description))
        rpc_fail(files->rpc, CONNECT_ALREADY_EXISTS, "directory already exists: %.300s",
                 files->asked);
    else
        rpc_fail(files->rpc, CONNECT_INVALID_ARGUMENT,
                 "path already exists but it is not a directory: %.300s", files->asked);
}

static bool on_make_failure(struct file_call *call, int number)
{
    /* A name such as "." or "/" cannot be made: it is there. */
    if (number == EEXIST || (number == EINVAL && !*files_call_of(call)->rpc->user))
        describe(call, call->path, 0, on_existing);
    else
        files_call_fail(files_call_of(call)->rpc, number, files_call_of(call)->asked);
    return true;
}

static void start_make(struct file_call *call)
{
    call->on_failure = on_make_failure;
    operate(call, FILE_MKDIR, FILE_EXCLUSIVE, reply_with_entry);
}

void filesystem_make_dir(struct rpc *rpc)
{
    (void)files_call_begin(rpc, "path", start_make);
}

static void move(struct file_call *call)
{
    operate(call, FILE_MOVE, 0, reply_with_entry);
}

/* The directory of the destination is made first. */
static void start_move(struct file_call *call)
{
    struct files_call *files = files_call_of(call);
    struct agent_file file = {
        .kind = FILE_MKDIR, .user = files->rpc->user, .path = files->parent, .flags = FILE_BY_ROOT
    };

    if (files->parent)
        file_call_do(call, &file, move);
    else
        move(call);
}

/* The directory of a destination; NULL when it need not be made. */
static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash != path ? xstrndup(path, (size_t)(slash - path)) : NULL;
}

void filesystem_move(struct rpc *rpc)
{
    const char *destination = read_path(rpc, "destination");
    struct files_call *files = destination ? files_call_begin(rpc, "source", start_move) : NULL;

    if (!files)
        return;
    files->second = destination;
    files->parent = parent_of(destination);
}

static void reply_removed(struct file_call *call)
{
    rpc_reply_empty(files_call_of(call)->rpc);
}

/* A path that is not there counts as removed. */
static bool on_remove_failure(struct file_call *call, int number)
{
    if (number == ENOENT)
        reply_removed(call);
    else
        files_call_fail(files_call_of(call)->rpc, number, files_call_of(call)->asked);
    return true;
}

static void start_remove(struct file_call *call)
{
    call->on_failure = on_remove_failure;
    operate(call, FILE_REMOVE, FILE_TREE, reply_removed);
}

void filesystem_remove(struct rpc *rpc)
{
    (void)files_call_begin(rpc, "path", start_remove);
}
