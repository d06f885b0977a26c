/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/db.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "store/sqlite/labels.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    BUSY_TIMEOUT_MS = 2000,       /* another process reads the file */
    CHECK_BUDGET_US = 100 * 1000, /* of processor time, for checks at the start */
    CHECK_WAIT_US = 1000 * 1000,  /* and with the disk or on a busy machine */
    CHECK_WHOLE_BYTES = 64 * 1024 * 1024,
    CHECK_STEPS = 1000, /* of SQLite's machine between two looks at the clock */
    INSTANCE_EVENTS_KEPT = 10000,
    FIRST_VERSION_WITH_SUMS = 4,
    FIRST_VERSION_THAT_SHRINKS = 6,
    SCRATCH_MAXIMUM = 64 * 1024 * 1024,
};

#define RESCUE_HINT                                                                               \
    "restore a backup: sandglass store restore FILE; or rescue it with: sqlite3 FILE .recover | " \
    "sqlite3 NEW; or move the file, its -wal, -shm and "                                          \
    "-redo files away to start empty, then run: sandglass sweep"

/* --- errors -------------------------------------------------------------------------------- */

static int fail_damaged(const char *path, struct error *err, const char *detail)
{
    error_named(err, ERR_INTERNAL, "store_damaged", "database %s is damaged: %s", path, detail);
    return error_hint(err, RESCUE_HINT);
}

static bool is_out_of_space(sqlite3 *handle, int code)
{
    int number = handle ? sqlite3_system_errno(handle) : 0;

    return (code & 0xff) == SQLITE_FULL ||
           ((code & 0xff) == SQLITE_IOERR &&
            (number == ENOSPC || number == EDQUOT || number == EFBIG));
}

/* An error of the disk, which says nothing about the content of the file. */
static int fail_io(sqlite3 *handle, const char *path, int code, struct error *err, const char *what)
{
    int number = handle ? sqlite3_system_errno(handle) : 0;

    error_named(err, ERR_UNAVAILABLE, "store_failed", "database %s: %s: %s (code %d%s%s)", path,
                what, sqlite3_errstr(code), code, number ? ": " : "",
                number ? strerror(number) : "");
    return error_hint(err, "the disk or its file system failed: look at the kernel's log (dmesg); "
                           "the file itself may be sound: sandglass store check");
}

int sqlite_fail(sqlite3 *handle, const char *path, int code, struct error *err, const char *what)
{
    const char *text = handle ? sqlite3_errmsg(handle) : sqlite3_errstr(code);

    if (is_out_of_space(handle, code)) {
        error_named(err, ERR_NO_SPACE, "store_full", "database %s: %s: no space left", path, what);
        if (err)
            err->retryable = true;
        return error_hint(err, "free space on the file system of the state directory");
    }
    switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return fail_damaged(path, err, text);
    case SQLITE_IOERR:
        return fail_io(handle, path, code, err, what);
    case SQLITE_CONSTRAINT:
        return error_named(err, ERR_CONFLICT, "store_conflict", "database %s: %s: %s", path, what,
                           text);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        error_named(err, ERR_UNAVAILABLE, "store_busy", "database %s: %s: %s", path, what, text);
        return error_hint(err, "another program has the file open for writing");
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        error_named(err, ERR_UNAVAILABLE, "store_readonly", "database %s: %s: %s", path, what,
                    text);
        return error_hint(err, "uid %d needs to write the file and its directory", (int)geteuid());
    default:
        return error_named(err, ERR_INTERNAL, "store_failed", "database %s: %s: %s (code %d)", path,
                           what, text, code);
    }
}

int sqlite_exec(sqlite3 *handle, const char *path, const char *sql, struct error *err)
{
    int code = sqlite3_exec(handle, sql, NULL, NULL, NULL);

    return code == SQLITE_OK ? 0 : sqlite_fail(handle, path, code, err, "set up");
}

/* --- the file ------------------------------------------------------------------------------ */

static int open_handle(const char *path, sqlite3 **out_handle, struct error *err)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    int code = sqlite3_open_v2(path, out_handle, flags, NULL);

    if (code != SQLITE_OK) {
        sqlite_fail(*out_handle, path, code, err, "open");
        sqlite3_close(*out_handle);
        *out_handle = NULL;
        return -1;
    }
    sqlite3_busy_timeout(*out_handle, BUSY_TIMEOUT_MS);
    (void)sqlite3_db_config(*out_handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    return 0;
}

