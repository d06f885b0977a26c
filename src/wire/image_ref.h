/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * References to images of containers: [HOST[:PORT]/]PATH[:TAG][@DIGEST], by the grammar of the OCI
 * distribution. Missing parts are filled in as Docker does: "python" is tag "latest" of the
 * repository "docker.io/library/python".
 *
 * A first component is a host when it has a dot or a colon or is "localhost". Stricter than the
 * grammar: a host that only its upper case shows is refused, as upper case in a path is, and
 * sha256 is the only digest.
 */

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    IMAGE_REF_NAME_MAXIMUM = 255, /* of host and path together */
    IMAGE_REF_TAG_MAXIMUM = 128,
    IMAGE_REF_DIGEST_LENGTH = 71, /* "sha256:" and 64 digits */
    IMAGE_REF_TEXT_SIZE = IMAGE_REF_NAME_MAXIMUM + 1 + IMAGE_REF_TAG_MAXIMUM + 1 +
                          IMAGE_REF_DIGEST_LENGTH + 1,
};

struct image_ref {
    char repository[IMAGE_REF_NAME_MAXIMUM + 1]; /* "docker.io/library/python" */
    size_t host_length;                          /* of "docker.io" in it, with the port */
    char tag[IMAGE_REF_TAG_MAXIMUM + 1];         /* "latest"; "" when there is only a digest */
    char digest[IMAGE_REF_DIGEST_LENGTH + 1];    /* "sha256:…", or "" */
};

/* ERR_INVALID has a message for the author of the text. */
int image_ref_parse(struct image_ref *ref, const char *text, struct error *err);

/* The whole reference, which reads back as the same one: "docker.io/library/python:latest". */
void image_ref_format(const struct image_ref *ref, char out_text[IMAGE_REF_TEXT_SIZE]);

/* "library/python", borrowed. */
static inline const char *image_ref_path(const struct image_ref *ref)
{
    return ref->repository + ref->host_length + 1;
}

/* The digest, or else the tag. Borrowed. */
static inline const char *image_ref_version(const struct image_ref *ref)
{
    return *ref->digest ? ref->digest : ref->tag;
}
