/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The store in memory, for tests of its users: it keeps all promises of store.h except that it
 * survives the process. Transactions are made at the end of the turn.
 */

#include "store/store.h"

/* The next transaction fails with this code, and its changes are lost. */
void store_memory_fail_next(struct store *store, enum error_code code);

/* How many records the table holds, pending ones not counted. */
size_t store_memory_count(struct store *store, enum store_table table);