static int fill_new(const char *path, struct error *err)
{
    scoped(fd_close) int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    sqlite3 *handle = NULL;
    int version;
    int result;

    if (fd < 0) {
        error_sys(err, "create database %s", path);
        return error_hint(err, "uid %d needs to write its directory", (int)geteuid());
    }
    if (open_handle(path, &handle, err) < 0)
        return -1;
    /* The file is not in use before it has its name: one sync at the end is enough. */
    result = sqlite_exec(handle, path,
                         "PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = OFF;"
                         "PRAGMA synchronous = OFF",
                         err);
    if (result == 0)
        result = schema_migrate(handle, path, &version, err);
    sqlite3_close(handle);
    if (result == 0 && fsync(fd) < 0)
        return error_sys(err, "sync database %s", path);
    return result;
}

/*
 * A new database gets its name only when it is complete, so that a process killed in between leaves
 * nothing half-made behind, and an empty file under that name is always damage.
 */
static int create(const char *path, struct error *err)
{
    scoped(free) char *new_path = xasprintf("%s.new", path);

    (void)unlink(new_path);
    if (fill_new(new_path, err) < 0) {
        (void)unlink(new_path);
        return -1;
    }
    if (rename(new_path, path) < 0)
        return error_sys(err, "rename %s to %s", new_path, path);
    return sync_directory_of(path, err);
}

static int refuse_file(const char *path, const char *what, const char *hint, struct error *err)
{
    error_named(err, ERR_INVALID, "store_damaged", "database %s %s", path, what);
    return error_hint(err, "%s", hint);
}

static int create_if_alone(const char *path, struct error *err)
{
    scoped(free) char *wal = xasprintf("%s-wal", path);
    struct stat info;

    if ((lstat(wal, &info) == 0 && info.st_size > 0) || redo_exists(path))
        return refuse_file(path, "is missing, but its -wal or -redo file is there",
                           "put the database back beside it; to start empty, remove the -wal, "
                           "-shm and -redo files, then run: sandglass sweep",
                           err);
    return create(path, err);
}

static int check_file(const char *path, struct error *err)
{
    struct stat info;

    if (lstat(path, &info) < 0) {
        if (errno == ENOENT)
            return create_if_alone(path, err);
        return error_sys(err, "look at database %s", path);
    }
    if (S_ISDIR(info.st_mode))
        return refuse_file(path, "is a directory", "move the directory away", err);
    if (S_ISLNK(info.st_mode))
        return refuse_file(path, "is a symbolic link",
                           "replace the link by the file, or set state_dir to where the file is",
                           err);
    if (!S_ISREG(info.st_mode))
        return refuse_file(path, "is not a regular file", "move it away", err);
    if (info.st_size == 0)
        return refuse_file(path, "is empty: its content is lost",
                           "restore it from a backup; to start empty, remove it, then run: "
                           "sandglass sweep",
                           err);
    return 0;
}

/* --- checks -------------------------------------------------------------------------------- */

struct check_budget {
    int64_t processor_us; /* of this thread, when it is used up */
    int64_t deadline_us;
};

static int64_t processor_us(void)
{
    struct timespec used = { 0 };

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * 1000000LL + used.tv_nsec / 1000;
}

/* Time that other processes use does not count: a small file is checked on a busy machine too. */
static struct check_budget check_budget_new(bool check_all)
{
    if (check_all)
        return (struct check_budget){ .processor_us = INT64_MAX, .deadline_us = INT64_MAX };
    return (struct check_budget){ .processor_us = processor_us() + CHECK_BUDGET_US,
                                  .deadline_us = clock_now_us(&clock_system) + CHECK_WAIT_US };
}

static int check_budget_is_over(void *context)
{
    const struct check_budget *budget = context;

    return processor_us() > budget->processor_us ||
           clock_now_us(&clock_system) > budget->deadline_us;
}

/* The check reports an unreadable page like any other fault. */
static int io_error_of(const char *finding)
{
    const char *code = finding ? strstr(finding, "error code=") : NULL;
    int number = code ? atoi(code + strlen("error code=")) : 0;

    return (number & 0xff) == SQLITE_IOERR ? number : 0;
}

