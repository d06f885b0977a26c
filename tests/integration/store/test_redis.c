/* SPDX-License-Identifier: Apache-2.0 */
/* A Redis server that dies, comes back, forgets, or is another one; and daemons that share it. */

#include "redis_support.h"

#include "base/alloc.h"
#include "base/str.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const durable[] = { "--appendonly", "yes", "--appendfsync", "always", NULL };

static enum error_code put_and_wait(struct store *store, unsigned n)
{
    struct session_record record = sample_session(n);

    store_put_session(store, &record);
    return store_commit_and_wait(store);
}

static size_t count_sessions(struct store *store)
{
    scoped(found_records_free) struct found_records found = { 0 };

    found_records_ask(&found, store, STORE_SESSIONS);
    return found.count;
}

static void turn_for(struct redis_place *place, int64_t ms)
{
    int64_t until_us = clock_now_us(&clock_system) + ms * 1000;

    while (clock_now_us(&clock_system) < until_us)
        loop_turn(place->loop, 5);
}

/* Turns the loop until the condition holds; fails the test at the deadline. */
#define turn_until(place, condition)                                                    \
    do {                                                                                \
        int64_t deadline_us_ = clock_now_us(&clock_system) + 60 * 1000 * INT64_C(1000); \
        while (!(condition)) {                                                          \
            if (clock_now_us(&clock_system) > deadline_us_)                             \
                fail_msg("never: %s", #condition);                                      \
            loop_turn((place)->loop, 5);                                                \
        }                                                                               \
    } while (0)

/* --- away ----------------------------------------------------------------------------------- */

struct late_ticket {
    struct store_ticket ticket;
    enum error_code code;
    bool done;
};

static void on_late(struct store_ticket *ticket)
{
    struct late_ticket *late = container_of(ticket, struct late_ticket, ticket);

    late->code = ticket->err->code;
    late->done = true;
}

static void on_nothing(struct store_query *query, const struct session_record *record)
{
    (void)query;
    (void)record;
}

struct late_query {
    struct store_query query;
    bool done;
};

static void on_answered(struct store_query *query)
{
    container_of(query, struct late_query, query)->done = true;
}

static void puts_wait_for_a_server_that_is_away_and_reads_fail(void **state)
{
    struct redis_place *place = *state;
    struct late_query late_query = { .query = { .on_session = on_nothing, .done = on_answered } };
    struct late_ticket late = { 0 };
    struct session_record record = sample_session(2);

    redis_server_kill(&place->servers[0]);
    redis_server_start_again(&place->servers[0], durable);
    place->store = redis_place_open(place, (struct store_options){ 0 });
    assert_non_null(place->store);
    assert_int_equal(put_and_wait(place->store, 1), ERR_NONE);
    redis_server_kill(&place->servers[0]);
    store_put_session(place->store, &record);
    store_commit(place->store, &late.ticket, on_late);
    turn_until(place, place->store->counts.failing);
    turn_for(place, 300);
    assert_false(late.done);
    assert_true(place->store->counts.failing);
    store_query(place->store, STORE_SESSIONS, &late_query.query);
    store_wait(place->loop, &late_query.done);
    assert_int_equal(late_query.query.err.code, ERR_UNAVAILABLE);
    assert_true(late_query.query.err.retryable);
    redis_server_start_again(&place->servers[0], durable);
    store_wait(place->loop, &late.done);
    assert_int_equal(late.code, ERR_NONE);
    assert_int_equal(count_sessions(place->store), 2);
    assert_false(place->store->counts.failing);
    assert_int_equal(place->store->counts.lost, 0);
}

static void a_server_that_is_killed_in_the_middle_of_commits_has_each_of_them_once(void **state)
{
    struct redis_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };
    struct late_ticket tickets[60] = { 0 };

    redis_server_kill(&place->servers[0]);
    redis_server_start_again(&place->servers[0], durable);
    place->store = redis_place_open(place, (struct store_options){ 0 });
    for (unsigned i = 0; i < 60; i++) {
        struct session_record record = sample_session(i);

        store_put_session(place->store, &record);
        store_commit(place->store, &tickets[i].ticket, on_late);
        loop_turn(place->loop, 0);
        if (i % 20 == 10) {
            redis_server_kill(&place->servers[0]);
            turn_for(place, 20);
            redis_server_start_again(&place->servers[0], durable);
        }
    }
    store_wait(place->loop, &tickets[59].done);
    for (unsigned i = 0; i < 60; i++)
        assert_true(tickets[i].done && tickets[i].code == ERR_NONE);
    found_records_ask(&found, place->store, STORE_SESSIONS);
    assert_int_equal(found.count, 60);
    for (unsigned i = 0; i < 60; i++)
        assert_string_equal(found_session(&found, i)->id, sample_session(i).id);
    assert_int_equal(place->store->counts.lost, 0);
}

