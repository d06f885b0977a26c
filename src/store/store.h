/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The durable record of all sessions, sandboxes, executions, events and documents, past and
 * present.
 *
 * Writes are ordered and do not wait: a put copies the record and returns; putting a record again
 * replaces it. A ticket of store_commit() completes when everything put before it is durable, or
 * has failed. All changes since the last commit are one transaction, so a batch of requests costs
 * one commit. Reads see every put made before them. A commit is made when everything else in this
 * turn of the loop is done (loop_defer_last): it includes all puts until then.
 *
 * Durability has two grades. A *synced* record survives a power failure, as far as `sync` says;
 * that takes a flush of the disk, so it is for promises to a caller. A *written* record survives
 * the end of this process at any instruction, but not that of the machine: that is enough for
 * objects that end with the machine anyway, such as sandboxes. Every written record is synced a
 * moment later.
 *
 * A transaction succeeds or fails as a whole. A failed one fails every ticket in it, and each of
 * its puts and forgets is lost: logged, counted, and reported to `on_lost`. Later transactions go on as
 * if those puts had never been made, so putting the current state of such a record again repairs
 * it.
 *
 * Times are wall-clock microseconds for people, beside boot-clock microseconds for deadlines:
 * within one boot the latter count, so that setting the wall clock changes nothing. Zero means "not
 * set" and comes back as zero. A stamp that was put in an earlier boot comes back with its boot
 * half recomputed from its wall half, so it can always be compared with the clock of this boot; it
 * is negative for times before this boot.
 *
 * Records of an owner instead of a session (a key, an Idempotency-Key, a cap) are documents that
 * are *claimed*: written only by compare-and-set, see store_claim().
 */

#include "base/error.h"
#include "base/id.h"
#include "base/list.h"
#include "base/log.h"
#include "base/scoped.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { STORE_TEXT_SIZE = 64 };

/* The state of a session that is over. */
#define STORE_STATE_ENDED "ended"

struct stamp {
    int64_t wall_us;
    int64_t boot_us;
};

/* All text is borrowed for the duration of the call that passes the record. NULL and "" are the
 * same when they are put; an empty text comes back as "", and an empty `key` as NULL. Records come
 * back in the order of their first put, events by sequence. */
struct session_record {
    char id[ID_SIZE];
    const char *owner;
    const char *key; /* NULL without one */
    const char *on_behalf_of;
    const char *spec_json; /* asked for: template, flavor, backend, limits, env, mounts, policy */
    const char *labels_json;
    const char *state;      /* session_state_name() */
    const char *end_reason; /* "" while it is open */
    uint64_t generation;
    int64_t idle_timeout_ms;
    int64_t max_lifetime_ms;
    struct stamp created, started, last_activity, expires, ended;
    int64_t retain_until_wall_us; /* 0 while it is open */
    const char *node;             /* that put it; set by the store when it is empty */
};

struct sandbox_record {
    char id[ID_SIZE];
    char session_id[ID_SIZE]; /* "" for a pool member */
    const char *backend;
    const char *state; /* sandbox_state_name() */
    const char *end_reason;
    const char *last_error;
    const char *handle; /* its identity at its backend, which alone reads it */
    uint64_t generation;
    uint32_t attempts; /* of destroying */
    struct stamp created;
    const char *node; /* as in a session */
};

struct execution_record {
    char id[ID_SIZE];
    char session_id[ID_SIZE];
    char sandbox_id[ID_SIZE];
    const char *key;          /* the caller's own id */
    const char *request_json; /* argv or command or code, env names, cwd, user, … */
    const char *state;        /* execution_state_name() */
    const char *reason;       /* of its end */
    const char *error;        /* why it could not start */
    uint64_t generation;
    uint64_t number; /* its tag in init's protocol */
    int64_t timeout_ms;
    int exit_code; /* -1 when not exited */
    int signal;
    bool background;
    uint64_t stdout_bytes, stderr_bytes;
    int64_t cpu_us;
    uint64_t max_rss_bytes;
    struct stamp created, started, ended;
};

