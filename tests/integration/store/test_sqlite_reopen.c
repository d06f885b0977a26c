/* SPDX-License-Identifier: Apache-2.0 */
#include "sqlite_support.h"

#include "base/alloc.h"
#include "store/sqlite/db.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static void everything_is_there_after_closing_and_opening_again(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record expected = sample_session(2);

    sqlite_place_fill(place, 3);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 3);
    assert_same_session(found_session(&found, 1), &expected);
    found_records_ask(&found, place->store, STORE_EXECUTIONS);
    assert_int_equal(found.count, 3);
    found_records_ask(&found, place->store, STORE_EVENTS);
    assert_int_equal(found.count, 3);
    assert_int_equal(place->store->load.damaged, 0);
}

static void puts_without_a_commit_are_there_after_closing(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record record = sample_session(1);

    assert_non_null(sqlite_place_open(place, "boot 1"));
    store_put_session(place->store, &record);
    sqlite_place_close(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 1);
}

static void the_files_are_for_their_owner_only(void **state)
{
    static const char *const suffixes[] = { "", "-wal", "-shm" };
    struct sqlite_place *place = *state;
    struct session_record record = sample_session(1);

    assert_non_null(sqlite_place_open(place, "boot 1"));
    store_put_session(place->store, &record);
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
    for (size_t i = 0; i < ARRAY_LENGTH(suffixes); i++) {
        scoped(free) char *name = xasprintf("%s%s", place->path, suffixes[i]);
        struct stat info;

        assert_int_equal(stat(name, &info), 0);
        assert_int_equal(info.st_mode & 07777, 0600);
    }
}

static void sequence_numbers_go_on_after_their_events_are_forgotten(void **state)
{
    struct sqlite_place *place = *state;

    sqlite_place_fill(place, 5);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(place->store->load.last_sequence, 5);
    for (unsigned i = 1; i <= 5; i++)
        store_forget_session(place->store, sample_session(i).id);
    sqlite_place_close(place);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM events"), 0);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(place->store->load.last_sequence, 5);
}

/* --- boots --------------------------------------------------------------------------------- */