/* Each claim expects what the one before has written: one that was applied twice would be lost. */
static void a_claim_whose_answer_is_lost_is_made_once(void **state)
{
    struct redis_place *place = *state;
    scoped(free) char *socket = xasprintf("%s/proxy", place->servers[0].directory);
    scoped(free) char *url = xasprintf("unix://%s", socket);
    uint64_t version = 0;

    redis_place_cut(place, socket);
    place->store = redis_place_open(place, (struct store_options){ .redis.url = url });
    assert_non_null(place->store);
    for (unsigned i = 0; i < 60; i++) {
        char json[16];

        snprintf(json, sizeof(json), "%u", i);
        assert_int_equal(claim_and_wait(place->store, version, "a", json, &version), CLAIM_WON);
    }
    assert_string_equal(redis_server_ask(&place->servers[0], "HGET sandglass:d:claimed/a json"),
                        "59");
    assert_int_equal(place->store->counts.lost, 0);
}

static unsigned lost;

static void on_lost(struct store *store, enum store_table table, const char *id)
{
    (void)store;
    (void)table;
    (void)id;
    lost++;
}

static void a_server_that_has_forgotten_commits_is_found_out(void **state)
{
    struct redis_place *place = *state;

    lost = 0;
    place->store = redis_place_open(place, (struct store_options){ 0 });
    place->store->on_lost = on_lost;
    assert_int_equal(put_and_wait(place->store, 1), ERR_NONE);
    redis_server_kill(&place->servers[0]); /* it has no file */
    redis_server_start_again(&place->servers[0], NULL);
    turn_until(place, lost);
    assert_int_equal(lost, 1);
    assert_int_equal(place->store->counts.lost, 1);
    assert_int_equal(put_and_wait(place->store, 1), ERR_NONE);
    assert_int_equal(put_and_wait(place->store, 2), ERR_NONE);
    assert_int_equal(count_sessions(place->store), 2);
}

/* --- several daemons ------------------------------------------------------------------------ */

static void a_process_whose_name_another_has_taken_writes_nothing(void **state)
{
    struct redis_place *place = *state;
    struct store *first = redis_place_open(place, (struct store_options){ 0 });

    assert_int_equal(put_and_wait(first, 1), ERR_NONE);
    place->store = redis_place_open(place, (struct store_options){ 0 });
    assert_int_equal(put_and_wait(first, 2), ERR_UNAVAILABLE);
    assert_string_equal(first->counts.last_failure.name, "store_fenced");
    assert_int_equal(put_and_wait(first, 3), ERR_UNAVAILABLE);
    assert_int_equal(claim_and_wait(first, 0, "a", "1", NULL), CLAIM_FAILED);
    assert_int_equal(count_sessions(first), 1);
    assert_int_equal(put_and_wait(place->store, 4), ERR_NONE);
    assert_int_equal(count_sessions(place->store), 2);
    store_close(first);
}

static void of_two_nodes_one_wins_a_claim_and_the_other_sees_it(void **state)
{
    struct redis_place *place = *state;
    struct store *other = redis_place_open(place, (struct store_options){ .node = "b" });
    struct asked_claim ours, theirs;

    place->store = redis_place_open(place, (struct store_options){ 0 });
    asked_claim_start(&ours, place->store, 0, "a", "ours");
    asked_claim_start(&theirs, other, 0, "a", "theirs");
    (void)asked_claim_wait(&ours, place->store);
    (void)asked_claim_wait(&theirs, other);
    assert_true((ours.claim.outcome == CLAIM_WON) != (theirs.claim.outcome == CLAIM_WON));
    assert_string_equal(ours.claim.outcome == CLAIM_WON ? theirs.current_json : ours.current_json,
                        ours.claim.outcome == CLAIM_WON ? "ours" : "theirs");
    store_close(other);
}

struct counting_watch {
    struct store_watch watch;
    bool told;
    bool is_active;
};