struct event_record {
    uint64_t sequence;         /* for the instance; given by the core, always growing */
    uint64_t session_sequence; /* within the session */
    char session_id[ID_SIZE];
    const char *owner;
    const char *type; /* "session.created", "sandbox.reset", … */
    const char *data_json;
    int64_t wall_us;
};

/* The documents of files that programs have stored: "SESSION/NAME", with the `bytes` of the file
 * and of the one that it replaces, `before`. */
#define STORED_FILE_KIND "stored-file"

/* Approvals, keys, idempotency records: small documents by kind and id. */
struct document_record {
    const char *kind;
    const char *id;
    const char *owner;
    const char *json;
    int64_t expires_wall_us; /* 0: never; from then on no query finds it */
    uint64_t version;        /* of the last claim; 0: it was put */
};

struct change;
struct store;
struct store_ticket;
typedef void store_done_fn(struct store_ticket *ticket);

enum store_grade {
    STORE_SYNCED,
    STORE_WRITTEN,
    STORE_WRITTEN_LAZILY, /* no caller waits for it: the commit may be delayed to include later
                             changes */
};

/* Waits for durability; embedded by the caller, which keeps it until `done`. */
struct store_ticket {
    store_done_fn *done;
    enum store_grade grade;
    /* Borrowed, for the time of `done`: ERR_NONE when everything put since the ticket before it is
     * durable. */
    const struct error *err;
    struct list node;
    uint64_t changes; /* private: of the store, when the ticket was made */
};

/* A query hands over its records one at a time, on the loop, then calls `done`. All of them come in
 * one turn: use pages (`limit`) for long results. */
struct store_query;
typedef void store_query_fn(struct store_query *query);

/*
 * Compare-and-set of one document, embedded by the caller, which keeps it until `done`.
 *
 * A claim names the version that it expects to replace: 0 when no claim holds the document (it is
 * missing, has expired, or was only put). Each won claim gives the document a version that no
 * document had before, in no process. store_claim() chooses it: `version` is known from that call
 * on, so that a document can be released, or claimed once more, before the first claim is answered.
 *
 * The rule: claims take their turn with the puts. All puts, forgets and claims of one turn of the
 * loop are one transaction, and claims are compared in the order of their calls: a later claim sees
 * the document of an earlier one. A claim that is won and the puts of its turn are durable together
 * or not at all. A claim that is lost writes nothing, and the puts of its turn are written all the
 * same: the loser takes back its own. `done` comes once, from the loop, when the transaction is
 * written, before all tickets of that transaction: a ticket of the same turn adds the grade, and
 * finds the outcomes known.
 *
 * A document that is claimed is never put or forgotten; claims alone write it.
 */
struct store_claim;
typedef void store_claim_fn(struct store_claim *claim);

enum claim_outcome {
    CLAIM_PENDING,
    CLAIM_WON,
    CLAIM_LOST,   /* the document has another version than expected: `current` */
    CLAIM_FAILED, /* so has its transaction: `err`; nothing was written */
};

struct store_claim {
    store_claim_fn *done;
    enum claim_outcome outcome;
    uint64_t version;        /* that the document has if it is won; 0 for a release */
    const struct error *err; /* borrowed, for the time of `done` */
    /* With CLAIM_LOST: the document as it is; NULL when there is none. Borrowed, for the time of
     * `done`. */
    const struct document_record *current;
    struct list node;
    struct {
        uint64_t expected;
        struct change *change; /* owned until it is part of a transaction */
        struct claimed *before, *after;
        char guarded[ID_SIZE]; /* "": nothing */
    } private;                 /* the store's own */
};

/*
 * Reports documents of a kind, or one of them, that were put, claimed, released or forgotten: by
 * this process when the change is written, by other nodes soon afterwards. Expiry is not reported.
 */
