/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Archives of workspaces: files that outlive the sandbox they were made in. The workspace of a
 * session that asks for it (`keep_files`) is packed before an incarnation ends, except by a
 * crash, and unpacked into the next one before that is ready; after the session's end the archive
 * can be read until retention.
 *
 * Init packs and unpacks, inside. The archive is kept/SESSION.tar in the state directory, complete
 * under that name or not there. Packing never holds up an end for longer than keep.timeout: files
 * that do not fit (keep.max_size, keep.max_total) or take longer are not kept, the archive before
 * them stays, and an event says so. A restore that fails leaves an incarnation whose files were
 * reset.
 */

#include "core/core.h"
#include "store/store.h"

struct workspace_archive;
struct archive_work;
struct sandbox;

struct workspace_archive *workspace_archive_new(struct core *core);
void workspace_archive_free(struct workspace_archive *archives); /* NULL is fine */

/* At start: half-written archives go, the others are counted. */
void workspace_archive_start(struct workspace_archive *archives);

typedef void archive_done_fn(struct sandbox *sandbox);

/* Whether its files are to be packed before it goes, and whether it has to be thawed for that. */
enum archive_packing { PACK_NOTHING, PACK_RUNNING, PACK_FROZEN };

/* To be asked before it leaves its state. */
enum archive_packing workspace_archive_packing(const struct sandbox *sandbox);

/* `done` comes once, whether the files were packed or not, never inside the call; meanwhile
 * sandbox_moves_files() is true and the agent stays. */
void workspace_archive_pack(struct sandbox *sandbox, enum archive_packing packing,
                            archive_done_fn *done);

bool workspace_archive_can_restore(const struct sandbox *sandbox);
void workspace_archive_restore(struct sandbox *sandbox, archive_done_fn *done);

/* `done` will not come. */
void workspace_archive_cancel(struct sandbox *sandbox);

/* The name of a session's archive below the state directory. */
enum { ARCHIVE_NAME_SIZE = ID_SIZE + 16 };
void workspace_archive_name(const char *session_id, char name[ARCHIVE_NAME_SIZE]);

/* The archive of a session whose record goes; also from a worker's thread. Returns its
 * size, for workspace_archive_forget() on the loop. */
uint64_t workspace_archive_unlink(int state_dir, const char *session_id);
bool workspace_archive_exists(int state_dir, const char *session_id);
void workspace_archive_forget(struct workspace_archive *archives, uint64_t bytes);
