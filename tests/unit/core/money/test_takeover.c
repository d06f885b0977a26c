/* SPDX-License-Identifier: Apache-2.0 */
/* What a session of a lost node costs, and in whose part of the budget it is: three cores, one store. */

#include "base/money.h"
#include "core/grants.h"
#include "core/money/budget.h"
#include "core/money/budget_account.h"
#include "core/rehome.h"
#include "core/session/flavor_change.h"
#include "harness/fake_agent.h"
#include "harness/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { A, B, C, NODES, TURNS = 40, MINUTE_MS = 60 * 1000 };

#define USD(amount) ((int64_t)((amount)*MONEY_DOLLAR + 0.5))
#define SERVER_AHEAD_US (INT64_C(1700000000) * 1000 * 1000)

static const char *const names[NODES] = { "a", "b", "c" };

static char basic[] = "cpu-basic";
static char cheap[] = "cheap";
static struct config_flavor flavors[] = { { .name = basic },
                                          { .name = cheap, .price_per_hour = USD(1) } };

/* One report of what "svc" has spent and reserved, over all nodes, as GET /budget asks for it. */
struct look {
    struct grant_visit visit;
    struct budgets *budgets;
    int64_t sum;
    unsigned times;
};

struct cluster {
    struct world host; /* has the clock, the loop and the server; no daemon */
    struct world nodes[NODES];
    struct look looks[NODES];
    int64_t budget; /* of svc and all below it */
    int64_t least;  /* that is spent or reserved */
};

static int setup(void **state)
{
    static struct cluster cluster;

    cluster = (struct cluster){ .budget = USD(2) };
    world_init(&cluster.host);
    for (size_t i = 0; i < NODES; i++) {
        struct world *world = &cluster.nodes[i];

        world_join(world, &cluster.host, names[i]);
        world->store->server_ahead_us = SERVER_AHEAD_US;
        world->config.session.idle_timeout_ms = 0;
        world->config.session.max_lifetime_ms = 0;
        world->config.flavors.items = flavors;
        world->config.flavors.count = ARRAY_LENGTH(flavors);
        world->config.budget.auto_approve = true;
        world->config.budget.session_cap = USD(100);
        world->config.budget.owner_cap = cluster.budget;
        world_start(world);
    }
    *state = &cluster;
    return 0;
}

static int teardown(void **state)
{
    struct cluster *cluster = *state;

    for (size_t i = 0; i < NODES; i++) {
        grant_visit_end(&cluster->looks[i].visit);
        world_fini(&cluster->nodes[i]);
    }
    world_fini(&cluster->host);
    assert_int_equal(fake_agent_count(), 0);
    return 0;
}

/* --- looking at each moment ------------------------------------------------------------------ */

static void on_looked(struct grant_visit *visit)
{
    struct look *look = container_of(visit, struct look, visit);
    struct sums sums = budget_sums_of_all(look->budgets, "svc");

    look->sum = sums.spent + sums.held;
    look->times++;
}

/* One turn of the loop at a time, and after each a report of each node that lives. */
static void settle(struct cluster *cluster)
{
    for (int turn = 0; turn < TURNS; turn++) {
        for (size_t i = 0; i < NODES; i++) {
            struct look *look = &cluster->looks[i];

            look->budgets = cluster->nodes[i].core ? cluster->nodes[i].core->budgets : NULL;
            if (look->budgets && !look->visit.grant)
                budget_visit_owner(&look->visit, look->budgets, "svc", GRANT_CAP_KEEP, on_looked);
        }
        loop_turn(cluster->host.loop, 0);
        for (size_t i = 0; i < NODES; i++)
            if (cluster->looks[i].times)
                assert_in_range(cluster->looks[i].sum, cluster->least, cluster->budget);
    }
}

static void advance(struct cluster *cluster, int64_t ms)
{
    int64_t step = MAX(ms / 40, (int64_t)100);

    for (int64_t left = ms; left > 0; left -= MIN(left, step)) {
        loop_advance(cluster->host.loop, &cluster->host.clock, MIN(left, step) * 1000);
        settle(cluster);
    }
}

