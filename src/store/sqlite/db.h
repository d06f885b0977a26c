/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The database file: opening, checking and migrating it, writing a batch, answering a query.
 *
 * Everything here blocks. It is called when the store is opened or closed, and otherwise from the
 * store's own thread only. Nothing here knows of tickets and callbacks; sqlite.c does.
 */

#include "store/journal/redo.h"
#include "store/record.h"
#include "store/store.h"

#include <sqlite3.h>

enum { STORE_SCHEMA_VERSION = 8 };
enum { STORE_APPLICATION_ID = 0x5347534c }; /* "SGSL" in the header of our files */

/* Ended sessions without a retention time; an index has them. */
#define SESSION_KEPT_FOR_EVER \
    "state = 'ended' AND (typeof(retain_until_wall_us) <> 'integer' OR retain_until_wall_us <= 0)"

enum { FORGET_STATEMENTS = 8, LABEL_STATEMENTS = 8 };

struct sqlite_db {
    sqlite3 *handle;     /* owned */
    char *path;          /* owned */
    sqlite3_file *log;   /* borrowed: the write-ahead log, open for as long as the handle is */
    int64_t boot;        /* number of this boot; boot-clock stamps of other boots mean nothing */
    int wal_pages;       /* in the log after the last commit */
    int64_t free_before; /* pages that were free at the last look */
    char redo_id[REDO_ID_SIZE];
    int64_t redo_base;     /* of the log that has to be there; -1: none */
    uint64_t redo_last;    /* number of the last frame of the redo log that is in the database */
    struct buffer scratch; /* for sums; kept for its memory */
    struct error broken;   /* set after a failed fsync: the content of the disk is unknown */
    struct {
        int64_t *lists; /* owned; a list occurs once for each session that left it */
        size_t count;
        size_t capacity;
    } left; /* by this transaction; its counts are not written yet: labels_settle() */

    /* Prepared when first needed; owned. */
    sqlite3_stmt *begin;
    sqlite3_stmt *commit;
    sqlite3_stmt *note_redo;
    sqlite3_stmt *update[RECORD_TABLES];
    sqlite3_stmt *insert[RECORD_TABLES];
    sqlite3_stmt *forget[FORGET_STATEMENTS];
    sqlite3_stmt *purge_documents;
    sqlite3_stmt *labels[LABEL_STATEMENTS];
    sqlite3_stmt *free_pages;
    sqlite3_stmt *all_pages;
    sqlite3_stmt *select[RECORD_TABLES][FILTER_COMBINATIONS][2];
    sqlite3_stmt *select_expired;
    sqlite3_stmt *is_json;
};

/* --- open.c -------------------------------------------------------------------------------- */

/* Creates the file if there is none. Never removes or replaces an existing file. */
int sqlite_db_open(struct sqlite_db *db, const struct store_options *options,
                   struct store_load *out_load, struct error *err);
void sqlite_db_close(struct sqlite_db *db); /* a zeroed struct is fine */

/* Reads the id of the database's log and the last frame that the database has. */
int sqlite_db_read_redo_meta(struct sqlite_db *db, struct error *err);

/* Notes that a log that begins behind frame `base` has to be there; -1: none. */
int sqlite_db_note_log(struct sqlite_db *db, int64_t base, bool flush, struct error *err);

/* A second connection that only copies the log into the database. */
int sqlite_checkpointer_open(const char *path, const char *sync, sqlite3 **out_handle,
                             struct error *err);

/* --- schema.c ------------------------------------------------------------------------------ */

/* Brings an older or empty database to STORE_SCHEMA_VERSION, in one transaction. `out_before` is
 * the version that it had. */
int schema_migrate(sqlite3 *handle, const char *path, int *out_before, struct error *err);

/* The statements that lead from `version - 1` to `version`. */
const char *schema_migration(int version);

/* --- write.c ------------------------------------------------------------------------------- */

/* All changes in one transaction, or none of them. */
int sqlite_db_write(struct sqlite_db *db, const struct change_queue *changes, int64_t now_wall_us,
                    struct error *err);

/* The same for changes of the redo log up to frame `last`. */
int sqlite_db_apply(struct sqlite_db *db, const struct change_queue *changes, uint64_t last,
                    int64_t now_wall_us, struct error *err);