/* An index is redundant: it can be rebuilt from its table. */
static bool is_about_an_index(const char *finding)
{
    return strstr(finding, " missing from index ") ||
           strncmp(finding, "wrong # of entries in index ", 28) == 0 ||
           strncmp(finding, "non-unique entry in index ", 26) == 0;
}

static int judge_finding(sqlite3 *handle, const char *path, const char *finding, bool *index_is_bad,
                         struct error *err)
{
    if (str_equal(finding, "ok"))
        return 0;
    if (finding && is_about_an_index(finding)) {
        if (!*index_is_bad)
            log_error("store index damaged; making it anew from its table", kv("database", path),
                      kv("finding", finding));
        *index_is_bad = true;
        return 0;
    }
    if (io_error_of(finding))
        return sqlite_fail(handle, path, io_error_of(finding), err, "check");
    return fail_damaged(path, err, finding ? finding : "its check says nothing");
}

static int check_part(sqlite3 *handle, const char *path, const char *part, bool *out_index_is_bad,
                      struct error *err)
{
    sqlite3_stmt *statement = NULL;
    scoped(free) char *sql = xasprintf("PRAGMA integrity_check%s", *part ? part : "(20)");
    int code = sqlite3_prepare_v2(handle, sql, -1, &statement, NULL);
    int result = 0;

    if (code == SQLITE_OK)
        code = SQLITE_ROW;
    while (result == 0 && code == SQLITE_ROW) {
        code = sqlite3_step(statement);
        if (code == SQLITE_ROW)
            result = judge_finding(handle, path, (const char *)sqlite3_column_text(statement, 0),
                                   out_index_is_bad, err);
    }
    if (result == 0 && code != SQLITE_DONE && code != SQLITE_INTERRUPT)
        result = sqlite_fail(handle, path, code, err, "check");
    sqlite3_finalize(statement);
    return result;
}

/* Checks as much as the budget allows; other damage is noticed when a page is used. The check of
 * one table cannot be interrupted, so of a large file only small tables are checked. */
static int check_parts(sqlite3 *handle, const char *path, bool *out_index_is_bad, struct error *err)
{
    static const char *const small[] = { "meta", "sandboxes", "documents" };
    struct stat info;

    if (stat(path, &info) < 0 || info.st_size <= CHECK_WHOLE_BYTES)
        return check_part(handle, path, "", out_index_is_bad, err);
    for (size_t i = 0; i < ARRAY_LENGTH(small); i++) {
        scoped(free) char *part = xasprintf("(%s)", small[i]);

        if (check_part(handle, path, part, out_index_is_bad, err) < 0)
            return -1;
    }
    return 0;
}

/* The check takes a transient read error for damage: only a fault that repeats is damage. */
static int check_structure(sqlite3 *handle, const char *path, bool *out_index_is_bad,
                           struct error *err)
{
    if (check_parts(handle, path, out_index_is_bad, err) == 0)
        return 0;
    if (!str_equal(err->name, "store_damaged"))
        return -1;
    *err = (struct error){ 0 };
    return check_parts(handle, path, out_index_is_bad, err);
}

static int check_writable(sqlite3 *handle, const char *path, struct error *err)
{
    if (!sqlite3_db_readonly(handle, "main"))
        return 0;
    error_named(err, ERR_UNAVAILABLE, "store_readonly", "database %s is read-only for uid %d", path,
                (int)geteuid());
    return error_hint(err, "give the file to that user, or mount its file system writable");
}

/* A commit never flushes the log itself: for "full" the syncer does that, beside later commits. */
static const char *sync_pragma(const char *sync)
{
    return str_equal(sync, "off") ? "PRAGMA synchronous = OFF" : "PRAGMA synchronous = NORMAL";
}

