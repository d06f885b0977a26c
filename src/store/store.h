#pragma once

/*
 * The durable record of everything: what exists, what existed, and why it ended.
 *
 * Writes are ordered and do not wait: a put copies the record and returns. store_commit() asks to
 * be told when everything put before it is durable, or that it failed; puts between two commits are
 * one transaction, so a batch of requests costs one commit. Reads see every put made before them.
 *
 * Times are wall-clock microseconds for people, beside boot-clock microseconds for deadlines:
 * within one boot the latter count, so that setting the wall clock changes nothing. Zero means "not
 * set".
 */

#include "base/error.h"
#include "base/id.h"
#include "base/list.h"
#include "loop/loop.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { STORE_TEXT_SIZE = 64 };

struct stamp {
    int64_t wall_us;
    int64_t boot_us;
};

/* All text is borrowed for the duration of the call that passes the record. NULL and "" are the
 * same. */
struct session_record {
    char id[ID_SIZE];
    const char *owner;
    const char *key; /* NULL without one */
    const char *on_behalf_of;
    const char
        *spec_json; /* what was asked for: template, flavor, backend, limits, env, mounts, policy */
    const char *labels_json;
    const char *state;      /* session_state_name() */
    const char *end_reason; /* "" while it is open */
    uint64_t generation;
    int64_t idle_timeout_ms;
    int64_t max_lifetime_ms;
    struct stamp created, started, last_activity, expires, ended;
    int64_t retain_until_wall_us; /* 0 while it is open */
};

struct sandbox_record {
    char id[ID_SIZE];
    char session_id[ID_SIZE]; /* "" for a pool member */
    const char *backend;
    const char *state; /* sandbox_state_name() */
    const char *end_reason;
    const char *last_error;
    uint64_t generation;
    uint64_t start_time;
    uint32_t slot;
    uint32_t attempts; /* of destroying */
    pid_t pid;
    struct stamp created;
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

/* Approvals, keys, idempotency records: small documents by kind and id. */
struct document_record {
    const char *kind;
    const char *id;
    const char *owner;
    const char *json;
    int64_t expires_wall_us; /* 0: never */
};

struct store;
struct store_ticket;
typedef void store_done_fn(struct store_ticket *ticket);

/* Waits for durability; embedded by the caller, which keeps it until `done`. */
struct store_ticket {
    store_done_fn *done;
    struct error err; /* ERR_NONE when everything before it is durable */
    struct list node;
};

/* What a query finds is handed over one record at a time, on the loop, then `done`. */
struct store_query;
typedef void store_query_fn(struct store_query *query);

struct store_query {
    void (*on_session)(struct store_query *query, const struct session_record *record);
    void (*on_sandbox)(struct store_query *query, const struct sandbox_record *record);
    void (*on_execution)(struct store_query *query, const struct execution_record *record);
    void (*on_event)(struct store_query *query, const struct event_record *record);
    void (*on_document)(struct store_query *query, const struct document_record *record);
    store_query_fn *done; /* query->err says whether it worked */
    struct error err;

    /* The filter; empty fields do not filter. */
    const char *id;         /* of the session, execution or document; borrowed until done */
    const char *session_id; /* borrowed until done */
    const char *owner;      /* NULL: any owner; "" : ownerless */
    const char *key;
    const char *kind;
    const char *state;
    uint64_t after; /* events: sequence greater than this; others: skip that many */
    uint32_t limit; /* 0: no limit */
    bool newest_first;
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
    bool same_boot; /* boot-clock stamps are still good */
    uint64_t last_sequence;
    unsigned damaged; /* records that could not be read; each was logged and kept aside */
};

struct store_ops {
    const char *name;
    void (*free)(struct store *store); /* commits what is pending first */
    void (*put_session)(struct store *store, const struct session_record *record);
    void (*put_sandbox)(struct store *store, const struct sandbox_record *record);
    void (*put_execution)(struct store *store, const struct execution_record *record);
    void (*put_event)(struct store *store, const struct event_record *record);
    void (*put_document)(struct store *store, const struct document_record *record);
    void (*forget_session)(struct store *store, const char *id); /* with all that belongs to it */
    void (*forget_sandbox)(struct store *store, const char *id);
    void (*forget_document)(struct store *store, const char *kind, const char *id);
    void (*commit)(struct store *store, struct store_ticket *ticket);
    void (*query)(struct store *store, enum store_table table, struct store_query *query);

    /* Ended sessions whose time is over, oldest first: on_session, then done. */
    void (*query_expired)(struct store *store, int64_t now_wall_us, struct store_query *query);
};

struct store {
    const struct store_ops *ops;
    struct loop *loop; /* borrowed */
    struct store_load load;
};

struct store_options {
    struct loop *loop;   /* borrowed */
    const char *path;    /* sqlite: the database file */
    const char *sync;    /* "full" (fsync at each commit), "normal", "off" */
    const char *boot_id; /* of this boot */
};

struct store *store_open_memory(const struct store_options *options);
struct store *store_open_sqlite(const struct store_options *options, struct error *err);
void store_close(struct store *store); /* NULL is fine */

void store_put_session(struct store *store, const struct session_record *record);
void store_put_sandbox(struct store *store, const struct sandbox_record *record);
void store_put_execution(struct store *store, const struct execution_record *record);
void store_put_event(struct store *store, const struct event_record *record);
void store_put_document(struct store *store, const struct document_record *record);
void store_forget_session(struct store *store, const char *id);
void store_forget_sandbox(struct store *store, const char *id);
void store_forget_document(struct store *store, const char *kind, const char *id);
void store_commit(struct store *store, struct store_ticket *ticket, store_done_fn *done);
void store_query(struct store *store, enum store_table table, struct store_query *query);
void store_query_expired(struct store *store, int64_t now_wall_us, struct store_query *query);
