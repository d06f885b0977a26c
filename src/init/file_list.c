#include "init/file_work.h"
#include "init/sys.h"

#include <errno.h>
#include <string.h>

enum { DIRECTORY = O_RDONLY | O_DIRECTORY | O_NONBLOCK };

struct listing {
    union file_room *room;
    int pipe;
    unsigned depth; /* how many directories are open */
    unsigned maximum;
    size_t filled; /* of the output */
    uint64_t count;
    bool is_broken; /* nobody reads any more */
};

static void write_out(struct listing *listing)
{
    size_t written = 0;

    while (written < listing->filled && !listing->is_broken) {
        long result = sys(write, listing->pipe, listing->room->list.output + written,
                          listing->filled - written);

        if (result < 0 && result != -EINTR)
            listing->is_broken = true;
        else if (result > 0)
            written += (size_t)result;
    }
    listing->filled = 0;
}

static void put(struct listing *listing, const struct protocol_entry *entry, const char *path,
                const char *target)
{
    char *output = listing->room->list.output;
    long length = protocol_entry_encode(output + listing->filled,
                                        FILE_OUTPUT_SIZE - listing->filled, entry, path, target);

    if (length < 0) {
        write_out(listing);
        length = protocol_entry_encode(output, FILE_OUTPUT_SIZE, entry, path, target);
    }
    if (length > 0)
        listing->filled += (size_t)length;
}

static const char *read_target(struct listing *listing, int dir, const char *name)
{
    char *target = listing->room->list.target;
    long length = sys(readlinkat, dir, name, target, PROTOCOL_MAX_PATH - 1);

    target[length < 0 ? 0 : length] = 0;
    return target;
}

static void push(struct listing *listing, int fd, size_t path_length)
{
    listing->room->list.levels[listing->depth] = fd;
    listing->room->list.path_lengths[listing->depth] = path_length;
    listing->depth++;
}

/* True when the listing goes on inside the entry. */
static bool take_entry(struct listing *listing, int dir, size_t parent_length, const char *name)
{
    char *path = listing->room->list.path;
    size_t name_length = strlen(name);
    struct protocol_entry entry = { 0 };
    struct stat status;
    const char *target = "";
    int fd = -1;

    if (parent_length + name_length + 2 > FILE_PATH_SIZE ||
        sys(newfstatat, dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    memcpy(path + parent_length, name, name_length + 1);
    file_stat_fill(&entry.stat, &status);
    if (S_ISLNK(status.st_mode))
        target = read_target(listing, dir, name);
    if (S_ISDIR(status.st_mode) && listing->depth < listing->maximum) {
        fd = sys_open(dir, name, DIRECTORY | O_NOFOLLOW, 0, 0);
        entry.error = fd < 0 ? -fd : 0;
    }
    put(listing, &entry, path, target);
    listing->count++;
    if (fd < 0)
        return false;
    path[parent_length + name_length] = '/';
    push(listing, fd, parent_length + name_length + 1);
    return true;
}

/* Reads on in the innermost directory. A directory inside is read at once: then the kernel's place
 * in the outer one is moved back to behind it. */
static void read_on(struct listing *listing)
{
    unsigned level = listing->depth - 1;
    int dir = listing->room->list.levels[level];
    size_t path_length = listing->room->list.path_lengths[level];
    char *entries = listing->room->list.entries;
    long length = sys(getdents64, dir, entries, FILE_ENTRIES_SIZE);

    for (long at = 0; at < length;) {
        const struct sys_dirent *entry = (const struct sys_dirent *)(entries + at);

        at += entry->length;
        if (!strcmp(entry->name, ".") || !strcmp(entry->name, ".."))
            continue;
        if (take_entry(listing, dir, path_length, entry->name)) {
            (void)sys(lseek, dir, entry->offset, SEEK_SET);
            return;
        }
    }
    if (length <= 0) {
        sys_close(dir);
        listing->depth--;
    }
}

int file_list_open(struct file_work *work)
{
    struct stat status;
    int ends[2];
    long result;
    int fd = sys_open(AT_FDCWD, work->job->file_texts.path, DIRECTORY, 0, 0);

    if (fd < 0)
        return fd;
    result = sys(fstat, fd, &status);
    if (!result)
        result = sys(pipe2, ends, O_CLOEXEC);
    if (result < 0) {
        sys_close(fd);
        return (int)result;
    }
    file_stat_fill(&work->done.stat, &status);
    work->listed = fd;
    work->fd = ends[0];
    work->list_pipe = ends[1];
    return 0;
}

void file_list_write(struct file_work *work)
{
    uint32_t depth = work->job->file->depth;
    struct listing listing = {
        .room = file_room(work),
        .pipe = work->list_pipe,
        .maximum = depth ? depth : 1,
    };
    struct protocol_entry last = { 0 };

    sys_drop(&work->fd);
    push(&listing, work->listed, 0);
    while (listing.depth && !listing.is_broken)
        read_on(&listing);
    last.stat.size = listing.count;
    put(&listing, &last, "", "");
    write_out(&listing);
}