struct store_watch;

/* `id` NULL: changes may have been missed, read all documents of the kind. From the loop. */
typedef void store_watch_fn(struct store_watch *watch, const char *id);

struct store_watch {
    char *kind, *id; /* owned; id NULL: all of the kind */
    store_watch_fn *on_change;
    struct list node;
    uint64_t told; /* the store's own */
};

/*
 * Daemons that share a store are its nodes. Each node reports periodically (store_renew), and gets
 * the reports of all. A node whose *beat* does not change for the time of a lease is lost: another
 * node revokes its epoch, so that it cannot write any more, and takes its sessions (store_rehome).
 * No clocks are compared: each node measures by its own clock how long a beat has not changed.
 */
struct store_node {
    const char *id;
    uint64_t epoch;          /* of the process that has the name */
    uint64_t beat;           /* grows with each report */
    bool is_lost;            /* its epoch was taken away, and no process has taken the name again */
    const char *description; /* as it was reported; JSON */
    uint64_t sessions;       /* live ones whose home it is */
};

/* Embedded by the caller, which keeps it until `done`. Text is borrowed for the time of a call. */
struct store_renewal {
    void (*on_node)(struct store_renewal *renewal, const struct store_node *node);
    void (*done)(struct store_renewal *renewal); /* `err`: ERR_CONFLICT "store_fenced", or away */
    struct error err;
    int64_t sent_us;   /* by the clock of the loop */
    uint64_t homeless; /* live sessions without a home */
    struct list node;  /* the store's own */
};

struct store_rehoming {
    void (*on_session)(struct store_rehoming *rehoming, const char *id); /* that was taken */
    /* `err`: ERR_CONFLICT "node_alive" when it has reported since. Any other error leaves open
     * whether sessions were taken: look for sessions with the own node. */
    void (*done)(struct store_rehoming *rehoming);
    struct error err;
    uint64_t sequence; /* the last event of the lost node */
    unsigned taken;
    struct list node; /* the store's own */
};

/* A session that is put with this node has no home: any node may take it. */
#define STORE_NO_NODE "-"

struct store_label {
    const char *name;
    const char *value;
};

struct store_query {
    void (*on_session)(struct store_query *query, const struct session_record *record);
    void (*on_sandbox)(struct store_query *query, const struct sandbox_record *record);
    void (*on_execution)(struct store_query *query, const struct execution_record *record);
    void (*on_event)(struct store_query *query, const struct event_record *record);
    void (*on_document)(struct store_query *query, const struct document_record *record);
    store_query_fn *done; /* query->err says whether it worked */
    struct error err;
    uint64_t position; /* while a record is handed over: its index in the order of first puts */
    uint64_t total;    /* with `count`, at `done`: all records that match, on any page */
    bool is_cut;       /* at `done`: more records follow beyond a limit */

    /* The filter; empty fields do not filter. */
    const char *id;         /* of the session, execution or document; borrowed until done */
    const char *session_id; /* borrowed until done */
    const char *owner;      /* NULL: any owner; "" : ownerless */
    const char *key;
    const char *kind;
    const char *state;
    const char *node; /* sessions, sandboxes: whose home it is */
    uint64_t after;   /* events: sequence greater than this; others: skip that many */
    uint32_t limit;   /* 0: no limit */
    /* The query stops when the found records have this size; at least one comes. 0: no limit. */
    uint32_t limit_bytes;
    /* Sessions, with the state "ended" and no id or key: only the ones with all of these labels.
     * Borrowed until done. */
    const struct store_label *labels;
    unsigned label_count;
    /* Not for events: only records behind this position, in the requested order; 0: all. The cost
     * does not grow with the number of skipped records. */
    uint64_t behind;
    bool newest_first;
    bool count;    /* fill in `total` */
    bool live;     /* sessions: all states but "ended" */
    void *private; /* the store's own */
};