/* Lays the changes over the database for the questions that follow: applies them in a transaction
 * that sqlite_db_end_overlay() rolls back. */
int sqlite_db_overlay(struct sqlite_db *db, const struct change_queue *changes, int64_t now_wall_us,
                      struct error *err);
void sqlite_db_end_overlay(struct sqlite_db *db);

/* Flushes commits. This uses only a descriptor of the database, so another thread may use the
 * database meanwhile. */
int sqlite_db_flush(const struct sqlite_db *db);

/* --- shrink.c ------------------------------------------------------------------------------ */

enum shrink_need {
    SHRINK_NO,
    SHRINK_LATER, /* more is becoming free just now */
    SHRINK_NOW,
};

/* Whether so much of the file is free that it should be shorter. */
enum shrink_need sqlite_db_shrink_need(struct sqlite_db *db);

/* Takes one step if it is due; returns the remaining need. The file itself gets shorter with the
 * next checkpoint. */
enum shrink_need sqlite_db_shrink(struct sqlite_db *db);

/* --- query.c ------------------------------------------------------------------------------- */

/* A found record; free() releases it. */
struct found {
    struct found *next;
    uint64_t position;
    alignas(max_align_t) char record[];
};

struct sqlite_question {
    enum store_table table;
    struct store_query filter; /* a copy; its callbacks are not used */
    bool expired_only;
    int64_t now_wall_us;
    int64_t now_boot_us;
    struct found *first; /* the answer, owned */
    uint64_t total;
    bool is_cut;
    unsigned damaged; /* records met that could not be read and were set aside */
    struct error err;
};

void sqlite_db_ask(struct sqlite_db *db, struct sqlite_question *question);
void found_free(struct found *first);

/* The sum of a record, with the boot that its stamps belong to. */
int64_t sqlite_db_sum(struct sqlite_db *db, const struct record_type *type, const void *record,
                      int64_t boot);

struct damaged_row {
    enum store_table table;
    int64_t seq;
    char id[STORE_TEXT_SIZE]; /* as far as it can be read */
};
typedef void damaged_row_fn(void *context, const struct damaged_row *row);

/* Looks at all records; each that cannot be used, or is not as it was put, is reported. -1 when they
 * could not all be read. */
int sqlite_db_find_damaged(struct sqlite_db *db, damaged_row_fn *on_damaged, void *context,
                           struct error *err);

/* Reports each document that a claim has written. -1 when they could not all be read. */
typedef void claimed_document_fn(void *context, const struct document_record *document);
int sqlite_db_find_claimed(struct sqlite_db *db, claimed_document_fn *on_document, void *context,
                           struct error *err);

/* Finds damaged records and sets them aside; returns their number. */
unsigned sqlite_db_set_damaged_aside(struct sqlite_db *db);

/* Adds sums to records of a version before sums. */
int sqlite_db_add_sums(struct sqlite_db *db, struct error *err);

/* The statement of a query; borrowed. NULL with an error set. */
sqlite3_stmt *sqlite_db_select(struct sqlite_db *db, enum store_table table, unsigned filters,
                               bool newest_first, struct error *err);

/* SELECT with the columns of a record, its boot, its sequence and its sum; the caller appends
 * FROM. */
void sqlite_append_columns(struct buffer *sql, const struct record_type *type);

/* Values to bind for a page. */
int64_t sqlite_behind_of(const struct store_query *query);
int64_t sqlite_limit_of(const struct store_query *query);

/* Fails when an index or a column that queries need is missing. */
int sqlite_db_check_indexes(struct sqlite_db *db, struct error *err);

/* --- shared -------------------------------------------------------------------------------- */

/* Turns a result code into an error that names the file. Returns -1. */
int sqlite_fail(sqlite3 *handle, const char *path, int code, struct error *err, const char *what);
int sqlite_exec(sqlite3 *handle, const char *path, const char *sql, struct error *err);

/* Prepares `sql` into `*statement` unless that was done before. */
int sqlite_db_prepare(struct sqlite_db *db, sqlite3_stmt **statement, const char *sql,
                      struct error *err);

/* Steps a statement that returns no rows, then resets it. */
int sqlite_db_run(struct sqlite_db *db, sqlite3_stmt *statement, struct error *err);
