#pragma once

/*
 * Files that outlive the sandbox they were made in. A session that asks for it (`keep_files`) has
 * its workspace packed before an incarnation ends, whatever ends it but a crash, and unpacked into
 * the next one before that is ready; after the session's end the archive can be read until
 * retention.
 *
 * Init packs and unpacks, inside. The archive is kept/SESSION.tar in the state directory, complete
 * under that name or not there. Packing never holds up an end for longer than keep.timeout: what
 * does not fit (keep.max_size, keep.max_total) or takes longer is not kept, the archive before it
 * stays, and an event says so. A restore that fails leaves an incarnation whose files were reset.
 */

#include "core/core.h"
#include "store/store.h"

struct keep;
struct keep_work;
struct sandbox;

struct keep *keep_new(struct core *core);
void keep_free(struct keep *keep); /* NULL is fine */

/* At start: half-written archives go, the others are counted. */
void keep_start(struct keep *keep);

typedef void keep_done_fn(struct sandbox *sandbox);

/* Whether its files are to be packed before it goes, and whether it has to be thawed for that. */
enum archive_packing { PACK_NOTHING, PACK_RUNNING, PACK_FROZEN };

/* To be asked before it leaves its state. */
enum archive_packing keep_applies(const struct sandbox *sandbox);

/* `done` comes once, whatever becomes of it, never inside the call; meanwhile sandbox->keep_work is
 * set and the agent stays. */
void keep_pack(struct sandbox *sandbox, enum archive_packing packing, keep_done_fn *done);

bool keep_can_restore(const struct sandbox *sandbox);
void keep_restore(struct sandbox *sandbox, keep_done_fn *done);

/* `done` will not come. */
void keep_cancel(struct sandbox *sandbox);

/* The name of a session's archive below the state directory. */
enum { KEEP_NAME_SIZE = ID_SIZE + 16 };
void keep_name(const char *session_id, char name[KEEP_NAME_SIZE]);

/* The archive of a session whose record goes; also from a worker's thread. How many bytes that
 * were, for keep_forget() on the loop. */
uint64_t keep_unlink(int state_dir, const char *session_id);
void keep_forget(struct keep *keep, uint64_t bytes);
uint64_t keep_total_bytes(const struct keep *keep);
