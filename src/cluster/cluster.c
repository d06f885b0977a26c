/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/cluster.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "config/config.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    REPORTS_PER_LEASE = 5,
    TAKE_MOST = 64, /* sessions in one go: the other nodes take theirs meanwhile */
    DESCRIPTION_MAXIMUM = 64 * 1024,
};

/* Whether requests are served. Successors: joining → serving ↔ isolated. */
enum standing { JOINING, SERVING, ISOLATED };

struct cluster {
    struct cluster_parts parts;
    struct list nodes;         /* struct cluster_node; this one is the first */
    struct cluster_node *self; /* in it */
    enum standing standing;
    int64_t lease_us;
    int64_t renewed_us; /* when the last report that arrived was sent */
    uint64_t round;
    uint64_t homeless;
    bool is_draining;
    struct timer report, guard;
    struct store_renewal renewal;
    bool is_reporting, report_again;
    struct store_rehoming rehoming;
    bool is_taking;
    char *from; /* owned: of the sessions that are being taken; NULL: given up */
};

const char *node_state_name(enum node_state state)
{
    static const char *const names[] = {
        [NODE_UP] = "up", [NODE_DRAINING] = "draining", [NODE_LOST] = "lost"
    };

    return names[state];
}

/* --- the nodes ------------------------------------------------------------------------------ */

static struct cluster_node *node_new(struct cluster *cluster, const char *id)
{
    struct cluster_node *node = xnew(struct cluster_node);

    node->id = xstrdup(id);
    node->address = xstrdup("");
    node->version = xstrdup("");
    node->labels = json_object();
    node->backends = json_array();
    node->seen_us = loop_now_us(cluster->parts.loop);
    list_append(&cluster->nodes, &node->node);
    return node;
}

static void node_free(struct cluster_node *node)
{
    list_remove(&node->node);
    free(node->id);
    free(node->address);
    free(node->version);
    json_decref(node->labels);
    json_decref(node->backends);
    free(node);
}

static struct cluster_node *find(const struct cluster *cluster, const char *id)
{
    struct cluster_node *node;

    list_for_each (node, &cluster->nodes, node)
        if (str_equal(node->id, id))
            return node;
    return NULL;
}

static void take_text(char **field, const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    free(*field);
    *field = xstrdup(text ? text : "");
}

static void take_part(json_t **field, json_t *object, const char *name, json_type type)
{
    json_t *part = json_object_get(object, name);

    if (!part || json_typeof(part) != type)
        return;
    json_decref(*field);
    *field = json_incref(part);
}

static unsigned count_at(const json_t *object, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(object, name));

    return value < 0 || value > UINT32_MAX ? 0 : (unsigned)value;
}

/* The report of another node is text of the store: wrong or missing members are ignored. */
static void take_description(struct cluster_node *node, const char *description)
{
    scoped(json_decref) json_t *json = json_read(description, strlen(description), NULL);

    if (!json)
        return;
    take_text(&node->address, json, "address");
    take_text(&node->version, json, "version");
    take_part(&node->labels, json, "labels", JSON_OBJECT);
    take_part(&node->backends, json, "backends", JSON_ARRAY);
    node->load = (struct node_load){
        .sandboxes = count_at(json, "sandboxes"),
        .sandboxes_maximum = count_at(json, "max_sandboxes"),
        .sessions = count_at(json, "sessions"),
        .processors = json_number_value(json_object_get(json, "load")),
    };
    node->state = str_equal(json_string_value(json_object_get(json, "state")), "draining")
                      ? NODE_DRAINING
                      : NODE_UP;
}

/* Its epoch was taken away, by this node or another. */
static void lose(struct cluster *cluster, struct cluster_node *node)
{
    node->seen_us = loop_now_us(cluster->parts.loop) - cluster->lease_us;
    if (node->state == NODE_LOST)
        return;
    log_warn("node lost: its lease is over", kv("node", node->id), kv("epoch", node->epoch));
    node->state = NODE_LOST;
    cluster->parts.owner->on_lost(cluster->parts.context, node->id);
}

static void on_node(struct store_renewal *renewal, const struct store_node *report)
{
    struct cluster *cluster = container_of(renewal, struct cluster, renewal);
    struct cluster_node *node = find(cluster, report->id);

    if (!node)
        node = node_new(cluster, report->id);
    if (node->epoch != report->epoch || node->beat != report->beat) {
        node->seen_us = loop_now_us(cluster->parts.loop);
        node->placed = 0;
        take_description(node, report->description);
    }
    node->epoch = report->epoch;
    node->beat = report->beat;
    node->sessions = report->sessions;
    node->round = cluster->round;
    if (report->is_lost)
        lose(cluster, node);
}

/* --- sessions that get a new home ----------------------------------------------------------- */

static void take_next(struct cluster *cluster);