static void a_restart_within_a_boot_is_known_from_a_reboot(void **state)
{
    struct sqlite_place *place = *state;

    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_false(place->store->load.same_boot);
    sqlite_place_close(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_true(place->store->load.same_boot);
    sqlite_place_close(place);
    assert_non_null(sqlite_place_open(place, "boot 2"));
    assert_false(place->store->load.same_boot);
    sqlite_place_close(place);
    assert_non_null(sqlite_place_open(place, NULL));
    assert_false(place->store->load.same_boot);
    sqlite_place_close(place);
    assert_non_null(sqlite_place_open(place, NULL));
    assert_false(place->store->load.same_boot);
}

/* An hour before the reboot a lease of two hours began; the machine has been up for a minute. */
static void stamps_of_an_earlier_boot_are_worked_out_from_the_wall_clock(void **state)
{
    enum { HOUR = 3600 };
    const int64_t second = 1000000;
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record record = { .id = "ses_1", .state = "open" };
    const struct session_record *got;
    int64_t wall_us = place->clock.wall_us;

    record.created = (struct stamp){ wall_us, place->clock.boot_us };
    record.expires =
        (struct stamp){ wall_us + 2 * HOUR * second, place->clock.boot_us + 2 * HOUR * second };
    record.started.wall_us = 0;
    assert_non_null(sqlite_place_open(place, "boot 1"));
    store_put_session(place->store, &record);
    sqlite_place_close(place);

    simulated_clock_advance(&place->clock, HOUR * second);
    place->clock.boot_us = 60 * second;
    /* A process that ends before it has put the record again leaves it as it was. */
    assert_non_null(sqlite_place_open(place, "boot 2"));
    sqlite_place_close(place);
    assert_non_null(sqlite_place_open(place, "boot 2"));
    assert_true(place->store->load.same_boot);
    found_records_ask(&found, place->store, STORE_SESSIONS);
    got = found_session(&found, 0);
    assert_int_equal(got->expires.wall_us, record.expires.wall_us);
    assert_int_equal(got->expires.boot_us, (HOUR + 60) * second);
    assert_int_equal(got->created.boot_us, (60 - HOUR) * second);
    assert_int_equal(got->started.wall_us, 0);
    assert_int_equal(got->started.boot_us, 0);
}

/* --- versions ------------------------------------------------------------------------------ */

static void make_version_1(const struct sqlite_place *place)
{
    scoped(free) char *sql = xasprintf(
        "BEGIN; %s"
        "INSERT INTO sessions (id, owner, key, state, generation, created_wall_us,"
        " created_boot_us) VALUES ('ses_old', 'ada', '', 'open', 3, 1749999999000000, 17);"
        "INSERT INTO events (sequence, session_id, type) VALUES (41, 'ses_old', 'session.created');"
        "PRAGMA user_version = 1; PRAGMA application_id = %d; COMMIT;",
        schema_migration(1), STORE_APPLICATION_ID);

    sqlite_place_exec(place, sql);
}

static void a_database_of_the_version_before_is_migrated(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record record = sample_session(1);

    make_version_1(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(place->store->load.last_sequence, 41);
    store_put_session(place->store, &record);
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 2);
    assert_string_equal(found_session(&found, 0)->id, "ses_old");
    assert_int_equal(found_session(&found, 0)->generation, 3);
    assert_int_equal(found_session(&found, 0)->created.boot_us, place->clock.boot_us - 1000000);
    assert_int_equal(sqlite_place_number(place, "PRAGMA user_version"), STORE_SCHEMA_VERSION);
}

static void make_version(const struct sqlite_place *place, int last)
{
    for (int version = 1; version <= last; version++)
        sqlite_place_exec(place, schema_migration(version));
}

/* Live, ready, dead and half made ones: a daemon is upgraded under them. */
static void make_version_6(const struct sqlite_place *place)
{
    make_version(place, 6);
    sqlite_place_exec(
        place,
        "INSERT INTO sandboxes (id, session_id, backend, state, generation, start_time, slot,"
        " attempts, pid, sum) VALUES"
        " ('sbx_a', 'ses_a', 'native', 'ready', 3, 123456789012345, 17, 2, 4711, 99),"
        " ('sbx_b', 'ses_b', 'direct', 'frozen', 1, 5, 4294967295, 0, 2, NULL),"
        " ('sbx_c', 'ses_c', 'native', 'creating', 1, 0, 0, 0, 0, 99),"
        " ('sbx_d', 'ses_d', 'native', 'ready', 1, NULL, NULL, NULL, NULL, NULL)");
    sqlite_place_exec(place, "PRAGMA user_version = 6; PRAGMA application_id = 0x5347534c");
}

static void sandboxes_of_version_6_have_handles(void **state)
{
    static const char *const handles[] = { "4711:123456789012345:17", "2:5:4294967295", "", "" };
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };

    make_version_6(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    found_records_ask(&found, place->store, STORE_SANDBOXES);
    assert_int_equal(found.count, ARRAY_LENGTH(handles));
    for (size_t i = 0; i < ARRAY_LENGTH(handles); i++)
        assert_string_equal(found_sandbox(&found, i)->handle, handles[i]);
    assert_string_equal(found_sandbox(&found, 0)->backend, "native");
    assert_int_equal(found_sandbox(&found, 0)->generation, 3);
    assert_int_equal(found_sandbox(&found, 0)->attempts, 2);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM damaged"), 0);
    assert_int_equal(sqlite_place_number(place, "PRAGMA user_version"), STORE_SCHEMA_VERSION);
}

/* A session with a key, and an Idempotency-Key, from before there were claims. */
static void make_version_7(const struct sqlite_place *place)
{
    make_version(place, 7);
    sqlite_place_exec(place, "INSERT INTO sessions (id, owner, key, state) VALUES"
                             " ('ses_a', 'ada', 'k', 'open'), ('ses_b', 'ada', '', 'open');"
                             "INSERT INTO documents (kind, id, owner, json) VALUES"
                             " ('" CLAIM_KIND "', 'old', 'ada', '{}')");
    sqlite_place_exec(place, "PRAGMA user_version = 7; PRAGMA application_id = 0x5347534c");
}

static void keys_of_version_7_are_free_to_be_claimed(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record second = sample_session(1);

    make_version_7(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    found.query.kind = CLAIM_KIND;
    found_records_ask(&found, place->store, STORE_DOCUMENTS);
    assert_int_equal(found.count, 1);
    assert_true(found_document(&found, 0)->version == 0);
    assert_int_equal(claim_and_wait(place->store, 0, "old", "{}", NULL), CLAIM_WON);
    second.owner = "ada";
    second.key = "k";
    store_put_session(place->store, &second);
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
    sqlite_place_close(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(claim_and_wait(place->store, 0, "old", "{}", NULL), CLAIM_LOST);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM sessions"), 3);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM damaged"), 0);
}

static void make_version_5(const struct sqlite_place *place)
{
    make_version(place, 5);
    sqlite_place_exec(
        place,
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 300)"
        " INSERT INTO sessions (id, owner, key, state, labels_json, retain_until_wall_us)"
        " SELECT 'ses_' || n, iif(n % 3, 'ada', 'bob'), '', iif(n % 10, 'ended', 'open'),"
        " iif(n % 2, json_object('team', 'red', 'number', '' || n), ''), 9e17 FROM numbers;"
        "INSERT INTO sessions (id, owner, key, state, labels_json, retain_until_wall_us)"
        " VALUES ('ses_odd', 'ada', '', 'ended', 'not JSON', 9e17)");
    sqlite_place_exec(place, "PRAGMA user_version = 5; PRAGMA application_id = 0x5347534c");
}

