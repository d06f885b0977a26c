/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Slots for sandboxes: a cap for all and one for each owner. A slot is reserved before the first
 * side effect of making a sandbox and released once, when the sandbox is confirmed gone, so the
 * count never exceeds the cap. When no slot is free, capacity.overflow decides:
 *
 *     evict    the least recently used (LRU) of the sandboxes that no program holds goes; its session
 *              stays
 *     wait     for at most capacity.wait_timeout; the owner that has fewest is served first, and
 *              one owner's in order of arrival
 *     reject   at once
 *
 * capacity.burst are slots above the cap, for sessions that would have to wait or be rejected.
 *
 * Pool members hold slots of no owner and give way to sessions in each case.
 *
 * With several nodes the cap of an owner is that of all nodes together: this node holds at most
 * what it was granted (core/grants.h), and a sandbox waits for that before any of these rules
 * apply.
 */

#include "base/error.h"
#include "base/list.h"
#include "core/grants.h"
#include "loop/loop.h"

#include <stdbool.h>

struct capacity;
struct capacity_owner;
struct core;
struct json_writer;
struct sandbox;

enum slot_state { SLOT_NONE, SLOT_WAITING, SLOT_HELD };

/* Embedded in struct sandbox; zeroed at first. */
struct capacity_slot {
    enum slot_state state;
    bool leaving;                 /* held, and its sandbox is being destroyed */
    struct capacity_owner *owner; /* NULL for the pool */
    struct list node;             /* in the queue */
    struct list idle; /* among those that may be evicted, by the end of their last hold */
    struct timer timeout;
    struct grant_wish wish; /* of a sandbox that waits for slots of other nodes */
};

struct capacity *capacity_new(struct core *core);
void capacity_free(struct capacity *capacity);

/* 0: held. 1: waiting, sandbox_on_slot() comes later. -1: none, ERR_LIMIT "capacity" says why and
 * what would help. `owner` is NULL for the pool, which never waits and never displaces. */
int capacity_reserve(struct capacity *capacity, struct sandbox *sandbox, const char *owner,
                     struct error *err);

/* Takes a slot even above the caps: the sandbox exists already. For recovery. */
void capacity_take(struct capacity *capacity, struct sandbox *sandbox, const char *owner);

/* The slot of a pool member becomes one of this owner; false when the owner has no room. */
bool capacity_transfer(struct capacity *capacity, struct sandbox *sandbox, const char *owner);

/* Gives back a held slot or a place in the queue; does nothing for others. */
void capacity_release(struct capacity *capacity, struct sandbox *sandbox);

/* The last strong hold has ended, or one has begun: the sandbox may, or may not, be evicted. */
void capacity_set_idle(struct capacity *capacity, struct sandbox *sandbox, bool idle);

/* It is being destroyed: its slot is free soon. */
void capacity_set_leaving(struct capacity *capacity, struct sandbox *sandbox);

/* Asks for a slot of this owner ahead of its use, where other nodes may hold all of them: 1 when
 * `answered` comes, 0 when there is room, or none without asking. */
int capacity_ask(struct capacity *capacity, const char *owner, struct grant_wish *wish,
                 grant_wish_fn *answered);

/* Whether this owner may have one more. */
bool capacity_may_have(const struct capacity *capacity, const char *owner);

/* Whether the pool may take one more. */
bool capacity_has_spare(const struct capacity *capacity);

/* The owner that has the slot or waits for it; NULL for the pool. */
const char *capacity_owner_name(const struct capacity_slot *slot);

size_t capacity_held(const struct capacity *capacity);
size_t capacity_waiting(const struct capacity *capacity);

/* When a slot is likely to be free: at least 1. */
int64_t capacity_retry_after_s(struct capacity *capacity);

/* GET /capacity: caps, counts, the caller's own share. */
void capacity_write_members(struct capacity *capacity, const char *owner, struct json_writer *json);
