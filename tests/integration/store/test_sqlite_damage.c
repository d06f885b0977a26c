/* SPDX-License-Identifier: Apache-2.0 */
#include "sqlite_support.h"

#include "base/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { FLIP_ROUNDS = 150, FLIP_SESSIONS = 60, PAGE_SIZE_BYTES = 4096, TABLE_LEAF = 0x0d };

/* --- the file as a whole ------------------------------------------------------------------- */

static void assert_refused(struct sqlite_place *place)
{
    assert_null(sqlite_place_open(place, "boot 1"));
    assert_int_not_equal(place->err.code, ERR_NONE);
    assert_non_null(strstr(place->err.message, place->path));
    assert_int_not_equal(place->err.hint[0], '\0');
}

static void write_file(const struct sqlite_place *place, const void *data, size_t length)
{
    FILE *file = fopen(place->path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static off_t file_size(const struct sqlite_place *place)
{
    struct stat info;

    assert_int_equal(lstat(place->path, &info), 0);
    return info.st_size;
}

static void an_empty_file_is_refused_and_left_alone(void **state)
{
    struct sqlite_place *place = *state;

    write_file(place, "", 0);
    assert_refused(place);
    assert_non_null(strstr(place->err.message, "empty"));
    assert_int_equal(file_size(place), 0);
}

static void a_file_of_something_else_is_refused_and_left_alone(void **state)
{
    struct sqlite_place *place = *state;
    char garbage[8192];

    memset(garbage, 'g', sizeof(garbage));
    write_file(place, garbage, sizeof(garbage));
    assert_refused(place);
    assert_string_equal(place->err.name, "store_damaged");
    assert_int_equal(file_size(place), sizeof(garbage));
}

static void a_zeroed_header_is_refused(void **state)
{
    struct sqlite_place *place = *state;
    char zeroes[100] = { 0 };
    int fd;

    sqlite_place_fill(place, 50);
    fd = open(place->path, O_WRONLY);
    assert_int_equal(pwrite(fd, zeroes, sizeof(zeroes), 0), sizeof(zeroes));
    close(fd);
    assert_refused(place);
}

static void a_truncated_file_is_refused_wherever_it_ends(void **state)
{
    struct sqlite_place *place = *state;
    off_t full;

    sqlite_place_fill(place, 200);
    full = file_size(place);
    for (off_t size = full - 4096; size > 0; size -= full / 7) {
        assert_int_equal(truncate(place->path, size), 0);
        assert_refused(place);
        assert_string_equal(place->err.name, "store_damaged");
        assert_int_equal(file_size(place), size);
    }
}

static void a_directory_in_its_place_is_refused(void **state)
{
    struct sqlite_place *place = *state;

    assert_int_equal(mkdir(place->path, 0700), 0);
    assert_refused(place);
    assert_non_null(strstr(place->err.message, "directory"));
}

static void a_symbolic_link_is_refused(void **state)
{
    struct sqlite_place *place = *state;

    assert_int_equal(symlink("/etc/passwd", place->path), 0);
    assert_refused(place);
    assert_non_null(strstr(place->err.message, "symbolic link"));
}

static void a_log_without_its_database_is_refused(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *wal = xasprintf("%s-wal", place->path);
    FILE *file = fopen(wal, "w");

    fputs("log", file);
    fclose(file);
    assert_refused(place);
    assert_int_equal(access(wal, F_OK), 0);
    assert_int_not_equal(access(place->path, F_OK), 0);
}

static void a_state_directory_that_is_missing_is_named(void **state)
{
    struct sqlite_place *place = *state;
    char path[sizeof(place->path)];

    memcpy(path, place->path, sizeof(path));
    snprintf(place->path, sizeof(place->path), "%s/no/store.db", place->directory);
    assert_refused(place);
    memcpy(place->path, path, sizeof(path));
}

/* Root may write everything, so somebody else has to try. */
static int open_as_nobody(struct sqlite_place *place)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        bool refused = setgid(65534) == 0 && setuid(65534) == 0 &&
                       !sqlite_place_open(place, "boot 1") &&
                       strcmp(place->err.name, "store_readonly") == 0 &&
                       strstr(place->err.message, place->path);

        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void a_file_that_cannot_be_written_is_refused(void **state)
{
    struct sqlite_place *place = *state;

    if (geteuid() != 0)
        skip();
    sqlite_place_fill(place, 1);
    assert_int_equal(chmod(place->directory, 0755), 0);
    assert_int_equal(chmod(place->path, 0644), 0);
    assert_int_equal(open_as_nobody(place), 0);
    assert_int_equal(chmod(place->path, 0666), 0);
    assert_int_equal(open_as_nobody(place), 0);
}

/* --- bits ---------------------------------------------------------------------------------- */

static unsigned next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return (unsigned)(*seed >> 33);
}

static void check_session(const struct session_record *found)
{
    struct session_record put = { 0 };

    for (unsigned n = 1; n <= FLIP_SESSIONS && strcmp(put.id, found->id) != 0; n++)
        put = sample_session(n);
    assert_string_equal(found->id, put.id);
    assert_string_equal(found->owner, put.owner);
    assert_string_equal(found->spec_json, put.spec_json);
    assert_string_equal(found->labels_json, put.labels_json);
    assert_string_equal(found->state, put.state);
    assert_int_equal(found->generation, put.generation);
    assert_int_equal(found->idle_timeout_ms, put.idle_timeout_ms);
    assert_int_equal(found->created.wall_us, put.created.wall_us);
    assert_int_equal(found->expires.wall_us, put.expires.wall_us);
}

/* Either it is refused, or every record is as it was put, or it is told which ones are not. */
static bool open_and_read(struct sqlite_place *place)
{
    scoped(found_records_free) struct found_records sessions = { 0 };
    scoped(found_records_free) struct found_records live = { 0 };
    scoped(found_records_free) struct found_records executions = { 0 };
    scoped(found_records_free) struct found_records events = { 0 };
    unsigned told;

    if (!sqlite_place_open(place, "boot 1")) {
        assert_non_null(strstr(place->err.message, place->path));
        return true;
    }
    found_records_ask(&sessions, place->store, STORE_SESSIONS);
    live.query.live = true;
    found_records_ask(&live, place->store, STORE_SESSIONS);
    found_records_ask(&executions, place->store, STORE_EXECUTIONS);
    found_records_ask(&events, place->store, STORE_EVENTS);
    told = place->store->load.damaged;
    for (size_t i = 0; i < sessions.count; i++)
        check_session(found_session(&sessions, i));
    assert_int_equal(live.count, sessions.count);
    assert_int_equal(sessions.count + executions.count + events.count + told, 3 * FLIP_SESSIONS);
    sqlite_place_close(place);
    return told > 0;
}

static void flipped_bits_never_change_what_is_read(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *original = NULL;
    scoped(free) char *copy = NULL;
    uint64_t seed = 20260301;
    unsigned noticed = 0;
    size_t size;
    int fd;

    sqlite_place_fill(place, FLIP_SESSIONS);
    size = (size_t)file_size(place);
    original = xmalloc(size);
    copy = xmalloc(size);
    fd = open(place->path, O_RDONLY);
    assert_int_equal(read(fd, original, size), size);
    close(fd);
    for (unsigned round = 0; round < FLIP_ROUNDS; round++) {
        memcpy(copy, original, size);
        for (unsigned i = 0; i <= (round % 2) * (round % 8); i++)
            copy[next_random(&seed) % size] ^= (char)(1U << (next_random(&seed) % 8));
        write_file(place, copy, size);
        noticed += open_and_read(place);
    }
    assert_true(noticed > FLIP_ROUNDS / 4); /* the others were in space that is not used */
}

/* A leaf of a table has records; everything else can be made anew from them. */
static bool is_in_a_table(const char *file, const char *at)
{
    size_t page = (size_t)(at - file) / PAGE_SIZE_BYTES;

    return page > 0 && file[page * PAGE_SIZE_BYTES] == TABLE_LEAF;
}

/* In the records themselves each one is told, in an index nothing is missing. */
static void a_flipped_bit_in_a_record_is_told(void **state)
{
    static const char *const texts[] = { "ada@example.org", "open", "exe_", "ses_" };
    struct sqlite_place *place = *state;
    scoped(free) char *original = NULL;
    unsigned in_tables = 0;
    size_t size;
    FILE *file;

    sqlite_place_fill(place, FLIP_SESSIONS);
    size = (size_t)file_size(place);
    original = xmalloc(size);
    file = fopen(place->path, "r");
    assert_int_equal(fread(original, 1, size, file), size);
    fclose(file);
    for (size_t i = 0; i < ARRAY_LENGTH(texts); i++) {
        char *at = memmem(original, size, texts[i], strlen(texts[i]));

        for (unsigned k = 0; at && k < 20; k++) {
            at[1] ^= 2;
            write_file(place, original, size);
            at[1] ^= 2;
            if (is_in_a_table(original, at)) {
                assert_true(open_and_read(place));
                in_tables++;
            } else {
                (void)open_and_read(place);
            }
            at = memmem(at + 8, (size_t)(original + size - at) - 8, texts[i], strlen(texts[i]));
        }
    }
    assert_true(in_tables >= ARRAY_LENGTH(texts));
}

/* The checks of so many events take longer than the budget that the start has for them. */
static void fill_with_events(const struct sqlite_place *place)
{
    sqlite_place_exec(place, "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n"
                             " WHERE i < 300000) INSERT INTO events (sequence, session_sequence,"
                             " session_id, owner, type, data_json, wall_us)"
                             " SELECT i, i, 'ses_' || i, '', 'note', '{}', 1 FROM n");
}

/* Its index is made anew from it. */
static void a_record_that_its_index_lacks_is_told_without_time_to_check(void **state)
{
    struct sqlite_place *place = *state;
    const struct session_record record = sample_session(FLIP_SESSIONS);
    char bytes[PAGE_SIZE_BYTES];
    bool found = false;
    int fd;

    sqlite_place_fill(place, FLIP_SESSIONS);
    fill_with_events(place);
    fd = open(place->path, O_RDWR);
    for (off_t at = 0; !found && pread(fd, bytes, sizeof(bytes), at) > 0; at += sizeof(bytes)) {
        char *text = bytes[0] == TABLE_LEAF
                         ? memmem(bytes, sizeof(bytes), record.id, strlen(record.id))
                         : NULL;

        if (!text)
            continue;
        found = true;
        text[6] ^= 1;
        assert_int_equal(pwrite(fd, bytes, sizeof(bytes), at), sizeof(bytes));
    }
    close(fd);
    assert_true(found);
    place->is_hurried = true;
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(place->store->load.damaged, 1);
}

/* --- single records ------------------------------------------------------------------------ */

static void a_record_without_timestamps_is_delivered_with_zeroes(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };

    sqlite_place_fill(place, 2);
    sqlite_place_exec(place, "UPDATE sessions SET created_wall_us = NULL, created_boot_us = NULL,"
                             " expires_wall_us = 'soon', generation = x'00ff', owner = 7,"
                             " spec_json = NULL, retain_until_wall_us = 1.5 WHERE seq = 1");
    assert_non_null(sqlite_place_open(place, "boot 1"));
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 2);
    assert_int_equal(found_session(&found, 0)->created.wall_us, 0);
    assert_int_equal(found_session(&found, 0)->created.boot_us, 0);
    assert_int_equal(found_session(&found, 0)->expires.wall_us, 0);
    assert_int_equal(found_session(&found, 0)->generation, 0);
    assert_int_equal(found_session(&found, 0)->retain_until_wall_us, 0);
    assert_string_equal(found_session(&found, 0)->spec_json, "");
    assert_string_equal(found_session(&found, 0)->state, "open");
    assert_int_equal(place->store->load.damaged, 0);
}