static struct session *pay_one(struct cluster *cluster, size_t node, const char *owner)
{
    struct flavor_change_request request = { .flavor = cheap };
    struct session *session = world_open_simple(&cluster->nodes[node], owner, NULL);
    struct flavor_change_answer answer;
    struct error err = { 0 };
    struct tried tried;

    if (!session) /* a write was refused */
        return NULL;
    assert_int_equal(flavor_change_make(session, &request, &answer, &err), 0);
    settle(cluster);
    world_use(&cluster->nodes[node], session, &tried);
    settle(cluster);
    session_hold_end(&tried.hold);
    return session;
}

static bool is_paid(const struct session *session)
{
    return session && strcmp(session_flavor(session), cheap) == 0 && session_sandbox(session);
}

/* --- a node that is lost --------------------------------------------------------------------- */

struct reading {
    struct store_query query;
    struct session_record *record; /* owned */
};

static void on_session(struct store_query *query, const struct session_record *record)
{
    container_of(query, struct reading, query)->record = store_copy_record(STORE_SESSIONS, record);
}

static void on_read(struct store_query *query)
{
    assert_int_equal(query->err.code, ERR_NONE);
}

static void kill_node(struct cluster *cluster, size_t node)
{
    grant_visit_end(&cluster->looks[node].visit);
    cluster->looks[node].times = 0;
    world_kill(&cluster->nodes[node], false);
}

/* As rehome.lua does it: the record names the other node, and nothing else changes. */
static void move_record(struct cluster *cluster, char *id, size_t to)
{
    struct reading reading = { .query = { .on_session = on_session, .done = on_read, .id = id } };

    store_query(cluster->nodes[to].store, STORE_SESSIONS, &reading.query);
    world_settle(&cluster->host);
    assert_non_null(reading.record);
    reading.record->node = names[to];
    store_put_session(cluster->nodes[to].store, reading.record);
    world_settle(&cluster->host);
    free(reading.record);
}

static int64_t spent_on(struct cluster *cluster, size_t node)
{
    return budget_tree_sums(cluster->nodes[node].core->budgets, "svc").spent;
}

/* Node A and a session of it that has cost half a dollar; node B has the rest of the budget in use. */
static void lose_one(struct cluster *cluster, char id[ID_SIZE])
{
    struct session *session = pay_one(cluster, A, "svc/ann");

    assert_true(is_paid(session));
    memcpy(id, session_id(session), ID_SIZE);
    advance(cluster, 30 * MINUTE_MS);
    assert_true(is_paid(pay_one(cluster, B, "svc/bob")));
    assert_int_equal(cluster->looks[C].sum, USD(2));
    kill_node(cluster, A);
    move_record(cluster, id, B);
}

static void a_session_of_a_lost_node_counts_once(void **state)
{
    struct cluster *cluster = *state;
    char id[ID_SIZE];

    lose_one(cluster, id);
    core_take_session(cluster->nodes[B].core, id, "a");
    settle(cluster);
    assert_int_equal(spent_on(cluster, B), USD(0.5));
    assert_int_equal(cluster->looks[B].sum, USD(1.5));
    assert_int_equal(cluster->looks[C].sum, USD(1.5));
    core_drop_node(cluster->nodes[B].core, "a");
    core_drop_node(cluster->nodes[C].core, "a");
    for (int i = 0; i < 30; i++)
        advance(cluster, 1000);
    assert_in_range(cluster->looks[C].sum, USD(1.5), USD(1.6));
    assert_true(cluster->looks[B].times > 100 && cluster->looks[C].times > 100);
}

static void a_session_that_has_cost_nothing_holds_nothing_any_more(void **state)
{
    struct cluster *cluster = *state;
    struct session *session = pay_one(cluster, A, "svc/ann");
    char id[ID_SIZE];

    memcpy(id, session_id(session), ID_SIZE);
    kill_node(cluster, A);
    move_record(cluster, id, B);
    assert_int_equal(cluster->looks[C].sum, USD(1));
    core_take_session(cluster->nodes[B].core, id, "a");
    settle(cluster);
    assert_int_equal(cluster->looks[B].sum, 0);
    assert_int_equal(cluster->looks[C].sum, 0);
}

