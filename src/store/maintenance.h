/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The operator's commands on the database, outside of the daemon: check, backup, restore, repair.
 *
 * Check and backup need no daemon and do not disturb a running one: they read the database and the
 * redo log beside it. Restoring and repairing are for a database that no daemon has open; the
 * caller holds the lock of the state directory.
 */

#include "base/error.h"

#include <stdint.h>
#include <sys/types.h>

struct store_check {
    /* Each thing that is wrong, in words. */
    void (*on_finding)(struct store_check *check, const char *finding);
    /* Whether output of this execution is on the disk is known by its record; NULL: not asked. */
    void (*on_execution)(struct store_check *check, const char *id);
    /* A document of this kind; NULL: not asked. The newest of one id comes last, and NULL as its
     * text says that it is forgotten. */
    const char *document_kind; /* borrowed */
    void (*on_document)(struct store_check *check, const char *id, const char *json);
    uint64_t findings;
    uint64_t sessions, executions, events; /* how many there are */
};

/* -1 when the database could not be checked; damage is a finding. */
int store_check_run(struct store_check *check, const char *path, struct error *err);

/* A copy with everything that was committed before this was called, in one file that must not be
 * there yet. */
int store_backup(const char *path, const char *to, struct error *err);

/* Replaces the database by the copy, for `owner`. Existing files are renamed with the suffix
 * ".replaced". */
int store_restore(const char *from, const char *path, uid_t owner, gid_t group, struct error *err);