static void text_that_is_no_json_counts_as_not_set(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };

    sqlite_place_fill(place, 2);
    sqlite_place_exec(place, "UPDATE sessions SET labels_json = 'soon', spec_json = '{' WHERE"
                             " seq = 1");
    assert_non_null(sqlite_place_open(place, "boot 1"));
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 2);
    assert_string_equal(found_session(&found, 0)->labels_json, "");
    assert_string_equal(found_session(&found, 0)->spec_json, "");
    assert_string_equal(found_session(&found, 1)->labels_json, sample_session(2).labels_json);
}

static void a_record_with_an_unknown_state_is_delivered_as_it_is(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };

    sqlite_place_fill(place, 1);
    sqlite_place_exec(place, "UPDATE sessions SET state = 'hibernating'");
    assert_non_null(sqlite_place_open(place, "boot 1"));
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 1);
    assert_string_equal(found_session(&found, 0)->state, "hibernating");
}

static void an_ended_session_without_a_retention_time_is_due(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };

    sqlite_place_fill(place, 4);
    sqlite_place_exec(place, "UPDATE sessions SET state = 'ended', retain_until_wall_us ="
                             " CASE seq WHEN 1 THEN NULL WHEN 2 THEN 0 WHEN 3 THEN -5"
                             " ELSE 'soon' END");
    assert_non_null(sqlite_place_open(place, "boot 1"));
    found_records_ask_expired(&found, place->store, clock_wall_us(&clock_system) + 1000000);
    assert_int_equal(found.count, 4);
}