static void on_change(struct store_watch *watch, const char *id)
{
    struct counting_watch *counting = container_of(watch, struct counting_watch, watch);

    counting->told = counting->told || str_equal(id, "a");
    counting->is_active = counting->is_active || !id;
}

static void a_watch_is_told_of_what_another_node_changes(void **state)
{
    struct redis_place *place = *state;
    struct store *other = redis_place_open(place, (struct store_options){ .node = "b" });
    struct counting_watch counting = { 0 };

    place->store = redis_place_open(place, (struct store_options){ 0 });
    store_watch_start(place->store, &counting.watch, CLAIM_KIND, NULL, on_change);
    store_wait(place->loop, &counting.is_active);
    assert_int_equal(claim_and_wait(other, 0, "a", "1", NULL), CLAIM_WON);
    store_wait(place->loop, &counting.told);
    counting.is_active = false;
    redis_server_kill(&place->servers[0]);
    redis_server_start_again(&place->servers[0], NULL);
    store_wait(place->loop, &counting.is_active); /* something may have been missed */
    store_watch_stop(&counting.watch);
    store_close(other);
}

static void stores_with_different_prefixes_do_not_see_each_other(void **state)
{
    struct redis_place *place = *state;
    struct store *other =
        redis_place_open(place, (struct store_options){ .redis.prefix = "other:" });

    place->store = redis_place_open(place, (struct store_options){ 0 });
    assert_int_equal(put_and_wait(other, 1), ERR_NONE);
    assert_int_equal(put_and_wait(place->store, 2), ERR_NONE);
    assert_int_equal(count_sessions(other), 1);
    assert_int_equal(count_sessions(place->store), 1);
    assert_int_equal(claim_and_wait(other, 0, "a", "1", NULL), CLAIM_WON);
    assert_int_equal(claim_and_wait(place->store, 0, "a", "1", NULL), CLAIM_WON);
    store_close(other);
}

/* --- what is in the server ------------------------------------------------------------------ */

static void a_field_of_a_newer_version_survives_a_put(void **state)
{
    struct redis_place *place = *state;
    char command[128];

    place->store = redis_place_open(place, (struct store_options){ 0 });
    assert_int_equal(put_and_wait(place->store, 1), ERR_NONE);
    snprintf(command, sizeof(command), "HSET sandglass:s:%s from_the_future yes",
             sample_session(1).id);
    (void)redis_server_ask(&place->servers[0], command);
    assert_int_equal(put_and_wait(place->store, 1), ERR_NONE);
    snprintf(command, sizeof(command), "HGET sandglass:s:%s from_the_future", sample_session(1).id);
    assert_string_equal(redis_server_ask(&place->servers[0], command), "yes");
    assert_int_equal(count_sessions(place->store), 1);
}

static void an_index_entry_without_a_record_is_removed(void **state)
{
    struct redis_place *place = *state;
    char command[128];

    place->store = redis_place_open(place, (struct store_options){ 0 });
    assert_int_equal(put_and_wait(place->store, 1), ERR_NONE);
    assert_int_equal(put_and_wait(place->store, 2), ERR_NONE);
    snprintf(command, sizeof(command), "DEL sandglass:s:%s", sample_session(1).id);
    (void)redis_server_ask(&place->servers[0], command);
    assert_int_equal(redis_server_number(&place->servers[0], "ZCARD sandglass:s.all"), 2);
    assert_int_equal(count_sessions(place->store), 1);
    assert_int_equal(redis_server_number(&place->servers[0], "ZCARD sandglass:s.all"), 1);
}

static void an_ended_session_without_a_time_expires(void **state)
{
    struct redis_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record record = sample_session(1);

    place->store = redis_place_open(place, (struct store_options){ 0 });
    record.state = STORE_STATE_ENDED;
    record.retain_until_wall_us = 0;
    store_put_session(place->store, &record);
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
    found_records_ask_expired(&found, place->store, clock_wall_us(&clock_system));
    assert_int_equal(found.count, 1);
}

