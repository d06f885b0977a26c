/* SPDX-License-Identifier: Apache-2.0 */
/* What a process that was killed has left in the redo log, and logs that are not as they should be.
 */

#include "sqlite_support.h"

#include "base/alloc.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { LONGEST_LOG = 2 * 1024 * 1024, LOG_HEADER = 80, FRAME_HEADER = 32 };

static char *log_path(const struct sqlite_place *place, unsigned which)
{
    return xasprintf("%s-redo%u", place->path, which);
}

static off_t log_size(const struct sqlite_place *place, unsigned which)
{
    scoped(free) char *path = log_path(place, which);
    struct stat info;

    return stat(path, &info) == 0 ? info.st_size : -1;
}

/* Where the last frame ends; room behind it is zeros. */
static off_t log_end(const struct sqlite_place *place, unsigned which)
{
    scoped(free) char *path = log_path(place, which);
    uint64_t header[FRAME_HEADER / 8]; /* checksum, number, length, promised */
    off_t end = LOG_HEADER;
    int fd = open(path, O_RDONLY);

    assert_true(fd >= 0);
    while (pread(fd, header, sizeof(header), end) == sizeof(header) && header[1])
        end += (off_t)((sizeof(header) + header[2] + 7) / 8 * 8);
    close(fd);
    return end;
}

static size_t frame_end(const char *log, size_t start)
{
    uint64_t header[FRAME_HEADER / 8]; /* checksum, number, length, promised */

    memcpy(header, log + start, sizeof(header));
    return start + (sizeof(header) + header[2] + 7) / 8 * 8;
}

/* A process that commits sessions `first` to `last`, one by one, and ends without closing. */
static void commit_and_die(struct sqlite_place *place, const char *boot_id, unsigned first,
                           unsigned last)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        bool good = sqlite_place_open(place, boot_id) != NULL;

        for (unsigned i = first; good && i <= last; i++) {
            struct session_record session = sample_session(i);

            store_put_session(place->store, &session);
            good = store_commit_and_wait(place->store) == ERR_NONE;
        }
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void put_and_wait(struct sqlite_place *place, unsigned which)
{
    struct session_record session = sample_session(which);

    store_put_session(place->store, &session);
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
}

static void assert_sessions(struct sqlite_place *place, unsigned count)
{
    scoped(found_records_free) struct found_records found = { 0 };

    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, count);
    for (unsigned i = 0; i < count; i++) {
        struct session_record expected = sample_session(i + 1);

        assert_same_session(found_session(&found, i), &expected);
    }
}

static void what_was_committed_is_there_after_the_process_has_died(void **state)
{
    struct sqlite_place *place = *state;

    commit_and_die(place, "boot 1", 1, 5);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM sessions"), 0);
    assert_true(log_size(place, 0) > 0);
    commit_and_die(place, "boot 1", 6, 8);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM sessions"), 5);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_sessions(place, 8);
}

static void the_log_has_its_length_from_the_beginning(void **state)
{
    struct sqlite_place *place = *state;
    off_t size;

    assert_non_null(sqlite_place_open(place, "boot 1"));
    put_and_wait(place, 1);
    size = log_size(place, 0);
    assert_true(size > 512 * 1024);
    for (unsigned i = 2; i <= 20; i++)
        put_and_wait(place, i);
    assert_int_equal(log_size(place, 0), size);
    sqlite_place_close(place);
}

/* As on a disk that has no more: what is left of it is for the records. */
static void without_room_the_log_takes_no_more_than_it_needs(void **state)
{
    struct sqlite_place *place = *state;
    struct rlimit before;
    struct rlimit narrow;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    narrow = (struct rlimit){ .rlim_cur = 400 * 1024, .rlim_max = before.rlim_max };
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &narrow), 0);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    put_and_wait(place, 1);
    assert_int_equal(log_size(place, 0), log_end(place, 0) + FRAME_HEADER);
    put_and_wait(place, 2);
    assert_int_equal(log_size(place, 0), log_end(place, 0) + FRAME_HEADER);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_sessions(place, 2);
    sqlite_place_close(place);
}

static void closing_leaves_no_log(void **state)
{
    struct sqlite_place *place = *state;

    commit_and_die(place, "boot 1", 1, 2);
    sqlite_place_fill(place, 3);
    assert_int_equal(log_size(place, 0), -1);
    assert_int_equal(log_size(place, 1), -1);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM sessions"), 3);
}

