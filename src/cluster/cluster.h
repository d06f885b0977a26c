/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The nodes of a cluster: daemons that share a store.
 *
 * Each node reports to the store several times in the time of a lease (store_renew), and gets the
 * reports of all others. From them it knows where to relay a request, and where to place a session.
 *
 *     a node that could not report for 2/3 of a lease    stops serving: others may take over soon
 *     a node whose report stands still for a lease       is lost: its epoch is taken away, so that
 *                                                        it writes nothing any more, and its live
 *                                                        sessions get a new home, each exactly one
 *     sessions that a draining node has given up         the same
 *
 * All times are measured by the boot clock of the node that decides; no clock is ever compared with
 * another one. A node that was away itself (stopped, cut off) begins to measure anew.
 */

#include "base/error.h"
#include "base/list.h"
#include "loop/loop.h"
#include "store/store.h"
#include "wire/json.h"

#include <stdbool.h>
#include <stdint.h>

struct cluster;
struct config;

enum node_state {
    NODE_UP,
    NODE_DRAINING, /* takes no new sessions */
    NODE_LOST,     /* its lease is over */
};

const char *node_state_name(enum node_state state);

/* The load and the capacity of a node, as it reports them. */
struct node_load {
    unsigned sandboxes, sandboxes_maximum;
    unsigned sessions;
    double processors; /* the load of the machine for each processor */
};

/* As last reported; valid until the next turn of the loop. */
struct cluster_node {
    struct list node;
    char *id, *address; /* owned */
    uint64_t epoch, beat;
    enum node_state state;
    struct node_load load;
    unsigned placed;   /* sessions that this node has placed there since that report */
    json_t *labels;    /* owned: an object */
    json_t *backends;  /* owned: an array of names */
    char *version;     /* owned: of its program */
    uint64_t sessions; /* live ones whose home it is, by their records */
    int64_t seen_us;   /* when its beat was seen to move, by the clock of the loop */
    uint64_t round;    /* of the last report that it was in */
};

struct cluster_owner {
    void (*describe)(void *context, struct node_load *out_load, struct json_writer *backends);

    /* A session has become this node's: restore it. `from` is the lost node; NULL: it was given
     * up. */
    void (*on_session)(void *context, const char *session_id, const char *from);
    /* The answer about sessions that were taken was lost: look for records with this node. */
    void (*on_unsure)(void *context);
    /* The events of this node go on behind this number, so that those of a session stay in order. */
    void (*on_sequence)(void *context, uint64_t sequence);
    /* The epoch of a node was taken away, by this node or another one: what it had is free. */
    void (*on_lost)(void *context, const char *node);
    /* A report was answered. */
    void (*on_reported)(void *context);
    /* Stops serving, or serves again. */
    void (*on_serving)(void *context, bool is_serving);
};

struct cluster_parts {
    struct loop *loop; /* all borrowed; all outlive the cluster */
    const struct config *config;
    struct store *store;
    int64_t opened_us; /* before the store was opened, which counts as a report */
    const struct cluster_owner *owner;
    void *context;
};

struct cluster *cluster_new(const struct cluster_parts *parts);
void cluster_free(struct cluster *cluster); /* NULL is fine; after store_drain() */

/* Reports for the first time, then again and again. */
void cluster_start(struct cluster *cluster);

/* The first report has been answered: the other nodes are known. */
bool cluster_is_known(const struct cluster *cluster);

/* False with ERR_UNAVAILABLE "node_isolated" when others may have taken over what this node has. */
bool cluster_is_serving(const struct cluster *cluster, struct error *err);

/* Whether no other node can have taken over yet; also before the first report. */
bool cluster_holds_lease(const struct cluster *cluster);

/* This node takes no new sessions from now on, or again. Reported at once. */
void cluster_set_draining(struct cluster *cluster, bool is_draining);
bool cluster_is_draining(const struct cluster *cluster);

const struct cluster_node *cluster_self(const struct cluster *cluster); /* never NULL */
const struct cluster_node *cluster_find(const struct cluster *cluster, const char *id);
struct cluster_node *cluster_next(const struct cluster *cluster, const struct cluster_node *node);

/* The rest of a node's lease, as this node has measured it; negative when it is over. */
int64_t cluster_lease_left_ms(const struct cluster *cluster, const struct cluster_node *node);
