/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/scoped.h"
#include "cli/cli.h"
#include "cli/files/tree_work.h"
#include "wire/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 256 * 1024 };

static int write_zeros(int out, uint64_t count)
{
    static const char zeros[16 * 1024];

    while (count) {
        size_t part = count < sizeof(zeros) ? (size_t)count : sizeof(zeros);

        if (fd_write_all(out, zeros, part) < 0)
            return -1;
        count -= part;
    }
    return 0;
}

static int write_header(int out, enum tar_type type, const char *path, const struct stat *status,
                        const char *link)
{
    static char header[TAR_HEADER_SIZE];
    struct tar_member member = {
        .type = type,
        .mode = status->st_mode & 07777,
        .size = type == TAR_FILE ? (uint64_t)status->st_size : 0,
        .modified_s = status->st_mtim.tv_sec,
        .path = path,
        .link = link,
    };
    size_t length = tar_write_member(header, sizeof(header), &member);

    return length ? fd_write_all(out, header, length) : -1;
}

/* As many bytes as the header has said. */
static int write_content(int out, int fd, uint64_t size)
{
    static char piece[PIECE];
    uint64_t left = size;

    while (left) {
        ssize_t count = read(fd, piece, left < sizeof(piece) ? (size_t)left : sizeof(piece));

        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            break;
        if (fd_write_all(out, piece, (size_t)count) < 0)
            return -1;
        left -= (uint64_t)count;
    }
    return write_zeros(out, left + tar_padding(size));
}

static int pack_file(int out, const FTSENT *entry, const char *path)
{
    scoped(fd_close) int fd =
        open(entry->fts_accpath, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;

    if (fd < 0 || fstat(fd, &status) < 0 || !S_ISREG(status.st_mode)) {
        cli_note("left out: %s: %s", entry->fts_path, strerror(errno));
        return 0;
    }
    if (write_header(out, TAR_FILE, path, &status, "") < 0)
        return -1;
    return write_content(out, fd, (uint64_t)status.st_size);
}

static int pack_link(int out, const FTSENT *entry, const char *path)
{
    char target[PATH_MAX];
    ssize_t length = readlink(entry->fts_accpath, target, sizeof(target) - 1);

    if (length < 0)
        return 0;
    target[length] = 0;
    return write_header(out, TAR_LINK, path, entry->fts_statp, target);
}

static int pack_entry(int out, const FTSENT *entry, const char *path)
{
    switch (entry->fts_info) {
    case FTS_D:
        return *path ? write_header(out, TAR_DIRECTORY, path, entry->fts_statp, "") : 0;
    case FTS_F:
        return pack_file(out, entry, path);
    case FTS_SL:
    case FTS_SLNONE:
        return pack_link(out, entry, path);
    case FTS_DP:
        return 0;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        cli_note("left out: %s: %s", entry->fts_path, strerror(entry->fts_errno));
        return 0;
    default:
        cli_note("left out: %s: not a file", entry->fts_path);
        return 0;
    }
}

int tree_pack(const char *path, int out)
{
    char *paths[] = { (char *)(uintptr_t)path, NULL };
    FTS *walk = fts_open(paths, FTS_PHYSICAL, NULL);
    size_t base = strlen(path);
    int result = walk ? 0 : -1;
    FTSENT *entry;

    while (result == 0 && (entry = fts_read(walk))) {
        const char *inside = entry->fts_path + (entry->fts_level ? base : strlen(entry->fts_path));

        result = pack_entry(out, entry, inside + strspn(inside, "/"));
    }
    if (walk)
        (void)fts_close(walk);
    return result < 0 ? -1 : write_zeros(out, 2 * TAR_BLOCK);
}
