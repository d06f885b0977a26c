/* SPDX-License-Identifier: Apache-2.0 */
/* A directory as a tar archive. Files that cannot be packed are left out and named in a comment. */

#include "init/files/file_output.h"
#include "init/files/file_work.h"
#include "init/sys.h"

#include <errno.h>
#include <string.h>

enum { PIPE_SIZE = 512 * 1024, MAX_LEFT_OUT = 1000 };

static const uint64_t largest_file = 64ull << 30;

struct packing {
    union file_memory *memory;
    struct walk *walk;
    struct file_output output;
    unsigned left_out;
    bool ends_with_comment; /* which some readers take for a broken end */
};

int file_pack_open(struct file_work *work)
{
    int result = file_open_stream(work);

    if (!result)
        (void)sys(fcntl, work->stream, F_SETPIPE_SZ, PIPE_SIZE);
    return result;
}

static void leave_out(struct packing *packing, const char *path, const char *why)
{
    char text[1024];
    size_t path_length = strlen(path);
    size_t why_size = strlen(why) + 1;
    size_t length;

    if (++packing->left_out > MAX_LEFT_OUT)
        return;
    if (path_length > 800)
        path_length = 800;
    memcpy(text, path, path_length);
    memcpy(text + path_length, ": ", 2);
    memcpy(text + path_length + 2, why, why_size);
    for (char *at = text; *at; at++)
        if (*at == '\n')
            *at = '?';
    length = tar_write_comment(packing->memory->pack.header, TAR_HEADER_SIZE, text);
    file_output_put(&packing->output, packing->memory->pack.header, length);
    packing->ends_with_comment = true;
}

static bool put_header(struct packing *packing, const char *path, const struct stat *status,
                       enum tar_type type, const char *link)
{
    struct tar_member member = {
        .type = type,
        .mode = status->st_mode & 07777,
        .size = type == TAR_FILE ? (uint64_t)status->st_size : 0,
        .modified_s = status->st_mtim.tv_sec,
        .path = path,
        .link = link,
    };
    size_t length = tar_write_member(packing->memory->pack.header, TAR_HEADER_SIZE, &member);

    file_output_put(&packing->output, packing->memory->pack.header, length);
    packing->ends_with_comment = false;
    return length > 0;
}

static void put_zeros(struct packing *packing, uint64_t count)
{
    static const char zeros[TAR_BLOCK * 8];

    while (count && !packing->output.is_broken) {
        size_t part = count < sizeof zeros ? (size_t)count : sizeof zeros;

        file_output_put(&packing->output, zeros, part);
        count -= part;
    }
}

/* Writes exactly the size in the header, even if the file changes meanwhile. */
static void put_content(struct packing *packing, int fd, uint64_t size)
{
    struct file_output *output = &packing->output;
    uint64_t left = size;

    while (left && !output->is_broken) {
        size_t room = output->size - output->filled;
        long count;

        if (!room) {
            file_output_flush(output);
            continue;
        }
        count = sys(read, fd, output->bytes + output->filled, left < room ? (size_t)left : room);
        if (count == -EINTR)
            continue;
        if (count <= 0)
            break;
        output->filled += (size_t)count;
        left -= (uint64_t)count;
    }
    put_zeros(packing, left + tar_padding(size));
}

static void pack_file(struct packing *packing, const struct walk_entry *entry)
{
    struct stat status;
    int fd = file_open_regular(entry->dir, entry->name,
                               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, &status);

    if (fd < 0)
        leave_out(packing, entry->path, "cannot be read");
    else if ((uint64_t)status.st_size > largest_file)
        leave_out(packing, entry->path, "too large");
    else if (put_header(packing, entry->path, &status, TAR_FILE, ""))
        put_content(packing, fd, (uint64_t)status.st_size);
    sys_close(fd);
}

static void pack_link(struct packing *packing, const struct walk_entry *entry)
{
    char *target = packing->memory->pack.target;
    long length = sys(readlinkat, entry->dir, entry->name, target, PROTOCOL_MAX_PATH - 1);

    if (length <= 0)
        return;
    target[length] = 0;
    put_header(packing, entry->path, &entry->status, TAR_LINK, target);
}

static void pack_directory(struct packing *packing, const struct walk_entry *entry)
{
    int result = walk_enter(packing->walk, entry, 0);

    put_header(packing, entry->path, &entry->status, TAR_DIRECTORY, "");
    if (result < 0)
        leave_out(packing, entry->path, "cannot be opened");
}

/* Whether the name is a line of `names`, or has the ending of a line that begins with "*". */
static bool is_excluded(const char *names, const char *name)
{
    size_t length = strlen(name);

    while (*names) {
        size_t size = strcspn(names, "\n");
        bool is_end = *names == '*';
        const char *wanted = names + is_end;
        size_t rest = size - is_end;

        if (rest && (is_end ? rest <= length : rest == length) &&
            !memcmp(wanted, name + length - rest, rest))
            return true;
        names += size + (names[size] == '\n');
    }
    return false;
}

void file_pack_write(struct file_work *work)
{
    union file_memory *memory = file_memory(work);
    struct packing packing = {
        .memory = memory,
        .walk = &memory->pack.walk,
        .output = { .fd = work->stream, .bytes = memory->pack.output, .size = FILE_OUTPUT_SIZE },
    };
    struct walk_entry entry;
    struct stat base = { .st_mode = 0755 };

    (void)sys(fstat, work->base, &base);
    walk_begin(packing.walk, work->base, PROTOCOL_MAX_DEPTH);
    packing.walk->stays = true;
    while (!packing.output.is_broken && walk_next(packing.walk, &entry)) {
        if (is_excluded(work->job->file_texts.third, entry.name))
            continue;
        if (S_ISDIR(entry.status.st_mode))
            pack_directory(&packing, &entry);
        else if (S_ISREG(entry.status.st_mode) && !file_is_temporary(entry.name))
            pack_file(&packing, &entry);
        else if (S_ISLNK(entry.status.st_mode))
            pack_link(&packing, &entry);
        else if (!S_ISREG(entry.status.st_mode))
            leave_out(&packing, entry.path, "not a file");
    }
    walk_end(packing.walk);
    if (packing.ends_with_comment)
        put_header(&packing, ".", &base, TAR_DIRECTORY, "");
    put_zeros(&packing, 2 * TAR_BLOCK);
    file_output_flush(&packing.output);
}
