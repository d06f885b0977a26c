/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/protocol.h"

#include <string.h>

/* Writes or reads the texts behind the fixed part, one after the other. */
struct cursor {
    char *at;
    char *end;
};

static int put_text(struct cursor *cursor, const char *text, size_t maximum)
{
    size_t size = strlen(text) + 1;

    if (size > maximum || size > (size_t)(cursor->end - cursor->at))
        return -1;
    memcpy(cursor->at, text, size);
    cursor->at += size;
    return 0;
}

static int put_texts(struct cursor *cursor, const char *const *texts, uint32_t *out_count)
{
    uint32_t count = 0;

    for (; texts && texts[count]; count++)
        if (count == PROTOCOL_MAX_STRINGS ||
            put_text(cursor, texts[count], PROTOCOL_MAX_MESSAGE) < 0)
            return -1;
    *out_count = count;
    return 0;
}

static const char *take_text(struct cursor *cursor, size_t maximum)
{
    size_t left = (size_t)(cursor->end - cursor->at);
    char *text = cursor->at;
    char *nul = memchr(text, 0, left < maximum ? left : maximum);

    if (!nul)
        return NULL;
    cursor->at = nul + 1;
    return text;
}

static int take_texts(struct cursor *cursor, const char **strings, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        strings[i] = take_text(cursor, PROTOCOL_MAX_MESSAGE);
        if (!strings[i])
            return -1;
    }
    strings[count] = NULL;
    return 0;
}

int protocol_peek(const void *message, size_t length)
{
    const struct protocol_header *header = message;

    if (length < sizeof *header || length > PROTOCOL_MAX_MESSAGE)
        return -1;
    if (header->length != length || header->version != PROTOCOL_VERSION)
        return -1;
    return header->type;
}

/* The message when it is of this type and at least as long as its fixed part. */
static const void *take_fixed(const void *message, size_t length, enum protocol_type type,
                              size_t size)
{
    return protocol_peek(message, length) == (int)type && length >= size ? message : NULL;
}

static const void *take_exact(const void *message, size_t length, enum protocol_type type,
                              size_t size)
{
    return length == size ? take_fixed(message, length, type, size) : NULL;
}

/* The same for a message that a relay may have extended. */
static const void *take_told(const void *message, size_t length, enum protocol_type type,
                             size_t size, size_t added)
{
    return length == size || length == size + added ? take_fixed(message, length, type, size)
                                                    : NULL;
}

static struct cursor cursor_after(const void *message, size_t length, size_t size)
{
    char *start = (char *)(uintptr_t)message;

    return (struct cursor){ .at = start + size, .end = start + length };
}

static struct cursor cursor_for(void *buffer, size_t capacity, size_t size)
{
    if (capacity > PROTOCOL_MAX_MESSAGE)
        capacity = PROTOCOL_MAX_MESSAGE;
    return cursor_after(buffer, capacity, capacity < size ? capacity : size);
}

/* --- START ---------------------------------------------------------------------------------- */

static bool start_is_sound(const struct protocol_start *start,
                           const struct protocol_start_texts *texts)
{
    bool has_script = start->flags & START_SCRIPT;

    if (start->flags & ~(uint32_t)START_FLAGS || start->umask > 0777 || !start->header.process)
        return false;
    if (texts->cwd[0] && texts->cwd[0] != '/')
        return false;
    return has_script ? texts->script_path[0] == '/' : !texts->script_path[0];
}

long protocol_start_encode(void *buffer, size_t capacity, const struct protocol_start *fixed,
                           const struct protocol_start_texts *texts)
{
    struct protocol_start start = *fixed;
    struct cursor cursor = cursor_for(buffer, capacity, sizeof start);
    size_t length;

    if (capacity < sizeof start || put_text(&cursor, texts->user, PROTOCOL_MAX_USER) < 0 ||
        put_text(&cursor, texts->cwd, PROTOCOL_MAX_PATH) < 0 ||
        put_text(&cursor, texts->script_path, PROTOCOL_MAX_SCRIPT_PATH) < 0 ||
        put_texts(&cursor, texts->argv, &start.argc) < 0 ||
        put_texts(&cursor, texts->env, &start.envc) < 0)
        return -1;
    if (!start.argc || start.argc + start.envc > PROTOCOL_MAX_STRINGS ||
        !start_is_sound(&start, texts))
        return -1;

    length = (size_t)(cursor.at - (char *)buffer);
    start.header =
        protocol_header(PROTOCOL_START, length, fixed->header.process, fixed->header.request);
    memcpy(buffer, &start, sizeof start);
    return (long)length;
}