static void the_log_is_for_its_owner_only(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *path = log_path(place, 0);
    struct stat info;

    commit_and_die(place, "boot 1", 1, 1);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0600);
}

/* Not while the machine went on: then the kernel had all of it. */
static void a_commit_that_a_power_failure_has_cut_off_is_as_if_it_had_not_been(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *path = log_path(place, 0);

    commit_and_die(place, "boot 1", 1, 4);
    assert_int_equal(truncate(path, log_end(place, 0) - 9), 0);
    assert_non_null(sqlite_place_open(place, "boot 2"));
    sqlite_place_close(place);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM sessions"), 3);
}

/* --- damage -------------------------------------------------------------------------------- */

struct copy {
    char *bytes; /* owned */
    size_t length;
};

static struct copy read_log(const struct sqlite_place *place, unsigned which)
{
    scoped(free) char *path = log_path(place, which);
    struct copy copy = { .length = (size_t)log_size(place, which) };
    FILE *file = fopen(path, "r");

    assert_non_null(file);
    copy.bytes = xmalloc(copy.length);
    assert_int_equal(fread(copy.bytes, 1, copy.length, file), copy.length);
    fclose(file);
    return copy;
}

static void write_log(const struct sqlite_place *place, unsigned which, const char *bytes,
                      size_t length)
{
    scoped(free) char *path = log_path(place, which);
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

static void assert_damage_is_told(struct sqlite_place *place, const char *boot_id)
{
    scoped(free) char *path = log_path(place, 0);

    if (sqlite_place_open(place, boot_id))
        fail_msg("it starts with a damaged log");
    assert_string_equal(place->err.name, "store_damaged");
    assert_non_null(strstr(place->err.message, path));
    assert_non_null(strstr(place->err.hint, "--accept-loss"));
}

/* All files of the database, aside and back. */
static void copy_files(const struct sqlite_place *place, bool back)
{
    const char *command = back ? "rm -f %s/* && cp -p %s.saved/* %s/"
                               : "rm -rf %s.saved && cp -pr %s %s.saved";
    scoped(free) char *text =
        xasprintf(command, place->directory, place->directory, place->directory);

    assert_int_equal(system(text), 0);
}

static void remove_saved_files(const struct sqlite_place *place)
{
    scoped(free) char *text = xasprintf("rm -rf %s.saved", place->directory);

    assert_int_equal(system(text), 0);
}

/* A store that has opened with the changed log has applied it, and everything is there. */
static void check_unnoticed(struct sqlite_place *place)
{
    sqlite_place_close(place);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM sessions"), 6);
    copy_files(place, true);
}

/* Of each byte up to the end of the last frame, one bit. */
static void check_every_flip(struct sqlite_place *place, const char *sync, const char *boot_id)
{
    scoped(found_records_free) struct found_records found = { 0 };
    unsigned noticed = 0, unnoticed = 0;
    struct copy log;
    size_t end;

    place->sync = sync;
    commit_and_die(place, "boot 1", 1, 6);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM sessions"), 0);
    copy_files(place, false);
    log = read_log(place, 0);
    end = (size_t)log_end(place, 0);
    for (size_t at = 0; at < end; at += 1 + at % 19) {
        bool is_padding = log.bytes[at] == 0 && at > LOG_HEADER;

        log.bytes[at] ^= (char)(1U << (at % 8));
        write_log(place, 0, log.bytes, log.length);
        log.bytes[at] ^= (char)(1U << (at % 8));
        if (!sqlite_place_open(place, boot_id)) {
            assert_string_equal(place->err.name, "store_damaged");
            noticed++;
            continue;
        }
        /* Between two frames there may be some bytes that mean nothing. */
        if (!is_padding)
            fail_msg("a changed byte at %zu of %zu is not noticed", at, end);
        unnoticed++;
        check_unnoticed(place);
    }
    assert_true(noticed > 20 * unnoticed);
    write_log(place, 0, log.bytes, log.length);
    free(log.bytes);
    remove_saved_files(place);
    assert_non_null(sqlite_place_open(place, boot_id));
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 6);
}

static void every_flipped_bit_of_the_log_is_noticed(void **state)
{
    check_every_flip(*state, "full", "boot 1");
}

static void every_flipped_bit_is_noticed_without_flushes_too(void **state)
{
    check_every_flip(*state, "normal", "boot 1");
}

/* What was flushed has to be there after a power failure, too. */
static void every_flipped_bit_is_noticed_after_a_restart_of_the_machine(void **state)
{
    check_every_flip(*state, "full", "boot 2");
}

