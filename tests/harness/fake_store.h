/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A store in memory that survives the core and can be killed with it: what was put and not yet
 * committed is lost then, as with a real one.
 */

#include "store/store.h"

struct store *fake_store_new(struct loop *loop);

/* One more node that shares what is committed: as another daemon at the same server. Each of these
 * functions is about the node that it is given. */
struct store *fake_store_join(struct store *store, const char *node);

/* Commits are not answered while held; letting go answers them. */
void fake_store_hold(struct store *store, bool held);

/* While it is held: the commits of this grade alone are answered. With ERR_NONE the changes are
 * committed before; otherwise they stay pending. */
void fake_store_answer(struct store *store, enum store_grade grade, enum error_code code);

/* How many commits of this grade have no answer yet. */
unsigned fake_store_waiting(struct store *store, enum store_grade grade);

/* The next transaction fails, and its changes are lost. */
void fake_store_fail_next(struct store *store, enum error_code code);

/* Queries wait while held; letting go answers them. */
void fake_store_hold_queries(struct store *store, bool held);

/* While they are held: answers the one that waits longest. False if none waits. */
bool fake_store_answer_query(struct store *store);

/* The daemon is gone: tickets and queries that wait are dropped, with them what was not committed. */
void fake_store_crash(struct store *store);

/* How many records the table holds, uncommitted ones not counted. */
size_t fake_store_count(struct store *store, enum store_table table);

/* The server has lost all claims that it had acknowledged, and this node notices. */
void fake_store_lose_claims(struct store *store);
