/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files that programs store in their session from inside the sandbox. A stored file outlives the
 * sandbox and can be read, and shared by a signed URL, until the record of the session goes.
 *
 * A file is storage/SESSION/NAME in the state directory, complete under that name or not there. The
 * directory also has `.owner`, so that the bytes of an owner are known after a restart. The bytes
 * are bounded per file, session, owner and in all (settings storage.*): a file that does not
 * fit is refused, and nothing that is there goes for it.
 *
 * The store has a document for each file, with its length: a file that is missing or cut is
 * reported as damaged. Nodes of a cluster, which have their own directories, write none, and a file
 * without a document is taken as it is.
 */

#include "base/error.h"
#include "base/id.h"

#include <stdbool.h>
#include <stdint.h>

struct core;
struct document_record;
struct session;
struct storage;
struct storage_upload;

struct storage *storage_new(struct core *core);
void storage_free(struct storage *storage); /* NULL is fine */

/* At start: the documents first; then half-written files go, and the others are counted. */
void storage_restore(struct storage *storage, const struct document_record *record);
void storage_start(struct storage *storage);

/* --- writing --------------------------------------------------------------------------------- */

/* NULL with the reason. The size is what the program announces, 0 when it does not. */
struct storage_upload *storage_upload_begin(struct storage *storage, const struct session *session,
                                            const char *name, uint64_t size, struct error *err);
int storage_upload_write(struct storage_upload *upload, const void *data, size_t length,
                         struct error *err);

/* The file is on the disk under its name when `done` comes without an error, from the loop, once.
 * The upload is gone after it. */
typedef void storage_done_fn(void *user, uint64_t size, const struct error *err);
void storage_upload_finish(struct storage_upload *upload, storage_done_fn *done, void *user);
void storage_upload_abort(struct storage_upload *upload); /* NULL is fine; not after finish */

/* --- reading --------------------------------------------------------------------------------- */

int storage_check_name(const char *name, struct error *err);

struct storage_entry {
    const char *name; /* borrowed; valid during the call */
    uint64_t size;
    int64_t modified_wall_us; /* 0 when it is missing */
    const char *damage;       /* borrowed likewise: what is wrong with it; NULL without damage */
};
typedef void storage_entry_fn(void *user, const struct storage_entry *entry);

/* In the order of names. At most storage.max_files. -1 when they cannot be read. */
int storage_list(struct storage *storage, const char *session_id, storage_entry_fn *on_entry,
                 void *user, struct error *err);

/* A descriptor for the caller; -1 with ERR_NOT_FOUND when there is no such file, and with another
 * error when it cannot be read or is damaged. */
int storage_open(struct storage *storage, const char *session_id, const char *name,
                 struct storage_entry *out_entry, struct error *err);

/* `done` comes when its document is forgotten, with the size 0. -1 as for storage_open(), without
 * `done`; a damaged file can be removed. */
int storage_remove(struct storage *storage, const char *session_id, const char *name,
                   storage_done_fn *done, void *user, struct error *err);

/* --- sharing --------------------------------------------------------------------------------- */

/* The path of the URL: it gives access to the file until then. The vault is open. */
char *storage_sign_url(struct storage *storage, const char *session_id, const char *name,
                       int64_t expires_wall_s);
bool storage_url_is_signed(struct storage *storage, const char *session_id, const char *name,
                           int64_t expires_wall_s, const char *signature);

/* --- with the record of the session ---------------------------------------------------------- */

/* Also from a worker's thread; then storage_forget() on the loop. */
void storage_unlink(int state_dir, const char *session_id);
void storage_forget(struct storage *storage, const char *session_id);
uint64_t storage_total_bytes(const struct storage *storage);
