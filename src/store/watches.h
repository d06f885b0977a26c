/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Watches of changed documents. For the implementations of the store only. */

#include "store/record.h"

/* Notes which of these changes a watch asks for, before they are written. */
void store_watches_note(struct store *store, const struct change_queue *changes);

/* The noted changes are written; with an error they are not, and no watch is called. */
void store_watches_tell(struct store *store, const struct error *err);

/* A document has changed, maybe by another node; `id` NULL: any of the kind. `kind` NULL: any. */
void store_watches_changed(struct store *store, const char *kind, const char *id);

/* `watch` of store_ops where the process itself makes all changes: nothing is to be asked for. */
void store_watch_nothing(struct store *store, struct store_watch *watch);
