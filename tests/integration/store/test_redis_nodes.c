/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that share a Redis server: reports, lost nodes, sessions that get a new home. */

#include "redis_support.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NODES_MOST = 4, TAKEN_MOST = 16 };

/* One report, and what came back. */
struct round {
    struct store_renewal renewal;
    struct {
        char id[16];
        uint64_t epoch, beat, sessions;
        bool is_lost;
        char description[64];
    } nodes[NODES_MOST];
    size_t count;
    bool done;
};

static void on_node(struct store_renewal *renewal, const struct store_node *node)
{
    struct round *round = container_of(renewal, struct round, renewal);

    assert_true(round->count < NODES_MOST);
    snprintf(round->nodes[round->count].id, 16, "%s", node->id);
    snprintf(round->nodes[round->count].description, 64, "%s", node->description);
    round->nodes[round->count].epoch = node->epoch;
    round->nodes[round->count].beat = node->beat;
    round->nodes[round->count].sessions = node->sessions;
    round->nodes[round->count++].is_lost = node->is_lost;
}

static void on_renewed(struct store_renewal *renewal)
{
    container_of(renewal, struct round, renewal)->done = true;
}

static struct round report(struct redis_place *place, struct store *store, const char *description)
{
    static struct round round;

    round = (struct round){ .renewal = { .on_node = on_node, .done = on_renewed } };
    store_renew(store, &round.renewal, description);
    store_wait(place->loop, &round.done);
    return round;
}

static struct store_node node_of(const struct round *round, const char *id)
{
    for (size_t i = 0; i < round->count; i++)
        if (str_equal(round->nodes[i].id, id))
            return (struct store_node){ .id = round->nodes[i].id,
                                        .epoch = round->nodes[i].epoch,
                                        .beat = round->nodes[i].beat,
                                        .is_lost = round->nodes[i].is_lost,
                                        .description = round->nodes[i].description,
                                        .sessions = round->nodes[i].sessions };
    fail_msg("node %s is not among them", id);
    return (struct store_node){ 0 };
}

struct taking {
    struct store_rehoming rehoming;
    char ids[TAKEN_MOST][ID_SIZE];
    size_t count;
    bool done;
};

static void on_taken(struct store_rehoming *rehoming, const char *id)
{
    struct taking *taking = container_of(rehoming, struct taking, rehoming);

    snprintf(taking->ids[taking->count++], ID_SIZE, "%s", id);
}

static void on_rehomed(struct store_rehoming *rehoming)
{
    container_of(rehoming, struct taking, rehoming)->done = true;
}

static struct taking take(struct redis_place *place, struct store *store,
                          const struct store_node *from, unsigned most)
{
    static struct taking taking;

    taking = (struct taking){ .rehoming = { .on_session = on_taken, .done = on_rehomed } };
    store_rehome(store, &taking.rehoming, from, most);
    store_wait(place->loop, &taking.done);
    return taking;
}

static enum error_code put_session(struct store *store, unsigned n, const char *node)
{
    struct session_record record = sample_session(n);

    record.node = node;
    record.state = "open";
    store_put_session(store, &record);
    return store_commit_and_wait(store);
}

static size_t count_of_node(struct store *store, const char *node)
{
    scoped(found_records_free) struct found_records found = { .query = { .node = node,
                                                                         .live = true } };

    found_records_ask(&found, store, STORE_SESSIONS);
    return found.count;
}

static struct store *open_node(struct redis_place *place, const char *node)
{
    struct store *store = redis_place_open(place, (struct store_options){ .node = node });

    assert_non_null(store);
    assert_true(store->epoch > 0);
    return store;
}

/* --- reports -------------------------------------------------------------------------------- */

static void each_report_brings_those_of_all_nodes(void **state)
{
    struct redis_place *place = *state;
    scoped(store_close) struct store *a = open_node(place, "a");
    scoped(store_close) struct store *b = open_node(place, "b");
    struct round first, second;

    assert_int_equal(put_session(a, 1, NULL), ERR_NONE);
    assert_int_equal(put_session(a, 2, NULL), ERR_NONE);
    first = report(place, a, "{\"n\":1}");
    assert_int_equal(first.renewal.err.code, ERR_NONE);
    (void)report(place, b, "{\"n\":2}");
    second = report(place, a, "{\"n\":3}");
    assert_int_equal(second.count, 2);
    assert_string_equal(node_of(&second, "b").description, "{\"n\":2}");
    assert_int_equal(node_of(&second, "a").sessions, 2);
    assert_true(node_of(&second, "a").beat > node_of(&first, "a").beat);
    assert_int_equal(node_of(&second, "a").epoch, a->epoch);
}

/* The server is on this machine: its clock is the wall clock here, as far as an answer is quick. */
static bool knows_the_clock(const struct store *store)
{
    int64_t server_us = clock_now_us(&clock_system) + store->server_ahead_us;

    return llabs(server_us - clock_wall_us(&clock_system)) < INT64_C(1000000);
}

