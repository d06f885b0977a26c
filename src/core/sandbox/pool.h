/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Ready sandboxes without a session yet: default template, limits and network, `pool.size` of
 * them, and for some time after a crowd as many as it was, up to `pool.peak`. Identity is bound
 * when one is claimed. The pool is refilled in the background, one at a time, with back-off after
 * failures; members that die are noticed and never handed out. While memory is short it is not
 * refilled, and its members are given back one by one.
 */

#include "core/core.h"

struct pool;
struct sandbox;
struct sandbox_order;

struct pool *pool_new(struct core *core);
void pool_free(struct pool *pool);

void pool_start(struct pool *pool);
void pool_stop(struct pool *pool); /* refills no more, and all members go */

/* A ready member that fits the order and for whose owner there is room, taken out of the pool;
 * NULL without one. */
struct sandbox *pool_take(struct pool *pool, const struct sandbox_order *order);

/* A session needs the slot: one member goes. False when there is none. */
bool pool_yield(struct pool *pool);

/* Something changed that may allow a refill. */
void pool_kick(struct pool *pool);

size_t pool_ready(const struct pool *pool);

/* Says whether memory is short, instead of the host; for tests. */
void pool_judge_memory(struct pool *pool, bool (*is_tight)(void));

/* --- called by its sandboxes ---------------------------------------------------------------- */

void pool_on_ready(struct pool *pool, struct sandbox *sandbox);
void pool_on_failed(struct pool *pool, struct sandbox *sandbox, const struct error *err);
void pool_on_leaving(struct pool *pool, struct sandbox *sandbox); /* it died or goes */