/* Of the owner, or of everybody, with the label team=red or without one. */
static uint64_t count_ended(struct sqlite_place *place, const char *owner, bool red)
{
    const struct store_label team = { "team", "red" };
    scoped(found_records_free) struct found_records found = { 0 };

    found.query = (struct store_query){ .owner = owner,
                                        .state = STORE_STATE_ENDED,
                                        .labels = &team,
                                        .label_count = red,
                                        .count = true };
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, found.query.total);
    return found.query.total;
}

static void ended_sessions_of_version_5_are_found_by_label(void **state)
{
    struct sqlite_place *place = *state;

    make_version_5(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(sqlite_place_number(place, "PRAGMA user_version"), STORE_SCHEMA_VERSION);
    assert_int_equal(count_ended(place, NULL, false), 271);
    assert_int_equal(count_ended(place, "ada", false), 181);
    assert_int_equal(count_ended(place, "bob", false), 90);
    assert_int_equal(count_ended(place, NULL, true), 150);
    assert_int_equal(count_ended(place, "ada", true), 100);
    sqlite_place_close(place);
    assert_int_equal(sqlite_place_number(place, "PRAGMA auto_vacuum"), 2);
}

static void lists_of_labels_follow_what_is_changed_by_hand(void **state)
{
    struct sqlite_place *place = *state;

    make_version_5(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    sqlite_place_close(place);
    sqlite_place_exec(place, "DELETE FROM sessions WHERE id = 'ses_1';"
                             "UPDATE sessions SET labels_json = '{}' WHERE id = 'ses_3'");
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(count_ended(place, NULL, false), 270);
    assert_int_equal(count_ended(place, NULL, true), 148);
    assert_int_equal(count_ended(place, "bob", true), 49);
}

static void wrong_lists_of_labels_are_made_anew(void **state)
{
    static const char *const damages[] = {
        "DELETE FROM ended_entries WHERE session % 7 = 1",
        "UPDATE ended_lists SET sessions = sessions + 1 WHERE name = ''",
        "UPDATE ended_lists SET value = 'rex' WHERE value = 'red'",
        "DELETE FROM ended_lists WHERE name = 'team'",
        "INSERT INTO ended_entries SELECT id, 2 FROM ended_lists WHERE name = 'team'",
    };
    struct sqlite_place *place = *state;

    make_version_5(place);
    for (size_t i = 0; i < ARRAY_LENGTH(damages); i++) {
        assert_non_null(sqlite_place_open(place, "boot 1"));
        assert_int_equal(count_ended(place, NULL, true), 150);
        assert_int_equal(count_ended(place, "ada", true), 100);
        assert_int_equal(count_ended(place, "ada", false), 181);
        sqlite_place_close(place);
        sqlite_place_exec(place, damages[i]);
    }
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(count_ended(place, NULL, true), 150);
}

/* --- size ---------------------------------------------------------------------------------- */

enum { MANY = 2000, MANY_BYTES = 8000 };

static void put_many(struct sqlite_place *place)
{
    scoped(free) char *text = xmalloc(MANY_BYTES + 1);

    memset(text, 'x', MANY_BYTES);
    text[MANY_BYTES] = '\0';
    for (unsigned i = 1; i <= MANY; i++) {
        struct session_record record = sample_session(i);

        record.state = STORE_STATE_ENDED;
        record.spec_json = text;
        store_put_session(place->store, &record);
    }
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
}

static off_t size_of_database(const struct sqlite_place *place)
{
    struct stat info;

    assert_int_equal(stat(place->path, &info), 0);
    return info.st_size;
}

static void wait_for_size(struct sqlite_place *place, off_t least, off_t most)
{
    int64_t deadline_us = clock_now_us(&clock_system) + 60 * 1000 * 1000;

    while (size_of_database(place) < least || size_of_database(place) > most) {
        assert_true(clock_now_us(&clock_system) < deadline_us);
        simulated_clock_advance(&place->clock, 1000 * 1000);
        loop_turn(place->store->loop, 1);
    }
}

static void a_database_gets_shorter_when_its_records_are_forgotten(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };

    assert_non_null(sqlite_place_open(place, "boot 1"));
    put_many(place);
    wait_for_size(place, MANY * MANY_BYTES, INT64_MAX);
    for (unsigned i = 2; i <= MANY; i++)
        store_forget_session(place->store, sample_session(i).id);
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
    wait_for_size(place, 0, MANY * MANY_BYTES / 2);
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 1);
}

