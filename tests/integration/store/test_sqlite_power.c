/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that writes and is killed at any moment, and a machine that fails: of what was not
 * flushed, any page may be on the disk or not. What was acknowledged as synced is there afterwards,
 * and nothing comes back that was lost before.
 */

#include "sqlite_support.h"

#include "base/alloc.h"
#include "base/macros.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 20, MOST_ACKNOWLEDGED = 60, PAGE = 4096, TEXT = 20000, OPEN_FILES = 16 };

static const char *const suffixes[] = { "", "-wal", "-redo0", "-redo1", "-redomark" };

/* --- a disk ------------------------------------------------------------------------------- */

/* What has reached the disk is in a copy beside each file; a flush renews it. */
static char *copy_path(const char *path)
{
    return xasprintf("%s.disk", path);
}

static char *read_all(const char *path, size_t *out_length)
{
    FILE *file = fopen(path, "re");
    char *data = NULL;
    long length;

    *out_length = 0;
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    length = ftell(file);
    rewind(file);
    data = xcalloc(1, (size_t)length + 1);
    *out_length = fread(data, 1, (size_t)length, file);
    fclose(file);
    return data;
}

static void write_all(const char *path, const char *data, size_t length)
{
    scoped(free) char *fresh = xasprintf("%s.new", path);
    FILE *file = fopen(fresh, "we");

    if (!file || fwrite(data, 1, length, file) != length || fclose(file) != 0 ||
        rename(fresh, path) < 0)
        _exit(3);
}

static int flush_copy(const char *path)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    scoped(free) char *copy = copy_path(path);
    scoped(free) char *data = NULL;
    size_t length;

    pthread_mutex_lock(&one_at_a_time);
    data = read_all(path, &length);
    if (data)
        write_all(copy, data, length);
    pthread_mutex_unlock(&one_at_a_time);
    return 0;
}

int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
    char link[64];
    char path[PATH_MAX] = "";

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof(path) - 1) < 0 ? -1 : flush_copy(path);
}

static bool log_fails;

ssize_t __real_pwrite64(int fd, const void *data, size_t length, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t length, off_t offset);

/* Writes to the redo log: commits go directly into the database then. */
ssize_t __wrap_pwrite64(int fd, const void *data, size_t length, off_t offset)
{
    if (!__atomic_load_n(&log_fails, __ATOMIC_RELAXED))
        return __real_pwrite64(fd, data, length, offset);
    errno = EIO;
    return -1;
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);

/* A file that is made later under the same name has nothing on the disk. */
int __wrap_unlink(const char *path)
{
    scoped(free) char *copy = copy_path(path);

    (void)__real_unlink(copy);
    return __real_unlink(path);
}

static int (*real_delete)(sqlite3_vfs *, const char *, int);

static int copying_delete(sqlite3_vfs *vfs, const char *name, int sync_directory)
{
    scoped(free) char *copy = copy_path(name);

    (void)__real_unlink(copy);
    return real_delete(vfs, name, sync_directory);
}

static int (*real_open)(sqlite3_vfs *, const char *, sqlite3_file *, int, int *);
static sqlite3_io_methods methods_of[2]; /* the database, its log */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    sqlite3_file *file;
    const char *name; /* SQLite keeps it for as long as the file is open */
} opened[OPEN_FILES];

static int copying_sync(sqlite3_file *file, int flags UNUSED)
{
    const char *name = NULL;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < ARRAY_LENGTH(opened); i++)
        if (opened[i].file == file)
            name = opened[i].name;
    pthread_mutex_unlock(&lock);
    return name ? flush_copy(name) : SQLITE_OK;
}

/* In place of `before`, which is NULL for a new one. */
static void note(sqlite3_file *before, sqlite3_file *file, const char *name)
{
    size_t place = 0;

    pthread_mutex_lock(&lock);
    while (place < OPEN_FILES - 1 && opened[place].file != before)
        place++;
    opened[place].file = file;
    opened[place].name = name;
    pthread_mutex_unlock(&lock);
}

static int (*real_close[2])(sqlite3_file *);

static int copying_close(sqlite3_file *file)
{
    note(file, NULL, NULL);
    return real_close[file->pMethods == &methods_of[1]](file);
}

