/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Routes about the whole cluster, for `gather` of a route: each asks all nodes and joins what they
 * answer. */

struct request;

void api_gather_approvals(struct request *request);
void api_gather_capacity(struct request *request);
void api_gather_events(struct request *request);
void api_gather_metrics(struct request *request);
void api_gather_removals(struct request *request);
void api_gather_sessions(struct request *request);

/* The parameter of these routes. */
#define API_NODE_PARAMETER                                                           \
    {                                                                                \
        "node", "string", "of this node of the cluster alone; default: of all nodes" \
    }
