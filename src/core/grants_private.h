/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to the files of grants. */

#include "core/core.h"
#include "core/grants.h"

/* Successors: known → claiming → known | pausing, pausing → known. */
enum grant_state {
    GRANT_KNOWN,    /* the document is as it was last seen; another node may have changed it */
    GRANT_CLAIMING, /* a claim, or a release, is not answered yet */
    GRANT_PAUSING,  /* after claims that were lost or failed */
};

struct grant {
    struct grants *grants; /* borrowed */
    const struct grant_rules *rules;
    char *id;          /* owned: the prefix and the owner */
    const char *owner; /* borrowed: in the id */
    enum grant_state state;
    struct grant_document document; /* as it was last seen, less what is taken over */
    uint64_t version;               /* of that; 0: there is none, or it is not known yet */
    int64_t granted;                /* may be used: confirmed, and not being given back */
    bool is_suspect;                /* nothing more may be used until the next claim is won */
    bool has_changed;               /* by another node, after it was last seen */
    unsigned tries;                 /* claims in a row that were not won */
    int64_t claimed_us;             /* when the claim on its way was made */
    int64_t retry_us;               /* the end of the pause */
    int64_t keep_until_us;          /* the unused part is given back then; 0: none is unused */
    int64_t denied_us;              /* a wish was, and nothing has changed since; 0: none was */
    uint64_t yielded_version;       /* this node has freed something for the sake of that one */
    struct error err;               /* of the last claim, when it failed */
    struct list wishes;             /* struct grant_wish */
    struct list visits;             /* struct grant_visit */
    struct list takeovers;          /* struct grant_takeover: not in the store yet */
    struct timer timer;
    struct deferred advance;
    struct store_claim claim;
    struct grant_document written; /* by the claim on its way */
    struct store_query query;
    bool is_asking;    /* the query is not answered yet */
    bool is_found;     /* it has found the document */
    bool expects_echo; /* the watch reports the claim of this node itself */
};

struct grants {
    struct core *core; /* borrowed */
    const struct grant_rules *rules[GRANT_RESOURCES];
    struct map by_id;
    struct store_watch watch;
    int64_t life;      /* of this process, among all that had the name of this node */
    bool is_started;   /* the use on this node is known */
    struct list drops; /* struct drop: parts of nodes that are lost */
};

const char *grants_node(const struct grants *grants);
struct grant *grants_find(const struct grants *grants, const char *id);
struct grant *grant_open(struct grants *grants, enum grant_resource resource, const char *owner);
void grant_poke(struct grant *grant); /* it is looked at before the turn is over */

/* grants_takeover.c: amounts that leave the parts of lost nodes. */
void grant_takeovers_apply(struct grant *grant); /* to a document that was just read */
void grant_takeovers_begin(struct grant *grant); /* the claim that is being made writes them */
void grant_takeovers_done(struct grant *grant);  /* it was won */
void grant_takeovers_retry(struct grant *grant); /* it was lost, or has failed */
void grant_takeovers_free(struct grant *grant);

/* grants_drop.c */
void grant_drops_free(struct grants *grants);
