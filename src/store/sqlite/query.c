/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/db.h"

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/str.h"
#include "store/sqlite/labels.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { SQL_MAXIMUM = 8192, SET_ASIDE_MAXIMUM = 1000 };

/* --- statements ---------------------------------------------------------------------------- */

/*
 * Which index serves which filters; the first row that fits counts. Without ANALYZE the planner
 * guesses, and its guess may walk the whole history of an owner. An empty name leaves it the
 * choice, which is then a unique index.
 */
static const struct {
    enum store_table table;
    unsigned filters;
    const char *index;
} indexes[] = {
    { STORE_SESSIONS, FILTER_ID, "" },
    { STORE_SESSIONS, FILTER_KEY | FILTER_STATE, "sessions_live_key" },
    { STORE_SESSIONS, FILTER_KEY, "sessions_key" },
    { STORE_SESSIONS, FILTER_STATE, "sessions_live" },
    { STORE_SESSIONS, FILTER_LIVE, "sessions_live" },
    { STORE_SESSIONS, FILTER_OWNER | FILTER_ENDED, "sessions_ended" },
    { STORE_SESSIONS, FILTER_OWNER, "sessions_owner" },
    { STORE_SANDBOXES, FILTER_ID, "" },
    { STORE_SANDBOXES, FILTER_SESSION, "sandboxes_session" },
    { STORE_EXECUTIONS, FILTER_ID, "" },
    { STORE_EXECUTIONS, FILTER_KEY, "executions_key" },
    { STORE_EXECUTIONS, FILTER_SESSION, "executions_session" },
    { STORE_EXECUTIONS, FILTER_STATE, "executions_state" },
    { STORE_EXECUTIONS, FILTER_ENDED, "executions_state" },
    { STORE_EVENTS, FILTER_SESSION, "events_session" },
    { STORE_EVENTS, FILTER_OWNER, "events_owner" },
    { STORE_DOCUMENTS, FILTER_KIND | FILTER_ID, "" },
    { STORE_DOCUMENTS, FILTER_KIND | FILTER_OWNER, "documents_owner" },
};

static void append_index(struct buffer *sql, enum store_table table, unsigned filters)
{
    for (size_t i = 0; i < ARRAY_LENGTH(indexes); i++) {
        if (indexes[i].table != table || (indexes[i].filters & filters) != indexes[i].filters)
            continue;
        if (*indexes[i].index)
            buffer_appendf(sql, " INDEXED BY %s", indexes[i].index);
        return;
    }
}

void sqlite_append_columns(struct buffer *sql, const struct record_type *type)
{
    buffer_append_text(sql, "SELECT ");
    for (size_t i = 0; i < type->field_count; i++)
        buffer_appendf(sql, "%s, ", type->fields[i].column);
    buffer_appendf(sql, "%s, %s, sum", type->has_stamps ? "boot" : "0", type->order);
}

static void append_columns(struct buffer *sql, const struct record_type *type)
{
    sqlite_append_columns(sql, type);
    buffer_appendf(sql, " FROM %s", type->table);
}

/* The second half of a condition lets SQLite see that a partial index contains the answer. */
static void append_filter(struct buffer *sql, const struct record_type *type,
                          const struct record_field *field, unsigned filters)
{
    if (filters & field->filter & FILTER_KEY)
        buffer_append_text(sql, " AND key = ? AND key <> ''");
    else if (filters & field->filter & FILTER_STATE && type == &record_types[STORE_SESSIONS])
        buffer_append_text(sql, " AND state = ? AND state <> 'ended'");
    else if (field->filter == FILTER_STATE && filters & FILTER_ENDED)
        buffer_append_text(sql, " AND state = 'ended'");
    else if (filters & field->filter)
        buffer_appendf(sql, " AND %s = ?", field->column);
}

static void append_filters(struct buffer *sql, enum store_table table, unsigned filters)
{
    const struct record_type *type = &record_types[table];

    buffer_append_text(sql, " WHERE true");
    for (size_t i = 0; i < type->field_count; i++)
        append_filter(sql, type, &type->fields[i], filters);
    if (filters & FILTER_LIVE)
        buffer_append_text(sql, " AND state <> 'ended'");
    if (table == STORE_DOCUMENTS)
        buffer_append_text(sql, " AND (ifnull(expires_wall_us, 0) <= 0 OR expires_wall_us > ?)");
}