static void on_taken(struct store_rehoming *rehoming, const char *id)
{
    struct cluster *cluster = container_of(rehoming, struct cluster, rehoming);

    cluster->parts.owner->on_sequence(cluster->parts.context, rehoming->sequence);
    cluster->parts.owner->on_session(cluster->parts.context, id, cluster->from);
}

static void note_taken(struct cluster *cluster, const char *from)
{
    struct cluster_node *node = from ? find(cluster, from) : NULL;
    unsigned taken = cluster->rehoming.taken;

    log_info("sessions get a new home", kv("from", from ? from : "no node"), kv("sessions", taken));
    if (!node)
        cluster->homeless = taken < TAKE_MOST ? 0 : cluster->homeless;
    else if (taken < TAKE_MOST)
        node->sessions = 0;
}

static void on_rehomed(struct store_rehoming *rehoming)
{
    struct cluster *cluster = container_of(rehoming, struct cluster, rehoming);
    const struct cluster_owner *owner = cluster->parts.owner;
    scoped(free) char *from = steal_ptr(&cluster->from);
    struct cluster_node *node = from ? find(cluster, from) : NULL;

    cluster->is_taking = false;
    if (rehoming->err.code == ERR_CONFLICT)
        return; /* the next report tells how it is */
    if (rehoming->err.code != ERR_NONE) {
        owner->on_unsure(cluster->parts.context);
        return;
    }
    if (node)
        lose(cluster, node);
    if (rehoming->taken || from)
        note_taken(cluster, from);
    take_next(cluster);
}

static void take(struct cluster *cluster, const struct cluster_node *node)
{
    const struct store_node from = { .id = node ? node->id : NULL,
                                     .epoch = node ? node->epoch : 0,
                                     .beat = node ? node->beat : 0 };

    assert(!cluster->is_taking);
    cluster->is_taking = true;
    cluster->from = node ? xstrdup(node->id) : NULL;
    cluster->rehoming.on_session = on_taken;
    cluster->rehoming.done = on_rehomed;
    store_rehome(cluster->parts.store, &cluster->rehoming, node ? &from : NULL, TAKE_MOST);
}

static bool is_over(const struct cluster *cluster, const struct cluster_node *node)
{
    return node != cluster->self &&
           (node->state == NODE_LOST ? node->sessions > 0
                                     : cluster_lease_left_ms(cluster, node) < 0);
}

static void take_next(struct cluster *cluster)
{
    struct cluster_node *node;

    if (cluster->is_taking || cluster->standing != SERVING || cluster->is_draining)
        return;
    list_for_each (node, &cluster->nodes, node) {
        if (is_over(cluster, node)) {
            take(cluster, node);
            return;
        }
    }
    if (cluster->homeless > 0)
        take(cluster, NULL);
}

/* --- reports -------------------------------------------------------------------------------- */

static void write_description(struct cluster *cluster, struct buffer *out)
{
    const struct config *config = cluster->parts.config;
    struct json_writer json = JSON_WRITER(out);
    struct node_load *load = &cluster->self->load;

    json_begin_object(&json, NULL);
    json_put_text(&json, "address", config->node.address);
    json_put_text(&json, "version", SANDGLASS_VERSION);
    json_put_text(&json, "state", cluster->is_draining ? "draining" : "up");
    json_begin_array(&json, "backends");
    cluster->parts.owner->describe(cluster->parts.context, load, &json);
    json_end_array(&json);
    json_put_int(&json, "sandboxes", load->sandboxes);
    json_put_int(&json, "max_sandboxes", load->sandboxes_maximum);
    json_put_int(&json, "sessions", load->sessions);
    json_put_double(&json, "load", load->processors);
    json_begin_object(&json, "labels");
    for (size_t i = 0; i < config->node.labels.count; i++)
        json_put_text(&json, config->node.labels.items[i].name, config->node.labels.items[i].value);
    json_end_object(&json);
    json_end_object(&json);
}

static void stand(struct cluster *cluster, enum standing standing)
{
    bool was_serving = cluster->standing == SERVING;

    cluster->standing = standing;
    if (was_serving == (standing == SERVING))
        return;
    if (standing == SERVING)
        log_info("node serves", kv("node", cluster->self->id), kv("epoch", cluster->self->epoch));
    else
        log_error(
            "node isolated: it could not report for too long, and serves nothing until it can",
            kv("node", cluster->self->id));
    cluster->parts.owner->on_serving(cluster->parts.context, standing == SERVING);
}

static int64_t serves_until_us(const struct cluster *cluster)
{
    return cluster->renewed_us + cluster->lease_us * 2 / 3;
}

static void on_guard(struct timer *timer)
{
    struct cluster *cluster = container_of(timer, struct cluster, guard);

    if (cluster->standing == SERVING)
        stand(cluster, ISOLATED);
}

