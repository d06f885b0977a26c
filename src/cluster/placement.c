/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/placement.h"

#include "base/str.h"

#include <string.h>

enum { NODES_MAXIMUM = 1024 };

/* A machine whose processors are busy counts as fuller, but never as much as one without a slot. */
double placement_load(const struct cluster_node *node)
{
    double taken = (double)(node->load.sandboxes + node->placed);
    double slots = (double)MAX(node->load.sandboxes_maximum, 1U);
    double busy = node->load.processors < 0 ? 0 : node->load.processors;

    return taken / slots + (busy > 4 ? 4 : busy) / 40;
}

static bool has_room(const struct cluster_node *node)
{
    return node->load.sandboxes + node->placed < node->load.sandboxes_maximum;
}

static bool has_backend(const struct cluster_node *node, const char *backend)
{
    size_t index;
    json_t *name;

    if (str_is_empty(backend))
        return true;
    json_array_foreach(node->backends, index, name)
    {
        if (str_equal(json_string_value(name), backend))
            return true;
    }
    return false;
}

static bool has_labels(const struct cluster_node *node, const json_t *labels)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)labels, name, value)
    {
        if (!json_equal(json_object_get(node->labels, name), value))
            return false;
    }
    return true;
}

static bool is_excluded(const struct cluster_node *node, const struct placement_wish *wish)
{
    for (const char *const *id = wish->excluded; id && *id; id++) {
        if (str_equal(*id, node->id))
            return true;
    }
    return false;
}

static bool fits(const struct cluster_node *node, const struct placement_wish *wish)
{
    return node->state == NODE_UP && (!wish->node || str_equal(wish->node, node->id)) &&
           has_backend(node, wish->backend) && has_labels(node, wish->labels) &&
           !is_excluded(node, wish);
}

static size_t candidates(const struct cluster *cluster, const struct placement_wish *wish,
                         bool needs_room, struct cluster_node *out[NODES_MAXIMUM])
{
    struct cluster_node *node = NULL;
    size_t count = 0;

    while (count < NODES_MAXIMUM && (node = cluster_next(cluster, node))) {
        if (fits(node, wish) && (!needs_room || has_room(node)))
            out[count++] = node;
    }
    return count;
}

struct cluster_node *placement_choose(const struct cluster *cluster,
                                      const struct placement_wish *wish, uint64_t random)
{
    struct cluster_node *nodes[NODES_MAXIMUM];
    size_t count = candidates(cluster, wish, true, nodes);
    struct cluster_node *first, *second;

    if (count == 0)
        count = candidates(cluster, wish, false, nodes);
    if (count == 0)
        return NULL;
    first = nodes[random % count];
    second = count == 1 ? first
                        : nodes[(random % count + 1 + (random >> 32) % (count - 1)) % count];
    if (placement_load(second) < placement_load(first))
        first = second;
    first->placed++;
    return first;
}