static void a_session_that_is_in_no_index_is_found_again(void **state)
{
    struct redis_place *place = *state;
    scoped(found_records_free) struct found_records found = { 0 };
    struct session_record record = sample_session(2);
    char command[128];

    place->store = redis_place_open(place, (struct store_options){ 0 });
    assert_int_equal(put_and_wait(place->store, 1), ERR_NONE);
    record.state = STORE_STATE_ENDED;
    store_put_session(place->store, &record);
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
    store_close(
        steal_ptr(&place->store)); /* it looks for them once, a second after it was opened */
    (void)redis_server_ask(&place->servers[0],
                           "DEL sandglass:s.all sandglass:s.live sandglass:s.ended "
                           "sandglass:s.retention sandglass:s.own:ada@example.org");
    snprintf(command, sizeof(command), "HDEL sandglass:s:%s retain_until_wall_us", record.id);
    (void)redis_server_ask(&place->servers[0], command);
    assert_int_equal(redis_server_number(&place->servers[0], "ZCARD sandglass:s.all"), 0);
    place->store = redis_place_open(place, (struct store_options){ 0 });
    turn_until(place, count_sessions(place->store) == 2);
    found_records_ask_expired(&found, place->store, clock_wall_us(&clock_system));
    assert_int_equal(found.count, 1);
    assert_string_equal(found_session(&found, 0)->id, record.id);
}

static void a_newer_format_is_refused(void **state)
{
    struct redis_place *place = *state;

    (void)redis_server_ask(&place->servers[0], "SET sandglass:format 3");
    assert_null(redis_place_open(place, (struct store_options){ 0 }));
    assert_string_equal(place->err.name, "store_newer");
}

/* The port of something else, or of a proxy: it says that it is a master, and answers all else with numbers. */
static void a_server_that_answers_nonsense_is_refused(void **state)
{
    static const char nonsense[] =
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(9)\n"
        "while True:\n"
        "    c, _ = s.accept()\n"
        "    while (data := c.recv(65536)):\n"
        "        for _ in range(data.count(b'*')):\n"
        "            c.sendall(b'*1\\r\\n$6\\r\\nmaster\\r\\n' if b'ROLE' in data else b'*4\\r\\n' "
        "+ 4 * b':1\\r\\n')\n";
    struct redis_place *place = *state;
    char path[128], url[160];

    snprintf(path, sizeof(path), "%s/nonsense", place->servers[0].directory);
    snprintf(url, sizeof(url), "unix://%s", path);
    redis_place_run(place, (const char *const[]){ "/usr/bin/python3", "-c", nonsense, path, NULL });
    turn_until(place, access(path, F_OK) == 0);
    assert_null(redis_place_open(place, (struct store_options){ .redis.url = url }));
    assert_string_equal(place->err.name, "store_failed");
    assert_non_null(strstr(place->err.message, "an answer of another kind"));
}

static void the_records_of_a_sole_node_are_refused_to_others(void **state)
{
    struct redis_place *place = *state;
    struct store *first = redis_place_open(place, (struct store_options){ .redis.is_sole = true });

    assert_int_equal(put_and_wait(first, 1), ERR_NONE);
    assert_null(
        redis_place_open(place, (struct store_options){ .node = "b", .redis.is_sole = true }));
    assert_string_equal(place->err.name, "store_taken");
    assert_non_null(strstr(place->err.message, "\"a\""));
    assert_int_equal(put_and_wait(first, 2), ERR_NONE); /* nothing has changed for it */
    store_close(first);
    place->store = redis_place_open(place, (struct store_options){ .redis.is_sole = true });
    assert_int_equal(count_sessions(place->store), 2);
}

static void events_go_on_where_the_process_before_has_ended(void **state)
{
    struct redis_place *place = *state;
    struct event_record event = sample_event(41);

    place->store = redis_place_open(place, (struct store_options){ 0 });
    store_put_event(place->store, &event);
    assert_int_equal(store_commit_and_wait(place->store), ERR_NONE);
    store_forget_session(place->store, event.session_id);
    store_close(place->store);
    place->store = redis_place_open(place, (struct store_options){ 0 });
    assert_int_equal(place->store->load.last_sequence, 41);
    assert_true(place->store->load.same_boot);
}

/* --- connections ---------------------------------------------------------------------------- */

static void a_password_is_needed_and_never_shown(void **state)
{
    static const char *const settings[] = { "--requirepass", "open sesame", NULL };
    struct redis_place *place = *state;
    scoped(free) char *good = xasprintf("unix://:open%%20sesame@%s?db=3", place->servers[0].socket);
    scoped(free) char *bad = xasprintf("unix://:shut%%20sesame@%s", place->servers[0].socket);

    redis_server_kill(&place->servers[0]);
    redis_server_start_again(&place->servers[0], settings);
    assert_null(redis_place_open(place, (struct store_options){ .redis.url = bad }));
    assert_non_null(strstr(place->err.message, "store.redis.url"));
    assert_null(strstr(place->err.message, "sesame"));
    assert_null(redis_place_open(place, (struct store_options){ 0 }));
    place->store = redis_place_open(place, (struct store_options){ .redis.url = good });
    assert_non_null(place->store);
    assert_int_equal(put_and_wait(place->store, 1), ERR_NONE);
}

