/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring, killed before each of its steps: there is always a database, and nothing is lost. */

#include "base/alloc.h"
#include "base/macros.h"
#include "sqlite_support.h"
#include "store/maintenance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { OLD_SESSIONS = 7, COPIED_SESSIONS = 3, KILLED = 9 };

/* Steps until the process ends; 0: never. */
static int steps_left;

static void take_step(void)
{
    if (steps_left && --steps_left == 0)
        _exit(KILLED);
}

int __real_link(const char *from, const char *to);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __wrap_link(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);

int __wrap_link(const char *from, const char *to)
{
    take_step();
    return __real_link(from, to);
}

int __wrap_rename(const char *from, const char *to)
{
    take_step();
    return __real_rename(from, to);
}

int __wrap_unlink(const char *path)
{
    take_step();
    return __real_unlink(path);
}

static size_t count_sessions(struct sqlite_place *place)
{
    scoped(found_records_free) struct found_records found = { 0 };

    found_records_ask(&found, place->store, STORE_SESSIONS);
    return found.count;
}

/* A daemon that is killed leaves its log. */
static void put_and_die(struct sqlite_place *place)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        struct session_record record = sample_session(OLD_SESSIONS);

        if (!sqlite_place_open(place, "boot 1"))
            _exit(1);
        store_put_session(place->store, &record);
        _exit(store_commit_and_wait(place->store) == ERR_NONE ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Whether it got to its end. */
static bool restore_killed_at(struct sqlite_place *place, const char *copy, int step)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        struct error err = { 0 };

        steps_left = step;
        _exit(store_restore(copy, place->path, getuid(), getgid(), &err) < 0 ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == KILLED));
    return WEXITSTATUS(status) == 0;
}

/* All of the old one or all of the new one; refused only beside a log that is not its own. */
static void check_database(struct sqlite_place *place)
{
    struct stat info;
    size_t count;

    assert_int_equal(stat(place->path, &info), 0);
    if (!sqlite_place_open(place, "boot 1")) {
        assert_non_null(strstr(place->err.message, "log of another database"));
        return;
    }
    count = count_sessions(place);
    sqlite_place_close(place);
    assert_true(count == OLD_SESSIONS || count == COPIED_SESSIONS);
}

static void remove_copies(const struct sqlite_place *place, const char *copy)
{
    static const char *const endings[] = { "", "-wal", "-shm", "-redo0", "-redo1", "-redomark" };

    assert_int_equal(__real_unlink(copy), 0);
    for (size_t i = 0; i < ARRAY_LENGTH(endings); i++) {
        scoped(free) char *kept = xasprintf("%s%s.replaced", place->path, endings[i]);

        (void)__real_unlink(kept);
    }
}

static void a_restore_that_is_killed_leaves_a_database_and_can_be_repeated(void **state)
{
    struct sqlite_place *place = *state;
    scoped(free) char *copy = xasprintf("%s/copy", place->directory);
    struct error err = { 0 };
    bool is_complete = false;

    sqlite_place_fill(place, COPIED_SESSIONS);
    assert_int_equal(store_backup(place->path, copy, &err), 0);
    for (int step = 1; !is_complete; step++) {
        assert_true(step < 100);
        sqlite_place_fill(place, OLD_SESSIONS - 1);
        put_and_die(place);
        is_complete = restore_killed_at(place, copy, step);
        check_database(place);
        assert_int_equal(store_restore(copy, place->path, getuid(), getgid(), &err), 0);
        assert_non_null(sqlite_place_open(place, "boot 1"));
        assert_int_equal(count_sessions(place), COPIED_SESSIONS);
        sqlite_place_close(place);
    }
    remove_copies(place, copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            a_restore_that_is_killed_leaves_a_database_and_can_be_repeated, sqlite_place_setup,
            sqlite_place_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
