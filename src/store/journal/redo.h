/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The redo log: commits that the database does not have yet.
 *
 * A commit appends all of its changes as one frame, by one write; the kernel has it then, and it
 * outlives this process. The changes go into the database later, many commits together, and the
 * database notes the number of the last frame it has. Opening it again applies the frames behind
 * that one.
 *
 * Two files are used in turn. When one is long enough, the other is written again from its start,
 * provided that the database has all of it and has been flushed. Frames are numbered without gaps,
 * so that frames of an earlier use are never taken for the end of the log.
 *
 * A frame that cannot be read was either not completed by a failing machine, or is damaged. The
 * *promise* distinguishes the two: each frame has the number of the last frame that was flushed
 * when it was written, and a small file beside the log has it after each flush. A log that ends
 * before its promise is damaged. The database knows whether a log has to be there.
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
    char *mark_path; /* owned */
    int mark;        /* owned; the file of the promise */
    unsigned current;
    char id[REDO_ID_SIZE]; /* of the database it belongs to */
    uint64_t base;         /* number of the last frame before it */
    uint64_t boot;
    bool flushes;        /* promises are made by flushes; otherwise by writing, for this boot */
    uint64_t last;       /* number of the last frame */
    uint64_t settled;    /* the database has all up to this one, on the disk */
    uint64_t promised;   /* the promise of the next frame */
    uint64_t noted;      /* the last appended frame, as the flushing side knows it */
    uint64_t flushed;    /* the last flushed frame, as the flushing side knows it */
    struct buffer frame; /* kept for its memory */
};

/* Whether there is a log of the database at `path`. */
bool redo_exists(const char *path);

/* The database's knowledge of its log. */
struct redo_expected {
    const char *id;
    const char *boot_id;
    uint64_t last; /* the last frame that the database has */
    int64_t base;  /* of the log that must exist; -1: none must */
};

struct redo_past {
    struct change_queue changes; /* behind frame `expected.last`; owned */
    uint64_t last;               /* the last frame that can be used */
    /* Set when promised frames are missing: names the loss and the remedy. */
    struct error damage;
    /* Frames behind `last` that were not promised and cannot be used, as after a power failure;
     * `is_cut`: the first of them was not written completely. */
    uint64_t dropped;
    bool is_cut;
};

/* Fails when the files cannot be read, or cannot be those of this database. */
int redo_read(const char *path, const struct redo_expected *expected, struct redo_past *out_past,
              struct error *err);
void redo_past_fini(struct redo_past *past); /* a zeroed one is fine */

/* Called when the database has all frames on the disk. The next log begins with new files: after a
 * power failure there may be frames behind a gap, which must not become its end. */
int redo_remove(const char *path, struct error *err);

/* The same with a damaged log: its files are kept under names that end in ".damaged". */
int redo_set_aside(const char *path, struct error *err);

struct redo_options {
    const char *path; /* of the database */
    const char *id;
    const char *boot_id;
    uint64_t last; /* everything up to this frame is in the database */
    bool flushes;  /* commits are promised once they are flushed */
    bool sync;     /* flush the new file before this returns */
};

/* Begins a log: its first file is there afterwards. */
int redo_open(struct redo *redo, const struct redo_options *options, struct error *err);
void redo_close(struct redo *redo, bool remove_files); /* a zeroed one is fine */

/* All changes as one frame. After a failure the log is as before. May be called from a thread,
 * while a flush is made: before that redo_will_append(), and after it has succeeded
 * redo_note_appended() is called where flushes begin. */
void redo_will_append(struct redo *redo, uint64_t settled);
int redo_append(struct redo *redo, const struct change_queue *changes, struct error *err);
void redo_note_appended(struct redo *redo);

/* A flush of everything that was appended before redo_flush_begin(). Its run is for a thread:
 * append may be called meanwhile. When it has succeeded, redo_note_flushed(). */
struct redo_flush {
    int fds[REDO_FILES];     /* borrowed; -1 for files without new frames */
    const char *name;        /* borrowed; of a file whose name is to be flushed too, or NULL */
    const struct redo *redo; /* borrowed; only its constant fields are read */
    uint64_t last;           /* the last frame that the flush covers */
};

struct redo_flush redo_flush_begin(struct redo *redo);
int redo_flush_run(const struct redo_flush *flush, struct error *err);
void redo_note_flushed(struct redo *redo, const struct redo_flush *flush);

/* Whether the current file is so long that the database should be flushed, which frees the other
 * file. */
bool redo_is_long(const struct redo *redo, uint64_t settled);

/* Flushes the directory that a file is in, so that its name is on the disk. */
int sync_directory_of(const char *path, struct error *err);