static int copying_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                        int *out_flags)
{
    int code = real_open(vfs, name, file, flags, out_flags);
    bool is_log = flags & SQLITE_OPEN_WAL;
    sqlite3_io_methods *methods = &methods_of[is_log];

    if (code != SQLITE_OK || !(flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_DB)))
        return code;
    *methods = *file->pMethods;
    real_close[is_log] = methods->xClose;
    methods->xSync = copying_sync;
    methods->xClose = copying_close;
    file->pMethods = methods;
    note(NULL, file, name);
    return code;
}

/* Each page is as it was flushed, or as it was last written; the file has the one length or the
 * other. */
static void fail_file(const char *path, unsigned *seed)
{
    scoped(free) char *copy = copy_path(path);
    size_t lengths[2];
    scoped(free) char *flushed = read_all(copy, &lengths[0]);
    scoped(free) char *written = read_all(path, &lengths[1]);
    const char *contents[2] = { flushed, written };
    size_t length = lengths[rand_r(seed) % 2];
    scoped(free) char *result = xcalloc(1, length + 1);

    if (!written || (!flushed && rand_r(seed) % 2)) {
        (void)unlink(path);
        return;
    }
    for (size_t at = 0; at < length; at += PAGE) {
        unsigned which = (unsigned)rand_r(seed) % 2;
        size_t there = MIN(lengths[which], length);
        size_t end = MIN(there, at + PAGE);

        if (at < end)
            memcpy(result + at, contents[which] + at, end - at);
    }
    write_all(path, result, length);
    write_all(copy, result, length);
}

static void fail_power(const struct sqlite_place *place, unsigned *seed)
{
    scoped(free) char *shm = xasprintf("%s-shm", place->path);

    (void)unlink(shm);
    for (size_t i = 0; i < ARRAY_LENGTH(suffixes); i++) {
        scoped(free) char *path = xasprintf("%s%s", place->path, suffixes[i]);

        fail_file(path, seed);
    }
}

/* --- the writer --------------------------------------------------------------------------- */

struct acknowledged {
    uint64_t written;
    uint64_t synced;
};

struct writer {
    struct sqlite_place *place;
    int pipe;
    unsigned seed;
    unsigned round;
    struct store_ticket ticket;
    uint64_t next;
    struct acknowledged told;
};

static struct store *open_place(struct sqlite_place *place, bool slow)
{
    struct store_options options = { .loop = place->loop,
                                     .path = place->path,
                                     .sync = "full",
                                     .boot_id = "boot 1",
                                     .never_on_the_loop = slow };

    place->store = store_open_sqlite(&options, &place->err);
    return place->store;
}

static void put_more(struct writer *writer);

static void on_durable(struct store_ticket *ticket)
{
    struct writer *writer = container_of(ticket, struct writer, ticket);

    if (ticket->err->code != ERR_NONE)
        _exit(1);
    writer->told.written = writer->next - 1;
    if (ticket->grade == STORE_SYNCED)
        writer->told.synced = writer->next - 1;
    if (write(writer->pipe, &writer->told, sizeof(writer->told)) != sizeof(writer->told))
        _exit(1);
    put_more(writer);
}

/* The round of an event tells whether it is one that was lost. */
static void put_one(struct writer *writer)
{
    static char text[TEXT];
    unsigned n = (unsigned)writer->next++;
    struct session_record session = sample_session(n);
    struct event_record event = sample_event(n);

    memset(text, 'x', sizeof(text) - 1);
    session.key = NULL;
    session.state = "running";
    session.spec_json = rand_r(&writer->seed) % 2 ? text : "{}";
    session.generation = writer->round;
    event.session_sequence = writer->round;
    store_put_session(writer->place->store, &session);
    store_put_event(writer->place->store, &event);
}

static void put_more(struct writer *writer)
{
    bool synced = rand_r(&writer->seed) % 2 == 0;

    __atomic_store_n(&log_fails, writer->round % 4 < 2 && rand_r(&writer->seed) % 6 == 0,
                     __ATOMIC_RELAXED);
    for (unsigned count = 1 + (unsigned)rand_r(&writer->seed) % 5; count; count--)
        put_one(writer);
    store_commit_as(writer->place->store, &writer->ticket, synced ? STORE_SYNCED : STORE_WRITTEN,
                    on_durable);
}