static void records_without_id_or_state_are_set_aside_and_counted(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };

    sqlite_place_fill(place, 6);
    sqlite_place_exec(place, "UPDATE sessions SET id = NULL WHERE seq = 1;"
                             "UPDATE sessions SET id = 'ses_' || hex(zeroblob(40)) WHERE seq = 2;"
                             "UPDATE sessions SET state = '' WHERE seq = 3;"
                             "UPDATE sessions SET state = x'01' WHERE seq = 4;"
                             "UPDATE executions SET session_id = 5 WHERE seq = 1");
    sqlite_place_exec(place, "UPDATE executions SET session_id = x'05' WHERE seq = 1;"
                             "UPDATE events SET type = NULL WHERE sequence = 2");
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(place->store->load.damaged, 6);
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 2);
    assert_string_equal(found_session(&found, 0)->id, sample_session(5).id);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM damaged"), 6);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM damaged WHERE table_name ="
                                                " 'sessions' AND content LIKE '%ada@example.org%'"),
                     4);
    sqlite_place_close(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(place->store->load.damaged, 0);
}

static void a_record_that_breaks_while_the_store_is_open_is_set_aside_by_the_query(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };

    sqlite_place_fill(place, 2);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    sqlite_place_exec(place, "UPDATE sessions SET state = NULL WHERE seq = 1");
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 1);
    assert_int_equal(place->store->load.damaged, 1);
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(place->store->load.damaged, 1);
}

