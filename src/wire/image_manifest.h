/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Manifests of images in registries: the OCI formats and their Docker twins. A manifest names the
 * layers of one image; an index (Docker: manifest list) names manifests of several platforms.
 *
 * All of it comes from strangers: digests are sha256 in lower case, so that they are fit for a file
 * name; sizes and counts are bounded.
 */

#include "base/error.h"
#include "base/scoped.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    IMAGE_MANIFEST_MAXIMUM = 4 * 1024 * 1024,
    IMAGE_LAYERS_MAXIMUM = 512,
    IMAGE_DIGEST_SIZE = sizeof("sha256:") + 64,
    IMAGE_TYPE_SIZE = 128,
    IMAGE_PLATFORM_SIZE = 64,
};

/* Of all layers together, compressed; as much as an archive may unpack to. */
#define IMAGE_BYTES_MAXIMUM ((uint64_t)64 << 30)

/* For Accept: every kind that image_manifest_parse() takes. */
extern const char image_manifest_types[];

struct image_descriptor {
    char digest[IMAGE_DIGEST_SIZE];
    char type[IMAGE_TYPE_SIZE];
    char platform[IMAGE_PLATFORM_SIZE]; /* "linux/arm/v7"; of a manifest in an index, else "" */
    uint64_t size;
};

struct image_manifest {
    bool is_index;
    struct image_descriptor config; /* not of an index */
    struct image_descriptor *items; /* owned: layers, lowest first, or the manifests of an index */
    size_t count;
    uint64_t bytes; /* of all layers */
};

/* `type` is the Content-Type of the answer, "" when there was none. The document's own mediaType has
 * to agree with it. */
int image_manifest_parse(struct image_manifest *manifest, const void *data, size_t length,
                         const char *type, struct error *err);
void image_manifest_fini(struct image_manifest *manifest);

static inline void scoped_image_manifest_fini(struct image_manifest *manifest)
{
    image_manifest_fini(manifest);
}

/* The manifest for the platform, borrowed from the index. A platform without a variant takes any,
 * but one without a variant first. NULL with ERR_NOT_FOUND, which names the platforms that are
 * there. */
const struct image_descriptor *image_manifest_choose(const struct image_manifest *index,
                                                     const char *platform, struct error *err);

/* The configuration of an image. */
struct image_config {
    char platform[IMAGE_PLATFORM_SIZE]; /* "" when it says nothing */
};

int image_config_parse(struct image_config *config, const void *data, size_t length,
                       struct error *err);

/* Whether an image of platform `offered` runs where `wanted` was asked for. */
bool image_platform_fits(const char *offered, const char *wanted);

/* "sha256:" and 64 hexadecimal digits in lower case. */
bool image_digest_is_valid(const char *digest);

/* OS, architecture and, as some need, variant of this machine, in the words of images. */
void image_platform_here(char platform[IMAGE_PLATFORM_SIZE]);

/* "os/architecture[/variant]" of plain words. */
bool image_platform_is_valid(const char *platform);
