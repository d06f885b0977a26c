/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of the cluster: which there are, how they are, and taking one out. */

#include "api/pages.h"
#include "api/private.h"
#include "base/str.h"
#include "cluster/cluster.h"
#include "config/config.h"
#include "core/core.h"
#include "core/sandbox/capacity.h"

#include <string.h>

/* --- looking -------------------------------------------------------------------------------- */

static void put_part(struct json_writer *json, const char *key, const json_t *part)
{
    char *text = json_dumps(part, JSON_COMPACT);

    json_put_raw(json, key, text);
    free(text);
}

static void put_node(struct json_writer *json, const struct cluster *cluster,
                     const struct cluster_node *node)
{
    bool is_self = node == cluster_self(cluster);
    int64_t left_ms = cluster_lease_left_ms(cluster, node);

    json_begin_object(json, NULL);
    json_put_text(json, "id", node->id);
    json_put_text(json, "address", node->address);
    json_put_text(json, "state", node_state_name(node->state));
    json_put_bool(json, "self", is_self);
    json_put_int(json, "epoch", (int64_t)node->epoch);
    json_put_double(json, "lease_remaining_seconds", left_ms > 0 ? (double)left_ms / 1000 : 0);
    json_put_double(json, "lease_remaining", left_ms > 0 ? (double)left_ms / 1000 : 0);
    json_put_int(json, "sessions", (int64_t)node->sessions);
    json_put_int(json, "sandboxes", node->load.sandboxes);
    json_put_int(json, "max_sandboxes", node->load.sandboxes_maximum);
    json_put_double(json, "load", node->load.processors);
    put_part(json, "backends", node->backends);
    put_part(json, "labels", node->labels);
    json_put_text(json, "version", node->version);
    json_end_object(json);
}

/* A daemon alone is its only node. */
static void put_alone(struct json_writer *json, const struct request *request)
{
    const struct core *core = request->core;
    const struct config *config = request->faces->parts.config;

    json_begin_object(json, NULL);
    json_put_text(json, "id", config->node.id);
    json_put_null(json, "address");
    json_put_text(json, "state", node_state_name(NODE_UP));
    json_put_bool(json, "self", true);
    json_put_int(json, "sessions", (int64_t)core->sessions_by_id.count);
    json_put_int(json, "sandboxes", (int64_t)capacity_held(core->capacity));
    json_put_int(json, "max_sandboxes", config->capacity.max_sandboxes);
    json_put_text(json, "version", SANDGLASS_VERSION);
    json_end_object(json);
}

static void get_nodes(struct request *request)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4 * 1024 * 1024);
    struct json_writer json = JSON_WRITER(&text);
    const struct cluster *cluster = request->faces->parts.cluster;
    const struct cluster_node *node = NULL;

    json_begin_object(&json, NULL);
    json_begin_array(&json, "nodes");
    if (!cluster)
        put_alone(&json, request);
    while (cluster && (node = cluster_next(cluster, node)))
        put_node(&json, cluster, node);
    json_end_array(&json);
    json_put_bool(&json, "clustered", cluster != NULL);
    json_end_object(&json);
    api_reply_page(request, &text, "nodes", "id");
}

/* --- draining ------------------------------------------------------------------------------- */

static int check_node(const struct request *request, const char *id, struct error *err)
{
    const struct cluster *cluster = request->faces->parts.cluster;

    if (!cluster) {
        error_named(err, ERR_CONFLICT, "not_clustered", "this daemon is not a node of a cluster");
        return error_hint(err, "see docs/how-to/cluster.md; to stop it, end its service");
    }
    if (str_equal(id, cluster_self(cluster)->id))
        return 0;
    if (!cluster_find(cluster, id))
        return error_named(err, ERR_NOT_FOUND, "node_not_found", "node \"%.80s\" not found", id);
    error_named(err, ERR_CONFLICT, "node_elsewhere", "this is node \"%s\"",
                cluster_self(cluster)->id);
    return error_hint(err, "send the request to %s", cluster_find(cluster, id)->address);
}

static void set_draining(struct request *request, bool is_draining)
{
    scoped(buffer_fini) struct buffer text = BUFFER_INIT(4096);
    struct json_writer json = JSON_WRITER(&text);
    const char *id = request_path(request, "node");
    struct error err = { 0 };

    if (check_node(request, id, &err) < 0) {
        request_fail(request, &err);
        return;
    }
    cluster_set_draining(request->faces->parts.cluster, is_draining);
    json_begin_object(&json, NULL);
    json_put_text(&json, "id", id);
    json_put_text(&json, "state", node_state_name(is_draining ? NODE_DRAINING : NODE_UP));
    json_put_int(&json, "sessions", (int64_t)request->core->sessions_by_id.count);
    json_end_object(&json);
    request_reply(request, 200, &text);
}

static void post_drain(struct request *request)
{
    set_draining(request, true);
}

static void delete_drain(struct request *request)
{
    set_draining(request, false);
}

static const struct route_parameter parameters[] = { API_PAGE_PARAMETERS, { 0 } };
static const struct route_answer answers[] = { { 200, "{nodes, next_cursor, clustered}" }, { 0 } };
static const struct route_answer drain_answers[] = {
    { 200, "the node, its state and how many sessions it still has" },
    { 404, "node_not_found" },
    { 409, "not_clustered" },
    { 0 },
};

const struct route api_node_routes[] = {
    { HTTP_GET, "/api/v1/nodes", get_nodes, "List the nodes of the cluster",
      .parameters = parameters, .answers = answers },
    { HTTP_POST, "/api/v1/nodes/{node}/drain", post_drain,
      "Take no new sessions on this node, and give up those that can move",
      .answers = drain_answers, .access = ROUTE_ADMINS, .home = ROUTE_OF_NODE, .unrecorded = true },
    { HTTP_DELETE, "/api/v1/nodes/{node}/drain", delete_drain, "Take new sessions again",
      .answers = drain_answers, .access = ROUTE_ADMINS, .home = ROUTE_OF_NODE, .unrecorded = true },
    { 0 },
};
