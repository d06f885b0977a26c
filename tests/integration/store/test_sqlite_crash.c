/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that writes and is killed at any moment: what it was told to be durable is there
 * afterwards, and what one transaction wrote is there together or not at all.
 */

#include "sqlite_support.h"

#include "base/alloc.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

/* A long round is long enough for the log to be copied into the database meanwhile. */
enum { ROUNDS = 30, MOST_ACKNOWLEDGED = 120, LONG_ROUND = 600 };

struct writer {
    struct sqlite_place *place;
    int pipe;
    struct store_ticket ticket;
    uint64_t next;
    uint64_t last; /* in the transaction under way */
};

static void put_more(struct writer *writer);

static void on_durable(struct store_ticket *ticket)
{
    struct writer *writer = container_of(ticket, struct writer, ticket);

    if (ticket->err->code != ERR_NONE ||
        write(writer->pipe, &writer->last, sizeof(writer->last)) != sizeof(writer->last))
        _exit(1);
    put_more(writer);
}

static void put_more(struct writer *writer)
{
    unsigned count = 1 + (unsigned)(writer->next * 7 % 5);

    for (unsigned i = 0; i < count; i++) {
        unsigned n = (unsigned)writer->next++;
        struct session_record session = sample_session(n);
        struct event_record event = sample_event(n);

        store_put_session(writer->place->store, &session);
        store_put_event(writer->place->store, &event);
    }
    writer->last = writer->next - 1;
    store_commit(writer->place->store, &writer->ticket, on_durable);
}

static _Noreturn void write_until_killed(struct sqlite_place *place, int pipe)
{
    struct writer writer = { .place = place, .pipe = pipe };

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!sqlite_place_open(place, "boot 1"))
        _exit(2);
    writer.next = place->store->load.last_sequence + 1;
    put_more(&writer);
    for (;;)
        loop_turn(place->loop, 1000);
}

/* The last number that was acknowledged before the kill. */
static uint64_t run_and_kill(struct sqlite_place *place, unsigned acknowledgements)
{
    uint64_t number = 0;
    uint64_t last = 0;
    int pipe_fds[2];
    pid_t child;
    int status;

    assert_int_equal(pipe(pipe_fds), 0);
    child = fork();
    if (child == 0) {
        close(pipe_fds[0]);
        write_until_killed(place, pipe_fds[1]);
    }
    close(pipe_fds[1]);
    for (unsigned i = 0; i < acknowledgements; i++) {
        assert_int_equal(read(pipe_fds[0], &number, sizeof(number)), sizeof(number));
        last = number;
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    while (read(pipe_fds[0], &number, sizeof(number)) == sizeof(number))
        last = number;
    close(pipe_fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    return last;
}

static void check_all(struct sqlite_place *place, uint64_t acknowledged)
{
    scoped(found_records_free) struct found_records sessions = { 0 };
    scoped(found_records_free) struct found_records events = { 0 };

    assert_non_null(sqlite_place_open(place, "boot 1"));
    assert_int_equal(place->store->load.damaged, 0);
    found_records_ask(&sessions, place->store, STORE_SESSIONS);
    found_records_ask(&events, place->store, STORE_EVENTS);
    assert_true(events.count >= acknowledged);
    assert_int_equal(sessions.count, events.count);
    assert_int_equal(place->store->load.last_sequence, events.count);
    for (size_t i = 0; i < events.count; i++) {
        struct session_record expected = sample_session((unsigned)i + 1);

        assert_int_equal(found_event(&events, i)->sequence, i + 1);
        assert_same_session(found_session(&sessions, i), &expected);
    }
    sqlite_place_close(place);
}

static void what_was_acknowledged_survives_kill_9(void **state)
{
    struct sqlite_place *place = *state;
    unsigned seed = (unsigned)getpid();

    print_message("# seed %u\n", seed);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned wanted = (unsigned)rand_r(&seed) % MOST_ACKNOWLEDGED;

        if (round % 10 == 5)
            wanted += LONG_ROUND;
        check_all(place, run_and_kill(place, wanted));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_acknowledged_survives_kill_9, sqlite_place_setup,
                                        sqlite_place_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
