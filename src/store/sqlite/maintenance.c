/* SPDX-License-Identifier: Apache-2.0 */
#include "store/maintenance.h"

#include "base/alloc.h"
#include "base/str.h"
#include "store/sqlite/db.h"
#include "store/sqlite/labels.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ATTEMPTS = 20, PAUSE_US = 50 * 1000, FINDINGS_MAXIMUM = 100, SCRATCH = 64 * 1024 * 1024 };

static const char *const suffixes[] = { "-wal", "-shm", "-redo0", "-redo1", "-redomark" };

/* --- looking at a database ----------------------------------------------------------------- */

/* A connection that changes nothing; the log of a running daemon may be read through it. */
static int open_to_read(struct sqlite_db *db, const char *path, struct error *err)
{
    struct stat info;
    int code;

    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return error_named(err, ERR_INVALID, "store_damaged", "database %s is not a regular file",
                           path);
    *db = (struct sqlite_db){ .path = xstrdup(path), .scratch = BUFFER_INIT(SCRATCH) };
    code = sqlite3_open_v2(path, &db->handle, SQLITE_OPEN_READONLY | SQLITE_OPEN_EXRESCODE, NULL);
    if (code == SQLITE_OK)
        code = sqlite3_busy_timeout(db->handle, 10 * 1000);
    if (code != SQLITE_OK) {
        sqlite_fail(db->handle, path, code, err, "open");
        sqlite_db_close(db);
        return -1;
    }
    return 0;
}

static int64_t ask_number(struct sqlite_db *db, const char *sql)
{
    sqlite3_stmt *row = NULL;
    int64_t number = -1;

    if (sqlite3_prepare_v2(db->handle, sql, -1, &row, NULL) == SQLITE_OK &&
        sqlite3_step(row) == SQLITE_ROW)
        number = sqlite3_column_int64(row, 0);
    sqlite3_finalize(row);
    return number;
}

static int require_version(struct sqlite_db *db, struct error *err)
{
    int64_t application = ask_number(db, "PRAGMA application_id");
    int64_t version = ask_number(db, "PRAGMA user_version");

    if (version < 0)
        return sqlite_fail(db->handle, db->path, sqlite3_extended_errcode(db->handle), err,
                           "read its header");
    if (application != STORE_APPLICATION_ID)
        return error_named(err, ERR_INVALID, "store_foreign", "%s is not a database of Sandglass",
                           db->path);
    if (version == STORE_SCHEMA_VERSION)
        return 0;
    error_named(err, ERR_INVALID, "store_version", "%s has schema version %lld, not %d", db->path,
                (long long)version, STORE_SCHEMA_VERSION);
    return error_hint(err, "start the daemon of this version once with it, or use the sandglass "
                           "that it belongs to");
}

/* --- checking ------------------------------------------------------------------------------ */

static void tell(struct store_check *check, const char *finding)
{
    check->findings++;
    if (check->findings <= FINDINGS_MAXIMUM)
        check->on_finding(check, finding);
}

static void on_damaged(void *context, const struct damaged_row *row)
{
    scoped(free) char *finding = xasprintf("the record %s in %s (number %lld) is damaged",
                                           *row->id ? row->id : "?", record_types[row->table].table,
                                           (long long)row->seq);

    tell(context, finding);
}

static int check_pages(struct store_check *check, struct sqlite_db *db, struct error *err)
{
    sqlite3_stmt *row = NULL;
    int code = sqlite3_prepare_v2(db->handle, "PRAGMA integrity_check", -1, &row, NULL);

    while (code == SQLITE_OK || code == SQLITE_ROW) {
        const char *text;

        code = sqlite3_step(row);
        text = code == SQLITE_ROW ? (const char *)sqlite3_column_text(row, 0) : "ok";
        if (!str_equal(text, "ok"))
            tell(check, text ? text : "?");
    }
    if (code != SQLITE_DONE)
        sqlite_fail(db->handle, db->path, code, err, "check");
    sqlite3_finalize(row);
    return code == SQLITE_DONE ? 0 : -1;
}

