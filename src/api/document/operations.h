/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The part of a route's description that its own row does not have: its operationId, its tag, the
 * object of its answer, and an example of its body. A route without a row here has an operationId
 * and a tag that are derived from its path.
 */

struct route;

struct operation {
    const char *id;
    const char *schema;  /* a type of schema.h; NULL: the answer is no JSON */
    const char *media;   /* another media type of the answer; may be NULL */
    const char *content; /* of media text/event-stream: type of each event's data; may be NULL */
    const char *example; /* JSON: a body; may be NULL */
};

/* NULL: there is no row for it. */
const struct operation *operation_find(const struct route *route);

/* Into `id`, which has `size` bytes. */
void operation_derive_id(const struct route *route, char *id, unsigned long size);

struct operation_tag {
    const char *segment; /* of the path */
    const char *tag;
    const char *help;
};

/* Ends with a row without a segment; the last but one is for all other paths. */
extern const struct operation_tag operation_tags[];

const struct operation_tag *operation_tag(const struct route *route);