static void on_set(struct grant_visit *visit)
{
    assert_int_equal(visit->err.code, ERR_NONE);
}

static void a_claim_that_another_node_wins_delays_no_report(void **state)
{
    struct cluster *cluster = *state;
    struct grant_visit visit = { 0 };
    char id[ID_SIZE];

    lose_one(cluster, id);
    core_take_session(cluster->nodes[B].core, id, "a");
    for (int i = 0; i < TURNS; i++) { /* whenever it is, the document has just changed */
        if (!visit.grant)
            budget_visit_owner(&visit, cluster->nodes[C].core->budgets, "svc", USD(2) - i % 2,
                               on_set);
        loop_turn(cluster->host.loop, 0);
        assert_in_range(cluster->looks[B].sum, 0, cluster->budget);
        if (!cluster->looks[B].visit.grant)
            budget_visit_owner(&cluster->looks[B].visit, cluster->nodes[B].core->budgets, "svc",
                               GRANT_CAP_KEEP, on_looked);
    }
    settle(cluster);
    assert_int_equal(cluster->looks[B].sum, USD(1.5));
    assert_int_equal(cluster->looks[C].sum, USD(1.5));
}

/* A node that is back has counted anew, without the session: nothing is taken from that. */
static void a_part_that_a_later_process_has_written_stays(void **state)
{
    struct cluster *cluster = *state;
    char id[ID_SIZE];

    cluster->budget = USD(3.5);
    for (size_t i = 0; i < NODES; i++)
        cluster->nodes[i].config.budget.owner_cap = cluster->budget;
    lose_one(cluster, id);
    world_start(&cluster->nodes[A]);
    assert_true(is_paid(pay_one(cluster, A, "svc/ann")));
    assert_int_equal(cluster->looks[C].sum, USD(2));
    cluster->least = USD(2);
    fake_store_hold(cluster->nodes[A].store, true); /* it could claim what it lacks otherwise */
    core_take_session(cluster->nodes[B].core, id, "a");
    settle(cluster);
    fake_store_hold(cluster->nodes[A].store, false);
    assert_int_equal(cluster->looks[C].sum, USD(2.5));
    assert_int_equal(cluster->looks[B].sum, USD(2.5));
    assert_true(is_paid(pay_one(cluster, C, "svc")));
    assert_false(is_paid(pay_one(cluster, C, "svc")));
}

static void the_session_of_a_node_that_is_lost_after_a_takeover_counts_once(void **state)
{
    struct cluster *cluster = *state;
    char id[ID_SIZE];

    lose_one(cluster, id);
    fake_store_hold(cluster->nodes[B].store, true);
    core_take_session(cluster->nodes[B].core, id, "a");
    settle(cluster);
    kill_node(cluster, B);
    fake_store_hold(cluster->nodes[B].store, false);
    move_record(cluster, id, C);
    core_take_session(cluster->nodes[C].core, id, "b");
    settle(cluster);
    assert_int_equal(spent_on(cluster, C), USD(0.5));
    assert_int_equal(cluster->looks[C].sum, USD(1.5));
}

/* --- clocks ---------------------------------------------------------------------------------- */

static void a_wall_clock_that_was_set_charges_nothing(void **state)
{
    struct cluster *cluster = *state;
    char id[ID_SIZE];

    lose_one(cluster, id);
    cluster->host.clock.wall_us += (int64_t)20 * MINUTE_MS * 1000;
    core_take_session(cluster->nodes[B].core, id, "a");
    settle(cluster);
    assert_int_equal(spent_on(cluster, B), USD(0.5));
}

static void a_wall_clock_that_was_set_back_makes_nothing_free(void **state)
{
    struct cluster *cluster = *state;
    char id[ID_SIZE];

    lose_one(cluster, id);
    cluster->host.clock.wall_us -= (int64_t)20 * MINUTE_MS * 1000;
    core_take_session(cluster->nodes[B].core, id, "a");
    settle(cluster);
    assert_int_equal(spent_on(cluster, B), USD(0.5));
}

/* --- at random ------------------------------------------------------------------------------- */