static void check_set_aside(struct store_check *check, struct sqlite_db *db)
{
    int64_t count = ask_number(db, "SELECT count(*) FROM damaged");
    scoped(free) char *finding =
        xasprintf("%lld damaged records were set aside earlier; they are in the table \"damaged\"",
                  (long long)count);

    if (count > 0)
        tell(check, finding);
}

static void deliver_executions(struct store_check *check, struct sqlite_db *db,
                               const struct change_queue *changes)
{
    sqlite3_stmt *row = NULL;

    if (sqlite3_prepare_v2(db->handle, "SELECT id FROM executions", -1, &row, NULL) == SQLITE_OK)
        while (sqlite3_step(row) == SQLITE_ROW)
            if (sqlite3_column_text(row, 0))
                check->on_execution(check, (const char *)sqlite3_column_text(row, 0));
    sqlite3_finalize(row);
    for (const struct change *change = changes->first; change; change = change->next)
        if (change->table == STORE_EXECUTIONS && !change->forget)
            check->on_execution(check, change->record);
}

static void deliver_documents(struct store_check *check, struct sqlite_db *db,
                              const struct change_queue *changes)
{
    sqlite3_stmt *row = NULL;

    if (sqlite3_prepare_v2(db->handle, "SELECT id, json FROM documents WHERE kind = ?", -1, &row,
                           NULL) == SQLITE_OK) {
        sqlite3_bind_text(row, 1, check->document_kind, -1, SQLITE_STATIC);
        while (sqlite3_step(row) == SQLITE_ROW)
            if (sqlite3_column_text(row, 0) && sqlite3_column_text(row, 1))
                check->on_document(check, (const char *)sqlite3_column_text(row, 0),
                                   (const char *)sqlite3_column_text(row, 1));
    }
    sqlite3_finalize(row);
    for (const struct change *change = changes->first; change; change = change->next) {
        const struct document_record *document = (const void *)change->record;

        if (change->table == STORE_DOCUMENTS && str_equal(document->kind, check->document_kind))
            check->on_document(check, document->id, change->forget ? NULL : document->json);
    }
}

/* The changes that the database does not have yet. A running daemon may restart a file between two
 * reads: then the database has its frames. */
static int read_log(struct sqlite_db *db, struct redo_past *out_past, struct error *err)
{
    struct redo_expected expected = { .id = db->redo_id };

    if (sqlite_db_read_redo_meta(db, err) < 0)
        return -1;
    expected.last = db->redo_last;
    expected.base = db->redo_base;
    *out_past = (struct redo_past){ .last = expected.last };
    if (expected.base < 0 && !redo_exists(db->path))
        return 0;
    return redo_read(db->path, &expected, out_past, err);
}

static int check_log(struct store_check *check, struct sqlite_db *db, struct error *err)
{
    struct redo_past past = { 0 };

    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        redo_past_fini(&past);
        *err = (struct error){ 0 };
        if (read_log(db, &past, err) == 0 && past.damage.code == ERR_NONE)
            break;
        usleep(PAUSE_US);
    }
    if (err->code != ERR_NONE)
        tell(check, err->message);
    else if (past.damage.code != ERR_NONE)
        tell(check, past.damage.message);
    if (check->on_execution)
        deliver_executions(check, db, &past.changes);
    if (check->on_document)
        deliver_documents(check, db, &past.changes);
    redo_past_fini(&past);
    *err = (struct error){ 0 };
    return 0;
}

/* In one transaction, because a daemon may be running. */
static int check_lists(struct store_check *check, struct sqlite_db *db, struct error *err)
{
    bool right = true;
    int result;

    if (ask_number(db, "SELECT EXISTS (SELECT 1 FROM meta WHERE name = 'lists_stale')") > 0)
        return 0;
    if (sqlite_exec(db->handle, db->path, "BEGIN", err) < 0)
        return -1;
    result = labels_check(db, &right, err);
    (void)sqlite3_exec(db->handle, "COMMIT", NULL, NULL, NULL);
    if (!right)
        tell(check, "the lists of labels do not agree with the sessions; the daemon rebuilds them "
                    "when it starts");
    return result;
}

