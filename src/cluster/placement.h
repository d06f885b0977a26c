/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where a new session is made: power of two choices. Of the nodes that are up and have what the
 * session needs, two are drawn at random, and the one with less to do gets it: that is nearly as
 * even as always taking the best one, and reports that are a little old do not send every session to
 * the same node.
 */

#include "cluster/cluster.h"

#include <stdint.h>

/* All borrowed; NULL does not narrow. */
struct placement_wish {
    const char *node;
    const char *backend;
    const json_t *labels;        /* of the node: an object of texts, all must be there */
    const char *const *excluded; /* ids of nodes that were tried; ends with NULL */
};

/* NULL when no node fits. Nodes without room are taken when no other fits: what happens then is
 * theirs to decide (capacity.overflow). The session is counted as placed there. */
struct cluster_node *placement_choose(const struct cluster *cluster,
                                      const struct placement_wish *wish, uint64_t random);

/* How much a node has to do; 1 is full. */
double placement_load(const struct cluster_node *node);
