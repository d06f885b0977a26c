/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A template from an image in a registry: finds the manifest for the platform, downloads the layers
 * into the cache, and unpacks them as template_import() does. The image's configuration (its
 * environment, user, working directory) is kept beside the template, as config.json.
 *
 * Everything from the registry is hostile until its digest was checked, and its content after that.
 */

#include "backend/template.h"
#include "wire/image_manifest.h"
#include "wire/image_ref.h"

struct registry_login;

struct pull_request {
    const char *image;                  /* as the user writes it */
    const char *name;                   /* of the template; NULL: derived from the image */
    const char *platform;               /* NULL: that of this machine */
    bool plain;                         /* HTTP without TLS */
    const struct registry_login *login; /* NULL: that of `docker login`, if any */
    struct template_options options;
};

struct pull_result {
    struct template_info info;
    char image[IMAGE_REF_TEXT_SIZE];    /* complete */
    char digest[IMAGE_DIGEST_SIZE];     /* of the manifest that was unpacked */
    char platform[IMAGE_PLATFORM_SIZE]; /* that of the image, if it says so */
    unsigned layers;
    uint64_t bytes;      /* of all layers, compressed */
    uint64_t downloaded; /* of that; the rest was in the cache */
};

int template_pull(const char *state_path, const struct pull_request *request,
                  struct pull_result *out, struct error *err);

/* "python-3.12" for python:3.12, "python" for the tag latest, and the first digits of the digest
 * where there is no tag. ERR_INVALID when that is no name of a template. */
int pull_derive_name(const struct image_ref *ref, char name[TEMPLATE_NAME_SIZE], struct error *err);