/* Parameters: the values of the filters in the order of the fields, now for documents, `behind`
 * unless it is events, then `after` and `limit`. */
sqlite3_stmt *sqlite_db_select(struct sqlite_db *db, enum store_table table, unsigned filters,
                               bool newest_first, struct error *err)
{
    const struct record_type *type = &record_types[table];
    sqlite3_stmt **statement = &db->select[table][filters][newest_first];
    scoped(buffer_fini) struct buffer sql = BUFFER_INIT(SQL_MAXIMUM);

    if (*statement)
        return *statement;
    append_columns(&sql, type);
    append_index(&sql, table, filters);
    append_filters(&sql, table, filters);
    if (table == STORE_EVENTS)
        buffer_append_text(&sql, " AND sequence > ?");
    else
        buffer_appendf(&sql, " AND %s %s ?", type->order, newest_first ? "<" : ">");
    buffer_appendf(&sql, " ORDER BY %s%s LIMIT ?%s", type->order, newest_first ? " DESC" : "",
                   table == STORE_EVENTS ? "" : ", ?");
    (void)sqlite_db_prepare(db, statement, buffer_text(&sql), err);
    return *statement;
}

int sqlite_db_check_indexes(struct sqlite_db *db, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LENGTH(indexes); i++)
        if (!sqlite_db_select(db, indexes[i].table, indexes[i].filters, false, err))
            return -1;
    return labels_prepare(db, err);
}

static sqlite3_stmt *select_expired(struct sqlite_db *db, struct error *err)
{
    scoped(buffer_fini) struct buffer sql = BUFFER_INIT(SQL_MAXIMUM);

    if (db->select_expired)
        return db->select_expired;
    append_columns(&sql, &record_types[STORE_SESSIONS]);
    buffer_append_text(&sql, " INDEXED BY sessions_retention WHERE retain_until_wall_us > 0"
                             " AND retain_until_wall_us <= ?"
                             " ORDER BY retain_until_wall_us, seq LIMIT ?, ?");
    (void)sqlite_db_prepare(db, &db->select_expired, buffer_text(&sql), err);
    return db->select_expired;
}

static int bind_filters(sqlite3_stmt *statement, const struct sqlite_question *question,
                        unsigned filters)
{
    const struct record_type *type = &record_types[question->table];
    int at = 1;

    for (size_t i = 0; i < type->field_count; i++) {
        unsigned filter = type->fields[i].filter & filters;

        if (filter)
            sqlite3_bind_text(statement, at++, record_filter_value(filter, &question->filter), -1,
                              SQLITE_STATIC);
    }
    if (question->table == STORE_DOCUMENTS)
        sqlite3_bind_int64(statement, at++, question->now_wall_us);
    return at;
}

int64_t sqlite_behind_of(const struct store_query *query)
{
    if (!query->behind)
        return query->newest_first ? INT64_MAX : INT64_MIN;
    return (int64_t)MIN(query->behind, (uint64_t)INT64_MAX);
}

static void count_by_index(struct sqlite_db *db, struct sqlite_question *question, unsigned filters)
{
    scoped(buffer_fini) struct buffer sql = BUFFER_INIT(SQL_MAXIMUM);
    sqlite3_stmt *row = NULL;
    int code;

    buffer_appendf(&sql, "SELECT count(*) FROM %s", record_types[question->table].table);
    append_index(&sql, question->table, filters);
    append_filters(&sql, question->table, filters);
    code = sqlite3_prepare_v2(db->handle, buffer_text(&sql), -1, &row, NULL);
    if (code == SQLITE_OK) {
        (void)bind_filters(row, question, filters);
        code = sqlite3_step(row);
    }
    if (code == SQLITE_ROW)
        question->total = (uint64_t)sqlite3_column_int64(row, 0);
    else
        sqlite_fail(db->handle, db->path, code, &question->err, "count");
    sqlite3_finalize(row);
}