static void a_node_knows_the_clock_of_the_server(void **state)
{
    struct redis_place *place = *state;
    scoped(store_close) struct store *a = open_node(place, "a");

    assert_true(!a->server_ahead_us || knows_the_clock(a)); /* unknown after a slow answer */
    a->server_ahead_us = 0;
    while (!a->server_ahead_us)
        (void)report(place, a, "{}");
    assert_true(knows_the_clock(a));
}

static void a_report_to_a_server_that_is_away_fails_at_once(void **state)
{
    struct redis_place *place = *state;
    scoped(store_close) struct store *a = open_node(place, "a");
    struct round round = report(place, a, "{}");

    assert_null(store_absence(a));
    redis_server_kill(&place->servers[0]);
    while (round.renewal.err.code == ERR_NONE)
        round = report(place, a, "{}");
    assert_string_equal(round.renewal.err.name, "store_away");
    assert_string_equal(store_absence(a)->name, "store_away");
}

/* --- lost nodes ----------------------------------------------------------------------------- */

static void count_fenced(struct store *store, void *data)
{
    (void)store;
    ++*(unsigned *)data;
}

static void the_sessions_of_a_lost_node_get_one_home_and_it_writes_no_more(void **state)
{
    struct redis_place *place = *state;
    scoped(store_close) struct store *a = open_node(place, "a");
    scoped(store_close) struct store *b = open_node(place, "b");
    scoped(store_close) struct store *c = open_node(place, "c");
    unsigned fenced = 0;
    struct store_node lost;
    struct round round;
    struct taking by_b, by_c, rest;

    a->on_fenced = count_fenced;
    a->on_fenced_data = &fenced;
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(put_session(a, i, NULL), ERR_NONE);
    (void)report(place, a, "{}");
    round = report(place, b, "{}");
    lost = node_of(&round, "a");
    by_b = take(place, b, &lost, 2);
    by_c = take(place, c, &lost, 2);
    rest = take(place, b, &lost, 16);
    assert_int_equal(by_b.rehoming.err.code, ERR_NONE);
    assert_int_equal(by_b.count + by_c.count + rest.count, 5);
    assert_int_equal(count_of_node(c, "b"), 3);
    assert_int_equal(count_of_node(b, "c"), 2);
    assert_int_equal(count_of_node(b, "a"), 0);
    assert_int_equal(put_session(a, 9, NULL), ERR_UNAVAILABLE);
    assert_int_equal(count_of_node(b, "a"), 0);
    assert_int_equal(fenced, 1);
    assert_string_equal(report(place, a, "{}").renewal.err.name, "store_fenced");
}

static void a_node_that_has_reported_since_is_not_lost(void **state)
{
    struct redis_place *place = *state;
    scoped(store_close) struct store *a = open_node(place, "a");
    scoped(store_close) struct store *b = open_node(place, "b");
    struct store_node seen;
    struct round round;

    assert_int_equal(put_session(a, 1, NULL), ERR_NONE);
    (void)report(place, a, "{}");
    round = report(place, b, "{}");
    seen = node_of(&round, "a");
    (void)report(place, a, "{}");
    assert_string_equal(take(place, b, &seen, 16).rehoming.err.name, "node_alive");
    assert_int_equal(put_session(a, 2, NULL), ERR_NONE);
    assert_int_equal(count_of_node(b, "a"), 2);
}

static void a_node_that_comes_back_keeps_what_was_not_taken(void **state)
{
    struct redis_place *place = *state;
    scoped(store_close) struct store *a = open_node(place, "a");
    scoped(store_close) struct store *b = open_node(place, "b");
    scoped(store_close) struct store *again = NULL;
    struct store_node lost;
    struct round round;

    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(put_session(a, i, NULL), ERR_NONE);
    (void)report(place, a, "{}");
    round = report(place, b, "{}");
    lost = node_of(&round, "a");
    assert_int_equal(take(place, b, &lost, 1).count, 1);
    again = open_node(place, "a");
    assert_true(again->epoch > a->epoch + 1);
    assert_string_equal(take(place, b, &lost, 16).rehoming.err.name, "node_alive");
    assert_int_equal(count_of_node(again, "a"), 2);
    assert_int_equal(put_session(again, 7, NULL), ERR_NONE);
}

/* A failover has lost the takeover: the node that was taken over goes on, and the record is its own. */
static void a_session_whose_record_names_another_node_is_not_taken_back(void **state)
{
    struct redis_place *place = *state;
    scoped(store_close) struct store *a = open_node(place, "a");
    scoped(store_close) struct store *b = open_node(place, "b");

    assert_int_equal(put_session(a, 1, NULL), ERR_NONE);
    assert_int_equal(put_session(b, 1, NULL), ERR_UNAVAILABLE);
    assert_false(b->is_replaced);
    assert_int_equal(count_of_node(a, "a"), 1);
    assert_int_equal(count_of_node(a, "b"), 0);
    assert_int_equal(put_session(a, 1, NULL), ERR_NONE);
}

