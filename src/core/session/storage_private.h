/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of stored files: declarations shared by storage*.c.
 *
 *     storage.c          names, reading, sharing, the start
 *     storage_upload.c   from the first byte of a new file to its record
 *     storage_account.c  bytes of sessions and owners, and what the store says of each file
 */

#include "base/map.h"
#include "core/session/storage.h"

#define STORAGE_DIRECTORY "storage"
#define STORAGE_PART ".part-"
#define STORAGE_OWNER_FILE ".owner"

enum {
    STORAGE_NAME_MAXIMUM = 200,
    STORAGE_PATH_SIZE = ID_SIZE + 16,
    STORAGE_DAMAGE_SIZE = 96,
};

/* The stored bytes of all sessions of an owner. */
struct owner_share {
    char *owner;       /* owned */
    unsigned sessions; /* the account goes with the last of them */
    uint64_t bytes;
};

/* The stored bytes of a session. Files being written count with the bytes written so far. */
struct session_share {
    char session_id[ID_SIZE];
    struct owner_share *owner; /* borrowed */
    uint64_t bytes;
    int64_t files;
    struct map recorded; /* by name; struct recorded_file, owned */
};

/* What the document of a file says. */
struct recorded_file {
    uint64_t bytes;
    uint64_t before; /* of the file that it was about to replace, or the same */
    char name[];
};

struct storage {
    struct core *core; /* borrowed */
    struct map shares; /* by session id; struct session_share, owned */
    struct map owners; /* by name; struct owner_share, owned */
    uint64_t total_bytes;
    uint64_t next_part;
};

/* --- storage_account.c ------------------------------------------------------------------------ */

void storage_directory_path(const char *session_id, char path[STORAGE_PATH_SIZE]);
int storage_open_directory(int state_dir, const char *session_id);
struct session_share *storage_share_of(struct storage *storage, const char *session_id,
                                       const char *owner);
void storage_share_add(struct storage *storage, struct session_share *share, uint64_t bytes);
void storage_share_subtract(struct storage *storage, struct session_share *share, uint64_t bytes);
void storage_session_share_free(struct session_share *share);
void storage_owner_share_free(struct owner_share *share);
int storage_check_room(const struct storage *storage, const struct session_share *share,
                       uint64_t size, uint64_t more, struct error *err);
void storage_note_recorded(struct session_share *share, const char *name, uint64_t bytes,
                           uint64_t before);
void storage_put_document(struct storage *storage, const struct session_share *share,
                          const char *name, uint64_t bytes, uint64_t before);
void storage_forget_document(struct storage *storage, const char *session_id, const char *name);
const char *storage_find_damage(const struct session_share *share, const char *name, int64_t bytes,
                                char text[STORAGE_DAMAGE_SIZE]);
