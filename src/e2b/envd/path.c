/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/envd/path.h"

#include "base/alloc.h"
#include "base/str.h"
#include "core/core.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* --- paths ------------------------------------------------------------------------------------ */

const char *envd_path_for_init(const char *path)
{
    if (*path == '~' && path[1] && path[1] != '/')
        return NULL;
    if (*path == '~') {
        path++;
        path += strspn(path, "/");
    }
    return *path ? path : ".";
}

/* Appends the components of `path`; ".." takes one away. */
static void add_components(struct buffer *out, const char *path)
{
    while (*path) {
        size_t length = strcspn(path, "/");

        if (length == 2 && path[0] == '.' && path[1] == '.') {
            while (out->length && out->data[out->length - 1] != '/')
                out->length--;
            out->length -= out->length > 0;
        } else if (length > 1 || (length == 1 && path[0] != '.')) {
            (void)buffer_append_byte(out, '/');
            (void)buffer_append(out, path, length);
        }
        path += length + (path[length] == '/');
    }
}

char *envd_path_join(const char *directory, const char *path)
{
    struct buffer out = BUFFER_INIT(strlen(directory) + strlen(path) + 4);

    if (*path != '/')
        add_components(&out, directory);
    add_components(&out, path);
    if (out.length == 0)
        (void)buffer_append_byte(&out, '/');
    return buffer_steal_text(&out);
}

bool envd_is_known(const struct agent *agent)
{
    const struct protocol_hello *hello = agent_hello(agent);

    return hello && hello->features & FEATURE_DESCRIBE;
}

/* --- descriptions ----------------------------------------------------------------------------- */

/* The first note has the directory that relative paths begin in. */
static void read_directory(struct describe *describe)
{
    struct protocol_note_view note;
    size_t at = 0;

    if (listing_next_note(&describe->listing, &at, &note) && note.fixed.kind == NOTE_ENTRY &&
        note.fixed.path_length && *note.path == '/' &&
        !memchr(note.path, 0, note.fixed.path_length))
        describe->directory = xstrndup(note.path, note.fixed.path_length);
    else
        error_named(&describe->err, ERR_BACKEND, "backend", "the sandbox described no file");
}

static void on_listed(struct listing *listing)
{
    struct describe *describe = container_of(listing, struct describe, listing);

    describe->err = listing->err;
    describe->sys_errno = listing->sys_errno;
    if (!describe->err.code)
        read_directory(describe);
    describe->done(describe);
}

void describe_start(struct describe *describe, struct loop *loop, struct agent *agent,
                    const char *user, const char *path, unsigned depth, describe_fn *done)
{
    struct agent_file file = { .kind = FILE_DESCRIBE,
                               .user = user,
                               .path = path,
                               .third = ENVD_ATTRIBUTES,
                               .flags = FILE_BY_ROOT,
                               .depth = MIN(depth, (unsigned)PROTOCOL_MAX_DEPTH) };

    free(describe->directory);
    *describe = (struct describe){ .done = done };
    assert(envd_is_known(agent));
    listing_start_file(&describe->listing, loop, agent, &file, on_listed);
}

void describe_fini(struct describe *describe)
{
    if (describe->done)
        listing_fini(&describe->listing);
    free(steal_ptr(&describe->directory));
    describe->done = NULL;
}

bool describe_first(const struct describe *describe, struct file_description *out_description)
{
    struct protocol_note_view note;
    size_t at = 0;

    return listing_next_note(&describe->listing, &at, &note) &&
           file_description_read(&note, out_description);
}

/* --- entries ---------------------------------------------------------------------------------- */

static uint32_t final_mode(const struct file_description *description)
{
    return S_ISLNK(description->stat.mode) ? description->target_mode : description->stat.mode;
}

bool entry_is_directory(const struct file_description *description)
{
    return S_ISDIR(final_mode(description));
}

static const char *type_name(uint32_t mode)
{
    return S_ISREG(mode)   ? "FILE_TYPE_FILE"
           : S_ISDIR(mode) ? "FILE_TYPE_DIRECTORY"
           : S_ISLNK(mode) ? "FILE_TYPE_SYMLINK"
                           : "FILE_TYPE_UNSPECIFIED";
}

static const char *type_letters(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "d";
    case S_IFLNK:
        return "L";
    case S_IFIFO:
        return "p";
    case S_IFSOCK:
        return "S";
    case S_IFCHR:
        return "Dc";
    case S_IFBLK:
        return "D";
    default:
        return "";
    }
}

enum { PERMISSIONS_SIZE = 16 };

/* As E2B's agent shows them: the kind, setuid, setgid and sticky as letters before the rest, and a
 * dash when there is none of these. */
