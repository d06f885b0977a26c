/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/labels.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/log.h"
#include "base/macros.h"

#include <stdlib.h>

enum { SQL_MAXIMUM = 64 * 1024 };

/* Only a condition with a plain number reaches the tables behind the view. */
#define OF_SESSION "ended_labels.session = ?1"
#define LISTS                                                                             \
    " FROM ended_labels CROSS JOIN ended_lists ON ended_lists.scope = ended_labels.scope" \
    " AND ended_lists.name = ended_labels.name AND ended_lists.value = ended_labels.value"

enum statement {
    FIND_SESSION,
    COUNT_IN,
    ADD_ENTRIES,
    LISTS_OF_SESSION,
    REMOVE_ENTRY,
    COUNT_OUT,
    REMOVE_LISTS,
    FIND_LIST,
};

static const char *const statements[] = {
    [FIND_SESSION] = "SELECT seq FROM sessions WHERE id = ?1 AND state = 'ended'",
    [COUNT_IN] = "INSERT INTO ended_lists (scope, name, value, sessions)"
                 " SELECT scope, name, value, 1 FROM ended_labels WHERE " OF_SESSION
                 " ON CONFLICT (scope, name, value) DO UPDATE SET sessions = sessions + 1",
    [ADD_ENTRIES] = "INSERT OR IGNORE INTO ended_entries"
                    " SELECT ended_lists.id, ended_labels.session" LISTS " WHERE " OF_SESSION
                    " AND ended_labels.name <> ''",
    [LISTS_OF_SESSION] = "SELECT ended_lists.id" LISTS " WHERE " OF_SESSION,
    [REMOVE_ENTRY] = "DELETE FROM ended_entries WHERE session = ?1 AND list = ?2",
    [COUNT_OUT] = "UPDATE ended_lists SET sessions = sessions - ?1 WHERE id = ?2",
    [REMOVE_LISTS] = "DELETE FROM ended_lists INDEXED BY ended_lists_empty WHERE sessions <= 0",
    [FIND_LIST] =
        "SELECT id, sessions FROM ended_lists WHERE scope = ?1 AND name = ?2 AND value = ?3",
};

_Static_assert(ARRAY_LENGTH(statements) == LABEL_STATEMENTS, "one place for each statement");

static int prepare(struct sqlite_db *db, enum statement which, struct error *err)
{
    return sqlite_db_prepare(db, &db->labels[which], statements[which], err);
}

int labels_prepare(struct sqlite_db *db, struct error *err)
{
    for (unsigned i = 0; i < LABEL_STATEMENTS; i++)
        if (prepare(db, i, err) < 0)
            return -1;
    return 0;
}

/* 1 with the session's number, 0 when it does not exist or has not ended. */
static int find_session(struct sqlite_db *db, const char *id, int64_t *out_number,
                        struct error *err)
{
    sqlite3_stmt *row;
    int code;

    if (prepare(db, FIND_SESSION, err) < 0)
        return -1;
    row = db->labels[FIND_SESSION];
    sqlite3_bind_text(row, 1, id, -1, SQLITE_STATIC);
    code = sqlite3_step(row);
    if (code == SQLITE_ROW)
        *out_number = sqlite3_column_int64(row, 0);
    else if (code != SQLITE_DONE)
        sqlite_fail(db->handle, db->path, code, err, "read");
    sqlite3_reset(row);
    return code == SQLITE_ROW ? 1 : code == SQLITE_DONE ? 0 : -1;
}

static int run(struct sqlite_db *db, enum statement which, int64_t first, int64_t second,
               struct error *err)
{
    if (prepare(db, which, err) < 0)
        return -1;
    (void)sqlite3_bind_int64(db->labels[which], 1, first);
    (void)sqlite3_bind_int64(db->labels[which], 2, second);
    return sqlite_db_run(db, db->labels[which], err);
}

int labels_enter(struct sqlite_db *db, const char *session_id, struct error *err)
{
    int64_t session = 0;
    int found = find_session(db, session_id, &session, err);

    if (found <= 0)
        return found;
    if (run(db, COUNT_IN, session, 0, err) < 0)
        return -1;
    return run(db, ADD_ENTRIES, session, 0, err);
}

static void note_left(struct sqlite_db *db, int64_t list)
{
    if (db->left.count == db->left.capacity) {
        db->left.capacity = MAX(db->left.capacity * 2, (size_t)64);
        db->left.lists = xrealloc(db->left.lists, db->left.capacity, sizeof(*db->left.lists));
    }
    db->left.lists[db->left.count++] = list;
}

/* One list after the other: removing rows does not affect the rows that are read. */
static int leave_lists(struct sqlite_db *db, int64_t session, struct error *err)
{
    sqlite3_stmt *row = db->labels[LISTS_OF_SESSION];
    int code;

    sqlite3_bind_int64(row, 1, session);
    while ((code = sqlite3_step(row)) == SQLITE_ROW) {
        int64_t list = sqlite3_column_int64(row, 0);

        if (run(db, REMOVE_ENTRY, session, list, err) < 0)
            break;
        note_left(db, list);
    }
    sqlite3_reset(row);
    if (code != SQLITE_DONE && code != SQLITE_ROW)
        sqlite_fail(db->handle, db->path, code, err, "read");
    return code == SQLITE_DONE ? 0 : -1;
}