static void a_log_that_is_removed_is_missed(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *path = log_path(place, 0);
    scoped(free) char *mark = xasprintf("%s-redomark", place->path);

    commit_and_die(place, "boot 1", 1, 2);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(unlink(mark), 0);
    assert_damage_is_told(place, "boot 2");
    assert_non_null(strstr(place->err.message, "missing"));
}

static void a_log_that_is_empty_is_noticed(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *path = log_path(place, 0);

    commit_and_die(place, "boot 1", 1, 2);
    assert_int_equal(truncate(path, 0), 0);
    assert_damage_is_told(place, "boot 2");
    assert_int_equal(truncate(path, 576 * 1024), 0);
    assert_damage_is_told(place, "boot 1");
}

static void a_log_that_was_cut_is_noticed_wherever_it_ends(void **state)
{
    struct sqlite_place *place = *state;
    struct copy log;

    place->sync = "full";
    commit_and_die(place, "boot 1", 1, 4);
    log = read_log(place, 0);
    for (off_t end = log_end(place, 0) - 8; end > 0; end -= 56) {
        write_log(place, 0, log.bytes, (size_t)end);
        assert_damage_is_told(place, "boot 2");
    }
    free(log.bytes);
}

/* The end is zeros, as if nothing had ever been there. */
static void a_log_whose_end_was_cleared_is_noticed(void **state)
{
    struct sqlite_place *place = *state;
    struct copy log;
    size_t second;

    place->sync = "full";
    commit_and_die(place, "boot 1", 1, 3);
    log = read_log(place, 0);
    second = frame_end(log.bytes, LOG_HEADER);
    memset(log.bytes + second, 0, log.length - second);
    write_log(place, 0, log.bytes, log.length);
    free(log.bytes);
    assert_damage_is_told(place, "boot 1");
}

static void an_earlier_copy_of_the_log_is_noticed(void **state)
{
    struct sqlite_place *place = *state;
    struct session_record session;
    struct copy log;
    int status;
    pid_t child;

    place->sync = "full";
    commit_and_die(place, "boot 1", 1, 3);
    log = read_log(place, 0);
    child = fork();
    if (child == 0) {
        session = sample_session(4);
        (void)sqlite_place_open(place, "boot 1");
        store_put_session(place->store, &session);
        _exit(store_commit_and_wait(place->store) == ERR_NONE ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    write_log(place, 0, log.bytes, log.length);
    free(log.bytes);
    assert_damage_is_told(place, "boot 1");
    assert_damage_is_told(place, "boot 2");
}

static void what_is_left_of_a_damaged_log_is_used_when_asked_to(void **state)
{
    struct sqlite_place *place = *state;
    struct copy log;
    size_t third;

    place->sync = "full";
    commit_and_die(place, "boot 1", 1, 4);
    log = read_log(place, 0);
    third = frame_end(log.bytes, frame_end(log.bytes, LOG_HEADER));
    log.bytes[third + FRAME_HEADER + 20] ^= 1;
    write_log(place, 0, log.bytes, log.length);
    free(log.bytes);
    assert_damage_is_told(place, "boot 1");
    assert_non_null(strstr(place->err.message, "commits 3 to "));
    place->accept_loss = true;
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_sessions(place, 2);
    sqlite_place_close(place);
    place->accept_loss = false;
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_sessions(place, 2);
}

/* A process that was killed before it has committed anything. */
static void a_log_without_commits_is_sound(void **state)
{
    struct sqlite_place *place = *state;

    commit_and_die(place, "boot 1", 1, 0);
    assert_true(log_size(place, 0) > 0);
    commit_and_die(place, "boot 1", 1, 0);
    assert_non_null(sqlite_place_open(place, "boot 1"));
}

static void stamps_are_those_of_the_boot_they_were_committed_in(void **state)
{
    const int64_t second = 1000000;
    struct sqlite_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record expected = sample_session(1);

    commit_and_die(place, "boot 1", 1, 1);
    simulated_clock_advance(&place->clock, 3600 * second);
    place->clock.boot_us = 60 * second;
    assert_non_null(sqlite_place_open(place, "boot 2"));
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found_session(&found, 0)->created.wall_us, expected.created.wall_us);
    assert_int_equal(found_session(&found, 0)->created.boot_us,
                     expected.created.wall_us - place->clock.wall_us + place->clock.boot_us);
}

/* The file as it was made: nothing has come to the disk but its length. */
static void a_log_of_zeros_is_empty(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *path = log_path(place, 0);

    sqlite_place_fill(place, 2);
    assert_int_equal(close(open(path, O_WRONLY | O_CREAT, 0600)), 0);
    assert_int_equal(truncate(path, 8192), 0);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_sessions(place, 2);
}

/* The power failed: of three commits the second is lost, and the third is in the other file. What
 * takes the place of the second must not bring the third back. */
static void what_is_behind_a_gap_does_not_come_back(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *first = log_path(place, 0);
    scoped(free) char *second = log_path(place, 1);
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record expected = sample_session(9);
    scoped(free) char *log = NULL;
    size_t ends[3];
    FILE *file;

    commit_and_die(place, "boot 1", 1, 3);
    log = xcalloc(1, (size_t)log_size(place, 0));
    file = fopen(first, "r");
    assert_int_equal(fread(log, 1, (size_t)log_size(place, 0), file), log_size(place, 0));
    fclose(file);
    for (unsigned i = 0; i < 3; i++)
        ends[i] = frame_end(log, i ? ends[i - 1] : LOG_HEADER);
    assert_int_equal(truncate(first, (off_t)ends[0]), 0);
    file = fopen(second, "w");
    fwrite(log, 1, LOG_HEADER, file);
    fwrite(log + ends[1], 1, ends[2] - ends[1], file);
    fclose(file);

    commit_and_die(place, "boot 2", 9, 9);
    assert_non_null(sqlite_place_open(place, "boot 2"));
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 2);
    assert_same_session(found_session(&found, 1), &expected);
}

