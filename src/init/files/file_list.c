/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of entries: all of a directory, or those that a pattern matches. */

#include "init/files/file_output.h"
#include "init/files/file_work.h"
#include "init/sys.h"
#include "wire/glob.h"

#include <errno.h>
#include <string.h>

enum { DIRECTORY = O_RDONLY | O_DIRECTORY | O_NONBLOCK, WALK_SECONDS = 20, LOOK_EVERY = 1024 };

struct listing {
    struct walk *walk;
    char *target;
    struct file_output output;
    uint64_t count;
    uint64_t limit;
};

static void put(struct listing *listing, const struct protocol_entry *entry, const char *path,
                const char *target)
{
    struct file_output *output = &listing->output;
    long length = protocol_entry_encode(output->bytes + output->filled,
                                        output->size - output->filled, entry, path, target);

    if (length < 0) {
        file_output_flush(output);
        length = protocol_entry_encode(output->bytes, output->size, entry, path, target);
    }
    if (length > 0)
        output->filled += (size_t)length;
}

static const char *read_target(const struct listing *listing, const struct walk_entry *entry)
{
    long length = sys(readlinkat, entry->dir, entry->name, listing->target, PROTOCOL_MAX_PATH - 1);

    listing->target[length < 0 ? 0 : length] = 0;
    return listing->target;
}

static void tell(struct listing *listing, const struct walk_entry *entry, int error)
{
    struct protocol_entry record = { .error = error };

    file_stat_fill(&record.stat, &entry->status);
    put(listing, &record, entry->path,
        S_ISLNK(entry->status.st_mode) ? read_target(listing, entry) : "");
    listing->count++;
}

static struct listing listing_begin(const struct file_work *work, unsigned depth)
{
    union file_memory *memory = file_memory(work);
    struct listing listing = {
        .walk = &memory->list.walk,
        .target = memory->list.target,
        .output = { .fd = work->stream, .bytes = memory->list.output, .size = FILE_OUTPUT_SIZE },
        .limit = work->job->file->limit,
    };

    walk_begin(listing.walk, work->base, depth);
    return listing;
}

static void listing_end(struct listing *listing, int error)
{
    struct protocol_entry last = { .stat.size = listing->count, .error = error };

    walk_end(listing->walk);
    put(listing, &last, "", "");
    file_output_flush(&listing->output);
}

int file_open_stream(struct file_work *work)
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
    work->base = fd;
    work->fd = ends[0];
    work->stream = ends[1];
    return 0;
}

void file_list_write(struct file_work *work)
{
    uint32_t depth = work->job->file->depth;
    struct listing listing = listing_begin(work, depth ? depth : 1);
    struct walk_entry entry;

    while (!listing.output.is_broken && walk_next(listing.walk, &entry)) {
        int error = 0;

        if (S_ISDIR(entry.status.st_mode) && listing.walk->depth < listing.walk->maximum)
            error = walk_enter(listing.walk, &entry, 0);
        tell(&listing, &entry, -error);
    }
    listing_end(&listing, 0);
}

int file_glob_open(struct file_work *work)
{
    struct glob glob;

    if (glob_parse(&glob, work->job->file_texts.second, false) < 0)
        return -EBADMSG;
    return file_open_stream(work);
}

void file_glob_write(struct file_work *work)
{
    struct listing listing = listing_begin(work, PROTOCOL_MAX_DEPTH);
    struct walk *walk = listing.walk;
    struct walk_entry entry;
    struct glob glob;
    bool is_full = false;

    (void)glob_parse(&glob, work->job->file_texts.second, work->job->file->flags & FILE_HIDDEN);
    walk->stays = true;
    walk->states[0] = glob_start(&glob);
    walk->deadline_us = sys_now_us() + WALK_SECONDS * 1000000ll;
    for (unsigned seen = 1; !listing.output.is_broken && walk_next(walk, &entry); seen++) {
        glob_state state = glob_step(&glob, entry.state, entry.name);

        if (seen % LOOK_EVERY == 0 && !file_output_is_wanted(&listing.output))
            break;
        if (S_ISDIR(entry.status.st_mode) && glob_goes_on(&glob, state))
            (void)walk_enter(walk, &entry, state);
        if (!glob_is_match(&glob, state))
            continue;
        if (listing.limit && listing.count == listing.limit) {
            is_full = true;
            break;
        }
        tell(&listing, &entry, 0);
    }
    listing_end(&listing, is_full || walk->was_cut ? E2BIG : 0);
}
