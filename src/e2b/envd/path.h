/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Paths as E2B's clients write them: absolute, from the home of the user ("~/x"), or relative to
 * it; and the files behind them, as agent/description.h tells them.
 */

#include "agent/description.h"
#include "agent/listing.h"
#include "e2b/envd/rpc.h"
#include "service/file_call.h"

/* The beginning of the names of extended attributes that are a file's metadata. */
#define ENVD_ATTRIBUTES "user.e2b."

/* The path for init, which starts relative ones in the right directory; borrowed from `path`, or a
 * constant. NULL for "~other". */
const char *envd_path_for_init(const char *path);

/* The absolute path: `path` from `directory` on, without ".", ".." and needless slashes.
 * Allocated. */
char *envd_path_join(const char *directory, const char *path);

/* Whether the init of a sandbox knows what is needed here; one that an earlier version has
 * started may not. */
bool envd_is_known(const struct agent *agent);

#define ENVD_UNKNOWN \
    "the sandbox was started by an earlier version that cannot serve this; create a new one"

/* --- descriptions ----------------------------------------------------------------------------- */

struct describe;
typedef void describe_fn(struct describe *describe);

/* Asks for a file, or for the entries of a directory. Embedded by the caller. */
struct describe {
    struct error err;
    int sys_errno;
    char *directory;        /* owned: where relative paths begin */
    struct listing listing; /* valid until describe_fini() */
    describe_fn *done;      /* private */
};

/* `depth` 0: the file itself. The agent's sandbox is held by the caller. */
void describe_start(struct describe *describe, struct loop *loop, struct agent *agent,
                    const char *user, const char *path, unsigned depth, describe_fn *done);
void describe_fini(struct describe *describe); /* also of zeros */

/* The file itself; false when init's answer makes no sense. */
bool describe_first(const struct describe *describe, struct file_description *out_description);

/* An EntryInfo; the path is absolute. */
void entry_write(struct json_writer *json, const char *key, const char *path,
                 const struct file_description *description);

/* FILE_TYPE_DIRECTORY for a link to one, too. */
bool entry_is_directory(const struct file_description *description);

/* --- a directory to start in ------------------------------------------------------------------ */

struct envd_path {
    struct error err; /* ERR_NOT_FOUND when there is no such directory */
    const char *asked;
    char *absolute; /* owned; NULL after a failure */
};

/* Makes the path absolute; `done` comes once, from the loop. */
typedef void envd_path_fn(struct rpc *rpc, const struct envd_path *path);
void envd_path_resolve(struct rpc *rpc, const char *path, envd_path_fn *done);