/* --- while it runs ------------------------------------------------------------------------- */

static void a_database_that_is_removed_under_the_store_fails_commits(void **state)
{
    struct sqlite_place *place = *state;
    struct session_record record = sample_session(1);

    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(unlink(place->path), 0);
    store_put_session(place->store, &record);
    assert_int_equal(store_commit_and_wait(place->store), ERR_UNAVAILABLE);
    assert_string_equal(place->store->counts.last_failure.name, "store_gone");
}

static bool flush_fails;
static bool sync_fails;
static int (*real_open)(sqlite3_vfs *, const char *, sqlite3_file *, int, int *);
static int (*real_sync)(sqlite3_file *, int);
static sqlite3_io_methods failing_methods;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

/* Flushes of the redo log. */
int __wrap_fdatasync(int fd)
{
    if (!flush_fails)
        return __real_fdatasync(fd);
    errno = EIO;
    return -1;
}

static bool log_fails;

ssize_t __real_pwrite64(int fd, const void *data, size_t length, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t length, off_t offset);

/* Writes to the redo log: commits go directly into the database then. */
ssize_t __wrap_pwrite64(int fd, const void *data, size_t length, off_t offset)
{
    if (!log_fails)
        return __real_pwrite64(fd, data, length, offset);
    errno = EIO;
    return -1;
}