/* Checkpoints are made by a thread of their own and not inside a commit. */
static int set_modes(sqlite3 *handle, const char *path, const char *sync, struct error *err)
{
    sqlite3_stmt *statement = NULL;
    bool is_wal;

    if (sqlite_exec(handle, path, sync_pragma(sync), err) < 0 ||
        sqlite_exec(
            handle, path,
            "PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192; PRAGMA cache_spill = OFF;"
            "PRAGMA journal_size_limit = 16777216",
            err) < 0)
        return -1;
    sqlite3_prepare_v2(handle, "PRAGMA journal_mode = WAL", -1, &statement, NULL);
    is_wal = statement && sqlite3_step(statement) == SQLITE_ROW &&
             str_equal((const char *)sqlite3_column_text(statement, 0), "wal");
    sqlite3_finalize(statement);
    if (!is_wal)
        return sqlite_fail(handle, path, sqlite3_extended_errcode(handle), err,
                           "switch to a write-ahead log");
    sqlite3_wal_autocheckpoint(handle, 0);
    return 0;
}

/* A database of an earlier version never gave space back. To change that it is written anew, once.
 */
static void enable_vacuum(struct sqlite_db *db)
{
    struct error err = { 0 };

    if (sqlite_exec(db->handle, db->path, "PRAGMA auto_vacuum = INCREMENTAL; VACUUM", &err) < 0)
        log_warn("the database could not be written anew; continuing with one that does not shrink",
                 kv("error", err.message), kv("hint", err.hint));
}

/* --- the past ------------------------------------------------------------------------------ */

/* The one row of a query for metadata; any other result is a failure. */
static int read_meta_row(struct sqlite_db *db, const char *sql, sqlite3_stmt **out_row,
                         struct error *err)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db->handle, sql, -1, &statement, NULL);

    if (code == SQLITE_OK)
        code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        *out_row = statement;
        return 0;
    }
    sqlite_fail(db->handle, db->path, code, err, "read its metadata");
    sqlite3_finalize(statement);
    return -1;
}

static int read_meta(struct sqlite_db *db, const char *boot_id, struct store_load *load,
                     struct error *err)
{
    sqlite3_stmt *row = NULL;
    const char *known;

    if (read_meta_row(db,
                      "SELECT (SELECT value FROM meta WHERE name = 'boot_id'),"
                      " (SELECT value FROM meta WHERE name = 'boot'),"
                      " max(ifnull((SELECT value FROM meta WHERE name = 'last_sequence'), 0),"
                      "     ifnull((SELECT max(sequence) FROM events), 0))",
                      &row, err) < 0)
        return -1;
    known = (const char *)sqlite3_column_text(row, 0);
    load->same_boot = !str_is_empty(boot_id) && str_equal(known, boot_id);
    db->boot = sqlite3_column_int64(row, 1);
    load->last_sequence = (uint64_t)sqlite3_column_int64(row, 2);
    sqlite3_finalize(row);
    return 0;
}

static int write_meta(struct sqlite_db *db, const char *name, const char *text, int64_t number,
                      struct error *err)
{
    sqlite3_stmt *statement = NULL;
    int result;

    if (sqlite_db_prepare(db, &statement, "INSERT OR REPLACE INTO meta VALUES (?, ?)", err) < 0)
        return -1;
    sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
    if (text)
        sqlite3_bind_text(statement, 2, text, -1, SQLITE_STATIC);
    else
        sqlite3_bind_int64(statement, 2, number);
    result = sqlite_db_run(db, statement, err);
    sqlite3_finalize(statement);
    return result;
}

/* Each boot has a number, and each row that of the boot it was put in: should this process end
 * before it has put every record anew, the next one still knows which stamps are good. */
static int note_boot(struct sqlite_db *db, const struct store_options *options,
                     const struct store_load *load, struct error *err)
{
    if (options->instance && write_meta(db, "instance", options->instance, 0, err) < 0)
        return -1;
    if (load->same_boot)
        return 0;
    db->boot++;
    if (write_meta(db, "boot_id", options->boot_id ? options->boot_id : "", 0, err) < 0)
        return -1;
    return write_meta(db, "boot", NULL, db->boot, err);
}

