/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Blobs of a registry, downloaded into the cache. Bytes in the cache are not requested again; a
 * broken download is resumed a few times, with back-off.
 */

#include "backend/pull/blob_cache.h"
#include "backend/pull/image_registry.h"
#include "backend/template.h"

struct download {
    struct image_registry *registry; /* borrowed, as all of it */
    struct blob_cache *cache;
    template_progress_fn *on_progress; /* may be NULL */
    void *user;
    struct template_progress progress; /* its layer, layers and total are the caller's */
    uint64_t received;                 /* bytes that came over the network */
};

/* The blob, open for reading; -1 with the error set. progress.done grows by the blob's size. */
int download_blob(struct download *download, const struct image_descriptor *blob,
                  struct error *err);