static _Noreturn void write_until_killed(struct writer *writer)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!open_place(writer->place, writer->round % 2)) {
        fprintf(stderr, "%s\n", writer->place->err.message);
        _exit(2);
    }
    writer->next = writer->place->store->load.last_sequence + 1;
    put_more(writer);
    for (;;) {
        loop_turn(writer->place->loop, 1);
        if (rand_r(&writer->seed) % 8 == 0)
            loop_advance(writer->place->loop, &writer->place->clock, 100 * 1000);
    }
}

static void run_and_kill(struct writer *writer, unsigned acknowledgements,
                         struct acknowledged *last)
{
    struct acknowledged told;
    int pipe_fds[2];
    pid_t child;
    int status;

    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    child = fork();
    if (child == 0) {
        close(pipe_fds[0]);
        writer->pipe = pipe_fds[1];
        write_until_killed(writer);
    }
    close(pipe_fds[1]);
    for (unsigned i = 0; i < acknowledgements; i++) {
        assert_int_equal(read(pipe_fds[0], &told, sizeof(told)), sizeof(told));
        *last = (struct acknowledged){ told.written, MAX(told.synced, last->synced) };
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    while (read(pipe_fds[0], &told, sizeof(told)) == sizeof(told))
        *last = (struct acknowledged){ told.written, MAX(told.synced, last->synced) };
    close(pipe_fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

/* How many there are. */
static uint64_t check_all(struct sqlite_place *place, uint64_t acknowledged)
{
    scoped(found_records_free) struct found_records sessions = { 0 };
    scoped(found_records_free) struct found_records events = { 0 };
    uint64_t count;

    if (!open_place(place, false))
        fail_msg("%s", place->err.message);
    assert_int_equal(place->store->load.damaged, 0);
    found_records_ask(&sessions, place->store, STORE_SESSIONS);
    found_records_ask(&events, place->store, STORE_EVENTS);
    count = events.count;
    assert_true(count >= acknowledged);
    assert_int_equal(sessions.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(found_event(&events, i)->sequence, i + 1);
        assert_int_equal(found_session(&sessions, i)->generation,
                         found_event(&events, i)->session_sequence);
        assert_true(i == 0 || found_event(&events, i)->session_sequence >=
                                  found_event(&events, i - 1)->session_sequence);
    }
    sqlite_place_close(place);
    return count;
}

/* Not every time is looked at what there is, because that brings everything into order. */
static void what_was_acknowledged_survives_a_power_failure(void **state)
{
    struct writer writer = { .place = *state, .seed = (unsigned)getpid() };
    struct acknowledged last = { 0 };
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);

    if (getenv("SANDGLASS_TEST_SEED"))
        writer.seed = (unsigned)strtoul(getenv("SANDGLASS_TEST_SEED"), NULL, 10);
    print_message("# seed %u\n", writer.seed);
    real_open = vfs->xOpen;
    vfs->xOpen = copying_open;
    real_delete = vfs->xDelete;
    vfs->xDelete = copying_delete;
    (void)check_all(writer.place, 0);
    (void)flush_copy(writer.place->path);
    for (writer.round = 1; writer.round <= ROUNDS; writer.round++) {
        bool power_fails = rand_r(&writer.seed) % 2;

        run_and_kill(&writer, (unsigned)rand_r(&writer.seed) % MOST_ACKNOWLEDGED, &last);
        if (power_fails) {
            fail_power(writer.place, &writer.seed);
            last.written = last.synced;
        }
        if (rand_r(&writer.seed) % 3 == 0)
            last.written = last.synced = check_all(writer.place, last.written);
    }
    (void)check_all(writer.place, last.written);
    vfs->xOpen = real_open;
    vfs->xDelete = real_delete;
}

static int teardown(void **state)
{
    const struct sqlite_place *place = *state;

    for (size_t i = 0; i < ARRAY_LENGTH(suffixes); i++) {
        scoped(free) char *path = xasprintf("%s%s", place->path, suffixes[i]);
        scoped(free) char *half_made = xasprintf("%s.disk.new", path);

        (void)unlink(path); /* and its copy */
        (void)unlink(half_made);
    }
    return sqlite_place_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_acknowledged_survives_a_power_failure,
                                        sqlite_place_setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