/* An ended session that does not say how long it is kept would be kept for ever. */
static int clean_up(struct sqlite_db *db, int64_t now_wall_us, struct error *err)
{
    char sql[512];

    snprintf(sql, sizeof(sql),
             "UPDATE sessions INDEXED BY sessions_kept_for_ever"
             " SET retain_until_wall_us = %lld, sum = NULL WHERE " SESSION_KEPT_FOR_EVER ";"
             "DELETE FROM documents WHERE expires_wall_us > 0 AND expires_wall_us <= %lld;"
             "DELETE FROM events WHERE session_id = '' AND sequence <= "
             "(SELECT max(sequence) FROM events) - %d",
             (long long)now_wall_us, (long long)now_wall_us, INSTANCE_EVENTS_KEPT);
    return sqlite_exec(db->handle, db->path, sql, err);
}

int sqlite_db_read_redo_meta(struct sqlite_db *db, struct error *err)
{
    sqlite3_stmt *row = NULL;
    const char *id;

    if (read_meta_row(db,
                      "SELECT (SELECT value FROM meta WHERE name = 'redo_id'),"
                      " (SELECT value FROM meta WHERE name = 'redo_last'),"
                      " (SELECT value FROM meta WHERE name = 'boot'),"
                      " ifnull((SELECT value FROM meta WHERE name = 'redo_base'), -1)",
                      &row, err) < 0)
        return -1;
    id = (const char *)sqlite3_column_text(row, 0);
    snprintf(db->redo_id, sizeof(db->redo_id), "%s", id ? id : "");
    db->redo_last = (uint64_t)sqlite3_column_int64(row, 1);
    db->boot = sqlite3_column_int64(row, 2);
    db->redo_base = sqlite3_column_int64(row, 3);
    sqlite3_finalize(row);
    return *db->redo_id ? 0 : fail_damaged(db->path, err, "it does not say which log it has");
}

int sqlite_db_note_log(struct sqlite_db *db, int64_t base, bool flush, struct error *err)
{
    if (write_meta(db, "redo_base", NULL, base, err) < 0)
        return -1;
    if (flush && sqlite_db_flush(db) != SQLITE_OK)
        return error_set(err, ERR_INTERNAL, "database %s could not be flushed", db->path);
    db->redo_base = base;
    return 0;
}

/* Logs commits that were not complete when the machine failed; they were not promised. */
static void tell_dropped(const struct sqlite_db *db, const struct redo_past *past)
{
    if (past->dropped || past->is_cut)
        log_warn("the redo log ends with commits that were not completed before the daemon or the "
                 "machine stopped; they had not been acknowledged as durable and are dropped",
                 kv("database", db->path), kv("last", past->last), kv("behind", past->dropped));
}

static int apply_past(struct sqlite_db *db, const struct store_options *options,
                      struct redo_past *past, struct error *err)
{
    if (past->damage.code != ERR_NONE && !options->accept_loss) {
        *err = past->damage;
        return -1;
    }
    if (past->damage.code != ERR_NONE)
        log_error("the redo log is damaged; continuing without the lost commits, as requested",
                  kv("error", past->damage.message));
    tell_dropped(db, past);
    if (!past->changes.first)
        return 0;
    change_queue_fold(&past->changes);
    return sqlite_db_apply(db, &past->changes, past->last, clock_wall_us(loop_clock(options->loop)),
                           err);
}

/* Applies commits of an earlier process that are only in the log, with the stamps of its boot. All
 * of them are on the disk before the log is removed, also those that the process had applied
 * itself. */
static int redo(struct sqlite_db *db, const struct store_options *options, struct error *err)
{
    const struct redo_expected expected = {
        .id = db->redo_id, .boot_id = options->boot_id, .last = db->redo_last, .base = db->redo_base
    };
    struct redo_past past = { 0 };
    bool is_damaged;
    int result;

    if (db->redo_base < 0 && !redo_exists(db->path))
        return 0;
    if (redo_read(db->path, &expected, &past, err) < 0)
        return -1;
    is_damaged = past.damage.code != ERR_NONE;
    result = apply_past(db, options, &past, err);
    redo_past_fini(&past);
    if (result < 0 || sqlite_db_note_log(db, -1, !str_equal(options->sync, "off"), err) < 0)
        return -1;
    return is_damaged ? redo_set_aside(db->path, err) : redo_remove(db->path, err);
}