const struct protocol_start *protocol_start_decode(const void *message, size_t length,
                                                   const char **strings,
                                                   struct protocol_start_texts *out_texts)
{
    const struct protocol_start *start = take_fixed(message, length, PROTOCOL_START, sizeof *start);
    struct cursor cursor = cursor_after(message, length, sizeof *start);
    struct protocol_start_texts texts;

    if (!start || !start->argc || start->argc > PROTOCOL_MAX_STRINGS ||
        start->envc > PROTOCOL_MAX_STRINGS - start->argc)
        return NULL;

    texts.user = take_text(&cursor, PROTOCOL_MAX_USER);
    texts.cwd = texts.user ? take_text(&cursor, PROTOCOL_MAX_PATH) : NULL;
    texts.script_path = texts.cwd ? take_text(&cursor, PROTOCOL_MAX_SCRIPT_PATH) : NULL;
    if (!texts.script_path || !start_is_sound(start, &texts))
        return NULL;

    texts.argv = strings;
    texts.env = strings + start->argc + 1;
    if (take_texts(&cursor, strings, start->argc) < 0 ||
        take_texts(&cursor, strings + start->argc + 1, start->envc) < 0)
        return NULL;
    if (cursor.at != cursor.end)
        return NULL;

    *out_texts = texts;
    return start;
}

/* --- FILE ----------------------------------------------------------------------------------- */

static bool file_is_sound(const struct protocol_file *file, const struct protocol_file_texts *texts)
{
    bool has_second = file->kind == FILE_COMMIT || file->kind == FILE_MOVE ||
                      file->kind == FILE_GLOB || file->kind == FILE_GREP;

    if (file->kind < FILE_OPEN_READ || file->kind >= FILE_KINDS)
        return false;
    if (file->flags & ~(uint32_t)FILE_FLAGS || file->mode > 07777 ||
        file->depth > PROTOCOL_MAX_DEPTH || file->context > PROTOCOL_MAX_CONTEXT)
        return false;
    if (texts->third[0] && file->kind != FILE_GREP && file->kind != FILE_PACK &&
        file->kind != FILE_DESCRIBE && file->kind != FILE_COMMIT)
        return false;
    return texts->path[0] && has_second == (texts->second[0] != 0);
}

long protocol_file_encode(void *buffer, size_t capacity, const struct protocol_file *fixed,
                          const struct protocol_file_texts *texts)
{
    struct protocol_file file = *fixed;
    struct protocol_file_texts all = *texts;
    struct cursor cursor = cursor_for(buffer, capacity, sizeof file);
    size_t length;

    if (!all.third)
        all.third = "";
    if (capacity < sizeof file || put_text(&cursor, all.user, PROTOCOL_MAX_USER) < 0 ||
        put_text(&cursor, all.path, PROTOCOL_MAX_PATH) < 0 ||
        put_text(&cursor, all.second, PROTOCOL_MAX_PATH) < 0 ||
        put_text(&cursor, all.third, PROTOCOL_MAX_PATH) < 0)
        return -1;
    if (!file_is_sound(&file, &all))
        return -1;

    length = (size_t)(cursor.at - (char *)buffer);
    file.header = protocol_header(PROTOCOL_FILE, length, 0, fixed->header.request);
    memcpy(buffer, &file, sizeof file);
    return (long)length;
}

const struct protocol_file *protocol_file_decode(const void *message, size_t length,
                                                 struct protocol_file_texts *out_texts)
{
    const struct protocol_file *file = take_fixed(message, length, PROTOCOL_FILE, sizeof *file);
    struct cursor cursor = cursor_after(message, length, sizeof *file);
    struct protocol_file_texts texts;

    if (!file)
        return NULL;
    texts.user = take_text(&cursor, PROTOCOL_MAX_USER);
    texts.path = texts.user ? take_text(&cursor, PROTOCOL_MAX_PATH) : NULL;
    texts.second = texts.path ? take_text(&cursor, PROTOCOL_MAX_PATH) : NULL;
    texts.third = texts.second ? take_text(&cursor, PROTOCOL_MAX_PATH) : NULL;
    if (!texts.third || cursor.at != cursor.end || !file_is_sound(file, &texts))
        return NULL;

    *out_texts = texts;
    return file;
}