/* All that fit. How many have ended is noted, however many these are. */
static void count_all(struct sqlite_db *db, struct sqlite_question *question)
{
    unsigned filters = record_filters(&record_types[question->table], &question->filter);

    if (question->table == STORE_SESSIONS && (filters & ~(unsigned)FILTER_OWNER) == FILTER_ENDED)
        labels_count(db, question);
    else
        count_by_index(db, question, filters);
}

/* One more than requested, to know whether there are more. */
int64_t sqlite_limit_of(const struct store_query *query)
{
    return query->limit ? (int64_t)query->limit + 1 : -1;
}

static sqlite3_stmt *statement_of(struct sqlite_db *db, struct sqlite_question *question)
{
    const struct store_query *filter = &question->filter;
    unsigned filters = record_filters(&record_types[question->table], filter);
    sqlite3_stmt *statement;
    int at = 1;

    if (question->expired_only) {
        statement = select_expired(db, &question->err);
        if (statement)
            sqlite3_bind_int64(statement, at++, question->now_wall_us);
    } else {
        statement =
            sqlite_db_select(db, question->table, filters, filter->newest_first, &question->err);
        if (statement)
            at = bind_filters(statement, question, filters);
        if (statement && question->table != STORE_EVENTS)
            sqlite3_bind_int64(statement, at++, sqlite_behind_of(filter));
    }
    if (statement) {
        sqlite3_bind_int64(statement, at++, (int64_t)MIN(filter->after, (uint64_t)INT64_MAX));
        sqlite3_bind_int64(statement, at, sqlite_limit_of(filter));
    }
    return statement;
}

/* --- rows ---------------------------------------------------------------------------------- */

/* A value of another type than ours counts as not set. */
static const char *column_text(sqlite3_stmt *row, int column)
{
    return sqlite3_column_type(row, column) == SQLITE_TEXT
               ? (const char *)sqlite3_column_text(row, column)
               : "";
}

static int64_t column_number(sqlite3_stmt *row, int column, int64_t least, int64_t most)
{
    int64_t value;

    if (sqlite3_column_type(row, column) != SQLITE_INTEGER)
        return 0;
    value = sqlite3_column_int64(row, column);
    return value >= least && value <= most ? value : 0;
}

static void read_field(sqlite3_stmt *row, int column, const struct record_field *field,
                       char *record)
{
    void *place = record + field->offset;
    const char *text;

    switch (field->kind) {
    case FIELD_ID:
        text = column_text(row, column);
        if (strlen(text) < ID_SIZE)
            strcpy(place, text);
        break;
    case FIELD_TEXT:
    case FIELD_KEY:
        *(const char **)place = column_text(row, column);
        break;
    case FIELD_I64:
    case FIELD_U64:
    case FIELD_BOOT:
        *(int64_t *)place = column_number(row, column, INT64_MIN, INT64_MAX);
        if (field->minus_one && sqlite3_column_type(row, column) != SQLITE_INTEGER)
            *(int64_t *)place = -1;
        break;
    case FIELD_U32:
        *(uint32_t *)place = (uint32_t)column_number(row, column, 0, UINT32_MAX);
        break;
    case FIELD_INT:
        *(int *)place = (int)column_number(row, column, INT_MIN, INT_MAX);
        break;
    case FIELD_BOOL:
        *(bool *)place = column_number(row, column, 0, 1);
        break;
    }
}

static bool field_is_set(const struct record_field *field, const char *record)
{
    if (field->kind == FIELD_U64)
        return *(const uint64_t *)(const void *)(record + field->offset) != 0;
    return *record_text(field, record) != '\0';
}

/* Columns behind the fields. */
static int boot_column(const struct record_type *type)
{
    return (int)type->field_count;
}

static int order_column(const struct record_type *type)
{
    return (int)type->field_count + 1;
}

static int sum_column(const struct record_type *type)
{
    return (int)type->field_count + 2;
}

/* A row without a sum was written by hand. */
static bool sum_is_right(struct sqlite_db *db, sqlite3_stmt *row, const struct record_type *type,
                         const char *record)
{
    int column = sum_column(type);

    return sqlite3_column_type(row, column) == SQLITE_NULL ||
           sqlite3_column_int64(row, column) ==
               sqlite_db_sum(db, type, record, sqlite3_column_int64(row, boot_column(type)));
}