static int load_past(struct sqlite_db *db, const struct store_options *options,
                     struct store_load *load, struct error *err)
{
    if (read_meta(db, options->boot_id, load, err) < 0 ||
        sqlite_exec(db->handle, db->path, "BEGIN IMMEDIATE", err) < 0)
        return -1;
    if (note_boot(db, options, load, err) < 0 ||
        clean_up(db, clock_wall_us(loop_clock(options->loop)), err) < 0)
        return -1;
    return sqlite_exec(db->handle, db->path, "COMMIT", err);
}

/* --- open and close ------------------------------------------------------------------------ */

static int count_wal_pages(void *context, sqlite3 *handle UNUSED, const char *name UNUSED,
                           int pages)
{
    struct sqlite_db *db = context;

    db->wal_pages = pages;
    return SQLITE_OK;
}

/* The lists are checked within the rest of the budget; rebuilding them has no time limit. */
static int check_lists(struct sqlite_db *db, struct error *err)
{
    bool right = true;

    if (labels_check(db, &right, NULL) < 0)
        right = true;
    sqlite3_progress_handler(db->handle, 0, NULL, NULL);
    return labels_repair(db, !right, err);
}

static int open_checked(struct sqlite_db *db, const struct store_options *options,
                        struct store_load *load, struct error *err)
{
    struct check_budget budget = check_budget_new(options->check_all);
    bool index_is_bad = false;
    int version;

    if (check_file(db->path, err) < 0 || open_handle(db->path, &db->handle, err) < 0 ||
        check_writable(db->handle, db->path, err) < 0)
        return -1;
    sqlite3_progress_handler(db->handle, CHECK_STEPS, check_budget_is_over, &budget);
    if (check_structure(db->handle, db->path, &index_is_bad, err) < 0)
        return -1;
    sqlite3_progress_handler(db->handle, 0, NULL, NULL);
    if (index_is_bad && sqlite_exec(db->handle, db->path, "REINDEX", err) < 0)
        return -1;
    if (schema_migrate(db->handle, db->path, &version, err) < 0 ||
        set_modes(db->handle, db->path, options->sync, err) < 0 ||
        (version < FIRST_VERSION_WITH_SUMS && sqlite_db_add_sums(db, err) < 0))
        return -1;
    if (version < FIRST_VERSION_THAT_SHRINKS)
        enable_vacuum(db);
    if (sqlite_db_check_indexes(db, err) < 0 || sqlite_db_read_redo_meta(db, err) < 0)
        return -1;
    /* The pointer is that of the write-ahead log from the first read on. */
    (void)sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &db->log);
    if (redo(db, options, err) < 0 || load_past(db, options, load, err) < 0)
        return -1;
    /* A record whose id is damaged is in the new index under that id, so that no query finds it:
     * all records are read. */
    if (index_is_bad)
        budget = check_budget_new(true);
    sqlite3_progress_handler(db->handle, CHECK_STEPS, check_budget_is_over, &budget);
    load->damaged = sqlite_db_set_damaged_aside(db);
    if (check_lists(db, err) < 0)
        return -1;
    sqlite3_wal_hook(db->handle, count_wal_pages, db);
    return 0;
}

int sqlite_db_open(struct sqlite_db *db, const struct store_options *options,
                   struct store_load *out_load, struct error *err)
{
    struct store_load load = { 0 };

    *db = (struct sqlite_db){ .path = xstrdup(options->path),
                              .scratch = BUFFER_INIT(SCRATCH_MAXIMUM) };
    if (open_checked(db, options, &load, err) < 0) {
        sqlite_db_close(db);
        return -1;
    }
    *out_load = load;
    return 0;
}

void sqlite_db_close(struct sqlite_db *db)
{
    sqlite3_stmt *statement;

    while (db->handle && (statement = sqlite3_next_stmt(db->handle, NULL)))
        sqlite3_finalize(statement);
    sqlite3_close(db->handle);
    buffer_fini(&db->scratch);
    free(db->left.lists);
    free(db->path);
    *db = (struct sqlite_db){ 0 };
}

int sqlite_checkpointer_open(const char *path, const char *sync, sqlite3 **out_handle,
                             struct error *err)
{
    sqlite3 *handle = NULL;

    if (open_handle(path, &handle, err) < 0)
        return -1;
    if (set_modes(handle, path, sync, err) < 0) {
        sqlite3_close(handle);
        return -1;
    }
    *out_handle = handle;
    return 0;
}