int labels_leave(struct sqlite_db *db, const char *session_id, struct error *err)
{
    int64_t session = 0;
    int found = find_session(db, session_id, &session, err);

    if (found <= 0)
        return found;
    return prepare(db, LISTS_OF_SESSION, err) < 0 ? -1 : leave_lists(db, session, err);
}

static int compare_lists(const void *a, const void *b)
{
    const int64_t *left = a;
    const int64_t *right = b;

    return (*left > *right) - (*left < *right);
}

int labels_settle(struct sqlite_db *db, struct error *err)
{
    size_t count = db->left.count;
    size_t first = 0;

    if (!count)
        return 0;
    db->left.count = 0;
    qsort(db->left.lists, count, sizeof(*db->left.lists), compare_lists);
    for (size_t i = 1; i <= count; i++) {
        if (i < count && db->left.lists[i] == db->left.lists[first])
            continue;
        if (run(db, COUNT_OUT, (int64_t)(i - first), db->left.lists[first], err) < 0)
            return -1;
        first = i;
    }
    return run(db, REMOVE_LISTS, 0, 0, err);
}

void labels_discard(struct sqlite_db *db)
{
    db->left.count = 0;
}

/* --- questions ----------------------------------------------------------------------------- */

struct ended_list {
    int64_t id;
    int64_t sessions;
};

/* Whether there is such a list. */
static bool find_list(struct sqlite_db *db, const char *scope, const char *name, const char *value,
                      struct ended_list *out_list, struct error *err)
{
    sqlite3_stmt *row;
    int code;

    if (prepare(db, FIND_LIST, err) < 0)
        return false;
    row = db->labels[FIND_LIST];
    sqlite3_bind_text(row, 1, scope, -1, SQLITE_STATIC);
    sqlite3_bind_text(row, 2, name, -1, SQLITE_STATIC);
    sqlite3_bind_text(row, 3, value, -1, SQLITE_STATIC);
    code = sqlite3_step(row);
    if (code == SQLITE_ROW)
        *out_list =
            (struct ended_list){ sqlite3_column_int64(row, 0), sqlite3_column_int64(row, 1) };
    else if (code != SQLITE_DONE)
        sqlite_fail(db->handle, db->path, code, err, "read");
    sqlite3_reset(row);
    return code == SQLITE_ROW;
}

static char *scope_of(const struct store_query *query)
{
    return query->owner ? xasprintf("=%s", query->owner) : xstrdup("*");
}

/* The lists of all labels, the shortest first; NULL when one of them has no sessions. */
static struct ended_list *find_lists(struct sqlite_db *db, struct sqlite_question *question)
{
    const struct store_query *query = &question->filter;
    scoped(free) char *scope = scope_of(query);
    scoped(free) struct ended_list *lists = xcalloc(query->label_count, sizeof(*lists));

    for (unsigned i = 0; i < query->label_count; i++) {
        const struct store_label *label = &query->labels[i];

        if (!find_list(db, scope, label->name, label->value, &lists[i], &question->err))
            return NULL;
        if (lists[i].sessions < lists[0].sessions) {
            struct ended_list shorter = lists[i];

            lists[i] = lists[0];
            lists[0] = shorter;
        }
    }
    return steal_ptr(&lists);
}

static void append_lists(struct buffer *sql, const struct ended_list *lists, unsigned count)
{
    buffer_appendf(sql, " WHERE entry.list = %lld", (long long)lists[0].id);
    for (unsigned i = 1; i < count; i++)
        buffer_appendf(sql,
                       " AND EXISTS (SELECT 1 FROM ended_entries WHERE list = %lld"
                       " AND session = entry.session)",
                       (long long)lists[i].id);
}

static sqlite3_stmt *prepare_page(struct sqlite_db *db, struct sqlite_question *question,
                                  const struct ended_list *lists)
{
    const struct store_query *query = &question->filter;
    scoped(buffer_fini) struct buffer sql = BUFFER_INIT(SQL_MAXIMUM);
    sqlite3_stmt *statement = NULL;

    sqlite_append_columns(&sql, &record_types[STORE_SESSIONS]);
    buffer_append_text(&sql, " FROM ended_entries AS entry CROSS JOIN sessions"
                             " ON sessions.seq = entry.session");
    append_lists(&sql, lists, query->label_count);
    buffer_appendf(&sql,
                   " AND state = 'ended'%s AND entry.session %s ?2"
                   " ORDER BY entry.session%s LIMIT ?3, ?4",
                   query->owner ? " AND owner = ?1" : "", query->newest_first ? "<" : ">",
                   query->newest_first ? " DESC" : "");
    if (sql.overflowed)
        error_named(&question->err, ERR_INVALID, "too_many_labels", "too many labels at once");
    else
        (void)sqlite_db_prepare(db, &statement, buffer_text(&sql), &question->err);
    return statement;
}