static bool is_json(struct sqlite_db *db, const char *text)
{
    bool is_valid;

    if (sqlite_db_prepare(db, &db->is_json, "SELECT json_valid(?)", NULL) < 0)
        return false;
    sqlite3_bind_text(db->is_json, 1, text, -1, SQLITE_STATIC);
    is_valid = sqlite3_step(db->is_json) == SQLITE_ROW && sqlite3_column_int(db->is_json, 0);
    sqlite3_reset(db->is_json);
    return is_valid;
}

/* JSON is written into answers as it is: text that is none counts as not set. */
static void drop_bad_json(struct sqlite_db *db, const struct record_type *type, char *record)
{
    for (size_t i = 0; i < type->field_count; i++) {
        const struct record_field *field = &type->fields[i];

        if (str_ends_with(field->column, "json") && !is_json(db, record_text(field, record)))
            *(const char **)(void *)(record + field->offset) = "";
    }
}

/* False when the row lacks something without which the record means nothing, or is not as it was
 * put. */
static bool read_row(struct sqlite_db *db, sqlite3_stmt *row, const struct record_type *type,
                     char *record)
{
    memset(record, 0, type->size);
    for (size_t i = 0; i < type->field_count; i++) {
        read_field(row, (int)i, &type->fields[i], record);
        if (type->fields[i].required && !field_is_set(&type->fields[i], record))
            return false;
    }
    if (sqlite3_column_type(row, sum_column(type)) == SQLITE_NULL)
        drop_bad_json(db, type, record);
    return sum_is_right(db, row, type, record);
}

void found_free(struct found *first)
{
    while (first) {
        struct found *next = first->next;

        free(first);
        first = next;
    }
}

/* --- damaged rows -------------------------------------------------------------------------- */

struct damaged_rows {
    struct damaged_row items[SET_ASIDE_MAXIMUM];
    unsigned count;
};

static int set_row_aside(struct sqlite_db *db, const struct damaged_row *row)
{
    const struct record_type *type = &record_types[row->table];
    scoped(buffer_fini) struct buffer sql = BUFFER_INIT(SQL_MAXIMUM);

    buffer_appendf(&sql,
                   "INSERT INTO damaged (found_wall_us, table_name, why, content) SELECT %lld, "
                   "'%s', 'a required field is missing, or the record is not as it was put', ",
                   (long long)clock_wall_us(&clock_system), type->table);
    for (size_t i = 0; i < type->field_count; i++)
        buffer_appendf(&sql, "%squote(%s)", i ? " || ', ' || " : "", type->fields[i].column);
    buffer_appendf(&sql, " FROM %s WHERE %s = %lld; DELETE FROM %s WHERE %s = %lld", type->table,
                   type->order, (long long)row->seq, type->table, type->order, (long long)row->seq);
    if (row->table == STORE_SESSIONS)
        buffer_append_text(&sql, "; INSERT OR REPLACE INTO meta VALUES ('lists_stale', 1)");
    return sqlite3_exec(db->handle, buffer_text(&sql), NULL, NULL, NULL);
}