static void write_permissions(uint32_t mode, char text[PERMISSIONS_SIZE])
{
    static const char letters[] = "rwxrwxrwx";
    const char *type = type_letters(mode);
    size_t at = strlen(type);

    memcpy(text, type, at);
    if (mode & S_ISUID)
        text[at++] = 'u';
    if (mode & S_ISGID)
        text[at++] = 'g';
    if (mode & S_ISVTX)
        text[at++] = 't';
    if (at == 0)
        text[at++] = '-';
    for (unsigned i = 0; i < 9; i++)
        text[at++] = mode & (1U << (8 - i)) ? letters[i] : '-';
    text[at] = '\0';
}

static void put_metadata(struct json_writer *json, struct file_description description)
{
    bool has_any = false;
    const char *name, *value;

    while (file_description_next(&description, &name, &value)) {
        if (!str_starts_with(name, ENVD_ATTRIBUTES))
            continue;
        if (!has_any)
            json_begin_object(json, "metadata");
        has_any = true;
        json_put_text(json, name + strlen(ENVD_ATTRIBUTES), value);
    }
    if (has_any)
        json_end_object(json);
}

static void put_size(struct json_writer *json, uint64_t size)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)size);
    json_put_text(json, "size", text);
}

void entry_write(struct json_writer *json, const char *key, const char *path,
                 const struct file_description *description)
{
    const char *slash = strrchr(path, '/');
    char permissions[PERMISSIONS_SIZE];

    write_permissions(description->stat.mode, permissions);
    json_begin_object(json, key);
    json_put_text(json, "name", slash && slash[1] ? slash + 1 : path);
    json_put_text(json, "type", type_name(final_mode(description)));
    json_put_text(json, "path", path);
    put_size(json, description->stat.size);
    json_put_int(json, "mode", final_mode(description) & 0777);
    json_put_text(json, "permissions", permissions);
    json_put_text(json, "owner", description->owner);
    json_put_text(json, "group", description->group);
    json_put_time(json, "modifiedTime", description->stat.modified_us);
    if (S_ISLNK(description->stat.mode)) {
        json_put_text(json, "symlinkTarget", description->target);
        json_put_bool(json, "isSymlink", true);
    }
    put_metadata(json, *description);
    json_end_object(json);
}

/* --- a directory to start in ------------------------------------------------------------------ */

struct resolve {
    struct file_call call;
    struct rpc *rpc;
    struct describe describe;
    struct envd_path path;
    envd_path_fn *done;
};

static void resolve_release(struct rpc *rpc)
{
    struct resolve *resolve = rpc->state;

    rpc->state = NULL;
    rpc->release = NULL;
    describe_fini(&resolve->describe);
    file_call_fini(&resolve->call);
    free(resolve->path.absolute);
    free(resolve);
}

/* The call goes on without what was needed for this. */
static void resolve_finish(struct resolve *resolve)
{
    struct rpc *rpc = resolve->rpc;
    struct envd_path path = resolve->path;
    envd_path_fn *done = resolve->done;

    resolve->path.absolute = NULL;
    resolve_release(rpc);
    done(rpc, &path);
    free(path.absolute);
}

static void on_error(struct file_call *call, const struct error *err)
{
    struct resolve *resolve = container_of(call, struct resolve, call);

    resolve->path.err = *err;
    resolve_finish(resolve);
}

static void on_described(struct describe *describe)
{
    struct resolve *resolve = container_of(describe, struct resolve, describe);
    struct file_description description;

    resolve->path.err = describe->err;
    if (describe->sys_errno)
        file_error(&resolve->path.err, describe->sys_errno, resolve->path.asked);
    else if (!describe->err.code &&
             (!describe_first(describe, &description) || !entry_is_directory(&description)))
        file_error(&resolve->path.err, ENOENT, resolve->path.asked);
    if (!resolve->path.err.code)
        resolve->path.absolute =
            envd_path_join(describe->directory, envd_path_for_init(resolve->path.asked));
    resolve_finish(resolve);
}

static void start(struct file_call *call)
{
    struct resolve *resolve = container_of(call, struct resolve, call);

    if (!envd_is_known(call->hold.agent)) {
        error_set(&resolve->path.err, ERR_UNAVAILABLE, ENVD_UNKNOWN);
        resolve_finish(resolve);
        return;
    }
    describe_start(&resolve->describe, resolve->rpc->request->core->loop, call->hold.agent,
                   resolve->rpc->user, call->path, 0, on_described);
}

void envd_path_resolve(struct rpc *rpc, const char *path, envd_path_fn *done)
{
    struct session *session = rpc_session(rpc);
    struct resolve *resolve;

    if (!session)
        return;
    if (!envd_path_for_init(path)) {
        rpc_fail(rpc, CONNECT_INVALID_ARGUMENT, "path '%.200s' names the home of another user",
                 path);
        return;
    }
    resolve = xnew(struct resolve);
    resolve->rpc = rpc;
    resolve->path.asked = path;
    resolve->done = done;
    resolve->call.path = envd_path_for_init(path);
    resolve->call.on_error = resolve->call.on_lost = on_error;
    rpc->state = resolve;
    rpc->release = resolve_release;
    file_call_begin(&resolve->call, session, start);
}