static int check_all(struct store_check *check, struct sqlite_db *db, struct error *err)
{
    if (require_version(db, err) < 0 || check_pages(check, db, err) < 0 ||
        sqlite_db_find_damaged(db, on_damaged, check, err) < 0 || check_lists(check, db, err) < 0)
        return -1;
    check_set_aside(check, db);
    check->sessions = (uint64_t)ask_number(db, "SELECT count(*) FROM sessions");
    check->executions = (uint64_t)ask_number(db, "SELECT count(*) FROM executions");
    check->events = (uint64_t)ask_number(db, "SELECT count(*) FROM events");
    return check_log(check, db, err);
}

int store_check_run(struct store_check *check, const char *path, struct error *err)
{
    struct sqlite_db db;
    int result;

    if (open_to_read(&db, path, err) < 0)
        return -1;
    result = check_all(check, &db, err);
    if (result < 0 && str_equal(err->name, "store_damaged")) {
        tell(check, err->message);
        *err = (struct error){ 0 };
        result = 0;
    }
    sqlite_db_close(&db);
    return result;
}

/* --- copying ------------------------------------------------------------------------------- */

static int copy_pages(struct sqlite_db *from, struct sqlite_db *to, struct error *err)
{
    sqlite3_backup *backup = sqlite3_backup_init(to->handle, "main", from->handle, "main");
    int code;

    if (!backup)
        return sqlite_fail(to->handle, to->path, sqlite3_extended_errcode(to->handle), err, "copy");
    (void)sqlite3_backup_step(backup, -1);
    code = sqlite3_backup_finish(backup);
    return code == SQLITE_OK ? 0 : sqlite_fail(to->handle, to->path, code, err, "copy");
}

/* Adds the frames of the log that the copy lacks. */
static int add_log(const struct sqlite_db *from, struct sqlite_db *to, struct error *err)
{
    struct redo_expected expected = { .id = to->redo_id,
                                      .last = to->redo_last,
                                      .base = to->redo_base };
    struct redo_past past = { 0 };
    int result = 0;

    if (to->redo_base < 0 && !redo_exists(from->path))
        return 0;
    if (redo_read(from->path, &expected, &past, err) < 0)
        return -1;
    if (past.damage.code != ERR_NONE) {
        *err = past.damage;
        result = -1;
    } else if (past.changes.first) {
        change_queue_fold(&past.changes);
        result = sqlite_db_apply(to, &past.changes, past.last, clock_wall_us(&clock_system), err);
    }
    redo_past_fini(&past);
    return result;
}

/* The copy has no log, and gets an id of its own, which does not match the original's log. */
static int finish_copy(struct sqlite_db *copy, struct error *err)
{
    return sqlite_exec(copy->handle, copy->path,
                       "UPDATE meta SET value = lower(hex(randomblob(16))) WHERE name = 'redo_id';"
                       "INSERT OR REPLACE INTO meta VALUES ('redo_base', -1);"
                       "PRAGMA journal_mode = DELETE",
                       err);
}