static void set_aside(struct sqlite_db *db, const struct damaged_rows *rows)
{
    /* Inside a transaction of the caller, whose changes must stay, the rows are left for the next
     * time. */
    int code = sqlite3_get_autocommit(db->handle)
                   ? sqlite3_exec(db->handle, "BEGIN IMMEDIATE", NULL, NULL, NULL)
                   : SQLITE_BUSY;
    bool began = code == SQLITE_OK;

    for (unsigned i = 0; i < rows->count && code == SQLITE_OK; i++)
        code = set_row_aside(db, &rows->items[i]);
    if (code == SQLITE_OK)
        code = sqlite3_exec(db->handle, "COMMIT", NULL, NULL, NULL);
    if (began && code != SQLITE_OK)
        (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    for (unsigned i = 0; i < rows->count; i++) {
        const char *table = record_types[rows->items[i].table].table;

        log_error("store record damaged; it is not used any more", kv("table", table),
                  kv("id", rows->items[i].id), kv("seq", rows->items[i].seq),
                  kv("kept_in", code == SQLITE_OK ? "damaged" : table));
    }
}

static struct damaged_row damaged_row_at(enum store_table table, sqlite3_stmt *row)
{
    const struct record_type *type = &record_types[table];
    struct damaged_row damaged = { .table = table,
                                   .seq = sqlite3_column_int64(row, order_column(type)) };
    const char *id = (const char *)sqlite3_column_text(row, table == STORE_DOCUMENTS ? 1 : 0);

    snprintf(damaged.id, sizeof(damaged.id), "%s", id ? id : "");
    return damaged;
}

static void note_damaged(void *context, const struct damaged_row *row)
{
    struct damaged_rows *rows = context;

    if (rows->count < SET_ASIDE_MAXIMUM)
        rows->items[rows->count++] = *row;
}

/* All rows of a table, in their order. */
static sqlite3_stmt *select_all(struct sqlite_db *db, const struct record_type *type,
                                const char *condition, struct error *err)
{
    scoped(buffer_fini) struct buffer sql = BUFFER_INIT(SQL_MAXIMUM);
    sqlite3_stmt *statement = NULL;
    int code;

    append_columns(&sql, type);
    buffer_appendf(&sql, " NOT INDEXED%s", condition);
    code = sqlite3_prepare_v2(db->handle, buffer_text(&sql), -1, &statement, NULL);
    if (code != SQLITE_OK)
        sqlite_fail(db->handle, db->path, code, err, "read");
    return statement;
}

static int find_damaged_in(struct sqlite_db *db, enum store_table table, damaged_row_fn *on_damaged,
                           void *context, struct error *err)
{
    const struct record_type *type = &record_types[table];
    alignas(max_align_t) char record[RECORD_MAXIMUM];
    sqlite3_stmt *row = select_all(db, type, "", err);
    int code;

    if (!row)
        return -1;
    while ((code = sqlite3_step(row)) == SQLITE_ROW) {
        if (!read_row(db, row, type, record)) {
            struct damaged_row damaged = damaged_row_at(table, row);

            on_damaged(context, &damaged);
        }
    }
    if (code != SQLITE_DONE)
        sqlite_fail(db->handle, db->path, code, err, "read");
    sqlite3_finalize(row);
    return code == SQLITE_DONE ? 0 : -1;
}

int sqlite_db_find_damaged(struct sqlite_db *db, damaged_row_fn *on_damaged, void *context,
                           struct error *err)
{
    for (unsigned i = 0; i < RECORD_TABLES; i++)
        if (find_damaged_in(db, i, on_damaged, context, err) < 0)
            return -1;
    return 0;
}

/* Damaged documents are skipped here; a query sets them aside. */
int sqlite_db_find_claimed(struct sqlite_db *db, claimed_document_fn *on_document, void *context,
                           struct error *err)
{
    const struct record_type *type = &record_types[STORE_DOCUMENTS];
    alignas(max_align_t) char record[RECORD_MAXIMUM];
    sqlite3_stmt *row = select_all(db, type, " WHERE version > 0", err);
    int code;

    if (!row)
        return -1;
    while ((code = sqlite3_step(row)) == SQLITE_ROW) {
        if (read_row(db, row, type, record))
            on_document(context, (const struct document_record *)(const void *)record);
    }
    if (code != SQLITE_DONE)
        sqlite_fail(db->handle, db->path, code, err, "read");
    sqlite3_finalize(row);
    return code == SQLITE_DONE ? 0 : -1;
}

/* Damaged rows that the budget left unchecked are noticed by queries. */
unsigned sqlite_db_set_damaged_aside(struct sqlite_db *db)
{
    scoped(free) struct damaged_rows *rows = xcalloc(1, sizeof(*rows));

    (void)sqlite_db_find_damaged(db, note_damaged, rows, NULL);
    if (rows->count)
        set_aside(db, rows);
    return rows->count;
}

static int add_sum(struct sqlite_db *db, const struct record_type *type, sqlite3_stmt *row,
                   struct error *err)
{
    alignas(max_align_t) char record[RECORD_MAXIMUM];
    char sql[160];

    if (!read_row(db, row, type, record))
        return 0;
    snprintf(
        sql, sizeof(sql), "UPDATE %s SET sum = %lld WHERE %s = %lld", type->table,
        (long long)sqlite_db_sum(db, type, record, sqlite3_column_int64(row, boot_column(type))),
        type->order, (long long)sqlite3_column_int64(row, order_column(type)));
    return sqlite_exec(db->handle, db->path, sql, err);
}

int sqlite_db_add_sums(struct sqlite_db *db, struct error *err)
{
    int result = sqlite_exec(db->handle, db->path, "BEGIN IMMEDIATE", err);

    for (unsigned i = 0; i < RECORD_TABLES && result == 0; i++) {
        sqlite3_stmt *row = select_all(db, &record_types[i], " WHERE sum IS NULL", err);

        result = row ? 0 : -1;
        while (result == 0 && sqlite3_step(row) == SQLITE_ROW)
            result = add_sum(db, &record_types[i], row, err);
        sqlite3_finalize(row);
    }
    if (result == 0)
        return sqlite_exec(db->handle, db->path, "COMMIT", err);
    (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    return -1;
}

/* --- the question -------------------------------------------------------------------------- */

/* The results of one statement. */
struct answer {
    struct found **end;
    struct damaged_rows *damaged; /* owned; NULL while there are none */
    uint32_t count;
    size_t bytes;
};

/* One row: false when it is damaged. */
static bool take_row(struct sqlite_db *db, struct sqlite_question *question, sqlite3_stmt *row,
                     struct answer *answer)
{
    const struct record_type *type = &record_types[question->table];
    alignas(max_align_t) char record[RECORD_MAXIMUM];
    struct found *found;

    assert(type->size <= sizeof(record));
    if (!read_row(db, row, type, record))
        return false;
    if (type->has_stamps && sqlite3_column_int64(row, boot_column(type)) != db->boot)
        record_renew_stamps(type, record, question->now_wall_us - question->now_boot_us);
    found = record_copy(type, record, offsetof(struct found, record));
    found->position = (uint64_t)sqlite3_column_int64(row, order_column(type));
    *answer->end = found;
    answer->end = &found->next;
    answer->count++;
    answer->bytes += record_size(type, record);
    return true;
}

static void note_bad_row(struct sqlite_question *question, sqlite3_stmt *row, struct answer *answer)
{
    struct damaged_row bad = damaged_row_at(question->table, row);

    if (!answer->damaged)
        answer->damaged = xcalloc(1, sizeof(*answer->damaged));
    note_damaged(answer->damaged, &bad);
}

static bool is_full(const struct sqlite_question *question, const struct answer *answer)
{
    const struct store_query *filter = &question->filter;

    return (filter->limit && answer->count == filter->limit) ||
           (filter->limit_bytes && answer->bytes >= filter->limit_bytes);
}

static void take_rows(struct sqlite_db *db, struct sqlite_question *question, sqlite3_stmt *row,
                      struct answer *answer)
{
    int code;

    while ((code = sqlite3_step(row)) == SQLITE_ROW && !question->is_cut) {
        question->is_cut = is_full(question, answer);
        if (!question->is_cut && !take_row(db, question, row, answer))
            note_bad_row(question, row, answer);
    }
    if (code != SQLITE_DONE && code != SQLITE_ROW)
        sqlite_fail(db->handle, db->path, code, &question->err, "read");
    sqlite3_reset(row);
}

void sqlite_db_ask(struct sqlite_db *db, struct sqlite_question *question)
{
    struct answer answer = { .end = &question->first };
    bool by_label = question->filter.label_count > 0;
    sqlite3_stmt *row = by_label ? labels_select(db, question) : statement_of(db, question);

    if (row)
        take_rows(db, question, row, &answer);
    if (by_label)
        sqlite3_finalize(row);
    if (question->filter.count && question->err.code == ERR_NONE)
        count_all(db, question);
    if (answer.damaged) {
        set_aside(db, answer.damaged);
        question->damaged = answer.damaged->count;
        free(answer.damaged);
    }
}
