/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/db.h"

#include "base/clock.h"

#include <stdio.h>

/*
 * Free pages are used again before the file grows, so some of them may stay. A file that is mostly
 * free is made shorter, a few pages at a time: each step is a transaction that questions wait for,
 * so it is limited by time as well; on a disk that is busy, pages take many times as long.
 * While much is being removed it waits, because pages would be moved that are soon free themselves.
 */
enum { SPARE_PAGES = 1024, STEP_PAGES = 256, STEP_US = 4 * 1000 };

static int64_t read_pragma(struct sqlite_db *db, sqlite3_stmt **statement, const char *sql)
{
    int64_t number = 0;

    if (sqlite_db_prepare(db, statement, sql, NULL) < 0)
        return 0;
    if (sqlite3_step(*statement) == SQLITE_ROW)
        number = sqlite3_column_int64(*statement, 0);
    sqlite3_reset(*statement);
    return number;
}

enum shrink_need sqlite_db_shrink_need(struct sqlite_db *db)
{
    int64_t pages = read_pragma(db, &db->free_pages, "PRAGMA freelist_count");
    bool grows = pages > db->free_before;

    db->free_before = pages;
    if (pages <= SPARE_PAGES || pages <= read_pragma(db, &db->all_pages, "PRAGMA page_count") / 4)
        return SHRINK_NO;
    return grows ? SHRINK_LATER : SHRINK_NOW;
}

/* The pragma moves a page in each of its steps. Finalizing it before its end commits the moved
 * pages. */
static bool take_step(struct sqlite_db *db)
{
    int64_t end_us = clock_now_us(&clock_system) + STEP_US;
    sqlite3_stmt *pages = NULL;
    int code = SQLITE_DONE;
    char sql[64];

    snprintf(sql, sizeof(sql), "PRAGMA incremental_vacuum(%d)", STEP_PAGES);
    if (sqlite3_prepare_v2(db->handle, sql, -1, &pages, NULL) == SQLITE_OK)
        while ((code = sqlite3_step(pages)) == SQLITE_ROW)
            if (clock_now_us(&clock_system) >= end_us)
                break;
    return sqlite3_finalize(pages) == SQLITE_OK && (code == SQLITE_DONE || code == SQLITE_ROW);
}

enum shrink_need sqlite_db_shrink(struct sqlite_db *db)
{
    enum shrink_need need = sqlite_db_shrink_need(db);

    if (need != SHRINK_NOW)
        return need;
    return take_step(db) ? sqlite_db_shrink_need(db) : SHRINK_LATER;
}
