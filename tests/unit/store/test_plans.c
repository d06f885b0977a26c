/* SPDX-License-Identifier: Apache-2.0 */
/* No query walks through history: how SQLite means to answer each of them. */

#include "base/alloc.h"
#include "store/sqlite/db.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char directory[64];
static char path[96];
static struct loop *loop;
static struct sqlite_db db;

static int setup(void **state)
{
    struct store_load load;
    struct error err = { 0 };

    (void)state;
    snprintf(directory, sizeof(directory), "/tmp/sandglass-plans-XXXXXX");
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/store.db", directory);
    loop = loop_new(&clock_system);
    return sqlite_db_open(&db, &(struct store_options){ .loop = loop, .path = path, .sync = "off" },
                          &load, &err);
}

static int teardown(void **state)
{
    (void)state;
    sqlite_db_close(&db);
    loop_free(loop);
    (void)unlink(path);
    return rmdir(directory);
}

static unsigned possible_filters(const struct record_type *type)
{
    unsigned filters = 0;

    for (size_t i = 0; i < type->field_count; i++)
        filters |= type->fields[i].filter;
    return filters & FILTER_STATE ? filters | FILTER_ENDED : filters;
}

/*
 * Walking in order is right where nothing is asked, and where nearly all rows are the answer (the
 * ended ones of all sessions). Sandboxes that exist are few. Documents are only ever asked for by
 * kind.
 */
static bool may_scan(enum store_table table, unsigned filters)
{
    if (table == STORE_SANDBOXES)
        return !(filters & (FILTER_ID | FILTER_SESSION));
    if (table == STORE_DOCUMENTS)
        return !(filters & FILTER_KIND);
    if (table == STORE_SESSIONS)
        return !filters || filters == FILTER_ENDED || filters == (FILTER_ENDED | FILTER_LIVE);
    return !filters;
}

/* Sorting is right where the rows are few: sessions that are not ended, those of one key. */
static bool may_sort(enum store_table table, unsigned filters)
{
    if (filters & FILTER_KEY)
        return true;
    return (table == STORE_SESSIONS && filters & (FILTER_STATE | FILTER_LIVE)) ||
           (table == STORE_DOCUMENTS && filters & FILTER_KIND);
}

static void check_plan(enum store_table table, unsigned filters, bool newest_first)
{
    struct error err = { 0 };
    sqlite3_stmt *statement = sqlite_db_select(&db, table, filters, newest_first, &err);
    sqlite3_stmt *plan = NULL;
    scoped(free) char *sql = NULL;

    if (!statement)
        fail_msg("%s filters %#x: %s", record_types[table].table, filters, err.message);
    sql = xasprintf("EXPLAIN QUERY PLAN %s", sqlite3_sql(statement));
    assert_int_equal(sqlite3_prepare_v2(db.handle, sql, -1, &plan, NULL), SQLITE_OK);
    while (sqlite3_step(plan) == SQLITE_ROW) {
        const char *detail = (const char *)sqlite3_column_text(plan, 3);
        bool live = strstr(detail, "sessions_live") != NULL;

        if (strncmp(detail, "SCAN", 4) == 0 && !live && !may_scan(table, filters))
            fail_msg("%s filters %#x: %s", record_types[table].table, filters, detail);
        if (strstr(detail, "TEMP B-TREE") && !may_sort(table, filters))
            fail_msg("%s filters %#x: %s", record_types[table].table, filters, detail);
    }
    sqlite3_finalize(plan);
}

static void every_query_is_answered_by_an_index(void **state)
{
    (void)state;
    for (unsigned table = 0; table < RECORD_TABLES; table++) {
        unsigned possible = possible_filters(&record_types[table]) |
                            (table == STORE_SESSIONS ? (unsigned)FILTER_LIVE : 0);

        for (unsigned filters = 0; filters < FILTER_COMBINATIONS; filters++) {
            if ((filters & possible) != filters ||
                (filters & (FILTER_STATE | FILTER_ENDED)) == (FILTER_STATE | FILTER_ENDED))
                continue;
            check_plan(table, filters, false);
            check_plan(table, filters, true);
        }
    }
}