/* Flushes of the database. */
static int failing_sync(sqlite3_file *file, int flags)
{
    return sync_fails ? SQLITE_IOERR_FSYNC : real_sync(file, flags);
}

static int failing_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                        int *out_flags)
{
    int code = real_open(vfs, name, file, flags, out_flags);

    if (code == SQLITE_OK && (flags & SQLITE_OPEN_WAL)) {
        failing_methods = *file->pMethods;
        real_sync = failing_methods.xSync;
        failing_methods.xSync = failing_sync;
        file->pMethods = &failing_methods;
    }
    return code;
}

static enum error_code put_and_commit(struct sqlite_place *place)
{
    static uint64_t generation;
    struct session_record record = sample_session(1);

    record.generation = ++generation;
    store_put_session(place->store, &record);
    return store_commit_and_wait(place->store);
}

static void check_that_a_failure_is_final(struct sqlite_place *place, bool *failing)
{
    struct store_options options = { .loop = place->loop, .path = place->path, .sync = "full" };

    place->store = store_open_sqlite(&options, &place->err);
    assert_non_null(place->store);
    log_fails = failing == &sync_fails;
    assert_int_equal(put_and_commit(place), ERR_NONE);
    *failing = true;
    assert_int_not_equal(put_and_commit(place), ERR_NONE);
    *failing = false;
    assert_int_not_equal(put_and_commit(place), ERR_NONE);
    log_fails = false;
    assert_int_not_equal(put_and_commit(place), ERR_NONE);
    sqlite_place_close(place);
}

static void a_failed_flush_fails_this_commit_and_all_later_ones(void **state)
{
    check_that_a_failure_is_final(*state, &flush_fails);
}

static void a_failed_sync_fails_this_commit_and_all_later_ones(void **state)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    real_open = vfs->xOpen;
    vfs->xOpen = failing_open;
    check_that_a_failure_is_final(*state, &sync_fails);
    vfs->xOpen = real_open;
}

/* --- a disk that fails once ---------------------------------------------------------------- */

static int calls_until_failure; /* 0: none fails */
static bool reads_fail;
static int (*real_read[2])(sqlite3_file *, void *, int, sqlite3_int64);
static int (*real_write[2])(sqlite3_file *, const void *, int, sqlite3_int64);
static sqlite3_io_methods once_methods[2]; /* of the database, of its log */

static bool fails_now(bool is_read)
{
    return is_read == reads_fail && calls_until_failure && --calls_until_failure == 0;
}

static int once_read(sqlite3_file *file, void *data, int length, sqlite3_int64 offset)
{
    if (fails_now(true))
        return SQLITE_IOERR_READ;
    return real_read[file->pMethods == &once_methods[1]](file, data, length, offset);
}

static int once_write(sqlite3_file *file, const void *data, int length, sqlite3_int64 offset)
{
    if (fails_now(false))
        return SQLITE_IOERR_WRITE;
    return real_write[file->pMethods == &once_methods[1]](file, data, length, offset);
}

static int once_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                     int *out_flags)
{
    int code = real_open(vfs, name, file, flags, out_flags);
    bool is_log = flags & SQLITE_OPEN_WAL;

    if (code != SQLITE_OK || !(flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_DB)))
        return code;
    once_methods[is_log] = *file->pMethods;
    real_read[is_log] = once_methods[is_log].xRead;
    real_write[is_log] = once_methods[is_log].xWrite;
    once_methods[is_log].xRead = once_read;
    once_methods[is_log].xWrite = once_write;
    file->pMethods = &once_methods[is_log];
    return code;
}