sqlite3_stmt *labels_select(struct sqlite_db *db, struct sqlite_question *question)
{
    const struct store_query *query = &question->filter;
    scoped(free) struct ended_list *lists = find_lists(db, question);
    sqlite3_stmt *statement = lists ? prepare_page(db, question, lists) : NULL;

    if (!statement)
        return NULL;
    if (query->owner)
        sqlite3_bind_text(statement, 1, query->owner, -1, SQLITE_STATIC);
    sqlite3_bind_int64(statement, 2, sqlite_behind_of(query));
    sqlite3_bind_int64(statement, 3, (int64_t)MIN(query->after, (uint64_t)INT64_MAX));
    sqlite3_bind_int64(statement, 4, sqlite_limit_of(query));
    return statement;
}

static int read_number(struct sqlite_db *db, const char *sql, int64_t *out_number,
                       struct error *err)
{
    sqlite3_stmt *row = NULL;
    int code = sqlite3_prepare_v2(db->handle, sql, -1, &row, NULL);

    if (code == SQLITE_OK && (code = sqlite3_step(row)) == SQLITE_ROW)
        *out_number = sqlite3_column_int64(row, 0);
    else
        sqlite_fail(db->handle, db->path, code, err, "read");
    sqlite3_finalize(row);
    return code == SQLITE_ROW ? 0 : -1;
}

static void count_common(struct sqlite_db *db, struct sqlite_question *question,
                         const struct ended_list *lists)
{
    scoped(buffer_fini) struct buffer sql = BUFFER_INIT(SQL_MAXIMUM);
    int64_t count = 0;

    buffer_append_text(&sql, "SELECT count(*) FROM ended_entries AS entry");
    append_lists(&sql, lists, question->filter.label_count);
    if (read_number(db, buffer_text(&sql), &count, &question->err) == 0)
        question->total = (uint64_t)count;
}

void labels_count(struct sqlite_db *db, struct sqlite_question *question)
{
    const struct store_query *query = &question->filter;
    scoped(free) char *scope = scope_of(query);
    scoped(free) struct ended_list *lists = NULL;
    struct ended_list all = { 0 };

    if (query->label_count)
        lists = find_lists(db, question);
    if (query->label_count > 1 && lists)
        count_common(db, question, lists);
    else if (lists)
        question->total = (uint64_t)lists[0].sessions;
    else if (!query->label_count && find_list(db, scope, "", "", &all, &question->err))
        question->total = (uint64_t)all.sessions;
}

/* --- checking ------------------------------------------------------------------------------ */

#define COUNTED "SELECT scope, name, value, count(*) FROM ended_labels GROUP BY 1, 2, 3"
#define NOTED "SELECT scope, name, value, sessions FROM ended_lists"
#define LABELLED "SELECT scope, name, value, session FROM ended_labels WHERE name <> ''"
#define ENTERED                                                                   \
    "SELECT scope, name, value, session FROM ended_entries LEFT JOIN ended_lists" \
    " ON ended_lists.id = ended_entries.list"

int labels_check(struct sqlite_db *db, bool *out_right, struct error *err)
{
    static const char *const differences[] = {
        "SELECT EXISTS (" COUNTED " EXCEPT " NOTED ")",
        "SELECT EXISTS (" NOTED " EXCEPT " COUNTED ")",
        "SELECT EXISTS (" LABELLED " EXCEPT " ENTERED ")",
        "SELECT EXISTS (" ENTERED " EXCEPT " LABELLED ")",
    };
    int64_t differs = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(differences) && !differs; i++)
        if (read_number(db, differences[i], &differs, err) < 0)
            return -1;
    *out_right = !differs;
    return 0;
}

static int rebuild(struct sqlite_db *db, struct error *err)
{
    return sqlite_exec(db->handle, db->path,
                       "BEGIN IMMEDIATE;"
                       "DELETE FROM ended_entries; DELETE FROM ended_lists;"
                       "INSERT INTO ended_lists (scope, name, value, sessions) " COUNTED ";"
                       "INSERT OR IGNORE INTO ended_entries"
                       " SELECT ended_lists.id, ended_labels.session" LISTS
                       " WHERE ended_labels.name <> '';"
                       "DELETE FROM meta WHERE name = 'lists_stale';"
                       "COMMIT",
                       err);
}

int labels_repair(struct sqlite_db *db, bool are_wrong, struct error *err)
{
    int64_t is_stale = 0;

    if (read_number(db, "SELECT EXISTS (SELECT 1 FROM meta WHERE name = 'lists_stale')", &is_stale,
                    err) < 0)
        return -1;
    if (are_wrong && !is_stale)
        log_error("store lists of labels damaged; making them anew from the sessions",
                  kv("database", db->path));
    return are_wrong || is_stale ? rebuild(db, err) : 0;
}