/* What follows a session into the lists of labels reads that session alone. */
static void lists_of_labels_are_kept_without_walking(void **state)
{
    (void)state;
    for (size_t i = 0; i < LABEL_STATEMENTS; i++) {
        scoped(free) char *sql = xasprintf("EXPLAIN QUERY PLAN %s", sqlite3_sql(db.labels[i]));
        sqlite3_stmt *plan = NULL;

        assert_int_equal(sqlite3_prepare_v2(db.handle, sql, -1, &plan, NULL), SQLITE_OK);
        while (sqlite3_step(plan) == SQLITE_ROW) {
            const char *detail = (const char *)sqlite3_column_text(plan, 3);

            if (strncmp(detail, "SCAN", 4) == 0 && !strstr(detail, "SCAN label VIRTUAL") &&
                !strstr(detail, "SCAN ended_labels") && !strstr(detail, "ended_lists_empty"))
                fail_msg("%s: %s", sql, detail);
        }
        sqlite3_finalize(plan);
    }
}

static void a_put_finds_its_row_by_its_identity(void **state)
{
    static const char *const updates[] = { "sessions", "sandboxes", "executions", "documents" };
    struct change_queue changes = { 0 };
    struct session_record session = { .id = "ses_1", .state = "open", .key = "k" };
    struct sandbox_record sandbox = { .id = "sbx_1", .state = "ready" };
    struct execution_record execution = { .id = "exe_1", .session_id = "ses_1", .state = "queued" };
    struct document_record document = { .kind = "k", .id = "1" };
    struct error err = { 0 };

    (void)state;
    change_queue_append(&changes, change_new(STORE_SESSIONS, false, &session));
    change_queue_append(&changes, change_new(STORE_SANDBOXES, false, &sandbox));
    change_queue_append(&changes, change_new(STORE_EXECUTIONS, false, &execution));
    change_queue_append(&changes, change_new(STORE_DOCUMENTS, false, &document));
    assert_int_equal(sqlite_db_write(&db, &changes, clock_wall_us(&clock_system), &err), 0);
    change_queue_free(&changes);
    for (size_t i = 0; i < ARRAY_LENGTH(updates); i++) {
        static const enum store_table tables[] = { STORE_SESSIONS, STORE_SANDBOXES,
                                                   STORE_EXECUTIONS, STORE_DOCUMENTS };
        scoped(free) char *sql =
            xasprintf("EXPLAIN QUERY PLAN %s", sqlite3_sql(db.update[tables[i]]));
        scoped(free) char *wanted = xasprintf("sqlite_autoindex_%s_1", updates[i]);
        sqlite3_stmt *plan = NULL;

        assert_int_equal(sqlite3_prepare_v2(db.handle, sql, -1, &plan, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_step(plan), SQLITE_ROW);
        assert_non_null(strstr((const char *)sqlite3_column_text(plan, 3), wanted));
        sqlite3_finalize(plan);
    }
}

/* One that is made just now is taken for new, and may have been put before all the same. */
static void a_new_record_that_is_there_is_replaced(void **state)
{
    int64_t now_us = clock_wall_us(&clock_system);
    struct change_queue changes = { 0 };
    struct session_record session = { .id = "ses_1", .state = "open", .created.wall_us = now_us };
    struct error err = { 0 };
    sqlite3_stmt *count = NULL;

    (void)state;
    change_queue_append(&changes, change_new(STORE_SESSIONS, false, &session));
    assert_int_equal(sqlite_db_write(&db, &changes, now_us, &err), 0);
    change_queue_free(&changes);
    session.generation = 2;
    change_queue_append(&changes, change_new(STORE_SESSIONS, false, &session));
    assert_int_equal(sqlite_db_write(&db, &changes, now_us, &err), 0);
    change_queue_free(&changes);
    assert_int_equal(sqlite3_prepare_v2(db.handle, "SELECT count(*), max(generation) FROM sessions",
                                        -1, &count, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(count), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(count, 0), 1);
    assert_int_equal(sqlite3_column_int(count, 1), 2);
    sqlite3_finalize(count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_query_is_answered_by_an_index, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_of_labels_are_kept_without_walking, setup, teardown),
        cmocka_unit_test_setup_teardown(a_put_finds_its_row_by_its_identity, setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_record_that_is_there_is_replaced, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
