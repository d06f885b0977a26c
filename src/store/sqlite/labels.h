#pragma once

/*
 * Which ended sessions have a label, and how many there are.
 *
 * A list is what a query can ask for: the ended sessions of an owner (scope "=OWNER") or of all
 * owners ("*"), all of them or those with one label. It knows how many sessions it has; a list
 * of a label also has an entry for each. All of it is made from the records, by the view
 * `ended_labels`, and can be made anew at any time.
 */

#include "store/sqlite/db.h"

/* Before the record of a session is replaced or removed; one that is not ended is in no list. */
int labels_leave(struct sqlite_db *db, const char *session_id, struct error *err);

/* When it is written; one that is not ended comes into no list. */
int labels_enter(struct sqlite_db *db, const char *session_id, struct error *err);

/* A statement for the page of a question with labels, owned by the caller. NULL without an error
 * when there is no such session. */
sqlite3_stmt *labels_select(struct sqlite_db *db, struct sqlite_question *question);

/* How many ended sessions the question fits. */
void labels_count(struct sqlite_db *db, struct sqlite_question *question);

/* Whether the lists say what the records say. -1 when that could not be found out. */
int labels_check(struct sqlite_db *db, bool *out_right, struct error *err);

/* Makes them anew when they are wrong, or when records were changed by hand. */
int labels_repair(struct sqlite_db *db, bool are_wrong, struct error *err);

/* Fails when what they need is not there. */
int labels_prepare(struct sqlite_db *db, struct error *err);