/* A process opens it with a disk whose n-th call fails, commits a session, and is killed. */
static bool open_failing(struct sqlite_place *place, int n)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        struct session_record record = sample_session(1);

        calls_until_failure = n;
        if (sqlite_place_open(place, "boot 1")) {
            store_put_session(place->store, &record);
            _exit(store_commit_and_wait(place->store) == ERR_NONE ? 0 : 1);
        }
        _exit(strcmp(place->err.name, "store_damaged") == 0 || !*place->err.hint ? 3 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 3)
        fail_msg("call %d: a disk that fails once is taken for damage", n);
    return WEXITSTATUS(status) != 0;
}

static void check_disk_that_fails_once(struct sqlite_place *place, bool reads)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    unsigned failures = 0;

    sqlite_place_fill(place, 3);
    real_open = vfs->xOpen;
    vfs->xOpen = once_open;
    reads_fail = reads;
    for (int n = 1; n <= 60; n++) {
        scoped(found_records_free) struct found_records found = { 0 };

        failures += open_failing(place, n);
        if (!sqlite_place_open(place, "boot 1"))
            fail_msg("after call %d: %s", n, place->err.message);
        found_records_ask(&found, place->store, STORE_SESSIONS);
        assert_int_equal(found.count, 3);
        assert_int_equal(place->store->load.damaged, 0);
        sqlite_place_close(place);
    }
    vfs->xOpen = real_open;
    assert_true(failures > 0);
}

static void one_failed_read_at_the_start_is_no_damage(void **state)
{
    check_disk_that_fails_once(*state, true);
}

static void one_failed_write_at_the_start_is_no_damage(void **state)
{
    check_disk_that_fails_once(*state, false);
}

/* A small file system of our own, in a mount namespace that ends with this process. */
static bool mount_small(const char *directory)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) == 0 &&
           mount("tmpfs", directory, "tmpfs", 0, "size=2m,mode=0700") == 0;
}

static void write_filler(const struct sqlite_place *place, const char *name, size_t size)
{
    scoped(free) char *path = xasprintf("%s/%s", place->directory, name);
    scoped(fd_close) int fd = open(path, O_CREAT | O_WRONLY, 0600);
    scoped(free) char *zeroes = xcalloc(1, size);

    assert_true(fd >= 0);
    (void)!write(fd, zeroes, size);
}

static unsigned put_until_full(struct sqlite_place *place, const char *text)
{
    enum error_code code;
    unsigned n = 0;

    do {
        struct session_record record = sample_session(++n);

        record.spec_json = text;
        store_put_session(place->store, &record);
        code = store_commit_and_wait(place->store);
    } while (code == ERR_NONE && n < 1000);
    assert_int_equal(code, ERR_NO_SPACE);
    return n - 1;
}

static void a_full_disk_fails_commits_until_there_is_space_again(void **state)
{
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };
    scoped(free) char *filler = xasprintf("%s/filler", place->directory);
    struct session_record record;
    char text[4096];
    unsigned durable;

    if (geteuid() != 0 || !mount_small(place->directory))
        skip();
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    write_filler(place, "filler", 1024 * 1024);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    durable = put_until_full(place, text);
    assert_true(durable > 0);
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, durable);

    assert_int_equal(unlink(filler), 0);
    record = sample_session(5000);
    store_put_session(place->store, &record);
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
    sqlite_place_close(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, durable + 1);
    sqlite_place_close(place);
    assert_int_equal(umount(place->directory), 0);
}

struct failing_question {
    struct store_query query;
    bool is_answered;
};

static void on_no_session(struct store_query *query UNUSED,
                          const struct session_record *record UNUSED)
{
}

static void on_answer(struct store_query *query)
{
    container_of(query, struct failing_question, query)->is_answered = true;
}

