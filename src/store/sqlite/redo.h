#pragma once

/*
 * The redo log: what was committed since the database was last brought up to date.
 *
 * A commit appends all of its changes as one frame, by one write; the kernel has it then, and it
 * outlives this process. The changes go into the database later, many commits together, and the
 * database notes the number of the last frame it has. Opening it again applies the frames behind
 * that one.
 *
 * Two files are used in turn. When one is long enough, the other is written again from its start,
 * provided that the database has all of it and has been flushed. Frames are numbered without gaps,
 * so that what is left of earlier use is never taken for the end of the log.
 */

#include "base/buffer.h"
#include "store/record.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { REDO_FILES = 2, REDO_ID_SIZE = 40 };

struct redo_file {
    char *path; /* owned */
    int fd;     /* owned; -1 until it is first needed */
    off_t end;
    uint64_t last; /* number of its last frame */
    bool dirty;    /* has more than was flushed */
    bool is_new;   /* its name was not flushed either */
};

struct redo {
    struct redo_file files[REDO_FILES];
    unsigned current;
    char id[REDO_ID_SIZE]; /* of the database it belongs to */
    uint64_t last;         /* number of the last frame */
    uint64_t settled;      /* the database has all up to this one, on the disk */
    struct buffer frame;   /* kept for its memory */
};

/* Whether there is a log of the database at `path`. */
bool redo_exists(const char *path);

/* The changes behind frame `*last`, which is moved on. Fails when the log belongs to another
 * database or to another time of this one. */
int redo_read(const char *path, const char *id, uint64_t *last, struct change_queue *out_changes,
              struct error *err);

/* When the database has all of it, on the disk. A log that goes on from there begins with new
 * files: after a power failure there may be frames behind a gap, which must not become its end. */
int redo_remove(const char *path, struct error *err);

/* Everything up to `last` is in the database: nothing is read, files are made when needed. */
void redo_open(struct redo *redo, const char *path, const char *id, uint64_t last);
void redo_close(struct redo *redo, bool remove_files); /* a zeroed one is fine */

/* All changes as one frame. After a failure the log is as before. May be called from a thread,
 * while a flush is made; after it has succeeded, redo_note_appended() is called where flushes
 * begin. */
int redo_append(struct redo *redo, const struct change_queue *changes, struct error *err);
void redo_note_appended(struct redo *redo);

/* A flush of everything that was appended before redo_flush_begin(). Its run is for a thread:
 * append may be called meanwhile. */
struct redo_flush {
    int fds[REDO_FILES]; /* borrowed; -1 for those that need none */
    const char *name;    /* borrowed; of a file whose name is to be flushed too, or NULL */
};

struct redo_flush redo_flush_begin(struct redo *redo);
int redo_flush_run(const struct redo_flush *flush, struct error *err);

/* It is time to flush the database, so that the other file can be used. */
bool redo_is_long(const struct redo *redo, uint64_t settled);
