/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The document of a grant: how much of an owner's cap each node may use. Pure: text in, text out.
 *
 *     {"cap":-1, "base":0, "warning":0, "nodes":{"a":{"granted":30,"spent":12,"lack":0}, "b":{…}}}
 */

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct grant_share {
    char *node;      /* owned */
    int64_t granted; /* that the node may use; of money: since ever, with what is spent */
    int64_t spent;   /* of it, for good, as of the last claim of the node */
    int64_t life;    /* which process of the node has written it */
    int64_t lack;    /* that the node needs and did not get: the others give back what they can */
};

/* All zero is one without nodes; then `cap` is to be set. */
struct grant_document {
    int64_t cap;                /* set for this owner; GRANT_CAP_UNSET: that of the settings */
    int64_t base;               /* spent before there were several nodes */
    int64_t warning;            /* the spent amount of the next warning; 0: there was none yet */
    struct grant_share *shares; /* owned */
    size_t count;
};

enum { GRANT_CAP_UNSET = -1 };

/* Numbers that cannot be meant are refused: more would be granted otherwise. */
int grant_document_read(struct grant_document *document, const char *text, struct error *err);
void grant_document_fini(struct grant_document *document); /* a zeroed one is fine */
void grant_document_copy(struct grant_document *copy, const struct grant_document *document);
void grant_document_write(const struct grant_document *document, struct buffer *out);

/* NULL when the node has none. */
struct grant_share *grant_document_find(const struct grant_document *document, const char *node);
struct grant_share *grant_document_open(struct grant_document *document, const char *node);
void grant_document_remove(struct grant_document *document, const char *node);

/* Granted to all but this one, with the base; and the sum of their lacks. */
int64_t grant_document_others(const struct grant_document *document, const char *node);
int64_t grant_document_lack_of_others(const struct grant_document *document, const char *node);

/* Spent by all nodes, with the base. */
int64_t grant_document_spent(const struct grant_document *document);
