/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/db.h"

#include "base/buffer.h"
#include "base/log.h"
#include "base/macros.h"
#include "store/change_code.h"
#include "store/checksum.h"
#include "store/sqlite/labels.h"

enum { SQL_MAXIMUM = 8192, NEW_US = 150 * 1000 };

/* --- statements ---------------------------------------------------------------------------- */

int sqlite_db_prepare(struct sqlite_db *db, sqlite3_stmt **statement, const char *sql,
                      struct error *err)
{
    int code;

    if (*statement)
        return 0;
    code = sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, statement, NULL);
    return code == SQLITE_OK ? 0 : sqlite_fail(db->handle, db->path, code, err, "prepare");
}

int sqlite_db_run(struct sqlite_db *db, sqlite3_stmt *statement, struct error *err)
{
    int code = sqlite3_step(statement);

    if (code != SQLITE_DONE && code != SQLITE_ROW) {
        sqlite_fail(db->handle, db->path, code, err, "write");
        if (code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC)
            db->broken = *err;
        sqlite3_reset(statement);
        return -1;
    }
    sqlite3_reset(statement);
    return 0;
}

int64_t sqlite_db_sum(struct sqlite_db *db, const struct record_type *type, const void *record,
                      int64_t boot)
{
    buffer_clear(&db->scratch);
    if (record_encode(type, record, &db->scratch) < 0)
        return 0; /* too long to be written at all */
    return (int64_t)checksum_step(checksum(db->scratch.data, db->scratch.length), (uint64_t)boot);
}

static void append_boot(struct buffer *sql, const struct record_type *type, const char *format)
{
    if (type->has_stamps)
        buffer_appendf(sql, format, type->field_count + 1);
}

/* Parameter i + 1 is field i; the number of the boot and the sum follow. */
static int prepare_insert(struct sqlite_db *db, enum store_table table, struct error *err)
{
    const struct record_type *type = &record_types[table];
    scoped(buffer_fini) struct buffer sql = BUFFER_INIT(SQL_MAXIMUM);

    if (db->insert[table])
        return 0;
    buffer_appendf(&sql, "INSERT INTO %s (", type->table);
    for (size_t i = 0; i < type->field_count; i++)
        buffer_appendf(&sql, "%s%s", i ? ", " : "", type->fields[i].column);
    buffer_appendf(&sql, "%s, sum) VALUES (", type->has_stamps ? ", boot" : "");
    for (size_t i = 0; i < type->field_count; i++)
        buffer_appendf(&sql, "%s?%zu", i ? ", " : "", i + 1);
    append_boot(&sql, type, ", ?%zu");
    buffer_appendf(&sql, ", ?%zu) ON CONFLICT (%s) DO UPDATE SET ", type->field_count + 2,
                   type->identity);
    for (size_t i = 1; i < type->field_count; i++)
        buffer_appendf(&sql, "%s%s = ?%zu", i > 1 ? ", " : "", type->fields[i].column, i + 1);
    append_boot(&sql, type, ", boot = ?%zu");
    buffer_appendf(&sql, ", sum = ?%zu", type->field_count + 2);
    return sqlite_db_prepare(db, &db->insert[table], buffer_text(&sql), err);
}

/*
 * Most puts change a record without changing anything that is indexed. This statement finds the row
 * only in that case, and then writes the row alone; an update of all columns would write a page of
 * each index too.
 */
static int prepare_update(struct sqlite_db *db, enum store_table table, struct error *err)
{
    const struct record_type *type = &record_types[table];
    scoped(buffer_fini) struct buffer sql = BUFFER_INIT(SQL_MAXIMUM);
    const char *between = "";

    if (db->update[table])
        return 0;
    buffer_appendf(&sql, "UPDATE %s SET ", type->table);
    for (size_t i = 0; i < type->field_count; i++) {
        if (type->fields[i].indexed)
            continue;
        buffer_appendf(&sql, "%s%s = ?%zu", between, type->fields[i].column, i + 1);
        between = ", ";
    }
    append_boot(&sql, type, ", boot = ?%zu");
    buffer_appendf(&sql, ", sum = ?%zu", type->field_count + 2);
    between = " WHERE ";
    for (size_t i = 0; i < type->field_count; i++) {
        if (!type->fields[i].indexed)
            continue;
        buffer_appendf(&sql, "%s%s = ?%zu", between, type->fields[i].column, i + 1);
        between = " AND ";
    }
    return sqlite_db_prepare(db, &db->update[table], buffer_text(&sql), err);
}