/* --- logs that do not belong there --------------------------------------------------------- */

static void assert_refused(struct sqlite_place *place, const char *why)
{
    assert_null(sqlite_place_open(place, "boot 1"));
    assert_non_null(strstr(place->err.message, place->path));
    assert_non_null(strstr(place->err.message, why));
    assert_int_not_equal(place->err.hint[0], '\0');
}

static void a_log_without_its_database_is_refused(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *wal = xasprintf("%s-wal", place->path);

    commit_and_die(place, "boot 1", 1, 1);
    assert_int_equal(unlink(place->path), 0);
    (void)unlink(wal);
    assert_refused(place, "missing");
    assert_true(log_size(place, 0) > 0);
}

/* Opening a pipe waits for the other end. */
static void a_pipe_in_the_place_of_the_log_is_refused(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *log = xasprintf("%s-redo0", place->path);

    commit_and_die(place, "boot 1", 1, 3);
    assert_int_equal(unlink(log), 0);
    assert_int_equal(mkfifo(log, 0600), 0);
    assert_refused(place, "is not a regular file");
}

static void the_log_of_another_database_is_refused(void **state)
{
    struct sqlite_place *place = *state;

    commit_and_die(place, "boot 1", 1, 1);
    sqlite_place_exec(place, "UPDATE meta SET value = 'another' WHERE name = 'redo_id'");
    assert_refused(place, "another database");
    assert_true(log_size(place, 0) > 0);
}

static void a_database_that_is_older_than_its_log_is_refused(void **state)
{
    struct sqlite_place *place = *state;

    commit_and_die(place, "boot 1", 1, 3);
    commit_and_die(place, "boot 1", 4, 6);
    sqlite_place_exec(place, "UPDATE meta SET value = 1 WHERE name = 'redo_last'");
    assert_refused(place, "older");
}

static void a_log_of_another_format_is_refused(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *path = log_path(place, 1);
    FILE *file;

    sqlite_place_fill(place, 1);
    file = fopen(path, "w");
    assert_non_null(file);
    for (unsigned i = 0; i < 100; i++)
        fputs("something else ", file);
    fclose(file);
    assert_refused(place, "format");
}

/* --- while it runs ------------------------------------------------------------------------- */

/* A question brings the database up to date, so the log never has more than a few files' worth. */
static void the_log_does_not_grow_without_end(void **state)
{
    scoped(found_records_free) struct found_records found = { 0 };
    struct sqlite_place *place = *state;
    char text[4096];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_non_null(sqlite_place_open(place, "boot 1"));
    for (unsigned i = 0; i < 2000; i++) {
        struct session_record session = sample_session(i % 10);

        session.spec_json = text;
        session.generation = i;
        store_put_session(place->store, &session);
        assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
        if (i % 20 == 0)
            found_records_ask(&found, place->store, STORE_SESSIONS);
    }
    assert_true(log_size(place, 0) + log_size(place, 1) < LONGEST_LOG);
    assert_true(log_size(place, 1) > 0);
    sqlite_place_close(place);
    assert_int_equal(sqlite_place_number(place, "SELECT max(generation) FROM sessions"), 1999);
}

