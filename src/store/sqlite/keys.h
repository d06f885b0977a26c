#pragma once

/*
 * Which keys are taken: those of the sessions that are not ended.
 *
 * The database refuses a second session with the same owner and key. Knowing them here tells which
 * puts it may refuse: only these have to wait for its answer.
 */

#include "base/map.h"
#include "store/record.h"

#include <sqlite3.h>
#include <stdbool.h>

struct keys {
    struct map by_name; /* owns what is in it */
    struct map by_id;   /* the same, borrowed */
    bool unknown;       /* what is in the database may be something else */
};

void keys_load(struct keys *keys, sqlite3 *handle);
void keys_fini(struct keys *keys); /* a zeroed one is fine */

/* Notes what the change does to them; called for each change, in order. Whether the database may
 * refuse it. */
bool keys_note(struct keys *keys, const struct change *change);
