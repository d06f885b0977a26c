/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Directories of the host that each sandbox of a session has. Requests name them in an array of
 * objects, {host_path, path, read_only}; a session keeps that array as text, and reads it again for
 * each sandbox, so that the settings of that moment decide.
 */

#include "backend/backend.h"
#include "wire/json.h"

struct config;

struct mounts {
    struct sandbox_mount items[SANDBOX_MOUNTS_MAXIMUM]; /* texts are those of the document */
    size_t count;
    json_t *document; /* owned: the array */
};

/* The fields of one; ends with a row without a name. */
extern const struct json_field mounts_fields[];

/* Checks the form of each. `path` is `host_path` where it is left out, and read_only is true. */
int mounts_read(struct mounts *mounts, const json_t *list, struct error *err);
int mounts_parse(struct mounts *mounts, const char *text, struct error *err); /* NULL: none */
void mounts_fini(struct mounts *mounts);                                      /* zeroed is fine */

/* The same array, with nothing left out; the caller owns it. NULL without any. */
char *mounts_text(const struct mounts *mounts);

/* The array of a request as such text, checked for its form: NULL without any. */
int mounts_normalize(const json_t *list, char **out_text, struct error *err);

/* Whether the operator allows them to an owner, and they do not hide mounts of all sandboxes. */
int mounts_check(const struct mounts *mounts, const struct config *config, const char *owner,
                 struct error *err);

static inline void scoped_mounts_fini(struct mounts *mounts)
{
    mounts_fini(mounts);
}