enum store_table {
    STORE_SESSIONS,
    STORE_SANDBOXES,
    STORE_EXECUTIONS,
    STORE_EVENTS,
    STORE_DOCUMENTS
};

struct store_load {
    bool same_boot; /* the store was last opened in this boot */
    uint64_t last_sequence;
    unsigned damaged; /* records that could not be read; each was logged and kept aside. Grows when
                         a query meets one later */
};

struct store_counts {
    uint64_t transactions;
    uint64_t failed_transactions;
    uint64_t lost; /* puts and forgets of failed transactions */
    struct error last_failure;
    bool failing; /* the last transaction or flush did */
};

/* A put or forget of a failed transaction; `id` is "kind/id" of a document, the sequence of an
 * event. Comes before the tickets of that transaction. With the id "" the store has lost records of
 * any table that it had acknowledged, and claims too. */
typedef void store_lost_fn(struct store *store, enum store_table table, const char *id);

struct store_ops {
    const char *name;
    void (*drain)(struct store *store);                         /* see store_drain() */
    void (*free)(struct store *store);                          /* after drain() */
    void (*change)(struct store *store, struct change *change); /* takes it over */
    void (*commit)(struct store *store, struct store_ticket *ticket);
    void (*claim)(struct store *store, struct store_claim *claim);
    void (*watch)(struct store *store, struct store_watch *watch); /* it is in the list */
    void (*query)(struct store *store, enum store_table table, struct store_query *query);

    /* NULL in stores of one process. */
    void (*renew)(struct store *store, struct store_renewal *renewal, const char *description);
    void (*rehome)(struct store *store, struct store_rehoming *rehoming,
                   const struct store_node *from, unsigned most);

    /* Ended sessions whose time is over, oldest first: on_session, then done. */
    void (*query_expired)(struct store *store, int64_t now_wall_us, struct store_query *query);
};

struct store {
    const struct store_ops *ops;
    struct loop *loop; /* borrowed */
    char *node;        /* owned: of options->node, "" without one */
    uint64_t epoch;    /* of this process among those that had the node's name; 0: the store is not
                          shared */
    uint64_t version;  /* the last one given to a claim */
    uint64_t changes;  /* puts, forgets and claims since it was opened */
    uint64_t written;  /* of these are recorded, as tickets have said */
    bool is_behind;    /* its log grows faster than it is copied: postpone changes that can wait */
    int64_t
        server_ahead_us; /* the clock of a shared server, less the boot clock here; 0: unknown */
    struct store_load load;
    struct store_counts counts;
    struct {
        struct list started; /* struct store_watch */
        struct list notes;   /* of the transaction that is being made */
        uint64_t told;       /* number of the last report */
    } watches;
    /* NULL, or: another process has taken the name of this node, or its sessions. No commit of this
     * process will ever succeed again. Once. */
    void (*on_fenced)(struct store *store, void *data);
    bool is_replaced;       /* when fenced: by another process with this name, not by other nodes */
    void *on_fenced_data;   /* borrowed */
    store_lost_fn *on_lost; /* NULL, or set by the owner of the store */
    void *on_lost_data;     /* for on_lost; borrowed */
    struct error unheard;   /* the store's own: a failure that no ticket has reported */
    struct log_repeat failures_logged;
    struct error absence; /* why it is away; ERR_NONE while it is there */
};

struct store_options {
    struct loop *loop;    /* borrowed */
    const char *path;     /* sqlite: the database file */
    const char *sync;     /* "full" (fsync at each commit), "normal", "off" */
    const char *boot_id;  /* of this boot */
    const char *instance; /* recorded in the database; NULL: not */
    const char *node;     /* the name of this daemon among those that share a store; NULL: none */
    struct {
        const char *url;    /* config/redis_url.h */
        const char *prefix; /* of all its keys; NULL: "sandglass:" */
        const char *sync;   /* "none", "replicas:N" or "aof" */
        const char *ca;     /* PEM file of trusted authorities; "" or NULL: the system's */
        bool is_sole;       /* the records with this prefix are this node's alone */
    } redis;
    bool accept_loss;       /* sqlite: start even if a damaged redo log has lost commits */
    bool never_on_the_loop; /* sqlite: a thread makes even the shortest writes, as on a slow disk */
    bool check_all;         /* sqlite: the checks at the start take as long as they need */
};