static void a_migration_that_fails_leaves_the_old_version_as_it_was(void **state)
{
    struct sqlite_place *place = *state;

    make_version_1(place);
    sqlite_place_exec(place, "CREATE TABLE damaged (in_the_way)");
    assert_null(sqlite_place_open(place, "boot 1"));
    assert_non_null(strstr(place->err.message, place->path));
    assert_int_equal(sqlite_place_number(place, "PRAGMA user_version"), 1);
    sqlite_place_exec(place, "DROP TABLE damaged");
    assert_non_null(sqlite_place_open(place, "boot 1"));
}

static void a_database_of_a_newer_version_is_refused(void **state)
{
    struct sqlite_place *place = *state;

    sqlite_place_fill(place, 1);
    sqlite_place_exec(place, "PRAGMA user_version = 99");
    assert_null(sqlite_place_open(place, "boot 1"));
    assert_string_equal(place->err.name, "store_newer");
    assert_non_null(strstr(place->err.message, place->path));
    assert_non_null(strstr(place->err.message, "99"));
    assert_int_not_equal(place->err.hint[0], '\0');
}

static void a_database_of_another_program_is_refused(void **state)
{
    struct sqlite_place *place = *state;

    sqlite_place_exec(place, "CREATE TABLE sessions (id)");
    assert_null(sqlite_place_open(place, "boot 1"));
    assert_string_equal(place->err.name, "store_foreign");
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM sqlite_schema"), 1);
}

static void a_half_made_new_database_is_replaced(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *name = xasprintf("%s.new", place->path);
    FILE *file = fopen(name, "w");

    assert_non_null(file);
    fputs("half", file);
    fclose(file);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_not_equal(access(name, F_OK), 0);
}

static void old_events_of_no_session_are_not_kept_for_ever(void **state)
{
    struct sqlite_place *place = *state;

    sqlite_place_fill(place, 1);
    sqlite_place_exec(place, "WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n"
                             " WHERE i < 15000) INSERT INTO events (sequence, session_id, type)"
                             " SELECT i, '', 'daemon.started' FROM n");
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(place->store->load.last_sequence, 15000);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM events"), 10001);
}

/* Pages that a burst has brought into memory do not stay there when nothing happens any more. */
static void a_store_at_rest_gives_its_memory_back(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };
    int64_t before, busy;

    assert_non_null(sqlite_place_open(place, "boot 1"));
    before = sqlite3_memory_used();
    for (unsigned i = 1; i <= 4000; i++) {
        struct session_record record = sample_session(i);

        store_put_session(place->store, &record);
    }
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
    found_records_ask(&found, place->store, STORE_SESSIONS);
    busy = sqlite3_memory_used();
    assert_true(busy > before + 1024 * 1024);
    for (unsigned i = 0; i < 1000 && sqlite3_memory_used() > before + 512 * 1024; i++) {
        loop_advance(place->loop, &place->clock, 1000 * 1000);
        loop_turn(place->loop, 20);
    }
    assert_true(sqlite3_memory_used() <= before + 512 * 1024);
}

#define place_test(name) \
    cmocka_unit_test_setup_teardown(name, sqlite_place_setup, sqlite_place_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        place_test(everything_is_there_after_closing_and_opening_again),
        place_test(puts_without_a_commit_are_there_after_closing),
        place_test(the_files_are_for_their_owner_only),
        place_test(sequence_numbers_go_on_after_their_events_are_forgotten),
        place_test(a_restart_within_a_boot_is_known_from_a_reboot),
        place_test(stamps_of_an_earlier_boot_are_worked_out_from_the_wall_clock),
        place_test(a_database_of_the_version_before_is_migrated),
        place_test(sandboxes_of_version_6_have_handles),
        place_test(keys_of_version_7_are_free_to_be_claimed),
        place_test(ended_sessions_of_version_5_are_found_by_label),
        place_test(lists_of_labels_follow_what_is_changed_by_hand),
        place_test(wrong_lists_of_labels_are_made_anew),
        place_test(a_database_gets_shorter_when_its_records_are_forgotten),
        place_test(a_migration_that_fails_leaves_the_old_version_as_it_was),
        place_test(a_database_of_a_newer_version_is_refused),
        place_test(a_database_of_another_program_is_refused),
        place_test(a_half_made_new_database_is_replaced),
        place_test(old_events_of_no_session_are_not_kept_for_ever),
        place_test(a_store_at_rest_gives_its_memory_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
