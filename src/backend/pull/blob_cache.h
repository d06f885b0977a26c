#pragma once

/*
 * What pulls have downloaded: `<state>/templates/.blobs/`, a file for each blob, named by the digits
 * of its digest, and `DIGITS.part` for one that is not complete. A pull goes on where an earlier one
 * was cut off, and downloads no layer twice.
 *
 * Nothing here is trusted: a blob is checked against its digest before each use. Blobs that nobody
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
    EVP_MD_CTX *hash; /* owned: of what is there */
    uint64_t length;
    uint64_t resumed; /* how much of that an earlier command has left */
};

/* Opens what there is of the blob, and waits for another command that downloads it. 1 when that one
 * has completed it. */
int blob_part_open(struct blob_part *part, struct blob_cache *cache,
                   const struct image_descriptor *blob, struct error *err);

/* Keeps what is there for the next pull, unless it was finished. */
void blob_part_close(struct blob_part *part);

static inline void scoped_blob_part_close(struct blob_part *part)
{
    blob_part_close(part);
}

/* ERR_INVALID when there is more than the manifest says. */
int blob_part_append(struct blob_part *part, const void *data, size_t length, struct error *err);

/* From the beginning again. */
int blob_part_restart(struct blob_part *part, struct error *err);

/* All of it is there: checks its digest and makes it a blob, open for reading. -1 with ERR_INVALID,
 * and it is removed, when the digest is another. */
int blob_part_finish(struct blob_part *part, struct error *err);