long protocol_file_done_encode(void *buffer, size_t capacity,
                               const struct protocol_file_done *fixed, const char *temporary)
{
    struct protocol_file_done done = *fixed;
    struct cursor cursor = cursor_for(buffer, capacity, sizeof done);
    size_t length;

    if (capacity < sizeof done || put_text(&cursor, temporary, PROTOCOL_MAX_TEMPORARY) < 0)
        return -1;
    length = (size_t)(cursor.at - (char *)buffer);
    done.header = protocol_header(PROTOCOL_FILE_DONE, length, 0, fixed->header.request);
    memcpy(buffer, &done, sizeof done);
    return (long)length;
}

const struct protocol_file_done *protocol_file_done_decode(const void *message, size_t length,
                                                           const char **out_temporary)
{
    const struct protocol_file_done *done =
        take_fixed(message, length, PROTOCOL_FILE_DONE, sizeof *done);
    struct cursor cursor = cursor_after(message, length, sizeof *done);
    const char *temporary;

    if (!done || done->error < 0 || !done->header.request)
        return NULL;
    temporary = take_text(&cursor, PROTOCOL_MAX_TEMPORARY);
    if (!temporary || cursor.at != cursor.end)
        return NULL;
    *out_temporary = temporary;
    return done;
}

/* --- CONNECT -------------------------------------------------------------------------------- */

static bool connect_is_sound(const struct protocol_connect *connect, const char *path)
{
    if (connect->port > UINT16_MAX)
        return false;
    return connect->port ? !path[0] : path[0] == '/';
}

long protocol_connect_encode(void *buffer, size_t capacity, const struct protocol_connect *fixed,
                             const char *user, const char *path)
{
    struct protocol_connect connect = *fixed;
    struct cursor cursor = cursor_for(buffer, capacity, sizeof connect);
    size_t length;

    if (capacity < sizeof connect || !connect_is_sound(&connect, path) ||
        put_text(&cursor, user, PROTOCOL_MAX_USER) < 0 ||
        put_text(&cursor, path, PROTOCOL_MAX_PATH) < 0)
        return -1;
    length = (size_t)(cursor.at - (char *)buffer);
    connect.header = protocol_header(PROTOCOL_CONNECT, length, 0, fixed->header.request);
    memcpy(buffer, &connect, sizeof connect);
    return (long)length;
}

const struct protocol_connect *protocol_connect_decode(const void *message, size_t length,
                                                       const char **out_user, const char **out_path)
{
    const struct protocol_connect *connect =
        take_fixed(message, length, PROTOCOL_CONNECT, sizeof *connect);
    struct cursor cursor = cursor_after(message, length, sizeof *connect);
    const char *user = connect ? take_text(&cursor, PROTOCOL_MAX_USER) : NULL;
    const char *path = user ? take_text(&cursor, PROTOCOL_MAX_PATH) : NULL;

    if (!path || cursor.at != cursor.end || !connect_is_sound(connect, path))
        return NULL;
    *out_user = user;
    *out_path = path;
    return connect;
}

/* --- HELLO ---------------------------------------------------------------------------------- */

int protocol_hello_decode(const void *message, size_t length, struct protocol_hello *out_hello)
{
    const struct protocol_header *header = message;
    size_t first_release = offsetof(struct protocol_hello, oldest);

    if (length < first_release || length > PROTOCOL_MAX_MESSAGE || header->length != length ||
        header->type != PROTOCOL_HELLO)
        return -1;
    if (length > first_release && length < sizeof *out_hello)
        return -1;
    *out_hello = (struct protocol_hello){ .oldest = 1, .newest = 1, .scratch = "/tmp/.sandglass" };
    memcpy(out_hello, message, length < sizeof *out_hello ? length : sizeof *out_hello);
    if (out_hello->oldest > out_hello->newest ||
        !memchr(out_hello->scratch, 0, sizeof out_hello->scratch))
        return -1;
    return out_hello->scratch[0] == '/' || !out_hello->scratch[0] ? 0 : -1;
}

/* --- the entries of a list ------------------------------------------------------------------ */

long protocol_entry_encode(void *buffer, size_t capacity, const struct protocol_entry *fixed,
                           const char *path, const char *target)
{
    struct protocol_entry entry = *fixed;
    size_t path_length = strlen(path);
    size_t target_length = strlen(target);
    size_t length = sizeof entry + path_length + target_length;

    if (path_length > UINT16_MAX || target_length > UINT16_MAX || length > capacity)
        return -1;
    entry.length = (uint32_t)length;
    entry.path_length = (uint16_t)path_length;
    entry.target_length = (uint16_t)target_length;
    memcpy(buffer, &entry, sizeof entry);
    memcpy((char *)buffer + sizeof entry, path, path_length);
    memcpy((char *)buffer + sizeof entry + path_length, target, target_length);
    return (long)length;
}

