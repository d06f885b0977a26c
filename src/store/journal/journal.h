/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The journal: commits that the database does not have yet.
 *
 * A commit is appended to the redo log as one frame (redo.h): it is written then. Tickets of grade
 * STORE_SYNCED wait for a flush as well (syncer.h). The changes stay in memory as the *backlog*
 * until the owner has brought them into the database: journal_take_backlog() hands them out;
 * journal_return_backlog() takes them back after a failure, and journal_note_applied() notes
 * success.
 *
 * The journal knows changes, grades and tickets, and no database: its owner embeds it, applies the
 * backlog and gets all other events by a table of callbacks. All functions are for the loop.
 */

#include "store/journal/redo.h"
#include "store/journal/syncer.h"

struct journal;

/* The result of an append. The owner takes the entries out of `refused` and `tickets`. */
struct journal_result {
    struct change_queue *refused; /* with an error: all changes, which are not in the log */
    struct list *tickets;         /* all of the commit */
    const struct error *err;      /* ERR_NONE: written */
    bool has_grown;               /* the backlog */
    bool in_thread;               /* the loop did not wait for the disk */
};

struct journal_owner {
    void (*on_append_ended)(struct journal *journal, const struct journal_result *result);
    void (*on_synced)(struct journal *journal, struct list *tickets, const struct error *err);
};

enum journal_state {
    JOURNAL_IDLE,
    JOURNAL_APPENDING, /* in the thread; `redo` and `append` are the thread's */
};

struct journal_backlog {
    struct change_queue changes; /* in the redo log, not in the database; owned */
    size_t bytes;                /* of the redo log */
    uint64_t applied;            /* the last frame that is in the database */
    uint64_t settled;            /* and on the disk there */
};

struct journal {
    const struct journal_owner *owner; /* borrowed */
    struct worker *worker;             /* borrowed: where appends go while the disk is slow */
    enum journal_state state;
    struct redo redo;
    struct syncer syncer;
    struct journal_backlog backlog;
    struct {
        struct job job;
        struct change_queue changes;
        struct list tickets;
        struct error err;
    } append; /* the one under way */
    int64_t slow_until_us;
};

/* Opens the redo log. The thread-less half comes first: journal_start() needs the loop. */
int journal_open(struct journal *journal, const struct redo_options *options, struct error *err);

struct journal_options {
    struct loop *loop;                 /* borrowed */
    struct worker *worker;             /* borrowed */
    const struct journal_owner *owner; /* borrowed */
    bool syncs;                        /* STORE_SYNCED means a flush */
    bool never_on_the_loop;            /* every append goes to the thread */
};

void journal_start(struct journal *journal, const struct journal_options *options);

/* Ends the thread of flushes. Tickets that still wait are for journal_finish_here(). */
void journal_stop(struct journal *journal);

/* After the owner's thread and ours have ended: flushes for the tickets that wait. */
bool journal_has_waiting(const struct journal *journal);
void journal_finish_here(struct journal *journal);

/* A zeroed one is fine. `remove_files` when the database has everything, on the disk. */
void journal_close(struct journal *journal, bool remove_files);

/* Appends a commit, which may have tickets only; takes both over. on_append_ended comes from inside
 * of this call, or later when the disk is slow. Not while one is under way. */
void journal_append(struct journal *journal, struct change_queue *changes, struct list *tickets);

/* A commit has succeeded, here or in the database: moves the tickets that have to wait for a flush
 * out of the list. */
void journal_hold_unsynced(struct journal *journal, struct list *tickets);

/* All changes behind `applied`, folded; `out_last` is their last frame. */
struct change_queue journal_take_backlog(struct journal *journal, uint64_t *out_last);
void journal_return_backlog(struct journal *journal, struct change_queue *changes);
void journal_note_applied(struct journal *journal, uint64_t last);

/* Whether the log is so long that the database should be flushed, which lets the log be reused from
 * its start. Not while an append is under way. */
bool journal_is_long(const struct journal *journal);

/* The permanent failure of a flush; ERR_NONE: none has failed. */
static inline const struct error *journal_failure(const struct journal *journal)
{
    return &journal->syncer.failure;
}
