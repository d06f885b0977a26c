/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which ended sessions have a label, and how many there are.
 *
 * A list serves one kind of query: the ended sessions of an owner (scope "=OWNER") or of all owners
 * ("*"), all of them or those with one label. It has the number of its sessions; a list of a label
 * also has an entry for each. The lists derive from the records, by the view `ended_labels`, and
 * can be rebuilt at any time.
 */

#include "store/sqlite/db.h"

/* Called before the record of a session is replaced or removed; only ended sessions are in
 * lists. The counts of the lists are correct after labels_settle() only: sessions that are removed
 * together share lists, and each count is written once. */
int labels_leave(struct sqlite_db *db, const char *session_id, struct error *err);

/* Writes the counts. Every transaction that may have called labels_leave() ends with it, or with
 * labels_discard() when it is rolled back. */
int labels_settle(struct sqlite_db *db, struct error *err);
void labels_discard(struct sqlite_db *db);

/* Called when the record is written; only ended sessions enter lists. */
int labels_enter(struct sqlite_db *db, const char *session_id, struct error *err);

/* A statement for the page of a question with labels, owned by the caller. NULL without an error
 * when there is no such session. */
sqlite3_stmt *labels_select(struct sqlite_db *db, struct sqlite_question *question);

/* How many ended sessions the question fits. */
void labels_count(struct sqlite_db *db, struct sqlite_question *question);

/* Whether the lists agree with the records. -1 when they could not be checked. */
int labels_check(struct sqlite_db *db, bool *out_right, struct error *err);

/* Rebuilds the lists when they are wrong, or when records were changed by hand. */
int labels_repair(struct sqlite_db *db, bool are_wrong, struct error *err);

/* Fails when a table or index of the lists is missing. */
int labels_prepare(struct sqlite_db *db, struct error *err);
