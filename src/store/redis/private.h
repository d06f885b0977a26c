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
    uint64_t number;     /* of the last commit that was acknowledged */
    uint64_t made;       /* commits that were ever made of what was pending */
    bool has_to_probe;   /* the next commit may be empty */
    struct redis_pending pending;
    struct redis_commit commit;
    struct redis_syncing syncing;
    struct redis_sweep sweep;
    struct list askings; /* struct redis_asking */
    struct log_repeat logged;
};

/* --- open.c --------------------------------------------------------------------------------- */

/* Reaches the server, checks that it can do what the settings ask for, and takes the name of the
 * node. Blocks, for a few seconds at most. */
int redis_acquire(struct redis_store *store, struct error *err);

/* --- ask.c ---------------------------------------------------------------------------------- */

void redis_ask(struct redis_store *store, enum store_table table, struct store_query *query,
               bool expired_only, int64_t now_wall_us);

/* Sends those whose puts are sent; when the server cannot be reached, all of them fail. */
void redis_send_askings(struct redis_store *store);
void redis_fail_askings(struct redis_store *store, const struct error *err);

/* The link is gone without having answered: they are asked again from the beginning. */
void redis_asking_reset(struct redis_store *store);

/* --- sweep.c -------------------------------------------------------------------------------- */

void redis_sweep_start(struct redis_store *store);
void redis_sweep_stop(struct redis_store *store); /* a zeroed one is fine */

/* --- redis.c -------------------------------------------------------------------------------- */

void redis_flush_soon(struct redis_store *store);
bool redis_has_pending(const struct redis_store *store);