static void bind_field(sqlite3_stmt *statement, int at, const struct record_field *field,
                       const char *record)
{
    if (record_is_text(field))
        sqlite3_bind_text(statement, at, record_text(field, record), -1, SQLITE_STATIC);
    else
        sqlite3_bind_int64(statement, at, record_number(field, record));
}

static void bind_record(struct sqlite_db *db, sqlite3_stmt *statement, const struct change *change)
{
    const struct record_type *type = &record_types[change->table];

    for (size_t i = 0; i < type->field_count; i++)
        bind_field(statement, (int)i + 1, &type->fields[i], change->record);
    if (type->has_stamps)
        sqlite3_bind_int64(statement, (int)type->field_count + 1, db->boot);
    sqlite3_bind_int64(statement, (int)type->field_count + 2,
                       sqlite_db_sum(db, type, change->record, type->has_stamps ? db->boot : 0));
}

/* Whether the record is probably not there yet. */
static bool is_new(const struct change *change, int64_t now_wall_us)
{
    const struct session_record *session = (const void *)change->record;
    const struct execution_record *execution = (const void *)change->record;

    switch (change->table) {
    case STORE_SESSIONS:
        return session->created.wall_us > now_wall_us - NEW_US;
    case STORE_EXECUTIONS:
        return execution->created.wall_us > now_wall_us - NEW_US;
    case STORE_EVENTS:
        return true;
    case STORE_SANDBOXES:
    case STORE_DOCUMENTS:
        break;
    }
    return false;
}

static int insert(struct sqlite_db *db, const struct change *change, struct error *err)
{
    const struct session_record *session = (const void *)change->record;
    bool is_session = change->table == STORE_SESSIONS;

    if (prepare_insert(db, change->table, err) < 0 ||
        (is_session && labels_leave(db, session->id, err) < 0))
        return -1;
    bind_record(db, db->insert[change->table], change);
    if (sqlite_db_run(db, db->insert[change->table], err) < 0)
        return -1;
    return is_session ? labels_enter(db, session->id, err) : 0;
}

/* An update alone leaves state, owner and labels of a session as they are. */
static int put(struct sqlite_db *db, const struct change *change, int64_t now_wall_us,
               struct error *err)
{
    if (!is_new(change, now_wall_us)) {
        if (prepare_update(db, change->table, err) < 0)
            return -1;
        bind_record(db, db->update[change->table], change);
        if (sqlite_db_run(db, db->update[change->table], err) < 0)
            return -1;
        if (sqlite3_changes(db->handle) > 0)
            return 0;
    }
    return insert(db, change, err);
}

/* --- forgetting ---------------------------------------------------------------------------- */

/* Sequence numbers go on growing after the events that had the last ones are forgotten. */
static const struct {
    enum store_table table;
    const char *sql;
} forget_statements[] = {
    { STORE_SESSIONS, "INSERT INTO meta SELECT 'last_sequence', ifnull(max(sequence), 0)"
                      " FROM events WHERE true ON CONFLICT (name)"
                      " DO UPDATE SET value = max(value, excluded.value)" },
    { STORE_SESSIONS, "DELETE FROM executions WHERE session_id = ?1" },
    { STORE_SESSIONS, "DELETE FROM events WHERE session_id = ?1" },
    { STORE_SESSIONS, "DELETE FROM sessions WHERE id = ?1" },
    { STORE_SANDBOXES, "DELETE FROM sandboxes WHERE id = ?1" },
    { STORE_DOCUMENTS, "DELETE FROM documents WHERE kind = ?1 AND id = ?2" },
};

_Static_assert(ARRAY_LENGTH(forget_statements) <= FORGET_STATEMENTS, "room for each statement");