static void make_certificates(const char *directory)
{
    scoped(free) char *command = xasprintf(
        "cd %s && openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 "
        "-subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null",
        directory);

    assert_int_equal(system(command), 0);
}

static void tls_is_verified(void **state)
{
    struct redis_place *place = *state;
    const char *directory = place->servers[0].directory;
    scoped(free) char *port = xasprintf("%d", free_port());
    scoped(free) char *certificate = xasprintf("%s/cert.pem", directory);
    scoped(free) char *key = xasprintf("%s/key.pem", directory);
    scoped(free) char *url = xasprintf("rediss://localhost:%s/1", port);
    const char *const settings[] = { "--tls-port",
                                     port,
                                     "--tls-cert-file",
                                     certificate,
                                     "--tls-key-file",
                                     key,
                                     "--tls-ca-cert-file",
                                     certificate,
                                     "--tls-auth-clients",
                                     "no",
                                     NULL };

    make_certificates(directory);
    redis_server_kill(&place->servers[0]);
    redis_server_start_again(&place->servers[0], settings);
    place->store = redis_place_open(
        place, (struct store_options){ .redis = { .url = url, .ca = certificate } });
    if (!place->store)
        fprintf(stderr, "%s\n", place->err.message);
    assert_non_null(place->store);
    assert_int_equal(put_and_wait(place->store, 1), ERR_NONE);
    assert_int_equal(count_sessions(place->store), 1);
    assert_null(redis_place_open(place, (struct store_options){ .redis.url = url, .node = "b" }));
    assert_non_null(strstr(place->err.message, "certificate"));
}

static void a_server_that_is_not_there_is_named(void **state)
{
    struct redis_place *place = *state;

    assert_null(redis_place_open(
        place, (struct store_options){ .redis.url = "unix:///nonexistent/socket" }));
    assert_non_null(strstr(place->err.message, "/nonexistent/socket"));
    assert_non_null(strstr(place->err.hint, "store.redis.url"));
}

/* --- replicas ------------------------------------------------------------------------------- */

/* servers[0] as the master on a port, servers[1] as its replica, in step with it. */
static int start_replica(struct redis_place *place, int *out_replica_port)
{
    int port = free_port();
    scoped(free) char *text = xasprintf("%d", port);
    scoped(free) char *own;
    const char *const master[] = { "--port", text, "--repl-diskless-sync-delay", "0", NULL };
    const char *replica[] = { "--port", NULL, "--replicaof", "127.0.0.1", text, NULL };

    redis_server_kill(&place->servers[0]);
    redis_server_start_again(&place->servers[0], master);
    *out_replica_port = free_port();
    own = xasprintf("%d", *out_replica_port);
    replica[1] = own;
    assert_true(redis_server_start(&place->servers[1], replica));
    turn_until(place, strstr(redis_server_ask(&place->servers[1], "INFO replication"),
                             "master_link_status:up"));
    return port;
}

static void synced_means_that_a_replica_has_it(void **state)
{
    struct redis_place *place = *state;
    struct session_record record = sample_session(2);
    struct late_ticket late = { 0 };
    int replica_port;

    (void)start_replica(place, &replica_port);
    place->store = redis_place_open(place, (struct store_options){ .redis.sync = "replicas:1" });
    assert_non_null(place->store);
    assert_int_equal(put_and_wait(place->store, 1), ERR_NONE);
    assert_int_equal(redis_server_number(&place->servers[1], "ZCARD sandglass:s.all"), 1);
    redis_server_kill(&place->servers[1]);
    store_put_session(place->store, &record);
    store_commit_as(place->store, &late.ticket, STORE_WRITTEN, on_late);
    store_wait(place->loop, &late.done);
    assert_int_equal(late.code, ERR_NONE);
    assert_int_equal(put_and_wait(place->store, 3), ERR_UNAVAILABLE);
    assert_string_equal(place->store->counts.last_failure.name, "store_unsynced");
    assert_int_equal(count_sessions(place->store), 3);
}

