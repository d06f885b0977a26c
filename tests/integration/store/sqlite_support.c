/* SPDX-License-Identifier: Apache-2.0 */
#include "sqlite_support.h"

#include "base/alloc.h"

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

int sqlite_place_setup(void **state)
{
    struct sqlite_place *place = xnew(struct sqlite_place);

    snprintf(place->directory, sizeof(place->directory), "/tmp/sandglass-store-XXXXXX");
    assert_non_null(mkdtemp(place->directory));
    snprintf(place->path, sizeof(place->path), "%s/store.db", place->directory);
    simulated_clock_init(&place->clock, 6000000000, 1750000000000000);
    place->loop = loop_new(&place->clock.clock);
    *state = place;
    return 0;
}

int sqlite_place_teardown(void **state)
{
    static const char *const suffixes[] = {
        "",       "-wal",      "-shm",           ".new",           "-journal",         "-redo0",
        "-redo1", "-redomark", "-redo0.damaged", "-redo1.damaged", "-redomark.damaged"
    };
    struct sqlite_place *place = *state;

    sqlite_place_close(place);
    loop_free(place->loop);
    (void)rmdir(place->path);
    for (size_t i = 0; i < ARRAY_LENGTH(suffixes); i++) {
        scoped(free) char *name = xasprintf("%s%s", place->path, suffixes[i]);

        (void)unlink(name);
    }
    assert_int_equal(rmdir(place->directory), 0);
    free(place);
    return 0;
}

/* All that is wrong is found, however slow the machine is. */
struct store *sqlite_place_open(struct sqlite_place *place, const char *boot_id)
{
    struct store_options options = { .loop = place->loop,
                                     .path = place->path,
                                     .sync = place->sync ? place->sync : "off",
                                     .boot_id = boot_id,
                                     .accept_loss = place->accept_loss,
                                     .check_all = !place->is_hurried };

    assert_null(place->store);
    place->err = (struct error){ 0 };
    place->store = store_open_sqlite(&options, &place->err);
    return place->store;
}

void sqlite_place_close(struct sqlite_place *place)
{
    store_close(steal_ptr(&place->store));
}

static sqlite3 *open_directly(const struct sqlite_place *place)
{
    sqlite3 *handle = NULL;

    assert_int_equal(sqlite3_open(place->path, &handle), SQLITE_OK);
    sqlite3_busy_timeout(handle, 60000);
    return handle;
}

void sqlite_place_exec(const struct sqlite_place *place, const char *sql)
{
    sqlite3 *handle = open_directly(place);

    if (sqlite3_exec(handle, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(handle));
    sqlite3_close(handle);
}

int64_t sqlite_place_number(const struct sqlite_place *place, const char *sql)
{
    sqlite3 *handle = open_directly(place);
    sqlite3_stmt *statement = NULL;
    int64_t number;

    assert_int_equal(sqlite3_prepare_v2(handle, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(handle);
    return number;
}

void sqlite_place_fill(struct sqlite_place *place, unsigned count)
{
    assert_non_null(sqlite_place_open(place, "boot 1"));
    for (unsigned i = 1; i <= count; i++) {
        struct session_record session = sample_session(i);
        struct execution_record execution = sample_execution(i);
        struct event_record event = sample_event(i);

        store_put_session(place->store, &session);
        store_put_execution(place->store, &execution);
        store_put_event(place->store, &event);
    }
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
    sqlite_place_close(place);
}
