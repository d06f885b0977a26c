/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes in a directory, reported until the reader goes away. A reader that is too slow loses
 * changes, and a note says so: the kernel queues only so many.
 */

#include "init/files/file_output.h"
#include "init/files/file_work.h"
#include "init/sys.h"
#include "init/tree.h"

#include <errno.h>
#include <string.h>
#include <sys/inotify.h>

enum {
    CHANGES = IN_CREATE | IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM |
              IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW |
              IN_EXCL_UNLINK,
};

/* gVisor reports that the reader has gone only to a call of poll(), and wakes none that waits. */
enum { WEAK_LOOK_MS = 1000 };

struct watching {
    union file_memory *memory;
    int inotify;
    bool is_recursive;
    unsigned count;
    uint32_t filled; /* of the paths */
    bool was_cut;    /* some directory is not watched */
    uint32_t upload; /* the cookie of a temporary file that is being renamed; 0 without */
    struct file_output output;
};

/* --- the watched directories ------------------------------------------------------------------ */

static const char *path_of(const struct watching *watching, unsigned place)
{
    return watching->memory->watch.paths + watching->memory->watch.places[place];
}

static int find(const struct watching *watching, int descriptor)
{
    for (unsigned i = 0; i < watching->count; i++)
        if (watching->memory->watch.descriptors[i] == descriptor)
            return (int)i;
    return -1;
}

static void forget(struct watching *watching, unsigned place)
{
    char *paths = watching->memory->watch.paths;
    uint32_t *places = watching->memory->watch.places;
    uint32_t at = places[place];
    uint32_t size = (uint32_t)strlen(paths + at) + 1;

    memmove(paths + at, paths + at + size, watching->filled - at - size);
    watching->filled -= size;
    watching->count--;
    places[place] = places[watching->count];
    watching->memory->watch.descriptors[place] =
        watching->memory->watch.descriptors[watching->count];
    for (unsigned i = 0; i < watching->count; i++)
        if (places[i] > at)
            places[i] -= size;
}

/* Watches the directory that the descriptor is of. */
static void add(struct watching *watching, int directory, const char *path)
{
    size_t size = strlen(path) + 1;
    long descriptor;
    int known;

    if (watching->count == FILE_WATCHES || size > FILE_WATCH_PATHS - watching->filled) {
        watching->was_cut = true;
        return;
    }
    /* A clone of init has a working directory of its own: with it the path is not resolved
     * again. */
    if (sys(fchdir, directory) < 0)
        return;
    descriptor = sys(inotify_add_watch, watching->inotify, ".", CHANGES);
    if (descriptor < 0) {
        watching->was_cut = true;
        return;
    }
    known = find(watching, (int)descriptor);
    if (known >= 0)
        forget(watching, (unsigned)known);
    watching->memory->watch.descriptors[watching->count] = (int)descriptor;
    watching->memory->watch.places[watching->count++] = watching->filled;
    memcpy(watching->memory->watch.paths + watching->filled, path, size);
    watching->filled += (uint32_t)size;
}

static bool is_below(const char *path, const char *parent)
{
    size_t length = strlen(parent);

    return !strncmp(path, parent, length) && (!path[length] || path[length] == '/');
}

/* A directory that is elsewhere now is watched no more under its old name. */
static void forget_below(struct watching *watching, const char *path)
{
    for (unsigned i = watching->count; i-- > 0;) {
        if (!is_below(path_of(watching, i), path))
            continue;
        (void)sys(inotify_rm_watch, watching->inotify, watching->memory->watch.descriptors[i]);
        forget(watching, i);
    }
}

/* --- changes ---------------------------------------------------------------------------------- */

static void tell(struct watching *watching, const char *path, uint32_t mask)
{
    struct protocol_note note = { .kind = NOTE_CHANGED, .number = mask };

    file_output_note(&watching->output, &note, path, NULL, 0);
}

/* Watches the directory and, if recursive, those below; the entries of a new one are reported. */
static void add_tree(struct watching *watching, int directory, const char *path, bool is_new)
{
    struct walk *walk = &watching->memory->watch.walk;
    size_t length = strlen(path);
    struct walk_entry entry;

    walk_begin(walk, directory, PROTOCOL_MAX_DEPTH);
    walk->stays = true;
    if (length >= sizeof walk->path) {
        walk_end(walk);
        return;
    }
    memcpy(walk->path, path, length + 1);
    walk->path_lengths[0] = (uint32_t)length;
    add(watching, directory, path);
    while (walk_next(walk, &entry)) {
        bool is_directory = S_ISDIR(entry.status.st_mode);

        if (is_new && !file_is_temporary(entry.name))
            tell(watching, entry.path, IN_CREATE | (is_directory ? IN_ISDIR : 0));
        if (is_directory && watching->is_recursive && !walk_enter(walk, &entry, 0))
            add(watching, walk->levels[walk->depth - 1], entry.path);
    }
    watching->was_cut |= walk->was_cut;
}

