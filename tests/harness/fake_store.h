#pragma once

/*
 * A store in memory that survives the core and can be killed with it: what was put and not yet
 * committed is lost then, as with a real one.
 */

#include "store/store.h"

struct store *fake_store_new(struct loop *loop);

/* Commits are not answered while held; letting go answers them. */
void fake_store_hold(struct store *store, bool held);

/* The next transaction fails, and its changes are lost. */
void fake_store_fail_next(struct store *store, enum error_code code);

/* The daemon is gone: tickets are dropped, with them what was not committed. */
void fake_store_crash(struct store *store);

/* How many records the table holds, uncommitted ones not counted. */
size_t fake_store_count(struct store *store, enum store_table table);