static uint64_t count_ended(struct store *store)
{
    scoped(found_records_free) struct found_records found = { 0 };

    found.query = (struct store_query){ .state = STORE_STATE_ENDED, .limit = 1, .count = true };
    found_records_ask(&found, store, STORE_SESSIONS);
    return found.query.total;
}

/* The transaction fails behind the lists of labels and is repeated. */
static void sessions_of_a_repeated_transaction_are_counted_once(void **state)
{
    struct sqlite_place *place = *state;
    struct failing_question failing = { .query = { .on_session = on_no_session,
                                                   .done = on_answer } };
    struct session_record record;

    assert_non_null(sqlite_place_open(place, "boot 1"));
    for (unsigned n = 1; n <= 5; n++) {
        record = sample_session(n);
        record.state = STORE_STATE_ENDED;
        store_put_session(place->store, &record);
    }
    assert_int_equal(count_ended(place->store), 5);
    sqlite_place_exec(place, "ALTER TABLE executions RENAME TO elsewhere");
    store_forget_session(place->store, record.id);
    store_query(place->store, STORE_SESSIONS, &failing.query);
    store_wait(place->loop, &failing.is_answered);
    assert_int_not_equal(failing.query.err.code, ERR_NONE);
    sqlite_place_exec(place, "ALTER TABLE elsewhere RENAME TO executions");
    assert_int_equal(count_ended(place->store), 4);
    sqlite_place_close(place);
    assert_int_equal(sqlite_place_number(place, "SELECT sessions FROM ended_lists WHERE scope = '*'"
                                                " AND name = ''"),
                     4);
}

static void a_new_database_on_a_full_disk_is_refused_and_leaves_nothing(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *half = xasprintf("%s.new", place->path);

    if (geteuid() != 0 || !mount_small(place->directory))
        skip();
    write_filler(place, "filler", 3 * 1024 * 1024);
    assert_refused(place);
    assert_int_equal(place->err.code, ERR_NO_SPACE);
    assert_int_not_equal(access(half, F_OK), 0);
    assert_int_not_equal(access(place->path, F_OK), 0);
    assert_int_equal(umount(place->directory), 0);
}

#define place_test(name) \
    cmocka_unit_test_setup_teardown(name, sqlite_place_setup, sqlite_place_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        place_test(an_empty_file_is_refused_and_left_alone),
        place_test(a_file_of_something_else_is_refused_and_left_alone),
        place_test(a_zeroed_header_is_refused),
        place_test(a_truncated_file_is_refused_wherever_it_ends),
        place_test(a_directory_in_its_place_is_refused),
        place_test(a_symbolic_link_is_refused),
        place_test(a_log_without_its_database_is_refused),
        place_test(a_state_directory_that_is_missing_is_named),
        place_test(a_file_that_cannot_be_written_is_refused),
        place_test(flipped_bits_never_change_what_is_read),
        place_test(a_flipped_bit_in_a_record_is_told),
        place_test(a_record_that_its_index_lacks_is_told_without_time_to_check),
        place_test(a_record_without_timestamps_is_delivered_with_zeroes),
        place_test(text_that_is_no_json_counts_as_not_set),
        place_test(a_record_with_an_unknown_state_is_delivered_as_it_is),
        place_test(an_ended_session_without_a_retention_time_is_due),
        place_test(records_without_id_or_state_are_set_aside_and_counted),
        place_test(a_record_that_breaks_while_the_store_is_open_is_set_aside_by_the_query),
        place_test(a_database_that_is_removed_under_the_store_fails_commits),
        place_test(a_failed_flush_fails_this_commit_and_all_later_ones),
        place_test(a_failed_sync_fails_this_commit_and_all_later_ones),
        place_test(one_failed_read_at_the_start_is_no_damage),
        place_test(one_failed_write_at_the_start_is_no_damage),
        place_test(a_full_disk_fails_commits_until_there_is_space_again),
        place_test(sessions_of_a_repeated_transaction_are_counted_once),
        place_test(a_new_database_on_a_full_disk_is_refused_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