struct unresting {
    struct store_ticket ticket;
    struct sqlite_place *place;
    unsigned count;
    bool rests;
};

/* A commit is always under way, as on a disk that is too slow for what is asked of it. */
static void put_again(struct store_ticket *ticket)
{
    static char text[4096];
    struct unresting *unresting = container_of(ticket, struct unresting, ticket);
    struct session_record session = sample_session(++unresting->count % 10);

    if (unresting->rests)
        return;
    memset(text, 'x', sizeof(text) - 1);
    session.spec_json = text;
    store_put_session(unresting->place->store, &session);
    store_commit_as(unresting->place->store, ticket, STORE_WRITTEN, put_again);
}

static uint64_t first_number(const struct sqlite_place *place, unsigned which)
{
    scoped(free) char *path = log_path(place, which);
    uint64_t header[2] = { 0 }; /* checksum, number */
    int fd = open(path, O_RDONLY);

    if (fd >= 0) {
        (void)!pread(fd, header, sizeof(header), LOG_HEADER);
        close(fd);
    }
    return header[1];
}

static void the_files_of_the_log_take_turns_on_a_slow_disk(void **state)
{
    struct sqlite_place *place = *state;
    struct unresting unresting = { .place = place };
    struct store_options options = {
        .loop = place->loop, .path = place->path, .sync = "full", .never_on_the_loop = true
    };
    int64_t deadline_us = clock_now_us(&clock_system) + 90 * 1000 * 1000;

    place->store = store_open_sqlite(&options, &place->err);
    assert_non_null(place->store);
    put_again(&unresting.ticket);
    while (first_number(place, 1) == 0 || first_number(place, 0) < first_number(place, 1)) {
        loop_turn(place->loop, 10);
        assert_true(clock_now_us(&clock_system) < deadline_us);
    }
    unresting.rests = true;
    sqlite_place_close(place);
}

static void the_database_is_brought_up_to_date_by_itself(void **state)
{
    struct sqlite_place *place = *state;
    int64_t deadline_us = clock_now_us(&clock_system) + 90 * 1000 * 1000;
    struct session_record session = sample_session(1);
    struct sandbox_record sandbox = sample_sandbox(1);

    assert_non_null(sqlite_place_open(place, "boot 1"));
    store_put_session(place->store, &session);
    store_put_sandbox(place->store, &sandbox);
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
    session.generation = 77;
    store_put_session(place->store, &session);
    store_forget_sandbox(place->store, sandbox.id);
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
    while (sqlite_place_number(place, "SELECT count(*) FROM sessions") == 0) {
        loop_advance(place->loop, &place->clock, 1000000);
        loop_turn(place->loop, 10);
        assert_true(clock_now_us(&clock_system) < deadline_us);
    }
    assert_int_equal(sqlite_place_number(place, "SELECT generation FROM sessions"), 77);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM sandboxes"), 0);
}

/* --- claims -------------------------------------------------------------------------------- */

static void a_claim_need_not_wait_for_the_database(void **state)
{
    struct sqlite_place *place = *state;
    uint64_t version;

    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(claim_and_wait(place->store, 0, "a", "1", &version), CLAIM_WON);
    assert_int_equal(claim_and_wait(place->store, version, "a", "2", NULL), CLAIM_WON);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM documents"), 0);
    sqlite_place_close(place);
    assert_int_equal(sqlite_place_number(place, "SELECT count(*) FROM documents"), 1);
}

