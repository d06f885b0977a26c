/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of the Redis store, for the files of redis/ only. README.md of store/ is the map. */

#include "store/record.h"
#include "store/redis/link.h"
#include "store/redis/pack.h"
#include "store/redis/script.h"

enum redis_sync {
    REDIS_SYNC_NONE,     /* acknowledged is enough */
    REDIS_SYNC_REPLICAS, /* WAIT */
    REDIS_SYNC_AOF,      /* WAITAOF */
};

/* The one commit under way. Successors: none → unsent → sent → none | unsent. */
enum redis_flight { FLIGHT_NONE, FLIGHT_UNSENT, FLIGHT_SENT };

struct redis_commit {
    enum redis_flight flight;
    struct change_queue changes;
    struct list claims;  /* struct store_claim */
    struct list tickets; /* struct store_ticket */
    struct buffer body;
    bool accepts_loss; /* the server has less than it acknowledged, and that was reported */
    bool by_text;      /* the server does not know the script */
    struct redis_request request;
};

/* Changes of turns that are over, or of this one, in one commit. */
struct redis_pending {
    struct change_queue changes;
    struct list claims;
    struct list tickets;
    size_t bytes;
    bool urgent;
    struct timer gather;
    struct deferred at_end;
};

/* Tickets that wait for replicas, or for the disk of the server. */
struct redis_syncing {
    enum redis_sync sync;
    unsigned replicas;
    struct list next;    /* of commits that are acknowledged */
    struct list waiting; /* for the answer */
    unsigned tries;
    bool is_new_link; /* WAIT is about writes of the same connection: it needs one */
    struct redis_request touch;
    struct redis_request request;
};

/* Reports of this node, and sessions that it takes: one of each at a time. */
struct redis_nodes {
    struct store_renewal *renewal;   /* borrowed; NULL without one under way */
    char *description;               /* owned: of a report that is not sent yet; else NULL */
    struct store_rehoming *rehoming; /* likewise */
    struct redis_request renew, rehome;
    struct deferred refuse_renewal, refuse_rehoming;
};

/* Looks for sessions that no index has, part by part. */
struct redis_sweep {
    struct timer timer;
    struct redis_request request;
    char cursor[24];
};

/* Whether the server can be reached. Successors: first → there ↔ away. */
enum redis_reach { REACH_FIRST, REACH_THERE, REACH_AWAY };

struct redis_store {
    struct store base;
    struct redis_url url;
    char *prefix;  /* owned */
    char *boot_id; /* owned */
    char *ca;      /* owned */
    bool is_sole;
    char epoch[24];
    struct redis_script commit_script, query_script;
    struct redis_link link;    /* zeroed while it is drained, and afterwards */
    struct redis_link watcher; /* zeroed until there is a watch */
    struct redis_request subscription;
    enum redis_reach reach;
    struct error away;   /* why */
    bool counts_away;    /* that is all that is failing */
    struct error fenced; /* another process has the name of this node */
    struct deferred tell_fenced;
    uint64_t number;   /* of the last commit that was acknowledged */
    uint64_t made;     /* number of commits made from pending changes */
    bool has_to_probe; /* the next commit may be empty */
    struct redis_pending pending;
    struct redis_commit commit;
    struct redis_syncing syncing;
    struct redis_sweep sweep;
    struct redis_nodes nodes;
    struct list askings; /* struct redis_asking */
    struct log_repeat logged;
};

/* --- open.c --------------------------------------------------------------------------------- */

/* Connects to the server, checks that it supports the settings, and takes the name of the node.
 * Blocks, for a few seconds at most. */
int redis_acquire(struct redis_store *store, struct error *err);

/* --- ask.c ---------------------------------------------------------------------------------- */

void redis_ask(struct redis_store *store, enum store_table table, struct store_query *query,
               bool expired_only, int64_t now_wall_us);

/* Sends the queries whose earlier puts are sent; all of them fail when the server cannot be
 * reached. */
void redis_send_askings(struct redis_store *store);
void redis_fail_askings(struct redis_store *store, const struct error *err);

/* The link is gone without having answered: they are asked again from the beginning. */
void redis_asking_reset(struct redis_store *store);

/* --- sweep.c -------------------------------------------------------------------------------- */

void redis_sweep_start(struct redis_store *store);
void redis_sweep_stop(struct redis_store *store); /* a zeroed one is fine */

/* --- nodes.c -------------------------------------------------------------------------------- */

/* The server has read its clock between these two instants of the boot clock. */
void redis_take_time(struct redis_store *store, const char *text, int64_t sent_us, int64_t now_us);

void redis_renew(struct store *base, struct store_renewal *renewal, const char *description);
void redis_rehome(struct store *base, struct store_rehoming *rehoming,
                  const struct store_node *from, unsigned most);

/* The server can be reached, or cannot any more. */
void redis_nodes_reach_changed(struct redis_store *store);

/* Ends both without an answer of the server, at once. */
void redis_nodes_give_up(struct redis_store *store, const struct error *err);

/* --- redis.c -------------------------------------------------------------------------------- */

struct redis_store *redis_from(struct store *store);

/* The answer names the process that has the node's name now, and whether the node counts as
 * lost. */
void redis_become_fenced(struct redis_store *store, const redisReply *reply);
void redis_flush_soon(struct redis_store *store);
bool redis_has_pending(const struct redis_store *store);
