#pragma once

/*
 * Reading tar archives: ustar, GNU long names and numbers, pax paths and sizes. A pure reader:
 * bytes come from a function, nothing is written. Every number is checked, names are bounded, and
 * what the format leaves open is refused.
 */

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { ARCHIVE_NAME_SIZE = 4096, ARCHIVE_BLOCK = 512 };

/* As read(2): 0 at the end, -1 on failure. */
typedef ssize_t archive_source_fn(void *user, void *bytes, size_t length);

enum archive_kind {
    ARCHIVE_FILE,
    ARCHIVE_HARD_LINK,
    ARCHIVE_SYMBOLIC_LINK,
    ARCHIVE_DIRECTORY,
    ARCHIVE_FIFO,
    ARCHIVE_OTHER, /* a device or something unknown: its data is skipped like any other's */
};

struct archive_entry {
    enum archive_kind kind;
    char name[ARCHIVE_NAME_SIZE];
    char target[ARCHIVE_NAME_SIZE]; /* of links */
    uint64_t size;                  /* of the data that follows; only files have any */
    uint64_t uid, gid;
    uint32_t mode;
    int64_t modified; /* seconds */
};

struct archive {
    archive_source_fn *source;
    void *user;
    uint64_t left;    /* of the current entry's data */
    uint64_t padding; /* behind it */
    struct archive_entry entry;
};

void archive_init(struct archive *reader, archive_source_fn *source, void *user);

/* 1 with `reader->entry`, 0 at the end of the archive, -1 on error. Unread data is skipped. */
int archive_next(struct archive *reader, struct error *err);

/* Data of the current entry: 0 at its end. */
ssize_t archive_read(struct archive *reader, void *bytes, size_t length, struct error *err);