static void a_grade_that_the_server_does_not_have_is_refused(void **state)
{
    struct redis_place *place = *state;

    place->store = redis_place_open(place, (struct store_options){ .redis.sync = "aof" });
    if (place->store)
        return; /* Redis 7.2 and newer has it */
    assert_string_equal(place->err.name, "redis_too_old");
    assert_non_null(strstr(place->err.message, "store.redis.sync"));
}

/* Returns when the sentinel answers and knows of the replica. */
static char *start_sentinel(struct redis_place *place, int master_port)
{
    int port = free_port();
    scoped(free) char *path = xasprintf("%s/sentinel.conf", place->servers[0].directory);
    struct redis_server sentinel = { 0 };
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    snprintf(sentinel.socket, sizeof(sentinel.socket), "%s/sentinel", place->servers[0].directory);
    fprintf(file,
            "port %d\nunixsocket %s\ndir %s\nlogfile sentinel.log\n"
            "sentinel monitor main 127.0.0.1 %d 1\n"
            "sentinel down-after-milliseconds main 2000\nsentinel failover-timeout main 3000\n",
            port, sentinel.socket, place->servers[0].directory, master_port);
    assert_int_equal(fclose(file), 0);
    redis_place_run(place, (const char *const[]){ "redis-sentinel", path, NULL });
    turn_until(place, redis_server_answers(&sentinel));
    turn_until(place, strstr(redis_server_ask(&sentinel, "INFO sentinel"), "slaves=1"));
    return xasprintf("redis+sentinel://127.0.0.1:1,127.0.0.1:%d/main/2", port);
}

static void a_failover_by_a_sentinel_is_followed(void **state)
{
    struct redis_place *place = *state;
    int replica_port;
    int port = start_replica(place, &replica_port);
    scoped(free) char *url = start_sentinel(place, port);

    place->store = redis_place_open(place, (struct store_options){ .redis.url = url });
    if (!place->store)
        fprintf(stderr, "%s\n", place->err.message);
    assert_non_null(place->store);
    assert_int_equal(put_and_wait(place->store, 1), ERR_NONE);
    turn_until(place, strstr(redis_server_ask(&place->servers[1], "INFO keyspace"), "db2"));
    turn_for(place, 1500); /* the sentinel has to know how the replica is; if not, it tries again */
    redis_server_kill(&place->servers[0]);
    assert_int_equal(put_and_wait(place->store, 2), ERR_NONE);
    assert_non_null(
        strstr(redis_server_ask(&place->servers[1], "INFO replication"), "role:master"));
    assert_int_equal(count_sessions(place->store), 2);
    assert_int_equal(place->store->counts.lost, 0);
}

#define place_test(name) \
    cmocka_unit_test_setup_teardown(name, redis_place_setup, redis_place_teardown)

static const struct CMUnitTest all[] = {
    place_test(puts_wait_for_a_server_that_is_away_and_reads_fail),
    place_test(a_server_that_is_killed_in_the_middle_of_commits_has_each_of_them_once),
    place_test(a_claim_whose_answer_is_lost_is_made_once),
    place_test(a_server_that_has_forgotten_commits_is_found_out),
    place_test(a_process_whose_name_another_has_taken_writes_nothing),
    place_test(of_two_nodes_one_wins_a_claim_and_the_other_sees_it),
    place_test(a_watch_is_told_of_what_another_node_changes),
    place_test(stores_with_different_prefixes_do_not_see_each_other),
    place_test(a_field_of_a_newer_version_survives_a_put),
    place_test(an_index_entry_without_a_record_is_removed),
    place_test(an_ended_session_without_a_time_expires),
    place_test(a_session_that_is_in_no_index_is_found_again),
    place_test(a_newer_format_is_refused),
    place_test(a_server_that_answers_nonsense_is_refused),
    place_test(the_records_of_a_sole_node_are_refused_to_others),
    place_test(events_go_on_where_the_process_before_has_ended),
    place_test(a_password_is_needed_and_never_shown),
    place_test(tls_is_verified),
    place_test(a_server_that_is_not_there_is_named),
    place_test(synced_means_that_a_replica_has_it),
    place_test(a_grade_that_the_server_does_not_have_is_refused),
    place_test(a_failover_by_a_sentinel_is_followed),
};

int main(void)
{
    if (system("command -v redis-server >/dev/null") != 0) {
        printf("1..0 # SKIP there is no redis-server here\n");
        return 0;
    }
    return cmocka_run_group_tests(all, NULL, NULL);
}
