/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * This daemon as a node of a cluster: what the cluster asks of it, and what it does for the core.
 *
 * It tells the cluster what this node can take, restores sessions that become its own, gives up those
 * that can go while it drains, and refuses the requests that are open when it must stop serving.
 */

#include <stdint.h>

struct cluster;
struct config;
struct core;
struct faces;
struct loop;
struct member;
struct store;

struct member_parts {
    struct loop *loop; /* all borrowed; all outlive the member, except the faces */
    const struct config *config;
    struct store *store;
    struct core *core;
    int64_t opened_us; /* before the store was opened */
};

struct member *member_new(const struct member_parts *parts);
void member_free(struct member *member); /* NULL is fine; after store_drain() */

struct cluster *member_cluster(struct member *member); /* NULL for NULL */

/* They refuse everything while this node does not serve. Borrowed; before member_start(). */
void member_set_faces(struct member *member, struct faces *faces);

/* Recovery is done. */
void member_start(struct member *member);
