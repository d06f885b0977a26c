/* SPDX-License-Identifier: Apache-2.0 */
/* Where a new session is made. The nodes are an array: this file stands in for cluster.c. */

#include "cluster/placement.h"

#include "base/macros.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NODES = 20 };

static struct cluster_node nodes[NODES];
static size_t count;

struct cluster_node *cluster_next(const struct cluster *cluster UNUSED,
                                  const struct cluster_node *node)
{
    size_t at = node ? (size_t)(node - nodes) + 1 : 0;

    return at < count ? &nodes[at] : NULL;
}

static int start(void **state UNUSED)
{
    static char names[NODES][8];

    count = NODES;
    for (size_t i = 0; i < NODES; i++) {
        snprintf(names[i], sizeof(names[i]), "n%zu", i);
        nodes[i] = (struct cluster_node){ .id = names[i],
                                          .load.sandboxes_maximum = 1000,
                                          .labels = json_object(),
                                          .backends = json_pack("[s]", "native") };
    }
    return 0;
}

static int stop(void **state UNUSED)
{
    for (size_t i = 0; i < NODES; i++) {
        json_decref(nodes[i].labels);
        json_decref(nodes[i].backends);
    }
    return 0;
}

static uint64_t draw(void)
{
    static uint64_t state = 88172645463325252U;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 2685821657736338717U;
}

static const struct cluster_node *choose(const struct placement_wish *wish)
{
    return placement_choose(NULL, wish, draw());
}

static void sessions_are_spread_evenly(void **state UNUSED)
{
    unsigned least = UINT32_MAX, most = 0;

    for (unsigned i = 0; i < 10000; i++)
        assert_non_null(choose(&(struct placement_wish){ 0 }));
    for (size_t i = 0; i < NODES; i++) {
        least = MIN(least, nodes[i].placed);
        most = MAX(most, nodes[i].placed);
    }
    assert_true(least >= 475 && most <= 525); /* of 500 */
}

static void a_node_that_is_lost_drains_or_is_full_gets_none(void **state UNUSED)
{
    nodes[0].state = NODE_LOST;
    nodes[1].state = NODE_DRAINING;
    nodes[2].load.sandboxes = 1000;
    for (unsigned i = 0; i < 1000; i++)
        assert_true(choose(&(struct placement_wish){ 0 }) > &nodes[2]);
}

static void without_room_anywhere_a_node_decides_itself(void **state UNUSED)
{
    for (size_t i = 0; i < NODES; i++)
        nodes[i].load.sandboxes = 1000;
    assert_non_null(choose(&(struct placement_wish){ 0 }));
    count = 0;
    assert_null(choose(&(struct placement_wish){ 0 }));
}

static void a_smaller_node_fills_as_fast_as_a_larger_one(void **state UNUSED)
{
    count = 2;
    nodes[0].load.sandboxes_maximum = 100;
    nodes[1].load.sandboxes_maximum = 300;
    for (unsigned i = 0; i < 200; i++)
        choose(&(struct placement_wish){ 0 });
    assert_in_range(nodes[0].placed, 45, 55);
}

static void a_busy_machine_gets_fewer(void **state UNUSED)
{
    count = 2;
    nodes[0].load.processors = 3;
    for (unsigned i = 0; i < 50; i++)
        choose(&(struct placement_wish){ 0 });
    assert_true(nodes[0].placed < nodes[1].placed);
}

static void backend_labels_and_node_narrow(void **state UNUSED)
{
    scoped(json_decref) json_t *east = json_pack("{s:s}", "zone", "east");
    scoped(json_decref) json_t *both = json_pack("{s:s,s:s}", "zone", "east", "gpu", "1");
    const char *const excluded[] = { "n3", NULL };

    json_array_append_new(nodes[3].backends, json_string("docker"));
    json_array_append_new(nodes[4].backends, json_string("docker"));
    json_object_set_new(nodes[5].labels, "zone", json_string("east"));
    for (unsigned i = 0; i < 100; i++) {
        const struct cluster_node *node = choose(&(struct placement_wish){ .backend = "docker" });

        assert_true(node == &nodes[3] || node == &nodes[4]);
        assert_ptr_equal(
            choose(&(struct placement_wish){ .backend = "docker", .excluded = excluded }),
            &nodes[4]);
        assert_ptr_equal(choose(&(struct placement_wish){ .labels = east }), &nodes[5]);
        assert_ptr_equal(choose(&(struct placement_wish){ .node = "n7" }), &nodes[7]);
    }
    assert_null(choose(&(struct placement_wish){ .labels = both }));
    assert_null(choose(&(struct placement_wish){ .backend = "gvisor" }));
    assert_null(choose(&(struct placement_wish){ .node = "n7", .backend = "docker" }));
    assert_null(choose(&(struct placement_wish){ .node = "unknown" }));
}

#define WITH_NODES(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_NODES(sessions_are_spread_evenly),
        WITH_NODES(a_node_that_is_lost_drains_or_is_full_gets_none),
        WITH_NODES(without_room_anywhere_a_node_decides_itself),
        WITH_NODES(a_smaller_node_fills_as_fast_as_a_larger_one),
        WITH_NODES(a_busy_machine_gets_fewer),
        WITH_NODES(backend_labels_and_node_narrow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