static void a_session_that_is_given_up_is_taken_by_one(void **state)
{
    struct redis_place *place = *state;
    scoped(store_close) struct store *a = open_node(place, "a");
    scoped(store_close) struct store *b = open_node(place, "b");
    struct taking taking;

    assert_int_equal(put_session(a, 1, STORE_NO_NODE), ERR_NONE);
    assert_int_equal(report(place, b, "{}").renewal.homeless, 1);
    taking = take(place, b, NULL, 16);
    assert_int_equal(taking.count, 1);
    assert_string_equal(taking.ids[0], sample_session(1).id);
    assert_int_equal(take(place, a, NULL, 16).count, 0);
    assert_int_equal(count_of_node(a, "b"), 1);
}

/* --- a claim that is lost ----------------------------------------------------------------- */

struct waited_claim {
    struct store_claim claim;
    bool done;
};

static void on_claim_decided(struct store_claim *claim)
{
    container_of(claim, struct waited_claim, claim)->done = true;
}

static enum claim_outcome create_under_claim(struct redis_place *place, struct store *store,
                                             unsigned n)
{
    struct waited_claim waited = { 0 };
    struct session_record record = sample_session(n);

    record.node = NULL;
    record.state = "open";
    store_put_session(store, &record);
    store_claim(store, &waited.claim, 0,
                &(struct document_record){ .kind = "idempotency", .id = "me\nonce", .json = "{}" },
                on_claim_decided);
    store_claim_guard(&waited.claim, record.id);
    store_wait(place->loop, &waited.done);
    return waited.claim.outcome;
}

static void a_session_whose_claim_is_lost_leaves_no_record(void **state)
{
    struct redis_place *place = *state;
    scoped(store_close) struct store *a = open_node(place, "a");
    scoped(store_close) struct store *b = open_node(place, "b");

    assert_int_equal(create_under_claim(place, a, 1), CLAIM_WON);
    assert_int_equal(create_under_claim(place, b, 2), CLAIM_LOST);
    assert_int_equal(count_of_node(a, "a"), 1);
    assert_int_equal(count_of_node(a, "b"), 0);
}

/* --- formats and other uses ----------------------------------------------------------------- */

static void a_daemon_alone_does_not_take_the_records_of_a_cluster(void **state)
{
    struct redis_place *place = *state;
    scoped(store_close) struct store *a = open_node(place, "a");

    (void)report(place, a, "{}");
    assert_null(
        redis_place_open(place, (struct store_options){ .node = "a", .redis.is_sole = true }));
    assert_string_equal(place->err.name, "store_taken");
}

static void a_daemon_alone_can_become_the_first_node(void **state)
{
    struct redis_place *place = *state;
    struct store *sole =
        redis_place_open(place, (struct store_options){ .node = "a", .redis.is_sole = true });
    struct store *a;

    assert_int_equal(put_session(sole, 1, NULL), ERR_NONE);
    store_close(sole);
    assert_null(redis_place_open(place, (struct store_options){ .node = "b" }));
    a = open_node(place, "a");
    assert_int_equal(count_of_node(a, "a"), 1);
    store_close(open_node(place, "b"));
    store_close(a);
}

static void records_of_format_1_are_found_by_node(void **state)
{
    struct redis_place *place = *state;
    scoped(store_close) struct store *a = NULL;
    scoped(found_records_free) struct found_records found = { 0 };
    struct event_record event = sample_event(3);
    char command[256];

    a = open_node(place, "a");
    assert_int_equal(put_session(a, 1, NULL), ERR_NONE);
    store_put_event(a, &event);
    assert_int_equal(store_commit_and_wait(a), ERR_NONE);
    store_close(steal_ptr(&a));
    (void)redis_server_ask(&place->servers[0], "DEL sandglass:s.node:a");
    snprintf(command, sizeof(command), "RENAME sandglass:e.node:a sandglass:e.all");
    (void)redis_server_ask(&place->servers[0], command);
    (void)redis_server_ask(&place->servers[0], "SET sandglass:format 1");
    a = open_node(place, "a");
    assert_int_equal(count_of_node(a, "a"), 1);
    found_records_ask(&found, a, STORE_EVENTS);
    assert_int_equal(found.count, 1);
}

#define place_test(function) \
    cmocka_unit_test_setup_teardown(function, redis_place_setup, redis_place_teardown)

static const struct CMUnitTest all[] = {
    place_test(each_report_brings_those_of_all_nodes),
    place_test(a_node_knows_the_clock_of_the_server),
    place_test(a_report_to_a_server_that_is_away_fails_at_once),
    place_test(the_sessions_of_a_lost_node_get_one_home_and_it_writes_no_more),
    place_test(a_node_that_has_reported_since_is_not_lost),
    place_test(a_node_that_comes_back_keeps_what_was_not_taken),
    place_test(a_session_whose_record_names_another_node_is_not_taken_back),
    place_test(a_session_that_is_given_up_is_taken_by_one),
    place_test(a_session_whose_claim_is_lost_leaves_no_record),
    place_test(a_daemon_alone_does_not_take_the_records_of_a_cluster),
    place_test(a_daemon_alone_can_become_the_first_node),
    place_test(records_of_format_1_are_found_by_node),
};

int main(void)
{
    if (system("command -v redis-server >/dev/null") != 0) {
        printf("1..0 # SKIP there is no redis-server here\n");
        return 0;
    }
    return cmocka_run_group_tests(all, NULL, NULL);
}