static bool join(char *out, const char *path, const char *name)
{
    size_t length = strlen(path);
    size_t size = strlen(name) + 1;

    if (length + 1 + size > WALK_PATH_SIZE)
        return false;
    memcpy(out, path, length);
    if (length)
        out[length++] = '/';
    memcpy(out + length, name, size);
    return true;
}

static void take_directory(struct watching *watching, int base, uint32_t mask, const char *path)
{
    int fd;

    if (mask & IN_MOVED_FROM)
        forget_below(watching, path);
    if (!(mask & (IN_CREATE | IN_MOVED_TO)))
        return;
    fd = sys_open(base, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, 0, 0);
    if (fd >= 0)
        add_tree(watching, fd, path, true);
}

/* A file that takes its name when it is complete was written, too. */
static uint32_t upload_mask(const struct watching *watching, const struct inotify_event *event)
{
    return event->mask & IN_MOVED_TO && event->cookie && event->cookie == watching->upload
               ? IN_CLOSE_WRITE
               : 0;
}

static void take_event(struct watching *watching, int base, const struct inotify_event *event)
{
    char *path = watching->memory->watch.path;
    int place;

    if (event->mask & IN_Q_OVERFLOW) {
        tell(watching, "", IN_Q_OVERFLOW);
        return;
    }
    place = find(watching, event->wd);
    if (place < 0)
        return;
    if (event->mask & IN_IGNORED) {
        forget(watching, (unsigned)place);
        return;
    }
    if (!event->len) { /* of the directory itself; its parent reports it, except for the top */
        if (!*path_of(watching, (unsigned)place))
            tell(watching, "", event->mask);
        return;
    }
    if (file_is_temporary(event->name)) {
        watching->upload = event->mask & IN_MOVED_FROM ? event->cookie : watching->upload;
        return;
    }
    if (!join(path, path_of(watching, (unsigned)place), event->name))
        return;
    tell(watching, path, event->mask | upload_mask(watching, event));
    if (event->mask & IN_ISDIR && watching->is_recursive)
        take_directory(watching, base, event->mask, path);
}

static void take_events(struct watching *watching, int base)
{
    char *events = watching->memory->watch.events;
    long length = sys(read, watching->inotify, events, sizeof watching->memory->watch.events);

    for (long at = 0; at < length;) {
        const struct inotify_event *event = (const struct inotify_event *)(events + at);

        at += (long)(sizeof *event + event->len);
        take_event(watching, base, event);
    }
    if (watching->was_cut)
        tell(watching, "", IN_Q_OVERFLOW);
    watching->was_cut = false;
    file_output_flush(&watching->output);
}

/* The first note says that the watch is on. */
static void tell_begin(struct watching *watching)
{
    struct protocol_note note = {
        .kind = NOTE_LAST,
        .flags = watching->was_cut ? NOTE_CUT : 0,
        .number = watching->count,
    };

    watching->was_cut = false;
    file_output_note(&watching->output, &note, NULL, NULL, 0);
    file_output_flush(&watching->output);
}

void file_watch_write(struct file_work *work)
{
    union file_memory *memory = file_memory(work);
    struct watching watching = {
        .memory = memory,
        .is_recursive = work->job->file->flags & FILE_RECURSIVE,
        .inotify = (int)sys(inotify_init1, IN_CLOEXEC | IN_NONBLOCK),
        .output = { .fd = work->stream,
                    .bytes = memory->watch.output,
                    .size = sizeof memory->watch.output },
    };
    int first = (int)sys(fcntl, work->base, F_DUPFD_CLOEXEC, 0);
    int patience_ms = tree_is_weak() ? WEAK_LOOK_MS : -1;

    if (watching.inotify < 0) {
        struct protocol_note failed = { .kind = NOTE_LAST, .error = -watching.inotify };

        file_output_note(&watching.output, &failed, NULL, NULL, 0);
        file_output_flush(&watching.output);
        return;
    }
    add_tree(&watching, first, "", false);
    tell_begin(&watching);
    while (!watching.output.is_broken) {
        struct pollfd polls[] = { { .fd = watching.inotify, .events = POLLIN },
                                  { .fd = work->stream } };

        if (sys(poll, polls, 2, patience_ms) < 0)
            continue;
        if (polls[1].revents & (POLLERR | POLLHUP))
            return;
        if (polls[0].revents)
            take_events(&watching, work->base);
    }
}
