#pragma once

/*
 * A store in memory that survives the core and can be killed with it: what was put and not yet
 * committed is lost then, as with a real one.
 */

#include "store/store.h"

struct store *fake_store_new(struct loop *loop);

/* Commits are not answered while held; letting go answers them. */
void fake_store_hold(struct store *store, bool held);

/* While it is held: the commits of this grade alone are answered. With ERR_NONE the changes are
 * committed before; otherwise they stay pending. */
void fake_store_answer(struct store *store, enum store_grade grade, enum error_code code);

/* How many commits of this grade have no answer yet. */
unsigned fake_store_waiting(struct store *store, enum store_grade grade);

/* The next transaction fails, and its changes are lost. */
void fake_store_fail_next(struct store *store, enum error_code code);

/* The daemon is gone: tickets are dropped, with them what was not committed. */
void fake_store_crash(struct store *store);

/* How many records the table holds, uncommitted ones not counted. */
size_t fake_store_count(struct store *store, enum store_table table);
