/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Downloaded blobs: `<state>/templates/.blobs/` has a file for each blob, named by the digits of
 * its digest, or `DIGITS.part` while it is incomplete. A pull goes on where an earlier one was cut
 * off, and downloads no layer twice.
 *
 * Nothing here is trusted: a blob is checked against its digest before each use. Blobs that no pull
 * has used for a week are removed; the whole directory may be removed at any time.
 */

#include "base/error.h"
#include "wire/image_manifest.h"

#include <openssl/evp.h>
#include <stdint.h>

struct blob_cache {
    int dir; /* owned */
};

int blob_cache_open(struct blob_cache *cache, const char *state_path, struct error *err);
void blob_cache_close(struct blob_cache *cache);

static inline void scoped_blob_cache_close(struct blob_cache *cache)
{
    blob_cache_close(cache);
}

/* A complete blob, open for reading; -1 when there is none. A damaged one is removed. */
int blob_cache_find(struct blob_cache *cache, const struct image_descriptor *blob);

/* The digest of bytes. */
void blob_digest(const void *data, size_t length, char digest[IMAGE_DIGEST_SIZE]);

/* Removes blobs that were not used for a week. */
void blob_cache_prune(struct blob_cache *cache);

/* --- a blob that is being downloaded --------------------------------------------------------- */

struct blob_part {
    struct blob_cache *cache; /* borrowed, as is the next */
    const struct image_descriptor *blob;
    int fd;           /* owned, and locked: one command downloads a blob at a time */
    EVP_MD_CTX *hash; /* owned: of the bytes so far */
    uint64_t length;
    uint64_t resumed; /* bytes of that from an earlier command */
};

/* Opens the partial blob, after waiting for another command that downloads it. 1 when that command
 * has completed it. */
int blob_part_open(struct blob_part *part, struct blob_cache *cache,
                   const struct image_descriptor *blob, struct error *err);

/* Leaves a partial blob for the next pull. */
void blob_part_close(struct blob_part *part);

static inline void scoped_blob_part_close(struct blob_part *part)
{
    blob_part_close(part);
}

/* ERR_INVALID when there is more than the manifest says. */
int blob_part_append(struct blob_part *part, const void *data, size_t length, struct error *err);

/* From the beginning again. */
int blob_part_restart(struct blob_part *part, struct error *err);

/* The download is complete: checks the digest and makes the part a blob, open for reading. -1 with
 * ERR_INVALID when the digest differs: the part is removed then. */
int blob_part_finish(struct blob_part *part, struct error *err);