static int forget(struct sqlite_db *db, const struct change *change, struct error *err)
{
    const struct record_type *type = &record_types[change->table];

    if (change->table == STORE_SESSIONS && labels_leave(db, change->record, err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LENGTH(forget_statements); i++) {
        int parameters;

        if (forget_statements[i].table != change->table)
            continue;
        if (sqlite_db_prepare(db, &db->forget[i], forget_statements[i].sql, err) < 0)
            return -1;
        parameters = sqlite3_bind_parameter_count(db->forget[i]);
        for (int at = 1; at <= parameters; at++)
            bind_field(db->forget[i], at, &type->fields[at - 1], change->record);
        if (sqlite_db_run(db, db->forget[i], err) < 0)
            return -1;
    }
    return 0;
}

static int purge_documents(struct sqlite_db *db, int64_t now_wall_us, struct error *err)
{
    if (sqlite_db_prepare(db, &db->purge_documents,
                          "DELETE FROM documents"
                          " WHERE expires_wall_us > 0 AND expires_wall_us <= ?",
                          err) < 0)
        return -1;
    sqlite3_bind_int64(db->purge_documents, 1, now_wall_us);
    return sqlite_db_run(db, db->purge_documents, err);
}

/* --- transactions -------------------------------------------------------------------------- */

static int write_change(struct sqlite_db *db, const struct change *change, int64_t now_wall_us,
                        struct error *err)
{
    int result = change->forget ? forget(db, change, err) : put(db, change, now_wall_us, err);

    if (result < 0) {
        scoped(free) char *id = change_id(change);

        error_wrap(err, "%s %s", record_types[change->table].table, id);
    }
    return result;
}

static int write_all(struct sqlite_db *db, const struct change_queue *changes, int64_t now_wall_us,
                     struct error *err)
{
    bool documents = false;

    for (const struct change *change = changes->first; change; change = change->next) {
        if (change->is_moot)
            continue;
        if (write_change(db, change->newest ? change->newest : change, now_wall_us, err) < 0)
            return -1;
        documents = documents || change->table == STORE_DOCUMENTS;
    }
    if (labels_settle(db, err) < 0)
        return -1;
    return documents ? purge_documents(db, now_wall_us, err) : 0;
}

/* A process that writes to an unlinked file would acknowledge commits that cannot be read again. */
static int check_file_is_there(struct sqlite_db *db, struct error *err)
{
    int moved = 0;

    if (db->broken.code != ERR_NONE) {
        *err = db->broken;
        error_wrap(err, "an earlier sync failed");
        return error_hint(err, "look at the disk, then restart the daemon");
    }
    (void)sqlite3_file_control(db->handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    if (!moved)
        return 0;
    error_named(err, ERR_UNAVAILABLE, "store_gone", "database %s was removed or replaced",
                db->path);
    return error_hint(err, "put the file back and restart the daemon");
}

static int begin(struct sqlite_db *db, struct error *err)
{
    if (check_file_is_there(db, err) < 0 ||
        sqlite_db_prepare(db, &db->begin, "BEGIN IMMEDIATE", err) < 0 ||
        sqlite_db_prepare(db, &db->commit, "COMMIT", err) < 0)
        return -1;
    return sqlite_db_run(db, db->begin, err);
}

static void roll_back(struct sqlite_db *db)
{
    labels_discard(db);
    if (!sqlite3_get_autocommit(db->handle))
        (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
}

static int note_redo(struct sqlite_db *db, uint64_t last, struct error *err)
{
    if (sqlite_db_prepare(db, &db->note_redo, "UPDATE meta SET value = ? WHERE name = 'redo_last'",
                          err) < 0)
        return -1;
    sqlite3_bind_int64(db->note_redo, 1, (int64_t)last);
    return sqlite_db_run(db, db->note_redo, err);
}

int sqlite_db_write(struct sqlite_db *db, const struct change_queue *changes, int64_t now_wall_us,
                    struct error *err)
{
    if (begin(db, err) < 0)
        return -1;
    if (write_all(db, changes, now_wall_us, err) == 0 && sqlite_db_run(db, db->commit, err) == 0)
        return 0;
    roll_back(db);
    return -1;
}

int sqlite_db_apply(struct sqlite_db *db, const struct change_queue *changes, uint64_t last,
                    int64_t now_wall_us, struct error *err)
{
    if (begin(db, err) < 0)
        return -1;
    if (write_all(db, changes, now_wall_us, err) == 0 && note_redo(db, last, err) == 0 &&
        sqlite_db_run(db, db->commit, err) == 0) {
        db->redo_last = last;
        return 0;
    }
    roll_back(db);
    return -1;
}

int sqlite_db_overlay(struct sqlite_db *db, const struct change_queue *changes, int64_t now_wall_us,
                      struct error *err)
{
    if (begin(db, err) < 0)
        return -1;
    if (write_all(db, changes, now_wall_us, err) == 0)
        return 0;
    roll_back(db);
    return -1;
}

void sqlite_db_end_overlay(struct sqlite_db *db)
{
    roll_back(db);
}

int sqlite_db_flush(const struct sqlite_db *db)
{
    return db->log && db->log->pMethods ? db->log->pMethods->xSync(db->log, SQLITE_SYNC_NORMAL)
                                        : SQLITE_OK;
}