static bool path_is_inside(const char *path, size_t length)
{
    size_t start = 0;

    for (size_t i = 0; i <= length; i++) {
        if (i < length && path[i] != '/') {
            if (!path[i])
                return false;
            continue;
        }
        if (i == start || (i == start + 1 && path[start] == '.') ||
            (i == start + 2 && path[start] == '.' && path[start + 1] == '.'))
            return false;
        start = i + 1;
    }
    return true;
}

long protocol_entry_decode(const void *bytes, size_t length, struct protocol_entry_view *out_entry)
{
    struct protocol_entry_view entry;

    if (length < sizeof entry.fixed)
        return 0;
    memcpy(&entry.fixed, bytes, sizeof entry.fixed);
    if (entry.fixed.length !=
            sizeof entry.fixed + entry.fixed.path_length + entry.fixed.target_length ||
        entry.fixed.error < 0)
        return -1;
    if (length < entry.fixed.length)
        return 0;

    entry.path = (const char *)bytes + sizeof entry.fixed;
    entry.target = entry.path + entry.fixed.path_length;
    entry.is_last = !entry.fixed.stat.mode;
    if (entry.is_last ? entry.fixed.length != sizeof entry.fixed
                      : !path_is_inside(entry.path, entry.fixed.path_length))
        return -1;
    if (memchr(entry.target, 0, entry.fixed.target_length))
        return -1;

    *out_entry = entry;
    return (long)entry.fixed.length;
}

/* --- notes ---------------------------------------------------------------------------------- */

long protocol_note_encode(void *buffer, size_t capacity, const struct protocol_note *fixed,
                          const char *path, size_t path_length, const char *text,
                          size_t text_length)
{
    struct protocol_note note = *fixed;
    size_t length = sizeof note + path_length + text_length;

    if (path_length > UINT16_MAX || text_length > UINT16_MAX || length > capacity)
        return -1;
    note.length = (uint32_t)length;
    note.path_length = (uint16_t)path_length;
    note.text_length = (uint16_t)text_length;
    memcpy(buffer, &note, sizeof note);
    memcpy((char *)buffer + sizeof note, path, path_length);
    memcpy((char *)buffer + sizeof note + path_length, text, text_length);
    return (long)length;
}

long protocol_note_decode(const void *bytes, size_t length, struct protocol_note_view *out_note)
{
    struct protocol_note_view note;

    if (length < sizeof note.fixed)
        return 0;
    memcpy(&note.fixed, bytes, sizeof note.fixed);
    if (note.fixed.length != sizeof note.fixed + note.fixed.path_length + note.fixed.text_length ||
        note.fixed.kind < NOTE_LAST || note.fixed.kind >= NOTE_KINDS ||
        note.fixed.flags & ~NOTE_FLAGS || note.fixed.error < 0 || note.fixed.number > INT64_MAX ||
        note.fixed.amount > INT64_MAX)
        return -1;
    if (length < note.fixed.length)
        return 0;
    note.path = (const char *)bytes + sizeof note.fixed;
    note.text = note.path + note.fixed.path_length;
    *out_note = note;
    return (long)note.fixed.length;
}

/* --- of fixed size -------------------------------------------------------------------------- */

const struct protocol_signal *protocol_signal_decode(const void *message, size_t length)
{
    const struct protocol_signal *signal =
        take_exact(message, length, PROTOCOL_SIGNAL, sizeof *signal);

    if (!signal || signal->number < 0 || signal->number > 64 || signal->scope > SCOPE_TREE)
        return NULL;
    return signal;
}

const struct protocol_resize *protocol_resize_decode(const void *message, size_t length)
{
    return take_exact(message, length, PROTOCOL_RESIZE, sizeof(struct protocol_resize));
}

const struct protocol_plain *protocol_plain_decode(const void *message, size_t length)
{
    int type = protocol_peek(message, length);

    switch (type) {
    case PROTOCOL_CLOSE_STDIN:
    case PROTOCOL_FORGET:
    case PROTOCOL_LIST:
    case PROTOCOL_PORTS:
        return take_exact(message, length, (enum protocol_type)type, sizeof(struct protocol_plain));
    default:
        return NULL;
    }
}

