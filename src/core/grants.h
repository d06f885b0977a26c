/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Grants: the caps of an owner hold over all nodes that share a store.
 *
 * A grant is a document in the store, for one owner and one resource, that says how much of the cap
 * each node may use (grant_document.h). A node takes a part by a claim, uses it by itself, at once,
 * and gives back what it does not use: after GRANT_KEEP_US, or at once when another node has
 * written into the document that it lacks some. The sum of all parts is within the cap in each
 * version of the document, and a node uses at most its part, so the cap holds at each moment.
 *
 * A sole daemon has no grants: `core->grants` is NULL, and everything here allows what is asked.
 *
 * Resources in use count, also when the document does not say so (after a restart, when the server
 * has lost commits, when sessions of a lost node come here): the document follows, above the cap if
 * it must be, and no node gets more until the sum is below it again.
 */

#include "base/error.h"
#include "base/list.h"
#include "core/grant_document.h"
#include "store/store.h"

struct core;
struct grant;
struct grants;

#define GRANT_KIND "grant"

enum grant_resource { GRANT_SLOTS, GRANT_MONEY, GRANT_RESOURCES };

enum {
    GRANT_KEEP_US = 5 * 1000 * 1000,     /* an unused part stays granted for this long */
    GRANT_PATIENCE_US = 1 * 1000 * 1000, /* how long other nodes are waited for */
};

struct grant_use {
    int64_t used;  /* cannot be given back now; with what is spent */
    int64_t spent; /* of it, for good */
};

/* The rules of a resource: how its use on this node is counted. */
struct grant_rules {
    const char *prefix; /* of the ids of its documents */
    bool is_account;    /* the document stays when no node uses anything */
    struct grant_use (*use)(const struct core *core, const char *owner); /* on this node */

    /* The cap of this owner, 0 without one; `set` is that of the document, or GRANT_CAP_UNSET. */
    int64_t (*cap)(const struct core *core, const char *owner, int64_t set);

    /* Before a document is written: what the room has to add to it, cap, base and warning. */
    void (*complete)(const struct core *core, const char *owner, struct grant_document *document);

    /* The document has another warning than before, and this node has written that. */
    void (*warn)(struct core *core, const char *owner, int64_t before,
                 const struct grant_document *document);

    /* Of an account: the kind of the records {"node", "spent"} that each node writes of its own,
     * and which owners the cap of one holds for. */
    const char *spent_kind;
    bool (*covers)(const char *root, const char *owner);

    /* How much more than `wanted` is taken ahead when `free` is left behind that. */
    int64_t (*ahead)(int64_t wanted, int64_t free);

    /* Another node lacks some, and nothing is unused here: frees something soon if it can. */
    void (*yield)(struct core *core, const char *owner);
};

/* NULL in a sole daemon. */
struct grants *grants_new(struct core *core);
void grants_free(struct grants *grants); /* NULL is fine */
void grants_set_rules(struct grants *grants, enum grant_resource resource,
                      const struct grant_rules *rules);

/* At start: a document that an earlier daemon of this node may have a part of. Then, once it is
 * known what is in use, each part is reduced, or raised, to that. */
void grants_restore(struct grants *grants, const struct document_record *record);
void grants_start(struct grants *grants);

/* The store may have lost what it had acknowledged: each part is claimed again, and nothing more is
 * used until then. */
void grants_suspect(struct grants *grants);

/* The node is lost, and others take its sessions over: its parts become free, except for what it has
 * spent. Comes back at once. Several nodes may do it at the same time. */
void grants_drop_node(struct core *core, const char *node);

/* Which process of this node it is, for records of what its part covers; 0 in a sole daemon. */
int64_t grants_life(const struct grants *grants);

/* A session comes from the lost node `from->node`, whose process `from->life` had `from->granted` of
 * its part in use for it. That amount leaves the part of the lost node with the same claim that adds
 * to the part of this one, and at once in what this node reports: no moment counts it twice. A part
 * that a later process of that node has written does not have it, and stays as it is. */
void grant_take_over(struct grants *grants, enum grant_resource resource, const char *owner,
                     const struct grant_share *from);

/* --- using ----------------------------------------------------------------------------------- */

/* The amount that this node may use in addition, now; INT64_MAX in a sole daemon. Negative where
 * more is used than granted. */
int64_t grant_room(struct grants *grants, enum grant_resource resource, const char *owner);

/* The same with the amount that a claim would get, as far as it is known here. */
int64_t grant_hope(struct grants *grants, enum grant_resource resource, const char *owner);

/* The use of a resource on this node has changed. */
void grant_note_use(struct grants *grants, enum grant_resource resource, const char *owner);

/* The document as it was last seen, or NULL. Borrowed for the turn. */
const struct grant_document *grant_look(struct grants *grants, enum grant_resource resource,
                                        const char *owner);

/* --- wishing --------------------------------------------------------------------------------- */

struct grant_wish;
typedef void grant_wish_fn(struct grant_wish *wish);

/* Embedded by the caller; zeroed at first. */
struct grant_wish {
    struct list node;
    struct grant *grant; /* borrowed; NULL unless it waits */
    int64_t amount;
    int64_t deadline_us;
    grant_wish_fn *answered;
    /* At `answered`: ERR_NONE, there is room for the amount now; ERR_LIMIT, the cap is reached;
     * ERR_UNAVAILABLE "cap_unconfirmed", the store could not be asked. */
    struct error err;
};

/* Asks for room for `amount`; `answered` comes once, from the loop. For nodes that share a store
 * only. The room is not reserved: the caller uses it when it is answered, or in the same turn. */
void grant_wish_begin(struct grant_wish *wish, struct grants *grants, enum grant_resource resource,
                      const char *owner, int64_t amount, int64_t patience_us,
                      grant_wish_fn *answered);
void grant_wish_end(struct grant_wish *wish); /* of one that waits; nothing otherwise */

/* --- the cap of one owner -------------------------------------------------------------------- */

/* Sets it in the document, or only reads that when `cap` is GRANT_CAP_KEEP. */
struct grant_visit;
typedef void grant_visit_fn(struct grant_visit *visit);

#define GRANT_CAP_KEEP INT64_MIN

struct grant_visit {
    struct list node;
    struct grant *grant; /* borrowed; NULL unless it waits */
    int64_t cap;
    int64_t deadline_us;
    grant_visit_fn *done;
    struct error err;
};

void grant_visit_begin(struct grant_visit *visit, struct grants *grants,
                       enum grant_resource resource, const char *owner, int64_t cap,
                       grant_visit_fn *done);
void grant_visit_end(struct grant_visit *visit);