/* A node that was away has not seen the reports of the others, so their leases begin anew. */
static void measure_anew(struct cluster *cluster)
{
    struct cluster_node *node;

    list_for_each (node, &cluster->nodes, node)
        node->seen_us = loop_now_us(cluster->parts.loop);
}

static void drop_unreported(struct cluster *cluster)
{
    struct cluster_node *node, *following;

    list_for_each_safe (node, following, &cluster->nodes, node)
        if (node != cluster->self && node->round != cluster->round)
            node_free(node);
}

static void report(struct cluster *cluster);

static void on_renewed(struct store_renewal *renewal)
{
    struct cluster *cluster = container_of(renewal, struct cluster, renewal);
    bool was_away = renewal->sent_us - cluster->renewed_us > cluster->lease_us / 2;

    cluster->is_reporting = false;
    if (cluster->report_again)
        report(cluster);
    if (renewal->err.code != ERR_NONE)
        return;
    if (was_away)
        measure_anew(cluster);
    cluster->renewed_us = renewal->sent_us;
    cluster->homeless = renewal->homeless;
    drop_unreported(cluster);
    timer_arm_at(&cluster->guard, serves_until_us(cluster));
    stand(cluster, cluster_holds_lease(cluster) ? SERVING : ISOLATED);
    cluster->parts.owner->on_reported(cluster->parts.context);
    take_next(cluster);
}

static void report(struct cluster *cluster)
{
    scoped(buffer_fini) struct buffer description = BUFFER_INIT(DESCRIPTION_MAXIMUM);

    cluster->report_again = cluster->is_reporting;
    if (cluster->is_reporting)
        return;
    cluster->is_reporting = true;
    cluster->round++;
    cluster->renewal.on_node = on_node;
    cluster->renewal.done = on_renewed;
    write_description(cluster, &description);
    store_renew(cluster->parts.store, &cluster->renewal, buffer_text(&description));
}

static void on_report(struct timer *timer)
{
    struct cluster *cluster = container_of(timer, struct cluster, report);

    timer_arm_in(timer, cluster->lease_us / REPORTS_PER_LEASE);
    if (!cluster->is_reporting)
        report(cluster);
}

/* --- what others ask ------------------------------------------------------------------------ */

struct cluster *cluster_new(const struct cluster_parts *parts)
{
    struct cluster *cluster = xnew(struct cluster);

    assert(parts->store->epoch);
    cluster->parts = *parts;
    list_init(&cluster->nodes);
    cluster->lease_us = parts->config->node.lease_ms * 1000;
    cluster->renewed_us = parts->opened_us;
    cluster->self = node_new(cluster, parts->config->node.id);
    cluster->self->epoch = parts->store->epoch;
    timer_init(&cluster->report, parts->loop, on_report);
    timer_init(&cluster->guard, parts->loop, on_guard);
    return cluster;
}

void cluster_free(struct cluster *cluster)
{
    struct cluster_node *node, *following;

    if (!cluster)
        return;
    timer_stop(&cluster->report);
    timer_stop(&cluster->guard);
    list_for_each_safe (node, following, &cluster->nodes, node)
        node_free(node);
    free(cluster->from);
    free(cluster);
}

void cluster_start(struct cluster *cluster)
{
    on_report(&cluster->report);
}

bool cluster_is_known(const struct cluster *cluster)
{
    return cluster->standing != JOINING;
}

bool cluster_holds_lease(const struct cluster *cluster)
{
    return loop_now_us(cluster->parts.loop) < serves_until_us(cluster);
}

bool cluster_is_serving(const struct cluster *cluster, struct error *err)
{
    if (cluster->standing == SERVING && cluster_holds_lease(cluster))
        return true;
    if (err) {
        error_named(err, ERR_UNAVAILABLE, "node_isolated",
                    "this node cannot reach the store, and others may have taken its sessions");
        error_hint(err, "repeat the request, or ask another node");
        err->retryable = true;
    }
    return false;
}

void cluster_set_draining(struct cluster *cluster, bool is_draining)
{
    cluster->is_draining = is_draining;
    report(cluster);
}

bool cluster_is_draining(const struct cluster *cluster)
{
    return cluster->is_draining;
}

const struct cluster_node *cluster_self(const struct cluster *cluster)
{
    return cluster->self;
}

const struct cluster_node *cluster_find(const struct cluster *cluster, const char *id)
{
    return find(cluster, id);
}

struct cluster_node *cluster_next(const struct cluster *cluster, const struct cluster_node *node)
{
    const struct list *next = node ? node->node.next : cluster->nodes.next;

    return next == &cluster->nodes ? NULL : list_entry(next, struct cluster_node, node);
}

int64_t cluster_lease_left_ms(const struct cluster *cluster, const struct cluster_node *node)
{
    return (node->seen_us + cluster->lease_us - loop_now_us(cluster->parts.loop)) / 1000;
}