const struct protocol_plain *protocol_storage_decode(const void *message, size_t length)
{
    const struct protocol_plain *plain =
        take_exact(message, length, PROTOCOL_STORAGE, sizeof *plain);

    return plain && plain->header.process ? plain : NULL;
}

const struct protocol_forget_many *protocol_forget_many_decode(const void *message, size_t length)
{
    const struct protocol_forget_many *forget =
        take_exact(message, length, PROTOCOL_FORGET_MANY, sizeof *forget);

    return forget && forget->count && forget->count <= PROTOCOL_MAX_FORGOTTEN ? forget : NULL;
}

static bool process_flags_are_sound(uint32_t flags)
{
    return !(flags & ~(uint32_t)START_FLAGS);
}

const struct protocol_started *protocol_started_decode(const void *message, size_t length)
{
    const struct protocol_started *started =
        take_exact(message, length, PROTOCOL_STARTED, sizeof *started);

    if (!started || !process_flags_are_sound(started->flags) || started->pid <= 0 ||
        !started->header.request || !started->header.process)
        return NULL;
    return started;
}

const struct protocol_failed *protocol_failed_decode(const void *message, size_t length)
{
    const struct protocol_failed *failed =
        take_exact(message, length, PROTOCOL_FAILED, sizeof *failed);

    if (!failed || failed->stage == STAGE_NONE || failed->stage >= STAGES || failed->error <= 0 ||
        !failed->header.request)
        return NULL;
    return failed;
}

static bool end_is_sound(const struct protocol_end *end)
{
    if (end->wall_us < 0 || end->cpu_us < 0)
        return false;
    if (end->signal)
        return end->signal > 0 && end->signal <= 64 && end->code == -1;
    return end->code >= 0 && end->code <= 255;
}

const struct protocol_exited *protocol_exited_decode(const void *message, size_t length)
{
    const struct protocol_exited *exited =
        take_told(message, length, PROTOCOL_EXITED, sizeof *exited, sizeof(struct protocol_totals));

    return exited && exited->header.process && end_is_sound(&exited->end) ? exited : NULL;
}

const struct protocol_ran *protocol_ran_decode(const void *message, size_t length)
{
    const struct protocol_ran *ran =
        take_told(message, length, PROTOCOL_RAN, sizeof *ran, sizeof(struct protocol_totals));

    if (!ran || !process_flags_are_sound(ran->flags) || ran->pid <= 0 || !ran->header.request ||
        !ran->header.process)
        return NULL;
    return end_is_sound(&ran->end) && !ran->end.survivors ? ran : NULL;
}

const struct protocol_process *protocol_process_decode(const void *message, size_t length)
{
    const struct protocol_process *process =
        take_told(message, length, PROTOCOL_PROCESS, sizeof *process,
                  sizeof(struct protocol_bases) + sizeof(struct protocol_totals));

    if (!process || !process_flags_are_sound(process->flags) || process->pid <= 0 ||
        process->has_exited > 1 || !process->header.process)
        return NULL;
    return !process->has_exited || end_is_sound(&process->end) ? process : NULL;
}

/* The offset of the relay's extension, behind the message of this type; 0 without one. */
static size_t added_at(const void *message, size_t length)
{
    const struct protocol_header *header = message;
    size_t size = header->type == PROTOCOL_EXITED ? sizeof(struct protocol_exited)
                  : header->type == PROTOCOL_RAN  ? sizeof(struct protocol_ran)
                                                  : sizeof(struct protocol_process);

    return length > size ? size : 0;
}

const struct protocol_totals *protocol_totals_after(const void *message, size_t length)
{
    if (!added_at(message, length))
        return NULL;
    return (const void *)((const char *)message + length - sizeof(struct protocol_totals));
}

const struct protocol_bases *protocol_bases_after(const void *message, size_t length)
{
    const struct protocol_header *header = message;
    size_t at = header->type == PROTOCOL_PROCESS ? added_at(message, length) : 0;

    return at ? (const void *)((const char *)message + at) : NULL;
}

const struct protocol_taken *protocol_taken_decode(const void *message, size_t length)
{
    const struct protocol_taken *taken = take_exact(message, length, PROTOCOL_TAKEN, sizeof *taken);

    return taken && taken->header.process ? taken : NULL;
}

const struct protocol_done *protocol_done_decode(const void *message, size_t length)
{
    const struct protocol_done *done = take_exact(message, length, PROTOCOL_DONE, sizeof *done);

    return done && done->error >= 0 && done->header.request ? done : NULL;
}