static int make_copy(struct sqlite_db *from, const char *to, struct error *err)
{
    scoped(fd_close) int fd = open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct sqlite_db copy = { 0 };
    int result = -1;

    if (fd < 0)
        return error_sys(err, "create %s", to);
    if (open_to_read(&copy, to, err) < 0)
        return -1;
    sqlite3_close(steal_ptr(&copy.handle));
    if (sqlite3_open_v2(to, &copy.handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_EXRESCODE, NULL) ==
        SQLITE_OK)
        (void)sqlite3_db_config(copy.handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    if (copy_pages(from, &copy, err) == 0 && sqlite_db_read_redo_meta(&copy, err) == 0 &&
        add_log(from, &copy, err) == 0 && finish_copy(&copy, err) == 0)
        result = 0;
    sqlite_db_close(&copy);
    if (result == 0 && fsync(fd) < 0)
        result = error_sys(err, "flush %s", to);
    return result;
}

static void remove_copy(const char *path)
{
    scoped(free) char *wal = xasprintf("%s-wal", path);
    scoped(free) char *shm = xasprintf("%s-shm", path);

    (void)unlink(path);
    (void)unlink(wal);
    (void)unlink(shm);
}

/* A running daemon may reuse a file of its log between the two reads: retry then. */
static int copy_database(const char *path, const char *to, struct error *err)
{
    struct sqlite_db from;
    int result = -1;

    if (open_to_read(&from, path, err) < 0)
        return -1;
    if (require_version(&from, err) == 0) {
        for (unsigned attempt = 0; attempt < ATTEMPTS && result < 0; attempt++) {
            *err = (struct error){ 0 };
            remove_copy(to);
            if (attempt)
                usleep(PAUSE_US);
            result = make_copy(&from, to, err);
            if (result < 0 && !str_equal(err->name, "store_damaged"))
                break;
        }
    }
    sqlite_db_close(&from);
    if (result < 0)
        remove_copy(to);
    return result;
}

int store_backup(const char *path, const char *to, struct error *err)
{
    scoped(free) char *half = xasprintf("%s.new", to);
    struct stat info;

    if (lstat(to, &info) == 0)
        return error_named(err, ERR_CONFLICT, "file_exists", "%s is there already", to);
    if (copy_database(path, half, err) < 0)
        return -1;
    if (rename(half, to) < 0)
        return error_sys(err, "rename %s to %s", half, to);
    return sync_directory_of(to, err);
}

/* --- putting back -------------------------------------------------------------------------- */

static int keep_file(const char *path, const char *suffix, struct error *err)
{
    scoped(free) char *name = xasprintf("%s%s", path, suffix);
    scoped(free) char *kept = xasprintf("%s.replaced", name);

    if (unlink(kept) < 0 && errno != ENOENT)
        return error_sys(err, "remove %s", kept);
    if (link(name, kept) < 0 && errno != ENOENT)
        return error_sys(err, "link %s to %s", name, kept);
    return 0;
}

static int keep_files(const char *path, struct error *err)
{
    if (keep_file(path, "", err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LENGTH(suffixes); i++)
        if (keep_file(path, suffixes[i], err) < 0)
            return -1;
    return sync_directory_of(path, err);
}

static int remove_files(const char *path, const char *const *endings, size_t count,
                        struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        scoped(free) char *name = xasprintf("%s%s", path, endings[i]);

        if (unlink(name) < 0 && errno != ENOENT)
            return error_sys(err, "remove %s", name);
    }
    return 0;
}

/* The log of SQLite does not know which database it belongs to: it must not be beside another one.
 * Closing the last connection copies it into its own; of a damaged one a copy is kept. */
static int settle(const char *path, struct error *err)
{
    static const char *const of_sqlite[] = { "-wal", "-shm" };
    sqlite3 *handle = NULL;

    if (sqlite3_open_v2(path, &handle, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK)
        (void)sqlite3_exec(handle, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL);
    sqlite3_close(handle);
    return remove_files(path, of_sqlite, ARRAY_LENGTH(of_sqlite), err);
}

/* There is a database under its name at every moment: the old one with its log, then the new one.
 * After a kill before the old log is removed, the new database is refused because of that log; a
 * second restore repairs it. */
int store_restore(const char *from, const char *path, uid_t owner, gid_t group, struct error *err)
{
    scoped(free) char *half = xasprintf("%s.new", path);

    if (copy_database(from, half, err) < 0)
        return -1;
    if (chown(half, owner, group) < 0 && geteuid() == 0)
        return error_sys(err, "give %s to uid %d", half, (int)owner);
    if (keep_files(path, err) < 0 || settle(path, err) < 0)
        return -1;
    if (rename(half, path) < 0)
        return error_sys(err, "rename %s to %s", half, path);
    if (remove_files(path, suffixes, ARRAY_LENGTH(suffixes), err) < 0)
        return -1;
    return sync_directory_of(path, err);
}