enum { SESSIONS_MOST = 64 };

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 16;
}

/* Its sessions go to the others, one by one, while the store is slow or refuses a write; then it is
 * back, before its parts were dropped or afterwards, and after refused writes were repeated. */
static void lose_at_random(struct cluster *cluster, size_t node, unsigned *seed)
{
    char ids[SESSIONS_MOST][ID_SIZE];
    struct session *session;
    size_t count = 0;

    session_for_each (session, cluster->nodes[node].core) {
        assert_true(count < SESSIONS_MOST);
        memcpy(ids[count++], session_id(session), ID_SIZE);
    }
    kill_node(cluster, node);
    for (size_t i = 1; i < NODES; i++)
        core_drop_node(cluster->nodes[(node + i) % NODES].core, names[node]);
    for (size_t i = 0; i < count; i++) {
        size_t to = (node + 1 + next_random(seed) % (NODES - 1)) % NODES;

        move_record(cluster, ids[i], to);
        if (next_random(seed) % 4 == 0)
            fake_store_fail_next(cluster->nodes[to].store, ERR_UNAVAILABLE);
        core_take_session(cluster->nodes[to].core, ids[i], names[node]);
        if (next_random(seed) % 2)
            settle(cluster);
    }
    advance(cluster, 5000 + (int64_t)(next_random(seed) % 2) * 25 * 1000);
    world_start(&cluster->nodes[node]);
    settle(cluster);
}

static void end_at_random(struct cluster *cluster, size_t node, unsigned *seed)
{
    struct session *session, *following;

    session_for_each_safe (session, following, cluster->nodes[node].core)
        if (next_random(seed) % 2)
            session_end(session, END_DELETED, NULL, NULL, NULL);
    settle(cluster);
}

static int64_t used_by_all(struct cluster *cluster)
{
    int64_t used = 0;

    for (size_t i = 0; i < NODES; i++) {
        struct sums sums = budget_tree_sums(cluster->nodes[i].core->budgets, "svc");

        used += sums.spent + sums.held;
    }
    return used;
}

static void at_random_no_report_is_above_the_budget(void **state)
{
    struct cluster *cluster = *state;
    const char *text = getenv("SANDGLASS_SEED");
    unsigned seed = text ? (unsigned)strtoul(text, NULL, 10) : 2211;

    cluster->budget = USD(9);
    for (size_t i = 0; i < NODES; i++)
        cluster->nodes[i].config.budget.owner_cap = cluster->budget;
    for (int i = 0; i < 300; i++) {
        size_t node = next_random(&seed) % NODES;

        switch (next_random(&seed) % 8) {
        case 0:
            lose_at_random(cluster, node, &seed);
            break;
        case 1:
            end_at_random(cluster, node, &seed);
            break;
        case 2:
            advance(cluster, (int64_t)(next_random(&seed) % 4) * MINUTE_MS);
            break;
        default:
            (void)pay_one(cluster, node, node ? "svc/ann" : "svc");
            break;
        }
        assert_in_range(used_by_all(cluster), 0, cluster->budget);
    }
    for (size_t i = 0; i < NODES; i++)
        for (int tries = 0; cluster->nodes[i].core->sessions_by_id.count; tries++) {
            assert_true(tries < 100);
            end_at_random(cluster, i, &seed);
            advance(cluster, 1000);
        }
    advance(cluster, 60 * 1000);
    for (size_t i = 0; i < NODES; i++)
        assert_int_equal(cluster->looks[i].sum, used_by_all(cluster));
    assert_in_range(used_by_all(cluster), USD(1), cluster->budget);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_session_of_a_lost_node_counts_once),
        TEST(a_session_that_has_cost_nothing_holds_nothing_any_more),
        TEST(a_claim_that_another_node_wins_delays_no_report),
        TEST(a_part_that_a_later_process_has_written_stays),
        TEST(the_session_of_a_node_that_is_lost_after_a_takeover_counts_once),
        TEST(a_wall_clock_that_was_set_charges_nothing),
        TEST(a_wall_clock_that_was_set_back_makes_nothing_free),
        TEST(at_random_no_report_is_above_the_budget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