/* "a" is held, "b" was released. */
static void claim_and_die(struct sqlite_place *place)
{
    pid_t child = fork();
    uint64_t version;
    int status;

    if (child == 0) {
        bool good = sqlite_place_open(place, "boot 1") &&
                    claim_and_wait(place->store, 0, "a", "1", NULL) == CLAIM_WON &&
                    claim_and_wait(place->store, 0, "b", "1", &version) == CLAIM_WON &&
                    claim_and_wait(place->store, version, "b", NULL, NULL) == CLAIM_WON;

        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_claim_is_held_after_the_process_has_died(void **state)
{
    struct sqlite_place *place = *state;
    struct asked_claim asked;
    uint64_t version;

    claim_and_die(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    asked_claim_start(&asked, place->store, 0, "a", "2");
    assert_int_equal(asked_claim_wait(&asked, place->store), CLAIM_LOST);
    assert_string_equal(asked.current_json, "1");
    version = asked.current_version;
    assert_int_equal(claim_and_wait(place->store, 0, "b", "2", NULL), CLAIM_WON);
    assert_int_equal(claim_and_wait(place->store, version, "a", "2", &version), CLAIM_WON);
    sqlite_place_close(place);
    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(claim_and_wait(place->store, 0, "a", "3", NULL), CLAIM_LOST);
    assert_int_equal(claim_and_wait(place->store, version, "a", "3", NULL), CLAIM_WON);
}

static unsigned flushes;
static bool flushes_fail;

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
    __atomic_add_fetch(&flushes, 1, __ATOMIC_RELAXED);
    if (__atomic_load_n(&flushes_fail, __ATOMIC_RELAXED)) {
        errno = EIO;
        return -1;
    }
    return __real_fdatasync(fd);
}

/* What is started next would have no record, and its caller would not hear of it. */
static void a_flush_that_fails_is_known_at_once(void **state)
{
    struct sqlite_place *place = *state;
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct store_options options = { .loop = loop, .path = place->path, .sync = "full" };
    struct store *store = store_open_sqlite(&options, &place->err);
    struct session_record session = sample_session(1);

    assert_non_null(store);
    __atomic_store_n(&flushes_fail, true, __ATOMIC_RELAXED);
    store_put_session(store, &session);
    assert_int_equal(store_commit_and_wait(store), ERR_INTERNAL);
    assert_true(store->counts.failing);
    store_close(store);
    __atomic_store_n(&flushes_fail, false, __ATOMIC_RELAXED);
}

/* One flush in a millisecond, however many ask for one. */
static void those_who_come_at_once_share_a_flush(void **state)
{
    struct sqlite_place *place = *state;
    scoped(loop_free) struct loop *loop = loop_new(&clock_system);
    struct store_options options = { .loop = loop, .path = place->path, .sync = "full" };
    struct store *store = store_open_sqlite(&options, &place->err);
    int64_t began_us = clock_now_us(&clock_system);
    unsigned before = flushes;

    assert_non_null(store);
    for (unsigned i = 1; i <= 100; i++) {
        struct session_record session = sample_session(i);

        store_put_session(store, &session);
        assert_int_equal(store_commit_and_wait(store), ERR_NONE);
    }
    assert_true(flushes > before);
    assert_true(flushes - before <= 2 + (clock_now_us(&clock_system) - began_us) / 1000);
    store_close(store);
}

#define place_test(name) \
    cmocka_unit_test_setup_teardown(name, sqlite_place_setup, sqlite_place_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        place_test(what_was_committed_is_there_after_the_process_has_died),
        place_test(the_log_has_its_length_from_the_beginning),
        place_test(without_room_the_log_takes_no_more_than_it_needs),
        place_test(closing_leaves_no_log),
        place_test(the_log_is_for_its_owner_only),
        place_test(a_commit_that_a_power_failure_has_cut_off_is_as_if_it_had_not_been),
        place_test(every_flipped_bit_of_the_log_is_noticed),
        place_test(every_flipped_bit_is_noticed_without_flushes_too),
        place_test(every_flipped_bit_is_noticed_after_a_restart_of_the_machine),
        place_test(a_log_that_is_removed_is_missed),
        place_test(a_log_that_is_empty_is_noticed),
        place_test(a_log_that_was_cut_is_noticed_wherever_it_ends),
        place_test(a_log_whose_end_was_cleared_is_noticed),
        place_test(an_earlier_copy_of_the_log_is_noticed),
        place_test(what_is_left_of_a_damaged_log_is_used_when_asked_to),
        place_test(a_log_without_commits_is_sound),
        place_test(a_log_of_zeros_is_empty),
        place_test(what_is_behind_a_gap_does_not_come_back),
        place_test(stamps_are_those_of_the_boot_they_were_committed_in),
        place_test(a_log_without_its_database_is_refused),
        place_test(a_pipe_in_the_place_of_the_log_is_refused),
        place_test(the_log_of_another_database_is_refused),
        place_test(a_database_that_is_older_than_its_log_is_refused),
        place_test(a_log_of_another_format_is_refused),
        place_test(the_log_does_not_grow_without_end),
        place_test(the_files_of_the_log_take_turns_on_a_slow_disk),
        place_test(the_database_is_brought_up_to_date_by_itself),
        place_test(a_claim_need_not_wait_for_the_database),
        place_test(a_claim_is_held_after_the_process_has_died),
        place_test(those_who_come_at_once_share_a_flush),
        place_test(a_flush_that_fails_is_known_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