struct store *store_open_memory(const struct store_options *options);
struct store *store_open_sqlite(const struct store_options *options, struct error *err);

/* The node must have a name. Takes it from the process that has it: the commits of that one are
 * refused from now on. Blocks until the server has answered, for a few seconds at most. */
struct store *store_open_redis(const struct store_options *options, struct error *err);

/* Commits pending changes and answers every ticket and query before it returns, also those that
 * their callbacks add. For shutdown: later ones are answered only by another drain. Objects that
 * embed tickets and queries can be freed afterwards. NULL is fine. Not from a callback of the
 * store. */
void store_drain(struct store *store);

/* Drains the store first. NULL is fine. Not from a callback of the store. */
void store_close(struct store *store);

void store_put_session(struct store *store, const struct session_record *record);
void store_put_sandbox(struct store *store, const struct sandbox_record *record);
void store_put_execution(struct store *store, const struct execution_record *record);
void store_put_event(struct store *store, const struct event_record *record);
void store_put_document(struct store *store, const struct document_record *record);

/* Removes the session with its executions and events. The record of a sandbox is removed only by
 * store_forget_sandbox(), when the sandbox is confirmed gone. */
void store_forget_session(struct store *store, const char *id);
void store_forget_sandbox(struct store *store, const char *id);
void store_forget_document(struct store *store, const char *kind, const char *id);

/* Writes the document if it has the version `expected`; see struct store_claim. The text is
 * copied. */
void store_claim(struct store *store, struct store_claim *claim, uint64_t expected,
                 const struct document_record *document, store_claim_fn *done);

/* After store_claim(), in the same turn: a new session that is put in this turn is not written if
 * the claim is lost, so that a process that dies then leaves no unwanted session. No effect in a
 * store of one process, where both are one transaction. */
void store_claim_guard(struct store_claim *claim, const char *session_id);

/* Removes the document if it has that version. */
void store_release(struct store *store, struct store_claim *claim, uint64_t expected,
                   const char *kind, const char *id, store_claim_fn *done);

/* The text is copied. */
void store_watch_start(struct store *store, struct store_watch *watch, const char *kind,
                       const char *id, store_watch_fn *on_change);
void store_watch_stop(struct store_watch *watch); /* a zeroed one is fine */

/* NULL when the store can be written to, else why it cannot at this moment: a server that is away. */
const struct error *store_absence(const struct store *store);

/* Only where nodes share the store (`epoch`). */
void store_renew(struct store *store, struct store_renewal *renewal, const char *description);

/* At most so many sessions. `from` NULL: of no node. */
void store_rehome(struct store *store, struct store_rehoming *rehoming,
                  const struct store_node *from, unsigned most);

void store_commit(struct store *store, struct store_ticket *ticket, store_done_fn *done);
void store_commit_as(struct store *store, struct store_ticket *ticket, enum store_grade grade,
                     store_done_fn *done);

/* Whether a ticket has reported everything that was put, forgotten and claimed until now as
 * recorded. False says only that nobody has asked. */
bool store_is_written(const struct store *store);
void store_query(struct store *store, enum store_table table, struct store_query *query);

/* A deep copy of a record of this table, in one allocation that free() releases. */
void *store_copy_record(enum store_table table, const void *record);

/* Ended sessions with `retain_until_wall_us` in the past, the longest expired first. */
void store_query_expired(struct store *store, int64_t now_wall_us, struct store_query *query);

SCOPED_DEFINE(store_close, struct store);
